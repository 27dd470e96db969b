"""Timeline, Compare and Topology driven by keys and the mouse, on answers that are really simulated."""

from dataclasses import replace
from pathlib import Path

import pytest
from textual import events
from textual.pilot import Pilot

from magus.simcore.figures.result import Result
from magus.tui.app.app import MagusApp
from magus.tui.app.charts.heat import HeatModel
from magus.tui.app.charts.model import TimelineModel
from magus.tui.app.panes import PANES
from magus.tui.app.panes.compare import ComparisonView
from magus.tui.app.panes.fabric import FabricView
from magus.tui.app.panes.timeline import TimelineView
from magus.tui.app.session.job import JobProblem
from tests.helpers.marks import first
from tests.helpers.scenarios import scenarios
from tests.helpers.tui import fakes, real
from tests.helpers.tui.driving import LARGE, SMALL, press, screen_text, settled
from tests.helpers.tui.real import PIECES, WHOLE, RealStages

FILE = Path("mlp.mgs")
KEY_OF = {pane.name: str(place) for place, pane in enumerate(PANES, 1)}
CANDIDATES, TIMELINE, COMPARE, TOPOLOGY = (KEY_OF[name] for name in ("candidates", "timeline", "compare", "fabric"))


def app_of(stages: RealStages | None = None) -> MagusApp:
    return MagusApp(FILE, backend=(stages or RealStages(real.gather())).backend())


def model_of(app: MagusApp) -> TimelineModel:
    model = app.query_one(TimelineView).model
    assert model is not None
    return model


async def test_a_chunk_is_followed_and_let_go() -> None:
    app = app_of()
    async with app.run_test(size=(160, 60)) as pilot:
        await settled(pilot)
        await press(pilot, TIMELINE, "down", "f")
        stops = model_of(app).stops

        assert len(stops) == 2
        text = screen_text(app)
        assert f"[{stops[0].interval.name} r0] > r0 > r{stops[1].rank} > {stops[1].interval.name}" in text
        assert f"r{stops[1].rank} stream 0" in text
        await press(pilot, "f")
        assert f"▸r{stops[1].rank} stream 0" in screen_text(app)
        await press(pilot, "escape")
        assert "r0 stream 0" not in screen_text(app)


async def test_a_step_that_nothing_waits_for_says_so() -> None:
    app = app_of(RealStages(scenarios.lone_gemm(512, 512, 512), ("serial(engine=dma(7))",)))
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await settled(pilot)
        await press(pilot, TIMELINE, "f")

        assert "Nothing to follow" in screen_text(app)
        await press(pilot, "c", "u", "r", "z", "left_square_bracket", TOPOLOGY)
        assert "no link is in use" in screen_text(app)


async def test_the_legend_of_busy_memory_is_whole_in_a_small_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_of()
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        monkeypatch.setattr(HeatModel, "memory_share", lambda *_: 1.0)
        await press(pilot, TOPOLOGY)

        assert "HBM at most 100%, bars behind ranks" in screen_text(app)


@pytest.mark.slow
async def test_emphasis_and_ranks_go_round() -> None:
    app = app_of()
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, TIMELINE, "c")
        assert "only critical path" in screen_text(app)
        await press(pilot, "u")
        assert "only exposed communication" in screen_text(app)
        await press(pilot, "u", "r")
        assert "only" not in screen_text(app)
        assert "all ranks" in screen_text(app)
        await press(pilot, *("down",) * 40)
        assert "▸r" in screen_text(app), "the cursor stays in view"
        await press(pilot, "r", "right_square_bracket")
        assert "rank 1, one stands for all 8" in screen_text(app)


async def test_the_mouse_selects_zooms_and_pans() -> None:
    app = app_of()
    async with app.run_test(size=(160, 60)) as pilot:
        await settled(pilot)
        await press(pilot, TIMELINE)
        view = app.query_one(TimelineView)
        model = model_of(app)
        await pilot.click(view, offset=(20, 3 + len(model.rows) - 1))
        assert model.rows[model.cursor.row_idx].lane == "dma 6"
        before = model.viewport
        await _wheel(pilot, view, up=True)
        assert model.viewport.zoom > before.zoom
        zoomed = model.viewport
        await _wheel(pilot, view, up=False, shift=True)
        assert model.viewport.start_ticks > zoomed.start_ticks
        await pilot.click(view, offset=(20, 0))
        assert model.rows[model.cursor.row_idx].lane == "dma 6", "the head is no row"


async def _wheel(pilot: Pilot[None], view: TimelineView, *, up: bool, shift: bool = False) -> None:
    kind = events.MouseScrollUp if up else events.MouseScrollDown
    view.post_message(kind(view, 60, 5, 0, 1, 0, shift, False, False, screen_x=60, screen_y=30))
    await settled(pilot)


async def test_schedules_are_marked_simulated_and_compared() -> None:
    app = app_of()
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        await press(pilot, COMPARE)
        assert "Nothing is marked yet" in screen_text(app)
        await press(pilot, CANDIDATES, "space", COMPARE)
        assert "One schedule is marked" in screen_text(app)
        job = app.session.job
        assert job is not None
        job.toggle_mark(WHOLE)
        assert WHOLE not in job.runs
        await press(pilot, CANDIDATES, COMPARE)

        text = screen_text(app)
        assert f"A {PIECES}" in text
        assert f"B {WHOLE}" in text
        assert WHOLE in job.runs
        assert "they differ: A begins a put" in text
        assert "≠ launches" in text
        (row,) = (line for line in text.splitlines() if " ≠ makespan" in line)
        (gap,) = (line for line in text.splitlines() if " ≠ gap to the bound" in line)
        ends = [place + len(unit) for unit, line in ((" us", row), ("%", gap)) for place in (line.index(unit),)]
        assert ends[0] == ends[1], "numbers stand below each other"
        await press(pilot, "d", "g")
        view = app.query_one(ComparisonView)
        assert view.model is not None
        assert len(view.model.bands[0].rows) == 8
        assert view.model.viewport.zoom == pytest.approx(8)
        await press(pilot, CANDIDATES, "space", COMPARE)
        assert "One schedule is marked" in screen_text(app)


@pytest.mark.slow
async def test_of_five_marked_schedules_the_first_goes() -> None:
    app = MagusApp(FILE, backend=fakes.FakeStages(fakes.two_workloads()).backend())
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, *("space", "j") * 5)
        job = app.session.job
        assert job is not None

        assert job.marked == (fakes.TIE, fakes.LONG, fakes.SERIAL, fakes.UNSEEN)
        assert "A≈ uniform_fused_1d" in screen_text(app)


async def test_a_marked_schedule_that_deadlocks_says_so() -> None:
    class Stuck(RealStages):
        def simulate(self, scenario: object, plan: object, bound: object, should_stop: object) -> Result:
            raise RuntimeError("stuck")

    app = app_of(Stuck(real.gather()))
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        job = app.session.job
        assert job is not None
        job.marked = (PIECES, WHOLE)
        await press(pilot, COMPARE)

        assert isinstance(job.problems[WHOLE], JobProblem)
        assert "RuntimeError: stuck" in screen_text(app)


async def test_the_fabric_is_scrubbed_and_looks_at_the_cursor() -> None:
    app = app_of()
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, TIMELINE, "down", "right", TOPOLOGY)
        view = app.query_one(FabricView)
        assert view.model is not None
        assert "whole run" in screen_text(app)
        interval = model_of(app).interval
        assert interval is not None
        await press(pilot, "t")
        assert (view.model.window.start_ticks, view.model.window.end_ticks) == (
            interval.start_ticks,
            interval.end_ticks,
        )
        await press(pilot, "0", "left", "left", "m", "m")
        assert view.model.window.end_ticks < view.model.loads.span_ticks
        await press(pilot, "0")
        assert view.model.is_whole


@pytest.mark.slow
@pytest.mark.parametrize("pane", first([TIMELINE, COMPARE, TOPOLOGY, KEY_OF["how"]], 1))
async def test_a_tiny_terminal_and_back(pane: str) -> None:
    app = app_of()
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, "space", "j", "space", pane)
        await pilot.resize_terminal(20, 5)
        await settled(pilot)
        await press(pilot, "right", "down", "plus", "minus", "f", "m")
        await pilot.resize_terminal(*LARGE)
        await settled(pilot)

        assert app.return_code is None
        assert PIECES in screen_text(app)


@pytest.mark.slow
async def test_a_thousand_ranks() -> None:
    scenario = scenarios.ag_gemm(65536, 1024, 512, ranks=1024)
    app = app_of(RealStages(scenario, ("serial(engine=dma(7))",)))
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, TIMELINE, "r")
        assert len(model_of(app).rows) == 1024 * len(model_of(app).lanes.own[0])
        await press(pilot, "pagedown", "down", "r", "f", TOPOLOGY)
        await pilot.resize_terminal(*LARGE)  # a small screen has no title
        await settled(pilot)

        assert "every 4th rank" in screen_text(app)
        assert replace(scenario, name="x").num_ranks == 1024


async def test_the_answer_is_written_as_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = app_of()
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await settled(pilot)
        await press(pilot, "W", "enter")
        page = (tmp_path / "mlp_report.html").read_text(encoding="utf-8")
        assert "Wrote mlp_report.html" in screen_text(app)
        assert PIECES in page and "without a sweep" in page and "<svg" in page

        (tmp_path / "mlp_report.html").write_text("mine", encoding="utf-8")
        await press(pilot, "W", "enter")
        assert "Enter once more replaces it" in screen_text(app)
        await press(pilot, "escape")
        assert (tmp_path / "mlp_report.html").read_text(encoding="utf-8") == "mine"
        await press(pilot, "W", "home", *"none/", "enter")
        assert "folder none" in screen_text(app)
