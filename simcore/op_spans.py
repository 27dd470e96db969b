"""The ops of a workload over time at one rank: when kernels and copies of each run, and what runs beside its copies."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..compiler.planning.plan import own_name
from .figures.result import IntervalKind
from .figures.spans import Span, overlap_ticks, total_ticks, union_of, union_of_spans
from .shown_run import ShownPart, ShownRun
from .simulate_layers import SHOWN_LAYER

LEAST_REPORTED = 0.05
"""Share of the time of its copies from which on an op beside them is told."""


@dataclass(frozen=True, slots=True)
class OpSpan:
    """One op in one layer at one rank: ``kernels`` and ``copies`` are the spans in which any of them run.

    ``schedule`` is how it is carried out, empty for a kernel alone that is whole.
    """

    name: str
    layer: int
    label: str
    schedule: str
    kernels: tuple[Span, ...]
    copies: tuple[Span, ...]

    @property
    def start_ticks(self) -> int:
        """The begin of its first step."""
        return min(start for start, _ in (*self.kernels, *self.copies))

    @property
    def end_ticks(self) -> int:
        """The end of its last step."""
        return max(end for _, end in (*self.kernels, *self.copies))


@dataclass(frozen=True, slots=True)
class OpRow:
    """An op in all layers, in the order of time; where a layer begins it before the last one ends, in further rows."""

    name: str
    spans: tuple[OpSpan, ...]


def op_rows(run: ShownRun, rank: int) -> tuple[OpRow, ...]:
    """Return the rows of ``rank`` in the order in which ops are issued; none for a pair."""
    by_op: dict[str, list[OpSpan]] = {}
    for span in op_spans(run, rank):
        by_op.setdefault(own_name(span.name), []).append(span)
    return tuple(OpRow(name, row) for name, spans in by_op.items() for row in _rows(spans))


def op_spans(run: ShownRun, rank: int) -> tuple[OpSpan, ...]:
    """Return each op of every layer at ``rank``, in the order in which they are issued; none for a pair."""
    intervals = run.intervals_of_parts(rank)
    found = []
    for op in dict.fromkeys(part.op for part in run.parts if part.op):
        parts = [part for part in run.parts if part.op == op]
        own = [interval for part in parts for interval in intervals[part.prefix]]
        if own:
            copies = union_of(each for each in own if each.kind is IntervalKind.COMM)
            kernels = union_of(each for each in own if each.kind is not IntervalKind.COMM)
            found.append(OpSpan(op, parts[0].layer, parts[0].label, _carried_out(parts), kernels, copies))
    return tuple(found)


def _carried_out(parts: Sequence[ShownPart]) -> str:
    """How an op is carried out, where there is a choice: kernels alone are as usual unless they are cut."""
    moving = [part for part in parts if part.scenario.shape.moved is not None]
    if not moving:
        cut = len(parts[0].schedule.steps) > 1
        return parts[0].schedule.expression if cut else ""
    return moving[0].schedule.expression if len(parts) == 1 else f"apart by {moving[0].schedule.engine}"


@dataclass(frozen=True, slots=True)
class OpSummary:
    """An op as it is told: of layers that repeat in the one that stands for all, at rank 0.

    ``beside`` are the ops whose kernels run beside its copies, with the ticks that they do, the longest first;
    ``exposed_ticks`` how long in all no kernel does.
    """

    span: OpSpan
    compute_ticks: int
    comm_ticks: int
    exposed_ticks: int
    beside: tuple[tuple[str, int], ...]

    @property
    def name(self) -> str:
        """Its name without the layer."""
        return own_name(self.span.name)

    @property
    def beside_text(self) -> str:
        """What runs beside its copies, with shares of their time; empty where nothing does to speak of."""
        reported = (pair for pair in self.beside if pair[1] >= self.comm_ticks * LEAST_REPORTED)
        return ", ".join(f"{self._said(name)} ({ticks / self.comm_ticks:.0%})" for name, ticks in reported)

    def _said(self, name: str) -> str:
        """An op of its layer by its name, others with their layer."""
        layer = int(name.partition("@")[2] or 1)
        where = {-1: " of the layer before", 1: " of the next layer"}.get(layer - self.span.layer, "")
        return f"{own_name(name)}{where}"


@lru_cache(maxsize=16)
def op_times(run: ShownRun) -> tuple[OpSummary, ...]:
    """Return the ops of one layer in the order in which they are issued; none for a pair."""
    spans = op_spans(run, 0)
    layer = min(SHOWN_LAYER, run.result.num_simulated)
    kernels = union_of_spans(span for each in spans for span in each.kernels)
    return tuple(_reported(each, spans, kernels) for each in spans if each.layer == layer)


def _reported(op: OpSpan, spans: Sequence[OpSpan], kernels: Sequence[Span]) -> OpSummary:
    beside = [(each.name, overlap_ticks(op.copies, each.kernels)) for each in spans]
    comm = total_ticks(op.copies)
    return OpSummary(
        op,
        total_ticks(op.kernels),
        comm,
        comm - overlap_ticks(op.copies, kernels),
        tuple(sorted((pair for pair in beside if pair[1]), key=lambda pair: -pair[1])),
    )


def _rows(spans: Iterable[OpSpan]) -> Iterator[tuple[OpSpan, ...]]:
    """Deal spans to rows, each to the first that is free when it begins."""
    rows: list[list[OpSpan]] = []
    for span in sorted(spans, key=lambda each: (each.start_ticks, each.end_ticks)):
        free = next((row for row in rows if row[-1].end_ticks <= span.start_ticks), None)
        if free is None:
            rows.append([span])
        else:
            free.append(span)
    yield from map(tuple, rows)
