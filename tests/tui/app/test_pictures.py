"""Timeline, Compare and Fabric, each alone on a screen: without colours, of hostile names, and in odd sizes."""

from dataclasses import replace

import pytest
from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widget import Widget

from magus.compiler.ir import Scenario
from magus.simcore import run_of
from magus.simcore.figures.result import Result
from magus.tui.app.charts.comparison import ComparisonModel
from magus.tui.app.charts.differences import Compared
from magus.tui.app.charts.heat import HeatModel
from magus.tui.app.panes.compare import ComparisonView
from magus.tui.app.panes.fabric import CUT, FabricView
from magus.tui.app.panes.timeline import TimelineView
from magus.tui.app.widgets.rows_view import fitted
from tests.helpers.hostile_text import EVERYTHING, is_safe
from tests.helpers.marks import first
from tests.helpers.paths import ROOT
from tests.helpers.tui import real
from tests.helpers.tui.driving import screen_text, settled
from tests.tui.app.charts.test_heat import model_of, two_triangles

SIZES = [(80, 24), (120, 40)]


class Alone(App[None]):
    """One widget, in the styles of the application."""

    CSS_PATH = ROOT / "tui" / "app" / "magus.tcss"

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self.widget = widget

    def compose(self) -> ComposeResult:
        """The widget alone."""
        yield self.widget


def timeline() -> TimelineView:
    view = TimelineView(id="lanes")
    view.show(run_of(real.gather(), the_result()))
    return view


def comparison() -> ComparisonView:
    scenario = real.gather()
    results = [real.result_of(scenario, each) for each in real.EXPRESSIONS]
    marked = [Compared(each.schedule.expression, each.schedule, run_of(scenario, each)) for each in results]
    view = ComparisonView(id="comparison")
    view.show(ComparisonModel(Scenario.of_one(scenario), marked, 10**9))
    return view


def fabric() -> FabricView:
    view = FabricView(id="fabric")
    view.show(HeatModel(real.gather(), the_result().loads))
    return view


@pytest.mark.parametrize("size", SIZES)
async def test_the_narrowest_cut_is_drawn_and_said(size: tuple[int, int]) -> None:
    case = two_triangles()
    view = FabricView(id="fabric")
    view.show(HeatModel(case, model_of(case).loads, case))
    app = Alone(view)
    async with app.run_test(size=size) as pilot:
        await _ready(pilot, view)
        map_lines = [line for line in screen_text(app).splitlines() if "narrowest cut" not in line]

        assert sum(line.count(CUT) for line in map_lines) == 1
        assert f"narrowest cut: {view.model.cut_text if view.model else ''}" in screen_text(app)


def the_result() -> Result:
    return real.result_of(real.gather(), real.PIECES)


async def test_without_colours_textures_tell_things_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    view = timeline()
    app = Alone(view)
    async with app.run_test(size=SIZES[0]) as pilot:
        await _ready(pilot, view)
        text = screen_text(app)

        assert "█" in text and "▒" in text


async def _ready(pilot: Pilot[None], view: Widget) -> None:
    view.focus()
    await settled(pilot)


def hostile() -> Result:
    """A result whose names would move the cursor and colour the screen."""
    result = the_result()
    evil = tuple(replace(each, lane=f"dma {EVERYTHING}", name=EVERYTHING) for each in result.timeline.intervals)
    schedule = replace(result.schedule, expression=EVERYTHING)
    return replace(result, schedule=schedule, timeline=replace(result.timeline, intervals=evil))


@pytest.mark.parametrize("keys", [("f", "z", "down"), ("d", "g", "minus")])
async def test_hostile_names_are_shown_and_not_obeyed(keys: tuple[str, ...]) -> None:
    found = hostile()
    run = run_of(real.gather(), found)
    marked = (Compared(EVERYTHING, found.schedule, run), Compared(EVERYTHING, found.schedule, None, EVERYTHING))
    lanes, compared = TimelineView(id="lanes"), ComparisonView(id="comparison")
    lanes.show(run)
    compared.show(ComparisonModel(Scenario.of_one(real.gather()), marked, 10**9))
    view = compared if "d" in keys else lanes
    app = Alone(view)
    async with app.run_test(size=SIZES[1]) as pilot:
        await _ready(pilot, view)
        await pilot.press(*keys)
        await settled(pilot)
        text = screen_text(app)

        assert is_safe(text)
        assert r"\x1b" in text


@pytest.mark.parametrize("size", first([(20, 5), (1, 1), (300, 6)], 1))
async def test_odd_sizes_show_what_fits(size: tuple[int, int]) -> None:
    for make in (timeline, comparison, fabric):
        view = make()
        async with Alone(view).run_test(size=size) as pilot:
            await _ready(pilot, view)
            await pilot.press("plus", "down", "right", "f", "m", "d")
            await settled(pilot)
            assert pilot.app.return_code is None


def test_a_line_that_is_cut_says_so() -> None:
    for text, width, shown in [("48% of 46.5", 11, "48% of 46.5"), ("48% of 46.5", 8, "48% of …"), ("ab", 1, "a")]:
        assert fitted([Segment(text)], width).text == shown
