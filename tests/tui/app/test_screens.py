"""What people see, compared with golden files as text; MAGUS_UPDATE_GOLDEN=1 writes them anew."""

from pathlib import Path

import pytest

from magus.compiler.resolve.expect.expectation import Verdict
from magus.tui.app.app import MagusApp
from tests.helpers.tui import fakes
from tests.helpers.tui.driving import LARGE, SMALL, check_golden, press, settled
from tests.helpers.tui.fakes import FakeStages


@pytest.fixture(autouse=True)
def no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without colours the timeline has textures, which a text can tell apart."""
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize(
    ("name", "size", "keys"),
    [
        ("candidates_80x24", SMALL, ()),
        ("timeline_80x24", SMALL, ("2",)),
        ("why_80x24", SMALL, ("3",)),
        ("help_80x24", SMALL, ("question_mark",)),
        ("all_160x45", LARGE, ()),
        ("all_80x45", (80, 45), ("2", "r")),
    ],
)
async def test_screen(name: str, size: tuple[int, int], keys: tuple[str, ...]) -> None:
    app = MagusApp(Path("mlp.mgs"), backend=FakeStages(fakes.two_workloads()).backend())
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        await press(pilot, *keys)

        check_golden(app, name)


async def test_serial_screen() -> None:
    fake = FakeStages(fakes.two_workloads(), verdict=Verdict.SERIAL)
    app = MagusApp(Path("mlp.mgs"), backend=fake.backend())
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)

        check_golden(app, "serial_80x24")


async def test_problem_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A relative path: the folder of the test is no part of what is compared.
    monkeypatch.chdir(tmp_path)
    Path("broken.mgs").write_text("system node { gpus 8 x MI30X; fabric full_mesh(xgmi) }\n", encoding="utf-8")
    app = MagusApp(Path("broken.mgs"))
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)

        check_golden(app, "problem_80x24")
