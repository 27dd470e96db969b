"""Marked schedules side by side."""

from dataclasses import replace

import pytest

from magus.compiler.ir import OpCase, OpPlan, Scenario, TileGroup
from magus.compiler.planning.build import build_op_plan
from magus.compiler.resolve.schedules.from_text import read_choice
from magus.simcore import run_of, simulate_op
from magus.tui.app.charts.comparison import ComparisonModel, parting_of
from magus.tui.app.charts.differences import Compared, differences_of, launches_of, waves_of
from tests.helpers.scenarios import scenarios
from tests.helpers.tui import real


def compared(scenario: OpCase, expression: str, *, simulated: bool = True) -> Compared:
    schedule = build_op_plan(scenario, read_choice(scenario, expression))
    return Compared(expression, schedule, run_of(scenario, real.result_of(scenario, expression)) if simulated else None)


@pytest.fixture(scope="module")
def three() -> tuple[Compared, ...]:
    scenario = real.gather()
    return tuple(compared(scenario, each) for each in real.EXPRESSIONS)


def plan_of(one: Compared) -> OpPlan:
    assert one.schedule is not None, "a pair has a plan"
    return one.schedule


def test_the_table_has_the_figures_of_the_results(three: tuple[Compared, ...]) -> None:
    scenario = real.gather()
    bound = 10**9
    table = {row.label: row for row in differences_of(Scenario.of_one(scenario), three, bound)}
    results = [one.run.result for one in three if one.run is not None]
    times = [result.makespan_us for result in results]

    assert table["makespan"].values == tuple(f"{us:.1f} us" for us in times)
    assert table["makespan"].best_idx == times.index(min(times))
    assert table["gap to the bound"].values[0] == f"{results[0].makespan_ticks / bound - 1:.1%}"
    assert table["launches"].values == tuple(str(launches_of(scenario, plan_of(one))) for one in three)
    assert table["launches"].differs
    assert not table["moved by"].differs
    assert table["moved by"].best_idx is None


def test_waves_are_those_that_the_simulator_runs(three: tuple[Compared, ...]) -> None:
    scenario = real.gather()
    serial = plan_of(three[-1])
    (group,) = (step for step in serial.steps if isinstance(step, TileGroup))

    # A kernel of one wave ends when its tiles do, all at once.
    assert waves_of(scenario, serial) >= 1
    assert waves_of(scenario, plan_of(three[0])) >= launches_of(scenario, plan_of(three[0]))
    assert waves_of(scenario, replace(serial, steps=(group, group))) == 2 * waves_of(scenario, serial)


def test_a_persistent_kernel_is_launched_once() -> None:
    scenario = real.gather()
    persistent = "uniform_fused_1d(chunks=32, engine=dma(7), kernel=persistent, wait=poll)"
    launched = build_op_plan(scenario, read_choice(scenario, real.PIECES))

    assert launches_of(scenario, build_op_plan(scenario, read_choice(scenario, persistent))) == 1
    assert launches_of(scenario, launched) == sum(isinstance(step, TileGroup) for step in launched.steps) > 1


def test_what_is_not_simulated_is_a_dash(three: tuple[Compared, ...]) -> None:
    scenario = real.gather()
    unknown = replace(three[1], run=None)
    model = ComparisonModel(Scenario.of_one(scenario), (three[0], unknown), None)
    table = {row.label: row for row in model.differences}

    assert table["makespan"].values[1] == "-"
    assert table["makespan"].best_idx is None
    assert not table["makespan"].differs
    assert not model.bands[1].rows
    assert model.parting is None


def test_schedules_part_where_they_do_something_else(three: tuple[Compared, ...]) -> None:
    runs = [one.run for one in three if one.run is not None]
    parting = parting_of("ABC", runs)

    assert parting is not None
    assert parting.ticks == 0
    assert parting.sentence.startswith("From the start they differ: A begins a put of ")
    assert "B and C begin a put of 256 x 1024 to rank r+1" in parting.sentence
    assert parting_of("AB", (runs[0], runs[0])) is None


def test_schedules_that_do_the_same_part_where_one_is_later() -> None:
    scenario = scenarios.ag_gemm(2048, 2048, 1024)
    slower = replace(scenario.gpu, hbm=replace(scenario.gpu.hbm, achieved_bytes_per_s=10**11))
    late = replace(scenario, system=replace(scenario.system, gpu=slower))
    schedule = build_op_plan(scenario, read_choice(scenario, real.SERIAL))
    first, second = (run_of(each, simulate_op(each, schedule, unit_bytes=real.UNIT)) for each in (scenario, late))
    parting = parting_of("AB", (first, second))

    assert parting is not None
    assert parting.ticks > 0
    assert "A begins a kernel of 2048 x 256 (g0); B begins a kernel of 2048 x 256 (g0) at " in parting.sentence


def test_rows_of_a_schedule_are_two_or_all(three: tuple[Compared, ...]) -> None:
    model = ComparisonModel(Scenario.of_one(real.gather()), three, 10**9)

    assert {tuple(row.lane for row in band.rows) for band in model.bands} == {("kernels", "copies")}
    assert model.viewport.total_ticks == max(one.run.result.makespan_ticks for one in three if one.run is not None)
    (serial_copies,) = (row for row in model.bands[2].rows if row.lane == "copies")
    assert len(serial_copies.intervals) == 1, "what runs at once is one"
    model.toggle_lanes()
    assert len(model.bands[0].rows) == 8
