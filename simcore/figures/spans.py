"""Spans of time: what intervals of a Timeline cover, and where copies run and no kernel does."""

from collections.abc import Iterable, Sequence

from .result import Interval, IntervalKind, Timeline

Span = tuple[int, int]
"""Begin and end in ticks, the end not included."""


def union_of(intervals: Iterable[Interval]) -> tuple[Span, ...]:
    """Spans in which at least one of ``intervals`` runs, in order of time; they neither meet nor overlap."""
    return union_of_spans((each.start_ticks, each.end_ticks) for each in intervals if each.ticks > 0)


def union_of_spans(each: Iterable[Span]) -> tuple[Span, ...]:
    """The same time in spans that are in order, and neither meet nor overlap."""
    spans: list[Span] = []
    for start, end in sorted(each):
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((start, end))
    return tuple(spans)


def exposed_spans(timeline: Timeline, rank: int) -> tuple[Span, ...]:
    """Spans in which transfers of ``rank`` run and none of its kernels does.

    At the rank that is busy longest their sum is ``union_ticks - compute_ticks`` of the Result.
    """
    own = timeline.of_rank(rank)
    kernels = union_of(each for each in own if each.kind is not IntervalKind.COMM)
    exposed: list[Span] = []
    place = 0
    for start, end in union_of(each for each in own if each.kind is IntervalKind.COMM):
        while place < len(kernels) and kernels[place][1] <= start:
            place += 1
        at, reached = place, start
        while at < len(kernels) and kernels[at][0] < end:
            if kernels[at][0] > reached:
                exposed.append((reached, kernels[at][0]))
            reached = kernels[at][1]
            at += 1
        if reached < end:
            exposed.append((reached, end))
    return tuple(exposed)


def overlap_ticks(some: Sequence[Span], others: Sequence[Span]) -> int:
    """The time that lies in both, each in order and without overlaps."""
    total, place = 0, 0
    for start, end in some:
        while place < len(others) and others[place][1] <= start:
            place += 1
        at = place
        while at < len(others) and others[at][0] < end:
            total += min(end, others[at][1]) - max(start, others[at][0])
            at += 1
    return total


def total_ticks(spans: Iterable[Span]) -> int:
    """Sum of the lengths of ``spans``."""
    return sum(end - start for start, end in spans)
