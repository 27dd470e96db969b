"""Layers that repeat: enough are simulated to find the period, which gives the times of the others to the tick."""

from collections.abc import Callable
from dataclasses import replace

from ..compiler.ir import Plan, Schedule, System, Workload
from ..compiler.planning.plan import build_plan, in_layer, own_name
from .figures.result import Result
from .fold.run import DEFAULT_OPTIONS, RunOptions
from .program.limits import RunTooLarge
from .program.program import PACKET_BYTES, RunOutcome
from .simulate import simulate

FEWEST_LAYERS, MOST_LAYERS = 5, 10
"""How many layers are simulated to find the period: first the fewer, and if these have none, the more."""


SHOWN_LAYER = 3
"""The layer that is shown for all. It is not the first, which begins with nothing before it."""

MOST_OPS = 5_000
"""Ops of all layers that are simulated one by one: to plan and to lower them takes some milliseconds each."""

STEP_LINE_HOPS = 30_000
"""Line-hops that take as long to simulate as one step of a plan takes to be lowered, folded and reported: 0.3 ms."""


def simulate_layers(
    system: System,
    workload: Workload,
    schedule: Schedule | Plan,
    *,
    name: str = "workload",
    unit_bytes: int = PACKET_BYTES,
    seed: int | None = None,
    alike: bool = False,
    most_effort: int | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
) -> Result:
    """Simulate all layers of ``workload``: those that it repeats, or one without ``repeat``.

    All layers are simulated if they are few, if the first ones show no period, and under a seed; the result then has no
    ``period_ticks``. Otherwise the first ones are, and the period gives the time of all. If there is no period and all
    layers are too many to simulate, the last ones that were simulated stand for the rest: the result ``is_estimate``.

    Parameters
    ----------
    schedule
        A schedule; or a plan, of which only the layers that it has written out are simulated.
    most_effort
        The largest effort of a run of all layers, in line-hops as ``effort_of`` counts; beyond it the result is
        estimated as above. None is no limit.
    system, name, unit_bytes, seed, alike, options
        As for ``simulate``.

    Raises
    ------
    ScheduleError
        As ``build_plan`` and ``simulate``.
    RunTooLarge
        If the layers are too large to simulate, or no period shows and a plan does not have all.
    """
    count = workload.num_layers

    def simulated(plan: Plan) -> Result:
        return simulate(system, plan, name=name, unit_bytes=unit_bytes, seed=seed, alike=alike, options=options)

    def run(layers: int) -> Result:
        assert isinstance(schedule, Schedule), "a plan is run as it is"
        return simulated(build_plan(system, workload, schedule, layers))

    if isinstance(schedule, Plan):
        return _of_written(workload, schedule, seed, simulated(schedule))
    ahead = schedule.layers_shifted > 0 and count <= MOST_LAYERS  # such a period shows late: all are as soon simulated
    found = _of_first_layers(run, count, most_effort) if seed is None and not ahead else None
    too_many = count * schedule.batches * max(1, len(schedule.groups)) * len(workload.ops) > MOST_OPS
    if found is not None and (not found.is_estimate or too_many or _is_beyond(most_effort, found, count)):
        return found
    try:
        return replace(run(count), period_ticks=None)
    except RunTooLarge:
        if found is None:
            raise
        return found


def effort_of(result: Result) -> int:
    """Return the effort of a run in line-hops: its own, and ``STEP_LINE_HOPS`` for each kernel, copy and sum."""
    return result.line_hops + STEP_LINE_HOPS * len(result.timeline.intervals)


def _is_beyond(most_effort: int | None, found: Result, layers: int) -> bool:
    """Whether a run of so many ``layers`` would take more than ``most_effort``, judged by the run ``found``."""
    return most_effort is not None and effort_of(found) * layers > most_effort * found.num_simulated


def _of_first_layers(run: Callable[[int], Result], count: int, most_effort: int | None) -> Result | None:
    """The result of ``count`` layers from as many as show a period, estimated if none does; None if they are few."""
    found: Result | None = None
    for layers in (FEWEST_LAYERS, MOST_LAYERS):
        if count <= layers or (found is not None and _is_beyond(most_effort, found, layers)):
            break
        try:
            result = run(layers)
        except RunTooLarge:
            if found is None:
                raise
            break
        if result.period_ticks is not None or result.outcome is not RunOutcome.DONE:
            return replace(result, layers=count)
        found = replace(result, layers=count, period_ticks=_mean_ticks(result, layers), is_estimate=True)
    return found


def _mean_ticks(result: Result, layers: int) -> int:
    """The time from layer to layer, over the later half of ``layers`` but the last, which has none behind it."""
    first, last = layers // 2, layers - 1
    ends = [
        max(op.end_ticks for op in result.ops if op.name == in_layer(own_name(op.name), layer))
        for layer in (first, last)
    ]
    return (ends[1] - ends[0]) // (last - first)


def _of_written(workload: Workload, plan: Plan, seed: int | None, result: Result) -> Result:
    """The result of all layers from that of a plan that has some of them written out."""
    count, layers = workload.num_layers, plan.num_layers
    period = result.period_ticks if seed is None else None
    if layers < count and period is None and result.outcome is RunOutcome.DONE:
        why = "under a seed none follow from others" if seed is not None else "it shows no period"
        raise RunTooLarge(
            f"the plan has {layers} of {count} layers, and {why}: repeat fewer, or write out more of them"
        )
    return replace(result, layers=count, period_ticks=period if layers < count else None)
