"""What people see, compared with golden files as text; MAGUS_UPDATE_GOLDEN=1 writes them anew."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from textual.color import Color
from textual.theme import Theme

from magus.compiler.pipeline import compile_file
from magus.compiler.resolve.expect.expectation import Verdict
from magus.tui.app.app import MagusApp
from magus.tui.app.charts.sweep_plot import MAX_CURVES
from magus.tui.app.panes import PANES
from magus.tui.app.themes import COLOUR_BLIND, DARK, LIGHT, THEMES
from tests.helpers.marks import first
from tests.helpers.paths import ROOT
from tests.helpers.tui import fakes
from tests.helpers.tui.driving import LARGE, SMALL, check_golden, press, settled
from tests.helpers.tui.fakes import FakeStages

VALUES = """\
use "amd/mi300x"
param M = 2048 in 1024..8192 x2
param K = 4096
system node { gpus 8 x MI300X; fabric full_mesh(xgmi) }
workload up on node {
  x = tensor bf16[M, K] shard rows
  w = tensor bf16[K, 3584] shard cols
  y = gemm(all_gather(x), w)
}
"""
WHAT_IF = str([pane.name for pane in PANES].index("what_if") + 1)


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
        pytest.param("all_80x45", (80, 45), ("2", "r"), marks=pytest.mark.slow),
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


@pytest.mark.parametrize("size", first([SMALL, (120, 40), (200, 60)], 1), ids="{0[0]}x{0[1]}".format)
async def test_the_list_of_files(size: tuple[int, int]) -> None:
    app = MagusApp(None, backend=FakeStages(fakes.two_workloads()).backend())
    async with app.run_test(size=size) as pilot:
        await settled(pilot)

        check_golden(app, f"start_{size[0]}x{size[1]}")


@pytest.mark.parametrize("size", first([SMALL, (120, 40), (200, 60)], 1), ids="{0[0]}x{0[1]}".format)
async def test_values_to_change(size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.mgs").write_text(VALUES, encoding="utf-8")
    backend = replace(FakeStages(fakes.two_workloads()).backend(), compile=compile_file)
    app = MagusApp(Path("small.mgs"), backend=backend)
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        await press(pilot, WHAT_IF, "right", "down", "left")

        check_golden(app, f"what_if_{size[0]}x{size[1]}")


def contrast(one: str, other: str) -> float:
    """The ratio of contrast of two colours, as WCAG 2.2 defines it."""

    def luminance(colour: str) -> float:
        parts = (value / 255 for value in Color.parse(colour).rgb)
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05

    low, high = sorted((luminance(one), luminance(other)))
    return high / low


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_colours_stand_out_from_the_background(theme: Theme) -> None:
    """WCAG asks for 4.5 for text, and for 3 for what is drawn."""
    ratio = {
        name: contrast(theme.background or "", getattr(theme, name))
        for name in ("foreground", "primary", "secondary", "warning", "error", "success", "accent")
    }

    assert ratio.pop("foreground") > 7
    assert {name: round(value, 1) for name, value in ratio.items() if value < 3} == {}


def test_colours_of_curves_stand_out_too() -> None:
    css = (ROOT / "tui" / "app" / "magus.tcss").read_text(encoding="utf-8")
    for kind, theme in (("SweepView:light", LIGHT), ("SweepView", DARK), ("SweepView", COLOUR_BLIND)):
        colours = re.findall(rf"^{kind} > \.sweep--curve-\d {{ color: (#\w+); }}", css, re.MULTILINE)

        assert len(set(colours)) == MAX_CURVES
        assert min(contrast(theme.background or "", colour) for colour in colours) > 3
