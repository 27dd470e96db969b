"""The editor pane: every flow by keys, on a file of its own and answers made by hand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from magus.tui.app import lifecycle
from magus.tui.app.app import MagusApp
from magus.tui.app.panes import PANES, editor
from magus.tui.app.panes.editor import EditorPane
from magus.tui.app.session.files import EditedFile
from magus.tui.app.widgets import code_editor
from magus.tui.app.widgets.code_area import CompletionList
from magus.tui.app.widgets.dialogs import AskScreen
from tests.helpers.editing import BEGINNING
from tests.helpers.hostile_text import EVERYTHING, is_safe
from tests.helpers.marks import first
from tests.helpers.tui import fakes
from tests.helpers.tui.driving import SMALL, press, screen_text, settled, until
from tests.helpers.tui.fakes import FakeStages

KEY = str([pane.name for pane in PANES].index("editor") + 1)
KEYS = {" ": "space", "=": "equals_sign", "+": "plus", "{": "left_curly_bracket", "\n": "enter", ".": "full_stop"}
KEYS |= {"(": "left_parenthesis", "#": "number_sign"}


@dataclass
class Edited:
    """The app with its editor in front."""

    pilot: Pilot[None]
    app: MagusApp
    file: Path
    stages: FakeStages

    @property
    def pane(self) -> EditorPane:
        return self.app.bench.view_of(EditorPane)

    @property
    def text(self) -> str:
        return self.pane.target.text

    @property
    def said(self) -> str:
        return str(self.app.query_one("#mistake", Static).render())

    async def type(self, text: str) -> None:
        """Paste all but the last letters, and type these."""
        pasted, typed = text[:-2], text[-2:]
        if pasted:
            self.pane.target.insert(pasted)
            await self.pilot.pause()
        await self.pilot.press(*(KEYS.get(character, character) for character in typed))
        await settled(self.pilot)

    async def go(self, line: int, column: int = 0) -> None:
        self.pane.target.move_cursor((line - 1, column))
        await settled(self.pilot)


@asynccontextmanager
async def edited(tmp_path: Path, text: str | bytes = BEGINNING, size: tuple[int, int] = SMALL) -> AsyncIterator[Edited]:
    file = tmp_path / "a.mgs"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    stages = FakeStages(fakes.two_workloads())
    app = MagusApp(file, backend=stages.backend())
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        await press(pilot, KEY)
        yield Edited(pilot, app, file, stages)


@pytest.fixture(autouse=True)
def unsaved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of unsaved texts."""
    monkeypatch.setattr(editor, "recovery_folder", lambda: tmp_path / "unsaved")
    monkeypatch.setattr(code_editor, "QUIET_S", 0.0)
    monkeypatch.setattr(editor, "KEEP_S", 3600.0)
    monkeypatch.setattr(lifecycle, "LOOK_S", 3600.0)
    return tmp_path / "unsaved"


async def test_mistakes_are_reported_while_typing_and_jumped_to(tmp_path: Path) -> None:
    async with edited(tmp_path) as it:
        assert it.said.startswith("1:1") and "error" not in it.said
        await it.go(3, len("let K = 4096"))
        await it.type(" s")
        assert "error" in it.said
        await it.go(1)
        await press(it.pilot, "f8")
        assert it.pane.target.cursor_location == (7, 21)
        assert "MGS303 8:22: a size is a plain number, got time" in it.said
        await press(it.pilot, "f8")
        assert it.pane.target.cursor_location == (8, 18), "the next one"
        await press(it.pilot, "f8", "shift+f8")
        assert it.pane.target.cursor_location == (8, 18), "around the end and back"


async def test_typing_offers_words_and_tab_takes_one(tmp_path: Path) -> None:
    async with edited(tmp_path) as it:
        await it.go(13)
        await it.type("expl")
        offered = it.app.query_one(CompletionList)
        assert offered.is_open and "the space of schedules to search" in it.said
        await press(it.pilot, "tab")
        assert it.text.endswith("\nexplore") and not offered.is_open
        await it.type(" up")
        assert not offered.is_open, "a whole word is not offered"
        await it.type(" {\n  chunks 8..64 x2; engine s")
        await press(it.pilot, "enter")
        assert it.text.endswith("engine sm"), "enter takes the word too"
        assert it.said.split("\n")[0].startswith("14:")


async def test_the_list_obeys_its_keys(tmp_path: Path) -> None:
    async with edited(tmp_path) as it:
        await it.go(13)
        await press(it.pilot, "ctrl+@")
        offered = it.app.query_one(CompletionList)
        assert offered.is_open
        first = offered.picked
        await press(it.pilot, "down", "down", "up")
        assert offered.picked != first
        assert it.pane.target.cursor_location == (12, 0), "arrows move through the list"
        await press(it.pilot, "escape")
        assert not offered.is_open and it.pane.target.has_focus, "the first escape closes the list"
        await press(it.pilot, "escape")
        assert it.app.bench.pane_idx == 0, "the second leaves the editor"


@pytest.mark.slow
async def test_units_are_offered_behind_numbers(tmp_path: Path) -> None:
    async with edited(tmp_path) as it:
        await it.go(5, BEGINNING.splitlines()[4].index("GHz"))
        await it.type("k")
        assert "kHz  a frequency" in screen_text(it.app)


@pytest.mark.slow
async def test_keys_of_the_other_panes_type_letters_here(tmp_path: Path) -> None:
    async with edited(tmp_path) as it:
        await it.go(13)
        await it.type("# qsxe12 hjkl")
        await press(it.pilot, "left", "left", "x")

        assert it.text.endswith("# qsxe12 hjxkl")


async def test_formatting_can_be_undone(tmp_path: Path) -> None:
    async with edited(tmp_path, BEGINNING + "let    Z=4\n") as it:
        await press(it.pilot, "ctrl+f")
        assert it.text.endswith("let Z = 4\n")
        await press(it.pilot, "ctrl+z")
        assert it.text.endswith("let    Z=4\n")
        await it.go(13)
        await it.type("let (")
        await press(it.pilot, "ctrl+f")
        assert "not formatted: " in it.said


async def test_a_name_leads_to_its_declaration(tmp_path: Path) -> None:
    async with edited(tmp_path) as it:
        await it.go(12, len("schedule fine for u"))
        await press(it.pilot, "f12")
        assert it.pane.target.cursor_location == (6, 9)
        await it.go(6, BEGINNING.splitlines()[5].index("MI300X"))
        await press(it.pilot, "f12")
        assert "mi300x.mgs:" in it.said


@pytest.mark.slow
async def test_saving_asks_the_advisor_again(tmp_path: Path) -> None:
    async with edited(tmp_path) as it:
        before = it.app.session.job
        await it.go(13)
        await it.type("let Z = 4")
        assert it.pane.holds_changes and "*" in str(it.pane.border_title)
        await press(it.pilot, "ctrl+s")

        assert it.file.read_text(encoding="utf-8") == BEGINNING + "let Z = 4"
        assert not it.pane.holds_changes and "saved" in it.said
        assert it.app.session.job is not before


@pytest.mark.slow
async def test_a_text_with_mistakes_is_saved_and_the_last_answer_stays(tmp_path: Path) -> None:
    async with edited(tmp_path) as it:
        before = it.app.session.job
        await it.go(13)
        await it.type("let Z = ")
        await press(it.pilot, "ctrl+s")

        assert it.file.read_text(encoding="utf-8").endswith("let Z = ")
        assert it.app.session.job is before and "last text without errors" in it.said
        await press(it.pilot, "escape")
        assert "OVERLAP pays" in screen_text(it.app)


async def test_quitting_asks_about_what_is_not_saved(tmp_path: Path, unsaved: Path) -> None:
    async with edited(tmp_path) as it:
        await it.go(13)
        await it.type("let Z = 4")
        await press(it.pilot, "ctrl+q", "ctrl+q")
        assert isinstance(it.app.screen, AskScreen)
        await press(it.pilot, "escape")
        assert not isinstance(it.app.screen, AskScreen), "asked once"
        assert it.text.endswith("let Z = 4") and it.app.is_running, "back to the text"
        await press(it.pilot, "escape", "q", "s")

    assert it.file.read_text(encoding="utf-8").endswith("let Z = 4")
    assert not list(unsaved.glob("*"))


async def test_dropped_changes_are_gone(tmp_path: Path, unsaved: Path) -> None:
    async with edited(tmp_path) as it:
        await it.go(13)
        await it.type("let Z = 4")
        it.pane.keep()
        await press(it.pilot, "ctrl+q", "d")

    assert it.file.read_text(encoding="utf-8") == BEGINNING
    assert not list(unsaved.glob("*"))


@pytest.mark.parametrize(
    ("key", "text"), [("r", BEGINNING + "let Z = 4"), pytest.param("d", BEGINNING, marks=pytest.mark.slow)]
)
async def test_after_a_crash_the_text_is_offered(tmp_path: Path, unsaved: Path, key: str, text: str) -> None:
    (tmp_path / "a.mgs").write_text(BEGINNING, encoding="utf-8")
    EditedFile(tmp_path / "a.mgs", unsaved).keep(BEGINNING + "let Z = 4")
    async with edited(tmp_path) as it:
        assert isinstance(it.app.screen, AskScreen)
        await press(it.pilot, key)

        assert it.text == text
        assert it.pane.holds_changes is (key == "r")


@pytest.mark.slow
async def test_an_offered_text_that_is_not_decided_on_is_behind_undo(tmp_path: Path, unsaved: Path) -> None:
    (tmp_path / "a.mgs").write_text(BEGINNING, encoding="utf-8")
    EditedFile(tmp_path / "a.mgs", unsaved).keep(BEGINNING + "let Z = 4")
    async with edited(tmp_path) as it:
        await press(it.pilot, "escape", KEY)
        assert it.text == BEGINNING and not it.pane.holds_changes
        await it.type("##")
        it.pane.keep()
        await press(it.pilot, "ctrl+z", "ctrl+z")

        assert it.text == BEGINNING + "let Z = 4"


@pytest.mark.slow
async def test_quitting_tells_what_saving_would_overwrite(tmp_path: Path) -> None:
    async with edited(tmp_path) as it:
        await it.type("##")
        it.file.write_text("let other = 1\n", encoding="utf-8")
        await press(it.pilot, "ctrl+q")
        assert "overwrites" in screen_text(it.app)
        await press(it.pilot, "escape")


@pytest.mark.slow
async def test_a_program_that_is_reported_to_end_keeps_the_text(tmp_path: Path, unsaved: Path) -> None:
    async with edited(tmp_path) as it:
        await it.go(13)
        await it.type("let Z = 4")
        it.app._end_by(15)

    assert EditedFile(it.file, unsaved).kept() == BEGINNING + "let Z = 4"


async def test_a_file_that_changes_on_disk_is_read_again(tmp_path: Path) -> None:
    async with edited(tmp_path) as it:
        it.file.write_text("let other = 1\n", encoding="utf-8")
        it.app.file.look()
        await settled(it.pilot)

        assert it.text == "let other = 1\n" and not it.pane.holds_changes
        assert len(it.stages.compiled) == 2, "it is answered, once"


@pytest.mark.parametrize(
    ("keys", "mine"), [(("k", "ctrl+s", "k"), True), pytest.param(("t",), False, marks=pytest.mark.slow)]
)
async def test_a_file_that_changes_here_and_on_disk_is_requested_about(
    tmp_path: Path, keys: tuple[str, ...], mine: bool
) -> None:
    async with edited(tmp_path) as it:
        await it.go(13)
        await it.type("let Z = 4")
        it.file.write_text("let other = 1\n", encoding="utf-8")
        it.app.file.look()
        await settled(it.pilot)
        assert isinstance(it.app.screen, AskScreen)
        await press(it.pilot, *keys)

        wanted = BEGINNING + "let Z = 4" if mine else "let other = 1\n"
        assert (it.text, it.file.read_text(encoding="utf-8")) == (wanted, wanted)
        assert len(it.stages.compiled) == 2, "what is on disk now is answered"
        assert not it.app.query_one(CompletionList).is_open, "nothing was typed"


@pytest.mark.parametrize(
    ("content", "note"), [(None, "the file is gone"), pytest.param(b"\0\1", "no text any more", marks=pytest.mark.slow)]
)
async def test_a_file_that_is_lost_while_open_keeps_its_text_here(
    tmp_path: Path, content: bytes | None, note: str
) -> None:
    async with edited(tmp_path) as it:
        if content is None:
            it.file.unlink()
        else:
            it.file.write_bytes(content)
        it.app.file.look()
        await settled(it.pilot)
        assert note in it.said and it.text == BEGINNING
        await press(it.pilot, "ctrl+s")
        assert it.file.read_text(encoding="utf-8") == BEGINNING


@pytest.mark.slow
async def test_two_kinds_of_line_ends_are_no_change(tmp_path: Path) -> None:
    async with edited(tmp_path, BEGINNING.replace("\n", "\r\n", 2)) as it:
        assert not it.pane.holds_changes
        await it.type(" #")
        assert it.pane.holds_changes


async def test_a_file_that_cannot_be_saved_says_so(tmp_path: Path) -> None:
    async with edited(tmp_path) as it:
        await it.go(13)
        await it.type("let Z = 4")
        it.file.unlink()
        it.file.mkdir()
        await press(it.pilot, "ctrl+s")

        assert "not saved: " in it.said and it.pane.holds_changes


@pytest.mark.slow
async def test_the_editor_opens_where_the_file_has_an_error(tmp_path: Path) -> None:
    file = tmp_path / "a.mgs"
    file.write_text("let a = 1 s + 1 B\n", encoding="utf-8")
    app = MagusApp(file)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        assert "The file cannot be used" in screen_text(app)
        await press(pilot, KEY)
        text = screen_text(app)
        assert "let a = 1 s + 1 B" in text and "MGS303 1:9" in text
        await press(pilot, "escape")
        assert "The file cannot be used" in screen_text(app)


@pytest.mark.parametrize("text", first([EVERYTHING, "let a = 1 \x1b[31m\x07\n", "\u202e let [bold]x[/bold]"], 1))
async def test_text_of_others_is_shown_and_never_obeyed(tmp_path: Path, text: str) -> None:
    async with edited(tmp_path, text) as it:
        assert is_safe(screen_text(it.app))
        assert it.file.read_bytes().decode() == text
        await press(it.pilot, "x", "ctrl+s")
        saved = it.file.read_bytes().decode()
        assert saved in (text, f"x{text}"), "it is saved as it is, or not at all"


@pytest.mark.quick(1)
@pytest.mark.parametrize("text", first([b"let a = 1\r\nlet b = 2\r\n", b"\0\1", b"", b"\xff\xfe"], 2))
async def test_any_file_opens(tmp_path: Path, text: bytes) -> None:
    async with edited(tmp_path, text) as it:
        assert it.file.read_bytes() == text
        if text.endswith(b"\r\n"):
            await press(it.pilot, "ctrl+f", "x", "backspace", "ctrl+s")
            assert it.file.read_bytes() == text, "ends of lines stay"


async def test_a_terminal_that_shrinks_loses_nothing(tmp_path: Path) -> None:
    async with edited(tmp_path) as it:
        await it.go(13)
        await it.type("let Z")
        await it.pilot.resize_terminal(20, 5)
        await settled(it.pilot)
        await it.pilot.resize_terminal(80, 24)
        await until(it.pilot, lambda: "let Z" in screen_text(it.app))
