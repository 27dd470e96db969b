"""Placement of ops and the estimate: what they say can be carried out, and takes about as long as they say."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import pytest

from magus.advisor.layers.joint import COARSE_BYTES, JointRuns, LayerSpace, affordable_packet, simulated, space_of
from magus.advisor.layers.op_runs import copiers_of
from magus.advisor.layers.options import OpOptions
from magus.advisor.layers.placement import _unlike, leaves, placed_choices, small_changes
from magus.advisor.layers.timing import estimated_ticks
from magus.advisor.solver.layer_model import LayerOp, LayerProblem, NeededBy, OptionTimes, place_layer
from magus.compiler.ir import UNCUT, Scenario, Schedule
from magus.compiler.planning.build import ScheduleError
from magus.compiler.planning.plan import build_plan

from .test_recommend import BACKWARD, scenario_of

pytestmark = pytest.mark.usefixtures("compiled_core")


def placed_in(space: LayerSpace) -> tuple[Schedule, ...]:
    """Placements whose layers come one after the other."""
    return placed_choices(space, name="placed", layers=12, spans_layers=False)


@cache
def problem() -> tuple[Scenario, LayerSpace, tuple[Schedule, ...]]:
    scenario = scenario_of(BACKWARD)
    copier = next(copiers_of(scenario.system, scenario.workload, scenario.explore))
    op_options = OpOptions(scenario.system, copier, COARSE_BYTES)
    space = space_of(op_options, UNCUT, scenario.workload)
    placed = placed_in(space)
    return scenario, space, placed


@pytest.mark.slow
def test_op_options_are_apart_and_what_nothing_beats() -> None:
    _, space, _ = problem()

    for name in ("dh", "dx"):
        of = space.op_options[name]
        assert of[0].is_separate and len(of) > 1
        together = [option for option in of if not option.is_separate]
        assert not any(one.beats(other) for one in together for other in together)
    assert len(space.op_options["d_wd"]) == 1


@pytest.mark.slow
def test_placements_can_be_carried_out_and_are_the_same_again() -> None:
    scenario, space, placed = problem()

    assert placed
    for choice in placed:
        assert {name for name in choice.order if "." not in name} == {op.name for op in scenario.workload.ops}
        build_plan(scenario.system, scenario.workload, choice, 2)
    assert placed == placed_in(space)


def test_the_estimate_orders_schedules_as_the_simulation_does() -> None:
    scenario, space, placed = problem()
    runs = JointRuns(scenario.system, scenario.workload)
    changed = list(small_changes(space.workload, space.op_options, space.following, placed[0]))[::3]
    compared = []
    for choice in (*placed, *changed):
        simulated = runs.ticks(choice)
        if simulated is not None:
            compared.append((estimated_ticks(space, choice), simulated))

    errors = sorted(abs(estimate / simulated - 1) for estimate, simulated in compared)
    assert len(compared) >= 6 and errors[len(errors) // 2] < 0.05
    least = min(simulated for _, simulated in compared)
    nearly = sorted(compared)[:3]
    assert min(simulated for _, simulated in nearly) <= least * 1.01


def test_kernels_of_one_layer_may_run_among_those_of_the_next() -> None:
    apart = OptionTimes(180, 100, (0, 80), is_separate=True)
    norm = LayerOp((OptionTimes(10, 10, (0, 0)),), True, False, needs=(NeededBy(2, carried=True),))
    gathers = LayerOp((apart,), True, True, needs=(NeededBy(0, moves=True),))
    sums = LayerOp((apart,), True, True, produces=True, needs=(NeededBy(1),))
    gradient = LayerOp((OptionTimes(90, 90, (0, 0)),), True, False, needs=(NeededBy(1),))
    problem = LayerProblem((norm, gathers, sums, gradient, gradient), 80, (0,) * 5)

    def period(spans_layers: bool) -> int:
        placements, _ = place_layer(replace(problem, spans_layers=spans_layers), seed=0, limit=1.0)
        return placements[0].next_begin - placements[0].begin

    # A norm stands between what is summed and what is gathered: one gradient hides each, the second a layer later.
    assert period(False) == 10 + 80 + 100 + 100 + 90 + 90
    assert period(True) == 10 + 100 + 100 + 90 + 90


def test_what_spans_layers_can_be_carried_out() -> None:
    scenario, space, _ = problem()
    choices = placed_choices(space, name="placed", layers=12)

    assert choices
    for choice in choices:
        parts = build_plan(scenario.system, scenario.workload, choice, 3).parts
        assert set(choice.deferred) <= set(choice.order) and len(parts) == 3 * len(choice.order)


def test_small_changes_differ_in_one_decision() -> None:
    scenario, space, placed = problem()
    changes = list(small_changes(space.workload, space.op_options, space.following, placed[0]))

    assert len(changes) > 10 and placed[0] not in changes
    kept = 0
    for choice in changes:
        parts = ("modes", "order", "starts_with", "low", "sums_first", "handoff")
        differs = {part for part in parts if getattr(choice, part) != getattr(placed[0], part)}
        assert len(differs) == 1 or differs == {"modes", "order"}
        try:
            build_plan(scenario.system, scenario.workload, choice, 2)
            kept += 1
        except ScheduleError:
            pass
    assert kept > len(changes) // 3


def test_weight_gradients_are_leaves() -> None:
    scenario, _, _ = problem()

    assert set(leaves(scenario.workload)) == {"d_wd", "d_wu"}


def test_large_graphs_are_searched_in_larger_packets() -> None:
    scenario, _, placed = problem()
    run = simulated(scenario.system, scenario.workload, placed[0], COARSE_BYTES, lambda: False)
    assert run is not None
    line_hops = run.line_hops

    assert affordable_packet(line_hops, line_hops) == COARSE_BYTES
    assert affordable_packet(line_hops, line_hops // 4) == 4 * COARSE_BYTES


def test_placements_that_take_about_as_long_as_another_are_left_out() -> None:
    found = [SimpleNamespace(time=time) for time in (1000, 1001, 1003, 1004, 1100)]

    assert [each.time for each in _unlike(found)] == [1000, 1003, 1100]  # type: ignore[arg-type]
