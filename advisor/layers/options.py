"""The options of one op of a workload, with their times alone: what a joint schedule chooses from.

A kernel or a lone collective has one option. A pair may be separated, kernel and collective as wholes beside which
other ops may run, or overlap in itself by one of the templates that are fastest alone. Of these only those are kept
that no other beats in everything: its time, how long its kernels hold SMs, when what it gathers has arrived, memory.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product

from ...compiler.collectives import ALGORITHMS
from ...compiler.ir import (
    EngineChoice,
    EngineKind,
    Explore,
    Gpu,
    Op,
    OpCase,
    OpChoice,
    OpMode,
    OpShape,
    System,
    Workload,
)
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.handoff import as_one, following
from ...compiler.planning.parts import collective_alone, kernel_alone
from ...compiler.templates.collective import DEFAULT_ALGORITHM
from ...simcore import RunTooLarge
from ..candidates.predicted import predicted_candidates, shortlisted
from ..solver import NoFeasibleSchedule, enumerate_space
from .op_runs import AlikeRanks, Copier, OpRuns, Uses, of_copies


@dataclass(frozen=True, slots=True)
class OpOption:
    """One way to carry out an op, with its times in ticks.

    An op that is not ``is_apart`` takes ``total`` from its begin on: its kernels run until ``kernel``, and copies from
    ``copies[0]`` to ``copies[1]``. Apart the kernel takes ``kernel`` and the collective ``copies[1]``, each from its
    own begin. A lone kernel has no copies, and a lone collective no kernel. ``sums`` of a collective that is a part of
    its own hold the SMs of kernels at its end. One that is ``paced`` is slower than it could be. ``with_next`` is the
    time together with the GEMM that is cut along it, 0 without one; ``is_for_next`` is one that only this speaks for.
    """

    mode: OpMode
    total: int
    kernel: int
    copies: tuple[int, int]
    staging_bytes: int = 0
    sums: int = 0
    is_paced: bool = False
    with_next: int = 0
    is_for_next: bool = False

    @property
    def is_separate(self) -> bool:
        """Whether kernel and collective of a pair are parts of their own."""
        return self.mode.separate is not None

    @property
    def is_whole(self) -> bool:
        """Whether the collective is a part of its own: of a separated pair, or alone."""
        return self.is_separate or not self.kernel

    def beats(self, other: "OpOption") -> bool:
        """Whether it is no worse in anything, and better in something."""
        mine, theirs = self._costs(), other._costs()
        return mine != theirs and all(one <= another for one, another in zip(mine, theirs, strict=True))

    def _costs(self) -> tuple[int, ...]:
        return self.total, self.kernel, self.copies[1], self.staging_bytes


def fastest_alone(op_options: Sequence[OpOption]) -> OpOption:
    """Return the option that is fastest alone: what is best for the op if nothing else runs."""
    return min(op_options, key=lambda option: option.total)


def fastest_with_next(op_options: Sequence[OpOption]) -> OpOption:
    """Return the option that is fastest together with the GEMM that is cut along it, or alone where there is none."""
    return min(op_options, key=lambda option: option.with_next or option.total)


MOST_PIECES = 32
"""Pieces of a shard at most: smaller ones are mostly the setup of copies, which is assumed in most profiles."""

LEAST_STEP = 1.25
"""Factor by which each pace is slower than the one before, at least."""

NUM_PACES = 2
"""Paces that a joint schedule may choose from, besides the fastest: the slowest that gain something."""

FREE = 0.1
"""Share of what the fastest copies cost kernels at which no slower ones are looked for."""

_LIMITS = ("engine", "schedules", "chunks", "algorithm")


def slowed_ticks(gpu: Gpu, copies: Uses, length: int) -> int:
    """How much longer GEMMs take beside ``copies`` of so many ticks."""
    if gpu.noc is None:
        return 0
    return int(length * (1 - Uses(noc=float(gpu.noc.gemm_share)).beside(copies, 1.0)))


def is_limited(explore: Explore) -> bool:
    """Whether the file says by what, or in how many pieces, collectives may be carried out."""
    return any(word in _LIMITS for word, _ in explore.requested)


def slower(system: System, copier: Copier) -> Iterator[OpChoice]:
    """Yield choices of a whole collective, each slower than the one before, by an engine beside those of ``copier``."""
    engine = EngineChoice(EngineKind.DMA, 1)
    if copier.takes(engine) and copier.engine.count < system.gpu.dma.engines:
        for doublings in range(1, MOST_PIECES.bit_length()):
            yield OpChoice(DEFAULT_ALGORITHM, system.num_ranks << doublings, engine)


NUM_SHORTLISTED = 6
"""Templates of a pair that are simulated alone, those with the shortest estimates."""

NUM_ALGORITHMS = 3
"""Algorithms of a lone collective that are simulated alone, besides the usual one."""

WORSE = 1.25
"""Factor in time within which the usual algorithm of a whole collective stays beside that for nodes.

Of many ranks it is that within which a option stays beside the fastest.
"""

MOST_TOGETHER = 4
"""Ways to overlap a pair in itself that a joint schedule may choose from."""

_OP = "op"


@dataclass(slots=True)
class OpOptions:
    """The options of the ops of one workload, by one ``copier``; ops with equal workloads share theirs.

    Where they are ``paced``, whole collectives may also be slower than they could be. Where ``ranks`` differ, one is
    simulated for all, until what is then the fastest option of an op is one in which that makes no difference.
    """

    system: System
    copier: Copier
    unit_bytes: int
    explore: Explore = field(default_factory=Explore)
    paced: bool = True
    ranks: AlikeRanks | None = None
    _runs: OpRuns = field(init=False)
    _known: dict[object, tuple[OpOption, ...]] = field(default_factory=dict)
    _kernels: dict[object, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._runs = OpRuns(self.system, self.copier, self.unit_bytes)

    def of(self, op: Op, behind: Op | None = None) -> tuple[OpOption, ...]:
        """Return the options of an op, that of a separated pair first, then by their times alone.

        The GEMM ``behind`` it may be cut along it.

        Raises
        ------
        Cancelled
            If the caller is asked to stop.
        """
        key = op.shape, behind and behind.shape
        if key not in self._known:
            self._known[key] = self._op_options(op, behind)
        return tuple(replace(option, mode=replace(option.mode, op=op.name)) for option in self._known[key])

    def of_graph(self, workload: Workload) -> dict[str, tuple[OpOption, ...]]:
        """Return the options of each op of a workload by its name."""
        behind = self.following(workload)
        return {op.name: self.of(op, *behind.get(op.name, ())[:1]) for op in workload.ops}

    def following(self, workload: Workload) -> dict[str, tuple[Op, ...]]:
        """Return the GEMMs that may be cut along a pair, by its name, the longest first."""
        found = following(workload, self.system.num_ranks)
        return {pair: tuple(sorted(ops, key=self.kernel_ticks, reverse=True)) for pair, ops in found.items()}

    def kernel_ticks(self, op: Op) -> int:
        """Return the time of the kernel of an op alone, 0 of a collective."""
        if op.shape.is_collective:
            return 0
        kernel = kernel_alone(op.shape) if op.is_pair and op.shape.then is None else op.shape
        if kernel not in self._kernels:
            self._kernels[kernel] = self._runs.times(replace(op, shape=kernel, reads=()), OpMode(_OP)).kernel
        return self._kernels[kernel]

    def _op_options(self, op: Op, behind: Op | None) -> tuple[OpOption, ...]:
        if op.is_pair:
            return self._pair(op, behind)
        if op.shape.is_collective:
            return self._collective(op)
        return (self._option(op, OpMode(_OP)),)

    def _option(self, op: Op, mode: OpMode, *, alike: bool = False) -> OpOption:
        total, kernel, copies, staging, sums = self._runs.times(op, mode, alike=alike)
        if not op.shape.is_collective:
            return OpOption(mode, total, kernel, copies, staging)
        return OpOption(mode, total, kernel, copies, staging, sums)

    def _collective(self, op: Op) -> tuple[OpOption, ...]:
        """A lone collective, whole, by the usual algorithm and by those that are estimated to be faster."""
        usual, *paced = self._whole(op)
        return (usual, *_faster(self._shortlisted(op, NUM_ALGORITHMS, by_algorithm=True), usual), *paced)

    def _by_nodes(self, op: Op, usual: OpOption) -> Sequence[OpOption]:
        """A whole collective in two steps, within nodes and across, where that is faster than the usual one."""
        found, joined = list[OpOption](), self.system.fabric.node_size not in (0, 1)
        names = [algorithm.name for algorithm in ALGORITHMS if algorithm.per_node] if joined and self.paced else ()
        for name, pieces in product(names, (1, 2, 4)):
            choice = OpChoice(name, self.system.num_ranks * pieces, self.copier.engine)
            with suppress(ScheduleError, RunTooLarge):
                found.append(self._option(op, OpMode(_OP, choice), alike=self._ranks_differ))
        return _faster(self._confirmed(op, found), usual)

    def _whole(self, op: Op) -> Sequence[OpOption]:
        """A collective as usual, and slower, down to the rate at which a GEMM beside it is as fast as alone."""
        usual = self._option(op, OpMode(_OP, self.copier.serial(self.system.num_ranks)))
        found, costs = [usual], self._slowed(op, usual)
        for choice in slower(self.system, self.copier) if self.paced else ():
            if self._slowed(op, found[-1]) <= costs * FREE:
                break
            try:
                option = replace(self._option(op, OpMode(_OP, choice)), is_paced=True)
            except (ScheduleError, RunTooLarge):
                break
            if option.total > found[-1].total * LEAST_STEP:
                found.append(option)
        return (usual, *found[1:][-NUM_PACES:])

    def _slowed(self, op: Op, option: OpOption) -> int:
        """How much longer GEMMs take beside a whole collective."""
        length = option.copies[1] - option.sums
        return slowed_ticks(self.system.gpu, of_copies(self.system, op, length), length)

    def _pair(self, op: Op, behind: Op | None) -> tuple[OpOption, ...]:
        together = self._shortlisted(op, NUM_SHORTLISTED, by_algorithm=False)
        best = [option for option in together if not any(other.beats(option) for other in together)]
        best.sort(key=lambda option: option.total)
        if self.ranks is not None and self.ranks.are_many:
            best = [option for option in best if option.total <= best[0].total * WORSE]
        found = (*self._separated(op), *best[:MOST_TOGETHER]) or (self._option(op, OpMode(_OP)),)
        return found if behind is None else self._followed(op, behind, found)

    def _followed(self, op: Op, behind: Op, found: Sequence[OpOption]) -> tuple[OpOption, ...]:
        """The options that were ``found``, and the best one with the GEMM ``behind`` it chained to it."""
        both = self._shortlisted(op, NUM_SHORTLISTED, by_algorithm=False, of=as_one(op.shape, behind.shape))
        op_options = [self._with_next(op, option, behind) for option in dict.fromkeys((*found, *both))]
        best, kept = fastest_with_next(op_options), op_options[: len(found)]
        return tuple(kept) if best in kept else (*kept, replace(best, is_for_next=True))

    def _with_next(self, op: Op, option: OpOption, behind: Op) -> OpOption:
        """A option with its time together with the GEMM ``behind`` it, which an own collective is not cut along."""
        with suppress(ScheduleError, RunTooLarge):  # one that a kernel cannot be cut along
            if not option.is_separate:
                return replace(
                    option, with_next=self._runs.with_next(op, option.mode, behind, alike=self._ranks_differ)
                )
        return replace(option, with_next=option.total + self.kernel_ticks(behind))

    def _separated(self, op: Op) -> Iterator[OpOption]:
        """A pair with its collective separated, in the usual way first; none if it cannot be."""
        if op.shape.then is not None or op.shape.uneven_by_rank:
            return
        kernel = self._runs.times(replace(op, shape=kernel_alone(op.shape), reads=()), OpMode(_OP)).total
        serial = self._runs.times(op, OpMode(_OP, self.copier.serial(self.system.num_ranks)))
        whole = replace(op, shape=collective_alone(op.shape), reads=())
        usual, *paced = self._whole(whole)
        other = self._by_nodes(whole, usual)
        first = () if any(usual.total > option.total * WORSE for option in other) else (usual,)
        for option in (*first, *other, *paced):
            mode = OpMode(_OP, separate=option.mode.body if isinstance(option.mode.body, OpChoice) else None)
            total = serial.total + option.total - usual.total
            yield replace(option, mode=mode, total=total, kernel=kernel, staging_bytes=serial.staging_bytes)

    def _shortlisted(self, op: Op, top: int, *, by_algorithm: bool, of: OpShape | None = None) -> Sequence[OpOption]:
        """What is estimated to be the fastest, alone or for the workload ``of`` which the op is a part, simulated."""
        scenario = OpCase(op.name, self.system, of or op.shape, explore=self.explore)
        try:
            space = enumerate_space(scenario)
        except NoFeasibleSchedule:
            return ()
        choices = [choice for choice in space.structures if self.copier.takes(choice.engine)]
        ranked = [one for one in predicted_candidates(scenario, choices) if by_algorithm or not one.is_serial]
        mine = [one for one in ranked if one.choice is not None and self.copier.takes(one.choice.engine)]
        found = []
        for candidate in shortlisted(mine, top, by_algorithm=by_algorithm)[:top]:
            with suppress(ScheduleError, RunTooLarge):  # one that a workload cannot say, or that is long to simulate
                found.append(self._option(op, OpMode(_OP, candidate.choice), alike=self._ranks_differ))
        return self._confirmed(op, found)

    @property
    def _ranks_differ(self) -> bool:
        return self.ranks is not None and self.ranks.differ

    def _confirmed(self, op: Op, op_options: Sequence[OpOption]) -> Sequence[OpOption]:
        """The options, of which the fastest has the time that it takes if ranks are not taken for alike."""
        if not self._ranks_differ:
            return op_options
        left, found = list(op_options), list[OpOption]()
        while left:
            first = min(left, key=lambda option: option.total)
            if any(option.total <= first.total for option in found):
                break
            left.remove(first)
            found.append(first if self._makes_no_difference(op, first.mode) else self._option(op, first.mode))
        return [*found, *left]

    def _makes_no_difference(self, op: Op, mode: OpMode) -> bool:
        assert self.ranks is not None, "the caller asks where ranks differ"
        return all(self.ranks.alone(part) for part in self._runs.plan(op, mode).parts)


def _faster(op_options: Sequence[OpOption], usual: OpOption) -> Sequence[OpOption]:
    """The fastest of the options, if it is faster than the usual one."""
    best = min(op_options, key=lambda option: option.total, default=usual)
    return (best,) if best.total < usual.total else ()
