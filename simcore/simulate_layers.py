"""Layers that repeat: as many are simulated as show the period, and the others follow from it to the tick."""

from dataclasses import dataclass

from ..compiler.ir import Graph, GraphChoice, GraphPlan, System
from ..compiler.planning.graph_build import build_graph_plan
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


@dataclass(frozen=True, slots=True)
class LayersResult:
    """The result of ``layers`` layers.

    ``simulated`` is that of the first ``num_simulated``. Each of the others takes ``period_ticks``; None where all were
    simulated.
    """

    simulated: GraphResult
    layers: int
    num_simulated: int
    period_ticks: int | None

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
    options: RunOptions = DEFAULT_OPTIONS,
) -> LayersResult:
    """Simulate the layers that ``graph`` repeats, one without ``repeat``; parameters are those of ``simulate_graph``.

    All are simulated where they are few, where no period shows, and under a seed. Of a plan those are that it has.

    Raises
    ------
    ScheduleError
        As ``build_graph_plan`` and ``simulate_graph``.
    RunTooLarge
        If no period shows and all layers are too many to simulate, or not in the plan.
    """
    count = graph.num_layers

    def simulated(plan: GraphPlan) -> GraphResult:
        return simulate_graph(system, plan, name=name, unit_bytes=unit_bytes, seed=seed, alike=alike, options=options)

    def run(layers: int) -> GraphResult:
        assert isinstance(schedule, GraphChoice), "a plan is run as it is"
        return simulated(build_graph_plan(system, graph, schedule, layers))

    if isinstance(schedule, GraphPlan):
        return _of_written(graph, schedule, seed, simulated(schedule))
    for layers in (FEWEST_LAYERS, MOST_LAYERS):
        if count <= layers or seed is not None:
            break
        result = run(layers)
        if result.period_ticks is not None or result.whole.outcome is not RunOutcome.DONE:
            return LayersResult(result, count, layers, result.period_ticks)
    if count * schedule.batches * len(graph.ops) > MOST_OPS:
        message = f"{schedule.name} shows no period in {MOST_LAYERS} layers, and {count} are too many to simulate"
        raise RunTooLarge(f"{message}: repeat fewer layers, or keep ops from running ahead")
    return LayersResult(run(count), count, count, None)


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
