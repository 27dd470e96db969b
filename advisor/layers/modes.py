"""The ways in which one op of a graph may be carried out, with its times alone: what a joint schedule chooses from.

A kernel or a lone collective has one way. A pair may be kept apart, kernel and collective as wholes beside which other
ops may run, or overlap in itself by one of the templates that are fastest alone. Of these only those are kept that no
other one beats in everything: its time, how long its kernels hold the SMs, when what it gathers has landed, and memory.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from typing import NamedTuple

from ...compiler.collectives import ALGORITHMS
from ...compiler.ir import Choice, Explore, Graph, GraphChoice, GraphOp, GraphPlan, OpMode, Scenario, System
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.graph_build import build_graph_plan
from ...compiler.planning.graph_halves import collective_alone, kernel_alone
from ...simcore import RunOptions, RunTooLarge
from ...simcore.figures.result import IntervalKind
from ...simcore.simulate_graph import simulate_graph
from ..candidates.predicted import predicted_candidates
from ..candidates.ranking import shortlisted
from ..solver import NoFeasibleSchedule, enumerate_space
from .alike import AlikeRanks
from .contention import of_copies
from .copiers import Copier
from .pacing import FREE, LEAST_STEP, NUM_PACES, slowed_ticks, slower

NUM_SHORTLISTED = 6
"""Templates of a pair that are simulated alone, those with the shortest estimates."""

NUM_ALGORITHMS = 3
"""Algorithms of a lone collective that are simulated alone, besides the usual one."""

WORSE = 1.25
"""Factor in time within which the usual algorithm of a whole collective stays beside that for nodes.

Of many ranks it is that within which a way stays beside the fastest.
"""

MOST_TOGETHER = 4
"""Ways to overlap a pair in itself that a joint schedule may choose from."""

_QUICK = RunOptions(many=True, loads=False)
_OP = "op"


@dataclass(frozen=True, slots=True)
class Way:
    """One way to carry out an op, with its times in ticks.

    An op that is not ``is_apart`` takes ``total`` from its begin on: its kernels run until ``kernel``, and copies from
    ``copies[0]`` to ``copies[1]``. Apart the kernel takes ``kernel`` and the collective ``copies[1]``, each from its
    own begin. A lone kernel has no copies, and a lone collective no kernel. ``sums`` of a collective that is a part of
    its own hold the SMs of kernels at its end. One that is ``paced`` is slower than it could be.
    """

    mode: OpMode
    total: int
    kernel: int
    copies: tuple[int, int]
    staging_bytes: int = 0
    sums: int = 0
    is_paced: bool = False

    @property
    def is_apart(self) -> bool:
        """Whether kernel and collective of a pair are parts of their own."""
        return self.mode.apart is not None

    @property
    def is_whole(self) -> bool:
        """Whether the collective is a part of its own: of a pair that is apart, or alone."""
        return self.is_apart or not self.kernel

    def beats(self, other: "Way") -> bool:
        """Whether it is no worse in anything, and better in something."""
        mine, theirs = self._costs(), other._costs()
        return mine != theirs and all(one <= another for one, another in zip(mine, theirs, strict=True))

    def _costs(self) -> tuple[int, ...]:
        return self.total, self.kernel, self.copies[1], self.staging_bytes


class _Times(NamedTuple):
    total: int
    kernel: int
    copies: tuple[int, int]
    staging_bytes: int
    sums: int


@dataclass(slots=True)
class Ways:
    """The ways of the ops of one graph, by one ``copier``; ops with equal workloads share theirs.

    Where they are ``paced``, whole collectives may also be slower than they could be. Where ``ranks`` differ, one is
    simulated for all, until what is then the fastest way of an op is one in which that makes no difference.
    """

    system: System
    copier: Copier
    unit_bytes: int
    explore: Explore = field(default_factory=Explore)
    paced: bool = True
    ranks: AlikeRanks | None = None
    _known: dict[object, tuple[Way, ...]] = field(default_factory=dict)
    _kernels: dict[object, int] = field(default_factory=dict)

    def of(self, op: GraphOp) -> tuple[Way, ...]:
        """Return the ways of an op, that of a pair apart first, then by their times alone.

        Raises
        ------
        Cancelled
            If the caller is asked to stop.
        """
        if op.workload not in self._known:
            self._known[op.workload] = self._ways(op)
        return tuple(replace(way, mode=replace(way.mode, op=op.name)) for way in self._known[op.workload])

    def of_graph(self, graph: Graph) -> dict[str, tuple[Way, ...]]:
        """Return the ways of each op of a graph by its name."""
        return {op.name: self.of(op) for op in graph.ops}

    def kernel_ticks(self, op: GraphOp) -> int:
        """Return the time of the kernel of an op alone, 0 of a collective."""
        if op.workload.is_collective:
            return 0
        kernel = kernel_alone(op.workload) if op.is_pair and op.workload.then is None else op.workload
        if kernel not in self._kernels:
            self._kernels[kernel] = self._alone(replace(op, workload=kernel, reads=()), OpMode(_OP)).kernel
        return self._kernels[kernel]

    def _ways(self, op: GraphOp) -> tuple[Way, ...]:
        if op.is_pair:
            return self._pair(op)
        if op.workload.is_collective:
            return self._collective(op)
        return (self._way(op, OpMode(_OP)),)

    def _way(self, op: GraphOp, mode: OpMode, *, alike: bool = False) -> Way:
        total, kernel, copies, staging, sums = self._alone(op, mode, alike=alike)
        if not op.workload.is_collective:
            return Way(mode, total, kernel, copies, staging)
        return Way(mode, total, kernel, copies, staging, sums)

    def _collective(self, op: GraphOp) -> tuple[Way, ...]:
        """A lone collective, whole, by the usual algorithm and by those that are estimated to be faster."""
        usual, *paced = self._whole(op)
        return (usual, *self._by_another(op, usual), *paced)

    def _by_another(self, op: GraphOp, usual: Way) -> Sequence[Way]:
        """A whole collective by the fastest algorithm, where that is not the usual one."""
        others = [way for way in self._shortlisted(op, NUM_ALGORITHMS, by_algorithm=True) if way.total < usual.total]
        return sorted(others, key=lambda way: way.total)[:1]

    def _by_nodes(self, op: GraphOp, usual: Way) -> Sequence[Way]:
        """A whole collective in two steps, within nodes and across, where that is faster than the usual one."""
        found, joined = list[Way](), self.system.fabric.node_size not in (0, 1)
        names = [algorithm.name for algorithm in ALGORITHMS if algorithm.per_node] if joined and self.paced else ()
        for name, pieces in product(names, (1, 2, 4)):
            choice = Choice(name, self.system.num_ranks * pieces, self.copier.engine)
            with suppress(ScheduleError, RunTooLarge):
                found.append(self._way(op, OpMode(_OP, choice), alike=self._ranks_differ))
        confirmed = self._confirmed(op, found) if self._ranks_differ else found
        return sorted((way for way in confirmed if way.total < usual.total), key=lambda way: way.total)[:1]

    def _whole(self, op: GraphOp) -> Sequence[Way]:
        """A collective as usual, and slower, down to the rate at which a GEMM beside it is as fast as alone."""
        usual = self._way(op, OpMode(_OP, self.copier.serial(self.system.num_ranks)))
        found, costs = [usual], self._slowed(op, usual)
        for choice in slower(self.system, self.copier) if self.paced else ():
            if self._slowed(op, found[-1]) <= costs * FREE:
                break
            try:
                way = replace(self._way(op, OpMode(_OP, choice)), is_paced=True)
            except (ScheduleError, RunTooLarge):
                break
            if way.total > found[-1].total * LEAST_STEP:
                found.append(way)
        return (usual, *found[1:][-NUM_PACES:])

    def _slowed(self, op: GraphOp, way: Way) -> int:
        """How much longer GEMMs take beside a whole collective."""
        length = way.copies[1] - way.sums
        return slowed_ticks(self.system.gpu, of_copies(self.system, op, length), length)

    def _pair(self, op: GraphOp) -> tuple[Way, ...]:
        together = list(self._shortlisted(op, NUM_SHORTLISTED, by_algorithm=False))
        best = [way for way in together if not any(other.beats(way) for other in together)]
        best.sort(key=lambda way: way.total)
        if self.ranks is not None and self.ranks.are_many:
            best = [way for way in best if way.total <= best[0].total * WORSE]
        return (*self._apart(op), *best[:MOST_TOGETHER]) or (self._way(op, OpMode(_OP)),)

    def _apart(self, op: GraphOp) -> Iterator[Way]:
        """A pair as a kernel and a collective, the usual one first; none where it cannot be."""
        if op.workload.then is not None or op.workload.loads:
            return
        kernel = self._alone(replace(op, workload=kernel_alone(op.workload), reads=()), OpMode(_OP)).total
        serial = self._alone(op, OpMode(_OP, self.copier.serial(self.system.num_ranks)))
        whole = replace(op, workload=collective_alone(op.workload), reads=())
        usual, *paced = self._whole(whole)
        other = self._by_nodes(whole, usual)
        first = () if any(usual.total > way.total * WORSE for way in other) else (usual,)
        for way in (*first, *other, *paced):
            mode = OpMode(_OP, apart=way.mode.body if isinstance(way.mode.body, Choice) else None)
            total = serial.total + way.total - usual.total
            yield replace(way, mode=mode, total=total, kernel=kernel, staging_bytes=serial.staging_bytes)

    def _shortlisted(self, op: GraphOp, top: int, *, by_algorithm: bool) -> Sequence[Way]:
        """What is estimated to be the fastest alone, simulated."""
        scenario = Scenario(op.name, self.system, op.workload, explore=self.explore)
        try:
            space = enumerate_space(scenario)
        except NoFeasibleSchedule:
            return ()
        choices = [choice for choice in space.structures if self.copier.takes(choice.engine)]
        ranked = [one for one in predicted_candidates(scenario, choices) if by_algorithm or not one.is_serial]
        mine = [one for one in ranked if one.choice is not None and self.copier.takes(one.choice.engine)]
        found = []
        for candidate in shortlisted(mine, top, by_algorithm=by_algorithm)[:top]:
            with suppress(ScheduleError, RunTooLarge):  # one that a graph cannot say, or that is long to simulate
                found.append(self._way(op, OpMode(_OP, candidate.choice), alike=self._ranks_differ))
        return self._confirmed(op, found) if self._ranks_differ else found

    @property
    def _ranks_differ(self) -> bool:
        return self.ranks is not None and self.ranks.differ

    def _confirmed(self, op: GraphOp, ways: Sequence[Way]) -> Sequence[Way]:
        """The ways, of which the fastest has the time that it takes if ranks are not taken for alike."""
        left, found = list(ways), list[Way]()
        while left:
            first = min(left, key=lambda way: way.total)
            if any(way.total <= first.total for way in found):
                break
            left.remove(first)
            found.append(first if self._makes_no_difference(op, first.mode) else self._way(op, first.mode))
        return [*found, *left]

    def _makes_no_difference(self, op: GraphOp, mode: OpMode) -> bool:
        assert self.ranks is not None, "the caller asks where ranks differ"
        return all(self.ranks.alone(part) for part in self._plan(op, mode).parts)

    def _plan(self, op: GraphOp, mode: OpMode) -> GraphPlan:
        alone = Graph(_OP, "", (replace(op, name=_OP, reads=(), layer=1),))
        return build_graph_plan(self.system, alone, GraphChoice(_OP, (mode,) if mode.body is not None else ()))

    def _alone(self, op: GraphOp, mode: OpMode, *, alike: bool = False) -> _Times:
        """The times of an op that runs alone, with the SMs that the copier leaves to kernels."""
        plan = self._with_sms(self._plan(op, mode))
        alike = alike or op.workload.moved is None  # lone kernels are, whatever the fabric
        run = simulate_graph(self.system, plan, unit_bytes=self.unit_bytes, alike=alike, options=_QUICK)
        result = run.whole
        of_kernels = [one for one in result.timeline.intervals if one.kind is IntervalKind.COMPUTE]
        of_copies = [one for one in result.timeline.intervals if one.kind is IntervalKind.COMM]
        kernel = max((one.end_ticks for one in of_kernels), default=0)
        begin = min((one.start_ticks for one in of_copies), default=0)
        end = max((one.end_ticks for one in of_copies), default=0)
        if op.workload.is_collective:
            begin, end = 0, result.makespan_ticks
        sums = sum(
            one.end_ticks - one.start_ticks
            for one in result.timeline.intervals
            if one.kind is IntervalKind.REDUCE and one.rank == 0
        )
        return _Times(result.makespan_ticks, kernel, (begin, end), result.schedule.staging_bytes, sums)

    def _with_sms(self, plan: GraphPlan) -> GraphPlan:
        """SMs that copy are taken from all kernels, also from those that move nothing."""
        sms = self.system.gpu.sms - self.copier.taken_sms
        return replace(
            plan,
            parts=tuple(
                replace(part, schedule=replace(part.schedule, compute_sms=min(part.schedule.compute_sms, sms)))
                for part in plan.parts
            ),
        )


def fastest_alone(ways: Sequence[Way]) -> Way:
    """Return the way that is fastest alone: what is best for the op if nothing else runs."""
    return min(ways, key=lambda way: way.total)
