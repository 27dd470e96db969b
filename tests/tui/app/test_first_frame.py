"""The frame that is drawn before the workbench is imported: its keys, and what takes its place."""

import gc
import sys
from collections.abc import Callable, Iterator
from importlib.util import resolve_name
from pathlib import Path
from threading import Event

import pytest

from magus import examples
from magus.compiler.ir import never
from magus.tui.app import lifecycle
from magus.tui.app.app import MagusApp
from magus.tui.app.lifecycle import HEAVY, READING, FirstFrame, import_rest
from magus.tui.app.panes import PANES
from magus.tui.app.session.session import Session
from magus.tui.app.widgets.start import HelpScreen, StartScreen
from magus.tui.app.workbench import VIEWS
from tests.helpers.tui import fakes
from tests.helpers.tui.driving import LARGE, SMALL, screen_text, settled, until
from tests.helpers.tui.fakes import FakeStages

FILE = Path("mlp.mgs")
PATIENCE_S = 60.0


def app_of(path: Path | None = FILE) -> MagusApp:
    return MagusApp(path, backend=FakeStages(fakes.two_workloads()).backend(), at_once=True)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """The imports wait for this event."""
    event = Event()

    def import_late(_: Callable[[], bool]) -> None:
        event.wait(PATIENCE_S)

    monkeypatch.setattr(lifecycle, "import_rest", import_late)
    yield event
    event.set()


async def test_panes_and_help_answer_before_the_workbench_is_there(held: Event) -> None:
    app = app_of()
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, lambda: "Candidates" in screen_text(app))
        assert "mlp.mgs" in screen_text(app) and READING in screen_text(app)
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape", "tab", "3", "tab", "e", "x", "w", "d", "s", "j", "ctrl+p", "o")
        assert isinstance(app.screen, StartScreen)
        await pilot.press("escape", "t")
        assert len(app.screen_stack) == 1

        held.set()
        await settled(pilot)
        assert PANES[app.bench.pane_idx].name == "how", "the pane chosen in the first frame stays in front"
        assert app.theme != MagusApp(None).theme
        assert "OVERLAP pays" in screen_text(app) and "starting" not in screen_text(app)


@pytest.mark.quick(1)
@pytest.mark.parametrize("size", [SMALL, LARGE, (20, 5)])
async def test_the_workbench_stands_where_the_first_frame_was(
    held: Event, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, real = Event(), Session.read
    monkeypatch.setattr(Session, "read", lambda self: read.wait(PATIENCE_S) and real(self))
    app = app_of()
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "mlp.mgs" in screen_text(app))
        before = screen_text(app).splitlines()
        held.set()
        await until(pilot, lambda: hasattr(app, "bench") and app.bench.is_attached and not app.query(FirstFrame))
        head = before.index(next(line for line in before if "1 Cand" in line)) + 1 if size != (20, 5) else 2
        await until(pilot, lambda: screen_text(app).splitlines()[:head] == before[:head])  # painted, and not read yet
        after = screen_text(app).splitlines()
        read.set()
        await settled(pilot)

    assert len(after) == len(before)


@pytest.mark.slow
async def test_a_narrow_screen_names_a_file_in_deep_folders(held: Event, tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a_folder_with_a_long_name"] * 4)
    deep.mkdir(parents=True)
    path = deep / "mlp.mgs"
    path.write_text(examples.path("ulysses_h100").read_text("utf-8"), "utf-8")
    app = app_of(path)
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, lambda: "mlp.mgs" in screen_text(app))
        held.set()
        await settled(pilot)


async def test_q_ends_before_the_workbench_is_there(held: Event) -> None:
    app = app_of()
    async with app.run_test(size=SMALL) as pilot:
        await pilot.press("q")
        held.set()

    assert app.return_code == 0


async def test_an_app_that_ends_before_its_first_frame_leaves_nothing_to_await(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    app = app_of()
    monkeypatch.setattr(app, "call_after_refresh", lambda *_, **__: True)
    async with app.run_test(size=SMALL):
        pass
    gc.collect()

    assert not [each for each in recwarn if "never awaited" in str(each.message)]


async def test_a_file_chosen_before_the_workbench_is_there_is_opened(held: Event) -> None:
    app = app_of(None)
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, lambda: isinstance(app.screen, StartScreen))
        await pilot.press(*"ulysses", "enter")
        await until(pilot, lambda: not isinstance(app.screen, StartScreen))
        assert "ulysses_h100" in screen_text(app)
        held.set()
        await settled(pilot)

        assert app.session.path == examples.path("ulysses_h100")
        assert "OVERLAP pays" in screen_text(app)


@pytest.mark.slow
async def test_a_list_of_files_stays_while_the_workbench_comes(held: Event) -> None:
    app = app_of(None)
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, lambda: isinstance(app.screen, StartScreen))
        held.set()
        await settled(pilot)
        assert isinstance(app.screen, StartScreen) and app.bench.is_attached
        await pilot.press(*"ulysses", "enter")
        await settled(pilot)

        assert "OVERLAP pays" in screen_text(app)


def test_a_stop_is_heard_between_two_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[str] = []
    monkeypatch.setattr(lifecycle, "import_module", lambda name, _: requested.append(name))

    import_rest(lambda: len(requested) == 2)

    assert requested == list(HEAVY[:2])


def test_each_step_is_a_module() -> None:
    import_rest(never)

    assert all(resolve_name(name, "magus.tui.app") in sys.modules for name in HEAVY)


def test_each_pane_of_the_list_is_its_view() -> None:
    assert [view.__module__.rpartition(".")[2] for view in VIEWS] == [pane.name for pane in PANES]
