"""Times of a step of a run beside those of its simulation: of its parts, of kernels by kind, and of ranks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from ....compiler.ir import TICKS_PER_US, DType, Gpu, Scenario
from ....compiler.pipeline import Compiled
from ....compiler.planning.plan import own_name
from ....simcore.figures.load_buckets import union_ticks
from ....simcore.figures.result import Interval, IntervalKind, Result
from ....simcore.simulate_layers import simulate_layers
from ..tables.csv_rows import MAX_RATIO
from ..tables.gemm_times import gemm_ticks
from .graph import GraphWriter, NamedOp, RunOp, with_gaps
from .ranks import Same, TracedRank, moved
from .run import TracedCollective, TracedGemm, TracedKernel, TracedRun

AS_IT_RAN = "as_it_ran"


def unit_doubt(run: TracedRun, gpu: Gpu) -> str:
    """Say that times of a run are in another unit, by its GEMMs beside those of ``gpu``; empty if they are not.

    Of a run without GEMMs that its profile has a rate for, nothing is known.
    """
    ratios = list[float]()
    for dtype in DType:
        gemms = [each for each in run.gemms if each.dtype is dtype and each.groups == 1 and gpu.peak(dtype)]
        ticks = gemm_ticks(gpu, np.array([(each.m, each.n, each.k) for each in gemms], np.int64).reshape(-1, 3), dtype)
        took = np.array([each.end_us - each.start_us for each in gemms])
        ratios += (took / ticks * TICKS_PER_US).tolist()
    ratio = median(ratios) if ratios else 1.0
    if 1 / MAX_RATIO < ratio < MAX_RATIO:
        return ""
    return f"GEMMs take {ratio:.3g} times as long as on {gpu.name}, as in another unit: times of a trace are in us"


@dataclass(frozen=True, slots=True)
class KindTimes:
    """Kernels of one kind: how many there are, and how long they take together, in us."""

    kind: str
    count: int
    measured_us: float
    simulated_us: float


@dataclass(frozen=True, slots=True)
class RankTimes:
    """When a rank ends, from the first begin of any, and how long its collectives wait for others, in us.

    Both as measured and as simulated.
    """

    rank: int
    measured_us: float
    simulated_us: float
    waited_us: float
    simulated_waited_us: float


def at_ranks(ops: Sequence[RunOp], ranks: Sequence[Same]) -> tuple[tuple[RunOp, ...], ...]:
    """The same ops as each of several ranks ran them, by one clock; those without needs begin after the first of all.

    An op that is not known of a rank takes as long as in ``ops``, and begins as long behind what it needs.
    """
    of_each = [_at_rank(ops, same) for same in ranks]
    begin = min(op.start_us for each in of_each for op in each)
    timed = [with_gaps(each, begin) for each in of_each]
    least = [min(each[place].parts[0].took_us for each in timed) for place in range(len(ops))]
    return tuple(
        tuple(
            replace(op, longer_us=op.parts[0].took_us - fastest) if isinstance(op.parts[0].does, TracedGemm) else op
            for op, fastest in zip(each, least, strict=True)
        )
        for each in timed
    )


def _at_rank(ops: Sequence[RunOp], same: Same) -> list[RunOp]:
    found = list[RunOp]()
    for op in ops:
        known, later = all(each in same for each in op.parts), 0.0
        if not known and op.needs:
            later = max(found[need].end_us for need in op.needs) - max(ops[need].end_us for need in op.needs)
        kernel, collective = (
            None if each is None else same[each] if known else moved(each, later) for each in (op.kernel, op.collective)
        )
        found.append(replace(op, kernel=kernel, collective=collective))
    return found


@dataclass(frozen=True, slots=True)
class StepPart:
    """A part of a step, a workload: ``scenario`` has a schedule whose name begins with ``AS_IT_RAN``.

    It takes ``measured_us`` from the first begin of a kernel to the last end, and begins ``gap_us`` after those before
    it have ended: less than 0 where the step was cut while some of them ran. ``ends_us`` is when each rank ends, from
    its begin on.
    """

    scenario: Scenario
    ops: tuple[NamedOp, ...]
    measured_us: float
    gap_us: float
    ends_us: tuple[float, ...]

    def simulated(self, unit_bytes: int) -> Result:
        """Return the simulation of the part in the order in which it ran, in units of so many bytes."""
        schedule = next(each for each in self.scenario.schedules if each.name.startswith(AS_IT_RAN))
        return simulate_layers(
            self.scenario.system, self.scenario.workload, schedule, name=self.scenario.name, unit_bytes=unit_bytes
        )


Simulated = Sequence[tuple[StepPart, Result]]
"""The parts of a step, each as it was simulated."""


def parts_between(compiled: Compiled, writers: Mapping[str, GraphWriter]) -> Iterator[StepPart]:
    """Yield the parts that ``writers`` wrote, by the names of their workloads, with what is between them."""
    ended: float | None = None
    for name, writer in writers.items():
        begin = min(op.start_us for ops in writer.ranks for op in ops)
        ends = tuple(max(op.end_us for op in ops) for ops in writer.ranks)
        last = max(*ends, ended or begin)
        gap = 0.0 if ended is None else begin - ended
        yield StepPart(
            compiled.scenario(name), tuple(writer.named), last - begin, gap, tuple(end - begin for end in ends)
        )
        ended = last


def kind_of(kernel: TracedKernel) -> str:
    """What a kernel is, in a word."""
    match kernel.does:
        case TracedGemm(groups=1):
            return "GEMM"
        case TracedGemm():
            return "grouped GEMM"
        case TracedCollective(operation=operation):
            return operation
        case _:
            return "other kernels"


def kinds_of(parts: Simulated, place: int) -> tuple[KindTimes, ...]:
    """Return the times of kernels of the rank at ``place`` by their kind, those that took most time first."""
    found: dict[str, list[tuple[float, float]]] = {}
    for part, result in parts:
        compute, moves = _ticks_at(result, place)
        for each in part.ops:
            for kernel, took in zip(each.op.parts, _times_of(each.op, each.name, compute, moves), strict=True):
                found.setdefault(kind_of(kernel), []).append((kernel.took_us, took))
    kinds = [
        KindTimes(kind, len(each), sum(one for one, _ in each), sum(two for _, two in each))
        for kind, each in found.items()
    ]
    return tuple(sorted(kinds, key=lambda each: -each.measured_us))


def _times_of(op: RunOp, name: str, compute: Mapping[str, int], moves: Mapping[str, int]) -> tuple[float, ...]:
    """The simulated times, in us, of the parts of an op: those of its kernel and of its collective."""
    kernel, collective = compute.get(name, 0) / TICKS_PER_US + op.longer_us, moves.get(name, 0) / TICKS_PER_US
    if op.collective is None:
        return (kernel,)
    return (collective,) if op.kernel is None else (kernel, collective)


def _ticks_at(result: Result, place: int) -> tuple[dict[str, int], dict[str, int]]:
    """Ticks of kernels at one rank, by op, and of copies at the one that takes least: others wait in them."""
    of_rank = [_by_op(result, rank) for rank in range(result.timeline.period)]
    own = of_rank[place % len(of_rank)]
    compute = {name: union_ticks(each for each in found if not _moves(each)) for name, found in own.items()}
    moves = {
        name: min(union_ticks(each for each in found.get(name, ()) if _moves(each)) for found in of_rank)
        for name in own
    }
    return compute, moves


def _by_op(result: Result, rank: int) -> dict[str, list[Interval]]:
    found: dict[str, list[Interval]] = {}
    alone = result.ops[0].name if len(result.ops) == 1 else ""
    for each in result.timeline.of_rank(rank):
        found.setdefault(own_name(alone or each.name.partition(".")[0]), []).append(each)
    return found


def _moves(interval: Interval) -> bool:
    return interval.kind is IntervalKind.COMM


def ranks_apart(
    parts: Simulated, ranks: Sequence[TracedRank], measured_us: float, simulated_us: float
) -> tuple[RankTimes, ...]:
    """Return the times of each of ``ranks``, of a step that takes so long for all of them."""
    last, result = parts[-1]
    waited = _waits(parts, [each.place for each in ranks])
    kernels = [kernel for part, _ in parts for each in part.ops for kernel in each.op.parts]
    found = []
    for each, wait in zip(ranks, waited, strict=True):
        end = max(one.end_ticks for one in result.timeline.of_rank(each.place))
        here = sum(each.same[kernel].waited_us for kernel in kernels if kernel in each.same)
        ends = measured_us - last.measured_us + last.ends_us[each.place]
        simulated = simulated_us - (result.makespan_ticks - end) / TICKS_PER_US
        found.append(RankTimes(each.rank, ends, simulated, here, wait))
    return tuple(sorted(found, key=lambda each: each.rank))


def _waits(parts: Simulated, places: Sequence[int]) -> list[float]:
    """How long collectives wait at each of ``places``, in us: from when its rank comes to when the last does."""
    waited = [0] * len(places)
    for part, result in parts:
        ends = [
            {name: max(each.end_ticks for each in found if not _moves(each)) for name, found in by_op.items()}
            for by_op in (_kernels(result, place) for place in places)
        ]
        for op in part.ops:
            if op.op.collective is not None:
                came = [end.get(op.behind, 0) for end in ends]
                waited = [so_far + max(came) - each for so_far, each in zip(waited, came, strict=True)]
    return [each / TICKS_PER_US for each in waited]


def _kernels(result: Result, place: int) -> dict[str, list[Interval]]:
    by_op = _by_op(result, place)
    return {name: kernels for name, each in by_op.items() if (kernels := [one for one in each if not _moves(one)])}
