"""Choosing a file, what is remembered, and files that change, vanish or break while they are open."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from magus import examples
from magus.compiler.pipeline import compile_file
from magus.tui.app import lifecycle
from magus.tui.app.app import MagusApp
from magus.tui.app.session.files import Watched, files_of
from magus.tui.app.session.listed_files import MAX_BYTES, MAX_RECENT, ScreenState, about, entries, load, save
from magus.tui.app.widgets.start import StartScreen
from tests.helpers.hostile_text import EVERYTHING, is_safe
from tests.helpers.marks import first
from tests.helpers.tui import fakes
from tests.helpers.tui.driving import LARGE, SMALL, press, screen_text, settled, until
from tests.helpers.tui.fakes import FakeStages

FILE = """\
# A comment at the top
use "amd/mi300x"
param M = 2048
system node { gpus 8 x MI300X; fabric full_mesh(xgmi) }
workload up on node {
  x = tensor bf16[M, 4096] shard rows
  w = tensor bf16[4096, 3584] shard cols
  y = gemm(all_gather(x), w)
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one.mgs").write_text(FILE, encoding="utf-8")
    (tmp_path / "two.mgs").write_text(FILE.replace("A comment", "Another"), encoding="utf-8")
    (tmp_path / "notes.txt").write_text("nothing", encoding="utf-8")
    return tmp_path


def app_of(path: Path | None, state: Path | None = None) -> MagusApp:
    backend = replace(FakeStages(fakes.two_workloads()).backend(), compile=compile_file)
    return MagusApp(path, backend=backend, state_folder=state)


async def test_without_a_file_the_examples_are_listed() -> None:
    app = app_of(None)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        assert "Examples" in screen_text(app)
        assert "Llama-3.1-70B MLP up-projection, TP=8" in screen_text(app)
        await press(pilot, *"ulysses")
        assert "ring_attention" not in screen_text(app)
        await press(pilot, "enter")

        assert app.session.path == examples.path("ulysses_h100")
        assert "OVERLAP pays" in screen_text(app)


async def test_a_folder_lists_its_files_and_a_typed_word_narrows_them(folder: Path) -> None:
    app = app_of(folder)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        text = screen_text(app)

        assert "one.mgs" in text and "A comment at the top" in text and "notes.txt" not in text
        await press(pilot, "down", "enter")
        assert app.session.path == folder / "two.mgs"
        await press(pilot, "o", *"zzz")
        assert "no file matches" in screen_text(app)
        await press(pilot, "escape")
        assert not isinstance(app.screen, StartScreen)


async def test_escape_ends_where_there_is_no_file_to_go_back_to() -> None:
    app = app_of(None)
    async with app.run_test(size=SMALL) as pilot:
        await pilot.press("escape")

    assert app.return_code == 0


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads every folder")
async def test_a_folder_that_cannot_be_read_is_said(folder: Path) -> None:
    folder.chmod(0)
    try:
        app = app_of(folder)
        async with app.run_test(size=SMALL) as pilot:
            await settled(pilot)
            assert "Permission denied" in screen_text(app)
    finally:
        folder.chmod(0o700)


async def test_a_folder_that_vanished_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: Path) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(Path, "iterdir", gone)
    app = app_of(folder)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        assert "No such file or directory" in screen_text(app)


async def test_names_and_comments_are_shown_not_obeyed(tmp_path: Path) -> None:
    (tmp_path / "\x1b[31m[b]x[b].mgs").write_text(f"# {EVERYTHING}\n{FILE}", encoding="utf-8")
    app = app_of(tmp_path)
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)

        assert is_safe(screen_text(app))
        assert r"\x1b[31m[b]x[b].mgs" in screen_text(app)


def test_every_example_says_what_it_is_about() -> None:
    found = entries(None, ())

    assert {entry.group for entry in found} == {"Examples", "Layers", "Templates", "Papers"}
    assert [entry.name for entry in found if len(entry.about) < 10] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ""),
        ("mgs 1\n\n# so\n", "so"),
        ('use "x/y"\n# later\nworkload w on s { about "a title" }', "a title"),
        ("#\n#  two\n", "two"),
    ],
)
def test_what_a_file_is_about(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.mgs"
    path.write_text(text, encoding="utf-8")

    assert about(path) == said


# What is remembered.


async def test_files_theme_and_pane_are_remembered(folder: Path) -> None:
    state = folder / "state"
    app = app_of(folder / "one.mgs", state)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, "t", "3")
        theme = app.theme

    again = app_of(None, state)
    async with again.run_test(size=SMALL) as pilot:
        await settled(pilot)
        assert "Recent files" in screen_text(again) and "one.mgs" in screen_text(again)
        await press(pilot, "enter")

        assert (again.theme, again.bench.pane_idx) == (theme, 2)
        assert theme == "magus-light"


@pytest.mark.parametrize(
    "text",
    first(
        [
            "",
            "not json",
            "[]",
            '{"recent": 5, "theme": [], "pane": {}}',
            '{"recent": ["\\u0000", 7, "' + "x" * 9999 + '"], "theme": "\\u001b[31m"}',
            "[" * 60_000,
            " " * (2 * MAX_BYTES),
            '{"theme": "no such theme", "pane": "no such pane", "recent": ["/none/such.mgs"]}',
        ],
        1,
    ),
)
async def test_a_state_that_is_broken_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "tui.json").write_text(text, encoding="utf-8")
    app = app_of(None, tmp_path)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)

        assert app.theme == "magus-dark"
        assert "Recent files" not in screen_text(app)


def test_a_state_that_cannot_be_kept_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    save(tmp_path / "taken", ScreenState(theme="x"))
    save(None, ScreenState())

    assert load(tmp_path / "taken") == ScreenState()
    assert load(None) == ScreenState()


def test_the_last_file_is_first_and_none_is_there_twice(tmp_path: Path) -> None:
    state = ScreenState()
    for number in [*range(20), 5]:
        state = state.opened(tmp_path / f"{number}.mgs")
    save(tmp_path / "new", state)

    assert load(tmp_path / "new") == state
    assert [Path(each).stem for each in state.recent[:3]] == ["5", "19", "18"]
    assert len(state.recent) == MAX_RECENT
    assert json.loads((tmp_path / "new" / "tui.json").read_text(encoding="utf-8"))["theme"] == ""


# Files that change.


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "LOOK_S", 0.02)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_looks")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.write_text(FILE.replace("M = 2048", "M = 4096"), encoding="utf-8"), "bf16 4096x448"),
        (lambda path: path.write_text(FILE[:180], encoding="utf-8"), "The file cannot be used"),
        (lambda path: path.write_bytes(b"\x00\xff" * 99), "MGS121"),
        (lambda path: path.unlink(), "has vanished"),
    ],
)
async def test_a_file_that_changes_on_disk_is_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object], said: str
) -> None:
    monkeypatch.chdir(folder)
    app, path = app_of(Path("one.mgs")), folder / "one.mgs"
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        change(path)
        await until(pilot, lambda: said in screen_text(app))
        path.write_text(FILE.replace("M = 2048", "M = 1024"), encoding="utf-8")
        await until(pilot, lambda: "bf16 1024x448" in screen_text(app))
        await settled(pilot)

        assert "OVERLAP pays" in screen_text(app)


@pytest.mark.usefixtures("quick_looks")
async def test_a_file_that_is_included_is_watched_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "rows.mgs").write_text("let M = 2048\n", encoding="utf-8")
    (folder / "main.mgs").write_text(FILE.replace("param M = 2048", 'include "rows.mgs"'), encoding="utf-8")
    app = app_of(Path("main.mgs"))
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        (folder / "rows.mgs").write_text("let M = x\n", encoding="utf-8")
        await until(pilot, lambda: "rows.mgs:1:9" in screen_text(app))
        await until(pilot, lambda: bool(app.bench.editor.editor.diagnostics))
        (folder / "rows.mgs").write_text("let M = 1024\n", encoding="utf-8")
        await until(pilot, lambda: "bf16 1024x448" in screen_text(app))
        await until(pilot, lambda: not app.bench.editor.editor.diagnostics)
        (folder / "rows.mgs").unlink()
        await until(pilot, lambda: "rows.mgs has vanished" in screen_text(app))

        assert "OVERLAP pays" in screen_text(app)


def test_what_a_file_names_is_watched(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "b.mgs").write_text('let a = \nschedule s for w = import "plan.json"\n', encoding="utf-8")
    (tmp_path / "a.mgs").write_text('include "below/b.mgs"\ninclude "../c.mgs"\n', encoding="utf-8")

    files = files_of(tmp_path / "a.mgs")

    assert files == (tmp_path / "a.mgs", tmp_path / "below" / "b.mgs", tmp_path / "below" / "plan.json")
    assert files_of(tmp_path / "none.mgs") == (tmp_path / "none.mgs",)


def test_no_change_is_missed_while_a_file_is_read(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1", encoding="utf-8")
    watched = Watched((one,))
    one.write_text("12", encoding="utf-8")
    watched.follow(Watched((one, two)))

    assert watched.changed() == {one: True}
    two.write_text("2", encoding="utf-8")
    one.unlink()
    assert watched.changed() == {one: False, two: True}
    assert watched.changed() == {}


@pytest.mark.slow
@pytest.mark.usefixtures("quick_looks")
async def test_changes_that_are_not_saved_are_not_read_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_of(folder / "one.mgs")
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        monkeypatch.setattr(type(app.bench.views[0]), "holds_changes", True)
        (folder / "one.mgs").write_text(FILE.replace("2048", "4096"), encoding="utf-8")
        await until(pilot, lambda: "changes made here are not saved" in screen_text(app))

        assert "bf16 2048x448" in screen_text(app)


@pytest.mark.slow
async def test_a_terminal_of_20x5_and_back(folder: Path) -> None:
    app = app_of(folder / "one.mgs")
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        before = screen_text(app)
        for keys in ((), ("7",), ("8",), ("o",)):
            await pilot.press(*keys)
            await pilot.resize_terminal(20, 5)
            await pilot.pause()
            assert len(screen_text(app).splitlines()) == 5
            await pilot.resize_terminal(*SMALL)
        await press(pilot, "escape", "1")

        assert screen_text(app) == before


async def test_the_palette_offers_panes_files_and_themes(folder: Path) -> None:
    app = app_of(folder / "one.mgs")
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        await pilot.press("ctrl+p")
        await pilot.press(*"theme: light")
        await until(pilot, lambda: "Theme: light" in screen_text(app))
        await pilot.press("enter", "enter")
        await until(pilot, lambda: app.theme == "magus-light")
        await settled(pilot)

        assert not app.screen_stack[1:]
