"""Joint simulations of one graph: each schedule once, a few layers in coarse packets, to tell which is faster."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import median

from ...compiler.ir import Cancelled, Graph, GraphChoice, ShouldStop, System
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.graph_layers import in_layer, own_name
from ...compiler.text.quantities import bytes_text
from ...simcore import RunOptions, RunOutcome, RunTooLarge
from ...simcore.simulate_layers import LayersResult, simulate_layers
from .alike import AlikeRanks

COARSE_BYTES = 8192
"""Bytes of a packet in the search: within 0.2 % of packets of 1 KiB on the shipped layers, in a third of the time."""

SEARCH_LAYERS = 3
"""Layers that are simulated in the search, of those that repeat: one with its neighbours on both sides."""

MOST_LINE_HOPS = 60_000_000
"""Line-hops of a run in the search, about a second on one core: larger graphs are searched in larger packets."""

CANNOT_BE = "it cannot be carried out"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class JointRuns:
    """Simulations of schedules of ``graph``, remembered by what they say.

    ``staging_limit_bytes`` is the most memory that a schedule may stage. ``num_runs`` counts those that were simulated,
    in packets of ``unit_bytes``.
    ``left_out`` says of schedules without a time why, in words.
    """

    system: System
    graph: Graph
    staging_limit_bytes: int | None = None
    should_stop: ShouldStop = lambda: False
    told: Callable[[GraphChoice, int], None] = lambda choice, ticks: None
    num_runs: int = 0
    unit_bytes: int = COARSE_BYTES
    left_out: dict[GraphChoice, str] = field(default_factory=dict)
    _known: dict[GraphChoice, int | None] = field(default_factory=dict)
    _alike: AlikeRanks | None = None

    def ticks(self, choice: GraphChoice) -> int | None:
        """Return the estimated time of all layers under ``choice``; None where it cannot be, or stages too much.

        Raises
        ------
        Cancelled
            If the caller is asked to stop.
        """
        key = replace(choice, name="")
        if key not in self._known:
            if self.should_stop():
                raise Cancelled
            self._known[key] = self._simulated(choice)
        return self._known[key]

    def _simulated(self, choice: GraphChoice) -> int | None:
        repeat = self.graph.repeat
        few = None if repeat is None else replace(repeat, count=few_layers(repeat.count, choice))
        graph = replace(self.graph, repeat=few)
        self._alike = self._alike or AlikeRanks(self.system, self.should_stop)
        alike = self._alike.under(replace(graph, repeat=None), choice)
        result = simulated(self.system, graph, choice, self.unit_bytes, self.should_stop, alike=alike)
        self.num_runs += 1
        if result is None or self.stages_too_much(result):
            self.left_out[choice] = CANNOT_BE if result is None else too_much(result, self.staging_limit_bytes or 0)
            return None
        ticks = _of_layers(result, self.graph.num_layers, choice.layers_apart)
        self.told(choice, ticks)
        return ticks

    def stages_too_much(self, result: LayersResult) -> bool:
        """Whether a schedule stages more than the file allows."""
        limit = self.staging_limit_bytes
        return limit is not None and result.simulated.whole.schedule.staging_bytes > limit


def too_much(result: LayersResult, limit: int) -> str:
    """Return what a schedule stages, which is more than ``limit``, in words."""
    staged = bytes_text(result.simulated.whole.schedule.staging_bytes)
    return f"it stages {staged}, more than the {bytes_text(limit)} that the file allows"


def affordable_packet(coarse: LayersResult, most_line_hops: int = MOST_LINE_HOPS) -> int:
    """``COARSE_BYTES``, doubled until a run like ``coarse``, which is in such packets, has no more line-hops."""
    unit, line_hops = COARSE_BYTES, coarse.simulated.whole.line_hops
    while line_hops > most_line_hops:
        unit, line_hops = unit * 2, line_hops // 2
    return unit


def few_layers(count: int, choice: GraphChoice) -> int:
    """How many of ``count`` layers are simulated in the search: more where something is brought layers ahead."""
    return min(count, SEARCH_LAYERS + choice.layers_apart)


def _of_layers(result: LayersResult, layers: int, apart: int) -> int:
    """The time of so many layers, from a few: each further one takes as long as most ops come later than before.

    Parts are issued up to so many layers ``apart`` from their place, so that the last of the few lack some beside them.
    """
    few = result.num_simulated
    if few == layers:
        return result.makespan_ticks
    ends = {op.name: op.end_ticks for op in result.simulated.ops}
    shown = few - apart
    last = {own_name(name): end for name, end in ends.items() if name == in_layer(own_name(name), shown)}
    shift = int(median(end - ends[in_layer(name, shown - 1)] for name, end in last.items()))
    return result.makespan_ticks + (layers - few) * shift


def simulated(
    system: System,
    graph: Graph,
    choice: GraphChoice,
    unit_bytes: int,
    should_stop: ShouldStop,
    *,
    fine: bool = False,
    alike: bool = False,
) -> LayersResult | None:
    """Return the result of one schedule; None where it cannot be carried out, or does not finish.

    A ``fine`` one tells where units queue, and the loads of links over time. Ranks may be taken for ``alike``.

    Raises
    ------
    Cancelled
        If the caller is asked to stop.
    """
    options = RunOptions(many=not fine, observe=fine, loads=fine, should_stop=should_stop)
    try:
        result = simulate_layers(
            system, graph, choice, name=graph.name, unit_bytes=unit_bytes, alike=alike, options=options
        )
    except (ScheduleError, RunTooLarge) as error:
        log.debug("%s is left out: %s", choice.name, error)
        return None
    if result.simulated.whole.outcome is RunOutcome.CANCELLED:
        raise Cancelled
    return result if result.simulated.whole.outcome is RunOutcome.DONE else None
