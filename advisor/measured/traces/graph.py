"""A run as a graph: every kernel, what it does where that is known, and what it may have waited for.

A trace does not say which kernel reads what. What had ended when a kernel began is all that it may have read, so that
it waits for all of that: this is safe, and a schedule that keeps to it is one that the run allows. A GEMM and the
collective whose size fits it (``run.py``) are taken to need nothing else but each other and the weights.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

from .run import PairShape, TracedCollective, TracedGemm, TracedKernel, TracedRun, Unused, pairs_of

SLACK_US = 0.5
"""Times of kernels are rounded: one that ends so long after another began may still have been waited for."""
_ROWS = 4096
"""Rows that each rank has at most of what a collective moves, of which a trace has the size alone."""


@dataclass(frozen=True, slots=True)
class RunOp:
    """A kernel, a collective, or a pair of both, whose ``shape`` is then not None.

    ``needs`` are the places of the ops that it waits for, none of which another one of them waits for. ``idle_us`` is
    how long nothing at all ran right before it, and ``gap_us`` how long after the last of its ``needs`` it began.
    """

    kernel: TracedKernel | None
    collective: TracedKernel | None = None
    shape: PairShape | None = None
    needs: tuple[int, ...] = ()
    gap_us: float = 0.0
    idle_us: float = 0.0

    @property
    def parts(self) -> tuple[TracedKernel, ...]:
        """Its kernels."""
        return tuple(each for each in (self.kernel, self.collective) if each is not None)

    @property
    def start_us(self) -> float:
        """When the first of it began."""
        return min(each.start_us for each in self.parts)

    @property
    def end_us(self) -> float:
        """When the last of it ended."""
        return max(each.end_us for each in self.parts)

    @property
    def issued_us(self) -> float:
        """When its kernel began, or the collective if it has none."""
        return self.parts[0].start_us


def graph_of(run: TracedRun, ranks: int) -> tuple[RunOp, ...]:
    """Return the ops of a run in the order in which they were issued.

    Collectives of other than ``ranks``, and those whose sizes are no equal shares, are kernels like any others.
    """
    ops = sorted(_paired(run, ranks), key=lambda op: (op.start_us, op.end_us))
    by_end = sorted(range(len(ops)), key=lambda place: ops[place].end_us)
    ended, at, busy_until = 0, 0, float("-inf")
    behind = list[int]()  # of each op a mask of those that it waits for, and of those that these wait for
    last_of: dict[int, int] = {}
    linked = list[RunOp]()
    for place, op in enumerate(ops):
        while at < len(ops) and ops[by_end[at]].end_us <= op.start_us + SLACK_US:
            ended |= 1 << by_end[at]
            at += 1
        before = ended & ((1 << place) - 1)
        if op.collective is None and op.kernel is not None and op.kernel.stream in last_of:
            before |= 1 << last_of[op.kernel.stream]
        needs = _fewest(before, behind)
        behind.append(_union(behind, needs))
        if op.collective is None and op.kernel is not None:
            last_of[op.kernel.stream] = place
        last = max((ops[need].end_us for need in needs), default=op.start_us)
        idle = max(0.0, op.start_us - busy_until) if place else 0.0
        linked.append(replace(op, needs=needs, gap_us=max(0.0, op.start_us - last), idle_us=idle))
        busy_until = max(busy_until, op.end_us)
    return _as_issued(linked)


def moved_tensor(moves: TracedCollective) -> tuple[int, int, str] | None:
    """(rows, columns, shard) of elements of 2 bytes that a collective takes; None if they are no whole shares."""
    ranks, given = moves.num_ranks, moves.num_in * moves.element_bytes
    whole = given * ranks if moves.operation == "all_gather" else given
    if not whole or whole % (2 * ranks):
        return None
    rows = ranks * gcd(_ROWS, whole // 2 // ranks)
    return rows, whole // 2 // rows, "rows" if moves.operation == "all_gather" else ""


def _paired(run: TracedRun, ranks: int) -> Iterator[RunOp]:
    """Yield the kernels, collectives and pairs; in a pair the second begins when the first has ended."""
    pair_of = dict[TracedGemm | TracedCollective, tuple[PairShape, TracedGemm, TracedCollective]]()
    for shape, collective, gemm in pairs_of(run, Unused()):
        first, second = (collective, gemm) if shape.is_gathered else (gemm, collective)
        if (
            shape.num_ranks == ranks
            and first.end_us <= second.start_us + SLACK_US
            and gemm not in pair_of
            and collective not in pair_of
        ):
            pair_of[gemm] = pair_of[collective] = shape, gemm, collective
    kernels = {each.does: each for each in run.kernels if each.does in pair_of}
    for each in run.kernels:
        pair = None if each.does is None else pair_of.get(each.does)
        if pair is not None:
            shape, gemm, collective = pair
            if each.does is gemm:
                yield RunOp(each, kernels[collective], shape)
        elif isinstance(each.does, TracedCollective):
            known = each.does.num_ranks == ranks and moved_tensor(each.does) is not None
            yield RunOp(None, each) if known else RunOp(each)
        else:
            yield RunOp(each)


def _fewest(before: int, behind: Sequence[int]) -> tuple[int, ...]:
    """The fewest of the ops in a mask that stand for all of it."""
    found = list[int]()
    while before:
        last = before.bit_length() - 1
        found.append(last)
        before &= ~(behind[last] | 1 << last)
    return tuple(sorted(found))


def _union(behind: Sequence[int], needs: Sequence[int]) -> int:
    mask = 0
    for need in needs:
        mask |= behind[need] | 1 << need
    return mask


def _as_issued(ops: Sequence[RunOp]) -> tuple[RunOp, ...]:
    """The same ops in the order in which they were issued, each behind those that it needs."""
    issued = list[float]()
    for op in ops:
        issued.append(max([op.issued_us, *(issued[need] for need in op.needs)]))
    order = sorted(range(len(ops)), key=lambda place: (issued[place], place))
    at = {place: number for number, place in enumerate(order)}
    return tuple(replace(ops[place], needs=tuple(sorted(at[need] for need in ops[place].needs))) for place in order)
