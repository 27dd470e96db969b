"""Every screen as people see it, text and colours, in three sizes and in the dark and the light theme."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from magus.compiler.pipeline import compile_file
from magus.compiler.resolve.expect.expectation import Verdict
from magus.tui.app import lifecycle
from magus.tui.app.app import MagusApp
from magus.tui.app.panes import PANES, editor
from magus.tui.app.widgets import code_editor
from tests.helpers.tui import fakes, graphs, real, steps
from tests.helpers.tui.driving import press, settled
from tests.helpers.tui.fakes import FakeStages
from tests.helpers.tui.snapshot import SIZES, check_snapshot
from tests.tui.app.session.test_sweep import swept
from tests.tui.app.session.test_what_if import FILE

pytestmark = pytest.mark.usefixtures("compiled_core")
KEY = {pane.name: str(place) for place, pane in enumerate(PANES, 1)}
NAME = Path("mlp.mgs")
BROKEN = "system node { gpus 8 x MI30X; fabric full_mesh(xgmi) }\n"
Screens = tuple[tuple[str, tuple[str, ...]], ...]


def made_by_hand() -> MagusApp:
    return MagusApp(NAME, backend=FakeStages(fakes.two_workloads()).backend())


def serial() -> MagusApp:
    return MagusApp(NAME, backend=FakeStages(fakes.two_workloads(), verdict=Verdict.SERIAL).backend())


def simulated() -> MagusApp:
    return MagusApp(NAME, backend=real.RealStages(real.gather()).backend())


def layer() -> MagusApp:
    return MagusApp(Path("layer.mgs"), backend=graphs.GraphStages().backend())


def step() -> MagusApp:
    return MagusApp(steps.written(Path()), backend=steps.StepStages().backend())


def with_values() -> MagusApp:
    NAME.write_text(FILE, encoding="utf-8")
    backend = FakeStages(fakes.two_workloads()).backend()
    return MagusApp(NAME, backend=replace(backend, compile=compile_file, sweep=swept))


def broken() -> MagusApp:
    NAME.write_text(BROKEN, encoding="utf-8")
    return MagusApp(NAME)


def no_file() -> MagusApp:
    return MagusApp(None, backend=FakeStages(fakes.two_workloads()).backend())


def edited() -> MagusApp:
    NAME.write_text(FILE, encoding="utf-8")
    return made_by_hand()


HAND: Screens = (("candidates", ()), ("why", (KEY["why"],)), ("report", ("W",)), ("help", ("escape", "question_mark")))
VALUES: Screens = (("what_if", (KEY["what_if"], "right", "down", "left")), ("sweep", (KEY["sweep"],)))
EDITOR: Screens = (("editor", (KEY["editor"], *"let Z = 1 s + K")), ("ask", ("ctrl+q",)))
SIMULATED: Screens = (
    ("timeline", (KEY["timeline"],)),
    ("follow", ("down", "right", "plus", "f")),
    ("critical", ("escape", "0", "c")),
    ("how", (KEY["how"],)),
    ("write", ("o",)),
    ("compare", ("escape", KEY["candidates"], "space", "j", "space", KEY["compare"])),
    ("fabric", (KEY["candidates"], "k", KEY["fabric"], *("right",) * 4)),
    ("matrix", ("m",)),
)
LAYER: Screens = tuple((f"graph_{name}", (KEY[name],)) for name in ("timeline", "why", "how"))

STEP: Screens = (("step_layouts", ()), *((f"step_{name}", (KEY[name],)) for name in ("timeline", "why", "how")))


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths: the folder of the test is no part of what is compared. Nothing looks at the clock."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(editor, "recovery_folder", lambda: tmp_path / "unsaved")
    monkeypatch.setattr(code_editor, "QUIET_S", 0.0)
    monkeypatch.setattr(editor, "KEEP_S", 3600.0)
    monkeypatch.setattr(lifecycle, "LOOK_S", 3600.0)


CASES: tuple[tuple[Callable[[], MagusApp], Screens, int], ...] = (
    (made_by_hand, HAND, 1),
    (serial, (("serial", ()),), 1),
    (simulated, SIMULATED[:4], 2),
    (simulated, SIMULATED[3:], 1),
    (layer, LAYER, 2),
    (step, STEP, 2),
    (with_values, VALUES, 1),
    (broken, (("problem", ()),), 1),
    (no_file, (("start", ()),), 1),
    (edited, EDITOR, 1),
)
"""With how many of the sizes are looked at each time: all screens at the smallest, some of each kind at the next."""


def sized() -> Iterator[object]:
    """The cases; their other sizes are slow, where the same widgets are laid out with more room."""
    for make, screens, count in CASES:
        yield pytest.param(make, screens, SIZES[:count], id=f"{screens[0][0]}-small")
        yield pytest.param(make, screens, SIZES[count:], id=f"{screens[0][0]}-large", marks=pytest.mark.slow)


@pytest.mark.quick(2)
@pytest.mark.parametrize(("make", "screens", "sizes"), list(sized()))
async def test_screens_look_as_they_did(
    make: Callable[[], MagusApp], screens: Screens, sizes: tuple[tuple[int, int], ...]
) -> None:
    app = make()
    async with app.run_test(size=sizes[0]) as pilot:
        await settled(pilot)
        for name, keys in screens:
            await press(pilot, *keys)
            await check_snapshot(pilot, name, sizes)
            await pilot.resize_terminal(*sizes[0])
            await settled(pilot)
