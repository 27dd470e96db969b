"""Training steps on screen: layouts, stages over time, memory, changes of sizes; and the layers beside them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from magus.tui.app.app import MagusApp
from magus.tui.app.charts.rows import StagesModel
from magus.tui.app.panes.steps import LayoutTable, StagesView
from magus.tui.app.session.job import StepJob
from magus.tui.app.session.step_view import StepSort, rows_of
from tests.helpers.tui.driving import press, screen_text, settled, until
from tests.helpers.tui.steps import StepStages, written

pytestmark = pytest.mark.usefixtures("compiled_core")
CANDIDATES, TIMELINE, WHY, HOW, COMPARE, FABRIC, WHAT_IF, SWEEP, EDITOR = "123456789"
SMALL, LARGE = (80, 24), (120, 40)


@pytest.fixture
def app_of(tmp_path: Path) -> Callable[..., MagusApp]:
    def made(stages: StepStages | None = None, workload: str | None = None) -> MagusApp:
        return MagusApp(written(tmp_path), workload=workload, backend=(stages or StepStages()).backend())

    return made


def job_of(app: MagusApp) -> StepJob:
    job = app.session.shown
    assert isinstance(job, StepJob)
    return job


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_layouts_stand_in_a_table_each_once(app_of: Callable[..., MagusApp], size: tuple[int, int]) -> None:
    app = app_of()
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        text, found = screen_text(app), job_of(app).found
        assert found is not None and found.recommended is not None and not found.interrupted
        rows = rows_of(found)

        assert f"USE {found.recommended.layout}" in text and "(1 of 2)" in text
        assert len({row.expression for row in rows}) == len(rows) == app.query_one(LayoutTable).row_count
        assert len(rows) == len(found.searched.outcomes), "the schedule of the file is one of the layouts"
        assert [row.name for row in rows].count("turns") == 1
        for heading in ("layout", "step", "tok/s/GPU", "memory", "exposed", "bubble"):
            assert heading in text
        for row in rows:
            figures = row.outcome.layout, StepSort.TOKENS.value.text(row), StepSort.TIME.value.text(row)
            assert any(all(figure in line for figure in figures) for line in text.splitlines())


async def test_the_stages_of_the_picked_layout_are_walked_and_zoomed(app_of: Callable[..., MagusApp]) -> None:
    app = app_of()
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        table = app.query_one(LayoutTable)
        found = job_of(app).found
        assert found is not None
        place = next(place for place, row in enumerate(rows_of(found)) if row.outcome.scenario.num_stages == 2)
        await press(pilot, *("j",) * place, TIMELINE)

        picked, model = table.picked, app.query_one(StagesView).model
        assert picked is not None and isinstance(model, StagesModel) and model.outcome is picked.outcome
        assert [row.lane for row in model.rows] == ["stage 1", "stage 2"]
        passes = [each for row in model.rows for each in row.intervals if each.name.isdecimal()]
        assert len(passes) >= 2 * 2 * picked.outcome.scenario.step.microbatches
        assert model.viewport.total_ticks == max(row.intervals[-1].end_ticks for row in model.rows)
        assert "forward of microbatch 1 on stage 1" in screen_text(app)
        await press(pilot, "down", "right", "plus")
        assert "on stage 2" in screen_text(app) and model.viewport.zoom > 1


async def test_memory_of_stages_and_flags_are_those_of_the_picked_layout(app_of: Callable[..., MagusApp]) -> None:
    app = app_of()
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, "j", WHY)
        picked = app.query_one(LayoutTable).picked
        assert picked is not None
        text = screen_text(app)
        assert "Where the time goes" in text and "of 80 GiB" in text
        bars = [line for line in text.splitlines() if "░ " in line]
        assert len(bars) == len(picked.outcome.memory) > 0
        for bar, stage in zip(bars, picked.outcome.memory, strict=True):
            assert f"{stage.total / 2**30:.1f} GiB" in bar
        await press(pilot, HOW)
        assert "--set TP=" in screen_text(app)
        await press(pilot, COMPARE)
        assert "about the layers of the step" in screen_text(app)


async def test_a_size_that_is_changed_is_answered_anew_and_one_that_cannot_be_is_said(
    app_of: Callable[..., MagusApp],
) -> None:
    app = app_of()
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, WHAT_IF, "right")  # TP = 4 with PP = 1 or 2
        await settled(pilot)
        job = job_of(app)

        assert job.what_if.changes.params == (("TP", "4"),)
        assert job.found is not None and not job.found.interrupted
        assert {each.sizes["tp"] for each in job.found.searched.outcomes} == {4}
        await press(pilot, "enter", *("backspace",) * 4, "3", "enter")
        await settled(pilot)
        assert "TP" in screen_text(app) and "MGS" not in app.session.summary
        assert job_of(app).what_if.changes.params == (("TP", "4"),), "what does not compile changes nothing"


@pytest.mark.slow
async def test_layers_are_reached_and_left(app_of: Callable[..., MagusApp]) -> None:
    app = app_of()
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, "w")
        await settled(pilot)
        assert app.session.job is not None and app.session.job.name == "layer"
        assert "layer (2 of 2)" in screen_text(app) and "tok/s/GPU" not in screen_text(app)
        await press(pilot, "w")
        assert "tok/s/GPU" in screen_text(app) and "(1 of 2)" in screen_text(app)


async def test_a_search_is_stopped_and_keeps_what_was_found(app_of: Callable[..., MagusApp]) -> None:
    app = app_of(StepStages(stops=True))
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, lambda: "not final, USE" in screen_text(app))
        assert "~" in screen_text(app), "what is simulated without traffic beside layers is marked"
        await press(pilot, "escape")

        assert "stopped, USE" in screen_text(app)
        assert job_of(app).stopped and not app.work.can_stop


async def test_the_answer_is_written_as_a_page(
    app_of: Callable[..., MagusApp], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = app_of()
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, "W", "enter")

    assert "Where the time goes" in (tmp_path / "step_report.html").read_text(encoding="utf-8")


async def test_layouts_are_sorted_by_a_column(app_of: Callable[..., MagusApp]) -> None:
    app = app_of()
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        app.bench.candidates.sort(StepSort.MEMORY)
        await settled(pilot)
        table = app.query_one(LayoutTable)
        sizes = [row.outcome.memory_bytes for row in table._rows]
        assert sizes == sorted(sizes) and len(set(sizes)) > 1 and "▾memory" in screen_text(app)
