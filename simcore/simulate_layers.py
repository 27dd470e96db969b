"""Layers that repeat: as many are simulated as show the period, and the others follow from it to the tick."""

from collections.abc import Callable
from dataclasses import dataclass

from ..compiler.ir import Graph, GraphChoice, GraphPlan, System
from ..compiler.planning.graph_build import build_graph_plan
from ..compiler.planning.graph_layers import in_layer, own_name
from .figures.graph_result import GraphResult
from .fold.run import DEFAULT_OPTIONS, RunOptions
from .program.limits import RunTooLarge
from .program.outcome import RunOutcome
from .program.program import PACKET_BYTES
from .simulate_graph import simulate_graph

FEWEST_LAYERS, MOST_LAYERS = 5, 10
"""Layers that are simulated to find the period: so many at first, twice as many where that does not show one."""


SHOWN_LAYER = 3
"""The layer that stands for all where one is shown: the first begins with nothing before it."""

MOST_OPS = 5_000
"""Ops of all layers that are simulated one by one: to plan and to lower them takes some milliseconds each."""

STEP_LINE_HOPS = 30_000
"""Line-hops that take as long as a step of a plan takes to be lowered, folded and told, about 0.3 ms."""


@dataclass(frozen=True, slots=True)
class LayersResult:
    """The result of ``layers`` layers.

    ``simulated`` is that of the first ``num_simulated``. Each of the others takes ``period_ticks``; None where all were
    simulated. If it is ``estimated``, that is what the last of those take on average, and no period.
    """

    simulated: GraphResult
    layers: int
    num_simulated: int
    period_ticks: int | None
    estimated: bool = False

    @property
    def makespan_ticks(self) -> int:
        """Of all layers."""
        return self.simulated.whole.makespan_ticks + (self.layers - self.num_simulated) * (self.period_ticks or 0)


def simulate_layers(
    system: System,
    graph: Graph,
    schedule: GraphChoice | GraphPlan,
    *,
    name: str = "graph",
    unit_bytes: int = PACKET_BYTES,
    seed: int | None = None,
    alike: bool = False,
    most_effort: int | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
) -> LayersResult:
    """Simulate the layers that ``graph`` repeats, one without ``repeat``; parameters are those of ``simulate_graph``.

    All are simulated where they are few, where no period shows, and under a seed. Of a plan those are that it has.
    Where no period shows and all layers are too many to simulate, the last of some stand for the rest; so they do where
    a run of more layers is expected to take more than ``most_effort``, in line-hops (see ``effort_of``).

    Raises
    ------
    ScheduleError
        As ``build_graph_plan`` and ``simulate_graph``.
    RunTooLarge
        If the layers are too large to simulate, or no period shows and a plan does not have all.
    """
    count = graph.num_layers

    def simulated(plan: GraphPlan) -> GraphResult:
        return simulate_graph(system, plan, name=name, unit_bytes=unit_bytes, seed=seed, alike=alike, options=options)

    def run(layers: int) -> GraphResult:
        assert isinstance(schedule, GraphChoice), "a plan is run as it is"
        return simulated(build_graph_plan(system, graph, schedule, layers))

    if isinstance(schedule, GraphPlan):
        return _of_written(graph, schedule, seed, simulated(schedule))
    found = _of_first_layers(run, count, most_effort) if seed is None else None
    too_many = count * schedule.batches * len(graph.ops) > MOST_OPS
    if found is not None and (not found.estimated or too_many or _is_beyond(most_effort, found, count)):
        return found
    try:
        return LayersResult(run(count), count, count, None)
    except RunTooLarge:
        if found is None:
            raise
        return found


def effort_of(result: GraphResult) -> int:
    """What a run has taken, in line-hops: its own, and ``STEP_LINE_HOPS`` for each kernel, copy and sum."""
    return result.whole.line_hops + STEP_LINE_HOPS * len(result.whole.timeline.intervals)


def _is_beyond(most_effort: int | None, found: LayersResult, layers: int) -> bool:
    """Whether a run of so many layers takes more effort than is allowed, by what those have taken that were run."""
    return most_effort is not None and effort_of(found.simulated) * layers > most_effort * found.num_simulated


def _of_first_layers(run: Callable[[int], GraphResult], count: int, most_effort: int | None) -> LayersResult | None:
    """The result of ``count`` layers from as many as show a period, estimated if none does; None if they are few."""
    found: LayersResult | None = None
    for layers in (FEWEST_LAYERS, MOST_LAYERS):
        if count <= layers or (found is not None and _is_beyond(most_effort, found, layers)):
            break
        try:
            result = run(layers)
        except RunTooLarge:
            if found is None:
                raise
            break
        if result.period_ticks is not None or result.whole.outcome is not RunOutcome.DONE:
            return LayersResult(result, count, layers, result.period_ticks)
        found = LayersResult(result, count, layers, _mean_ticks(result, layers), estimated=True)
    return found


def _mean_ticks(result: GraphResult, layers: int) -> int:
    """The time from layer to layer, over the later half of ``layers``."""
    first = layers // 2
    middle, last = (
        max(op.end_ticks for op in result.ops if op.name == in_layer(own_name(op.name), layer))
        for layer in (first, layers)
    )
    return (last - middle) // (layers - first)


def _of_written(graph: Graph, plan: GraphPlan, seed: int | None, result: GraphResult) -> LayersResult:
    """The result of all layers from that of a plan that has some of them written out."""
    count, layers = graph.num_layers, plan.num_layers
    period = result.period_ticks if seed is None else None
    if layers < count and period is None and result.whole.outcome is RunOutcome.DONE:
        why = "under a seed none follow from others" if seed is not None else "it shows no period"
        raise RunTooLarge(
            f"the plan has {layers} of {count} layers, and {why}: repeat fewer, or write out more of them"
        )
    return LayersResult(result, count, layers, period if layers < count else None)
