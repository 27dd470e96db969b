"""Whole layers on screen: every pane shows a graph as it shows a pair, and says in place what it cannot."""

from pathlib import Path

import pytest
from textual.widgets import Static

from magus.tui.app.app import MagusApp
from magus.tui.app.charts.viewport import Emphasis
from magus.tui.app.panes.compare import ComparisonView
from magus.tui.app.panes.timeline import TimelineView
from tests.helpers.tui import fakes, graphs
from tests.helpers.tui.driving import LARGE, SMALL, press, screen_text, settled, until
from tests.helpers.tui.graphs import BEST, SERIAL, WHOLE, GraphStages

pytestmark = pytest.mark.usefixtures("compiled_core")
FILE = Path("layer.mgs")
CANDIDATES, TIMELINE, WHY, HOW, COMPARE, FABRIC, WHAT_IF, SWEEP = "12345678"


def app_of(stages: GraphStages | None = None) -> MagusApp:
    return MagusApp(FILE, backend=(stages or GraphStages()).backend())


@pytest.mark.slow
async def test_the_answer_and_its_schedules_are_shown_with_ops_by_name() -> None:
    app = app_of()
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        text, job = screen_text(app), app.session.job

        assert job is not None and set(job.runs) == {BEST, SERIAL, WHOLE}
        assert "mlp · 4 ops · 40 layers · 4 x H100" in text
        assert f"WORTH TRYING: {graphs.answer().speedup:.2f}x over serial simulated" in text
        assert "3 of 3 simulated" in text and f"Timeline: {BEST}" in text
        model = app.query_one(TimelineView).model
        assert model is not None
        assert [row.lane for row in model.rows][:6] == ["u_norm", "u", "u copies", "y", "y copies", "y_add"]
        assert model.viewport.zoom > 1, "one layer is in view"
        await press(pilot, "j")
        assert f"Timeline: {job.picked}" in screen_text(app) and job.picked != BEST


async def test_what_is_faster_by_too_little_is_a_tie() -> None:
    app = app_of(GraphStages(final=graphs.with_a_tie))
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, WHY)

        assert "≈ pairs" in screen_text(app)
        assert "Ties: within 1%, more than the profile can tell apart" in str(
            app.query_one("#backing", Static).render()
        )


@pytest.mark.slow
async def test_times_of_layers_that_show_no_period_are_marked() -> None:
    app = app_of(GraphStages(final=graphs.with_an_estimate))
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        whole = next(each for each in graphs.answer().candidates if each.expression == WHOLE)
        (row,) = (line for line in screen_text(app).splitlines() if f"~{whole.best_us:.1f}" in line)

        assert f"~{graphs.answer().serial.best_us / whole.best_us:.2f}x" in row
        assert f"~{graphs.answer().recommended.best_us:.1f}" not in screen_text(app)
        await press(pilot, *"jj")
        run = app.session.job.run if app.session.job is not None else None
        assert run is not None and run.expression == WHOLE
        assert f"~{whole.best_us:.1f} us  40 layers" in screen_text(app)


async def test_the_timeline_of_a_layer_is_walked_and_followed() -> None:
    app = app_of()
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, TIMELINE, "down", "down")
        view = app.query_one(TimelineView)
        model = view.model
        assert model is not None and model.interval is not None
        assert model.interval.name == "u@3" and "AG+GEMM hetero_fused_1d(chunks=8" in model.story()

        await press(pilot, "f")
        assert len(model.stops) > 1 and model.stops[0].interval.name.startswith("u@3.")
        await press(pilot, "escape", "c")
        critical = model.emphasis
        assert critical is Emphasis.CRITICAL
        assert any(len(name) == 3 for name in model.standout.names), "ops on the critical path stand out too"
        await press(pilot, "u", "0")
        exposed: Emphasis | None = model.emphasis
        assert exposed is Emphasis.EXPOSED and model.viewport.zoom == 1


async def test_marked_schedules_are_compared_op_by_op_from_the_begin_of_a_layer() -> None:
    app = app_of()
    async with app.run_test(size=(160, 60)) as pilot:
        await settled(pilot)
        await press(pilot, "space", "j", "space", COMPARE)
        text, model = screen_text(app), app.query_one(ComparisonView).model

        assert model is not None and len(model.bands) == 2
        lanes = {row.lane for band in model.bands for row in band.rows}
        assert {"u", "u copies", "y_add"} <= lanes and "dma 0" not in lanes
        spans = [run.shown_span for run in (band.compared.run for band in model.bands) if run is not None]
        assert model.viewport.total_ticks == max(end - start for start, end in spans)
        table = {row.label: row for row in model.differences}
        assert table["makespan"].best_idx == 0 and table["u kernels"].differs and "y exposed" in table
        assert "they differ" in text and "a layer" in text
        await press(pilot, "d")
        assert "dma 0" in {row.lane for band in model.bands for row in band.rows}


async def test_how_gives_the_block_and_says_what_it_cannot() -> None:
    app = app_of()
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await settled(pilot)
        await press(pilot, HOW)
        text = screen_text(app)
        assert "schedule pairs for mlp {" in text and "u = hetero_fused_1d(chunks=8" in text
        assert "magus simulate layer.mgs --workload mlp --schedule pairs" in text

        await press(pilot, "m")
        assert app.clipboard.startswith("schedule pairs for mlp {")
        await press(pilot, "y")
        assert app.clipboard == "pairs"
        await press(pilot, "p")
        assert "is long" in screen_text(app)
        await press(pilot, "o")
        assert "Runtimes take" in screen_text(app)


async def test_the_answer_is_written_as_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = app_of()
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, "W", "enter")

    assert "schedule pairs for mlp" in (tmp_path / "layer_report.html").read_text(encoding="utf-8")


async def test_fabric_and_values_are_those_of_the_graph() -> None:
    app = app_of()
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, FABRIC)
        assert "busiest: r0 > s0" in screen_text(app)
        await press(pilot, WHAT_IF)
        assert "◂ ▸ step" in screen_text(app)
        await press(pilot, SWEEP)
        assert "No value of the file can be swept" in screen_text(app)


@pytest.mark.slow
async def test_pairs_and_graphs_of_one_file_stand_side_by_side() -> None:
    app = app_of(GraphStages(pairs=fakes.two_workloads()[:1]))
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        assert fakes.BEST in screen_text(app) and "Loss waterfall" in screen_text(app)
        await press(pilot, "w")

        text = screen_text(app)
        assert "mlp (2 of 2)" in text and "Ops of one layer within" in text
        assert "Loss waterfall" not in text
        await press(pilot, "w")
        assert "Loss waterfall" in screen_text(app)


async def test_schedules_appear_as_they_are_simulated_and_a_stop_keeps_them() -> None:
    app = app_of(GraphStages(partial=(graphs.early(),), stops=True))
    async with app.run_test(size=LARGE) as pilot:
        await until(pilot, lambda: app.session.job is not None and app.session.job.found is not None)
        await until(pilot, lambda: "1 of 3 simulated" in screen_text(app))
        assert "not final, SERIAL" in screen_text(app)
        await press(pilot, "escape")

        assert "stopped, SERIAL" in screen_text(app)
        await press(pilot, "j")
        job = app.session.job
        assert job is not None and job.run is not None, "what is missing is simulated on demand"


async def test_a_schedule_that_cannot_be_carried_out_says_why() -> None:
    app = app_of(GraphStages(final=graphs.with_problem))
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        job = app.session.job
        assert job is not None
        place = [each.expression for each in graphs.with_problem().candidates].index(WHOLE)
        await press(pilot, *("j",) * place)

        assert "MGS503: a circle" in screen_text(app)
