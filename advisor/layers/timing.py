"""The time of a joint schedule from the times of its ops alone: which small changes are worth a simulation.

Parts are placed in the order in which they are issued: kernels behind each other, lone collectives behind each other,
and each part behind what it reads. Copies that meet on the links delay the later ones. Caches, waves of tiles and
priorities are not in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...compiler.ir import Graph, GraphChoice, GraphOp, Made, OpMode
from ...compiler.planning.graph_layers import own_name, written_out
from ...compiler.planning.graph_order import collective_name, issue_order
from .joint import few_layers
from .modes import Way


def estimated_ticks(
    graph: Graph, ways: Mapping[str, Sequence[Way]], choice: GraphChoice, kernels: Mapping[str, int]
) -> int:
    """Return the estimated time of all layers of ``graph``, which is written out in the batches of ``choice``.

    ``kernels`` are the times of the kernels of ops alone.

    Raises
    ------
    GraphPlanError
        If the order cannot be kept.
    """
    count = graph.num_layers
    few = few_layers(count, choice)
    written, of_layers = written_out(graph, replace(choice, batches=1), few)
    clock = _Clock(written, of_layers, ways, kernels)
    ends = [0] * (few + 1)
    for part in issue_order(written, of_layers):
        layer = clock.run(part)
        ends[layer] = max(ends[layer], clock.main_end)
    shown = max(1, few - choice.ahead)
    shift = ends[shown] - ends[shown - 1]
    return clock.end + (count - few) * shift


@dataclass(slots=True)
class _Clock:
    """What is placed so far, in ticks."""

    graph: Graph
    choice: GraphChoice
    ways: Mapping[str, Sequence[Way]]
    kernels: Mapping[str, int]
    main_end: int = 0
    collectives_end: int = 0
    end: int = 0
    _begins: dict[str, int] = field(default_factory=dict)  # of kernels, by op
    _moved: dict[str, int] = field(default_factory=dict)  # when all copies of an op have landed
    _ends: dict[str, int] = field(default_factory=dict)
    _links: list[tuple[int, int, float]] = field(default_factory=list)  # begin, end, share of the links
    _ops: dict[str, GraphOp] = field(default_factory=dict)
    _modes: dict[str, OpMode] = field(default_factory=dict)
    _beside: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ops = {op.name: op for op in self.graph.ops}
        self._modes = {mode.op: mode for mode in self.choice.modes}
        self._beside = dict(self.choice.beside)

    def run(self, part: str) -> int:
        """Place a part, and return its layer."""
        op = self._ops[part.partition(".")[0]]
        way = self._way(op)
        if op.workload.is_collective or (way.is_apart and part == collective_name(op)):
            self._collective(op, way)
        elif way.is_apart or op.workload.moved is None:
            self._kernel(op, way)
        else:
            self._together(op, way)
        self.end = max(self.end, self._ends.get(op.name, 0))
        return op.layer

    def _way(self, op: GraphOp) -> Way:
        of = self.ways[own_name(op.name)]
        wanted = replace(self._modes.get(op.name, OpMode(op.name)), op=own_name(op.name))
        usual = _serial(of[0], op) if op.is_pair else of[0]
        return next((way for way in of if way.mode == wanted), usual)

    def _ready(self, op: GraphOp, *, moves: bool | None) -> int:
        """When operands are there: those of copies, of the kernel, or all."""
        times = [0]
        for read in op.reads:
            if read.made_by and (moves is None or read.moves is moves):
                times.append((self._moved if read.what is Made.MOVED else self._ends)[read.made_by])
        return max(times)

    def _collective(self, op: GraphOp, way: Way) -> None:
        begin = max(self.collectives_end, self._ready(op, moves=None if op.workload.is_collective else True))
        if op.workload.pattern.produces and op.name in self._ends:
            begin = max(begin, self._ends[op.name])
        if op.name in self._beside:
            begin = max(begin, self._begins.get(self._beside[op.name], 0))
        elif not any(read.made_by for read in op.reads):
            begin = max(begin, self.main_end)
        end = self._on_links(begin, way.copies[1], 1.0)
        self.collectives_end = self._moved[op.name] = end
        if op.workload.is_collective or op.workload.pattern.produces:
            self._ends[op.name] = end

    def _kernel(self, op: GraphOp, way: Way) -> None:
        begin = max(self.main_end, self._ready(op, moves=False if op.is_pair else None))
        if op.is_pair and not op.workload.pattern.produces:
            begin = max(begin, self._moved[op.name])
        self._begins[op.name] = begin
        self.main_end = self._ends[op.name] = begin + way.kernel

    def _together(self, op: GraphOp, way: Way) -> None:
        begin = max(self.main_end, self._ready(op, moves=False))
        moves = max(self._ready(op, moves=True), 0 if op.workload.pattern.consumes else begin)
        length = way.copies[1] - way.copies[0]
        landed = self._on_links(moves + way.copies[0], length, min(1.0, self._collective_ticks(op) / max(1, length)))
        late = landed - (moves + way.copies[1])
        end = begin + way.kernel
        if op.workload.pattern.consumes:  # what has landed before the kernel begins is not waited for
            end = max(begin + self.kernels[own_name(op.name)], moves + way.kernel + late)
        self._begins[op.name], self.main_end, self._moved[op.name] = begin, end, landed
        self._ends[op.name] = max(end, landed) + max(0, way.total - max(way.kernel, way.copies[1]))

    def _collective_ticks(self, op: GraphOp) -> int:
        return next((way.copies[1] for way in self.ways[own_name(op.name)] if way.is_apart), 0)

    def _on_links(self, begin: int, length: int, share: float) -> int:
        """When copies end that begin then, later by what they meet on the links."""
        end = begin + length
        for first, last, other in self._links[-8:]:
            meet = min(end, last) - max(begin, first)
            if meet > 0 and share + other > 1:
                end += int(meet * (share + other - 1))
        self._links.append((begin, end, share))
        return end


def _serial(way: Way, op: GraphOp) -> Way:
    """A pair that is carried out in the usual way: one half behind the other, as one part."""
    mode = OpMode(op.name)
    if op.workload.pattern.produces:
        return replace(way, mode=mode, copies=(way.kernel, way.kernel + way.copies[1]))
    return replace(way, mode=mode, kernel=way.total)
