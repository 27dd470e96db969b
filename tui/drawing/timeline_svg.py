"""The timeline as an SVG: lanes of streams and engines, names of chunks, what is exposed, and the loads below.

The size is bounded however long the plan is: neighbours in a lane that are narrower than a pixel are drawn as one, and
of systems in which ranks differ the first ranks are drawn.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ...compiler.text.units import rate_text, ticks_text
from ...simcore import LoadKind, Result, ShownRun, Timeline, exposed_spans
from ...simcore.figures.result import Interval, IntervalKind
from ...simcore.shown_run import OpRow, OpSpan, op_rows
from ...simcore.simulate_layers import SHOWN_LAYER
from .svg import TimeScale, document, fitting, heading, legend, line_down, number, painted, rect_at, text_at


@dataclass(frozen=True, slots=True)
class Row:
    """Intervals of one ``lane``, such as ``stream 0`` or ``dma 3``, in the order of time; none overlaps another."""

    lane: str
    number: int
    intervals: tuple[Interval, ...]

    @property
    def name(self) -> str:
        """The lane, with a number where it has several rows."""
        return self.lane if self.number == 0 else f"{self.lane} ({self.number + 1})"


def rows_of(timeline: Timeline, rank: int) -> tuple[Row, ...]:
    """Return the rows of ``rank`` in the order to show them."""
    by_lane: dict[str, list[Interval]] = {}
    for interval in timeline.of_rank(rank):
        by_lane.setdefault(interval.lane, []).append(interval)
    return tuple(row for lane in sorted(by_lane, key=_order) for row in _rows(lane, by_lane[lane]))


def _order(lane: str) -> tuple[bool, str, list[int]]:
    kind, _, number = lane.rpartition(" ")
    return kind != "stream", kind, [int(part) for part in number.split(".")]


def _rows(lane: str, intervals: Iterable[Interval]) -> Iterator[Row]:
    """Deal intervals to rows, each to the first that is free when it begins."""
    rows: list[list[Interval]] = []
    for interval in sorted(intervals, key=lambda each: (each.start_ticks, each.end_ticks)):
        free = (row for row in rows if row[-1].end_ticks <= interval.start_ticks)
        row = next(free, None)
        if row is None:
            rows.append([interval])
        else:
            row.append(interval)
    for index, dealt in enumerate(rows):
        yield Row(lane, index, tuple(dealt))


WIDTH, LEFT, RIGHT = 1200.0, 120.0, 16.0
LANE, GAP, STRIP, AXIS = 20.0, 4.0, 34.0, 84.0
MAX_LANES = 48
"""Lanes that are drawn at most, of ops as well as of streams and engines."""
MAX_LINKED = 5000
"""Steps of a plan at most for which the drawing says what they waited for."""
MIN_PIXELS = 1.0
"""Bars that are narrower are drawn together with their neighbours."""


_Part = tuple[float, Callable[[float], Iterable[str]]]
"""The height of a part of the drawing, and what draws it from a given line on."""


@dataclass(frozen=True, slots=True)
class _Bar:
    """Intervals of one lane and kind that are drawn as one."""

    intervals: tuple[Interval, ...]
    critical: bool

    @property
    def start(self) -> int:
        return self.intervals[0].start_ticks

    @property
    def end(self) -> int:
        return max(interval.end_ticks for interval in self.intervals)


@dataclass(frozen=True, slots=True)
class _Drawing:
    """What all lanes share: the scale, the steps on the critical path, and the numbers of steps with what they await.

    ``waits`` has, for each interval, the numbers of the transfers that it waited for; empty for very long plans.
    """

    scale: TimeScale
    critical: frozenset[tuple[int, str]]
    numbers: Mapping[Interval, int]
    waits: Mapping[Interval, Sequence[int]]

    @classmethod
    def of(cls, run: ShownRun, span_ticks: int) -> "_Drawing":
        result, (start, end) = run.result, run.shown_span
        scale = TimeScale(max(1, span_ticks, end - start), LEFT, WIDTH - LEFT - RIGHT, start)
        critical = frozenset((op.rank, op.label) for op in result.critical_path)
        numbers = {interval: number for number, interval in enumerate(result.timeline.intervals)}
        waits: dict[Interval, list[int]] = {}
        if len(numbers) <= MAX_LINKED:
            for rank in range(result.timeline.period):
                for flow in run.flows(rank):
                    waits.setdefault(flow.waiter, []).append(numbers[flow.transfer])
        return cls(scale, critical, numbers, waits)

    def attributes(self, interval: Interval) -> str:
        """What a page needs to follow a chunk: the number of the step, and of those it waited for."""
        waits = " ".join(map(str, self.waits.get(interval, ())))
        return f' data-step="{self.numbers[interval]}"' + (f' data-waits="{waits}"' if waits else "")


def timeline_svg(run: ShownRun, *, span_ticks: int = 0, max_lanes: int = MAX_LANES) -> str:
    """Return the drawing of ``run``: of one rank where all do the same, else of the first ones.

    Of layers that repeat it shows the one that stands for all. Its axis ends with the run, or is ``span_ticks`` long if
    that is more, so that drawings can be compared. There are ``max_lanes`` lanes at most.
    """
    result, drawing = run.result, _Drawing.of(run, span_ticks)
    title = f"{run.title}: {run.expression}"
    lanes: list[str] = []
    top = AXIS + 8
    for height, part in (*_ranks(run, drawing, max_lanes), *_strips(result, drawing.scale)):
        lanes += part(top)
        top += height
    body = [
        *heading(title, _summary(run), WIDTH),
        *legend(_drawn_kinds(run, drawing), 58),
        *_axis(drawing.scale, top),
        *lanes,
    ]
    return document(WIDTH, top + 12, title, body)


MAX_LOADS = 24
"""Links that are drawn at most in a drawing of loads."""


def loads_svg(run: ShownRun) -> str:
    """Return the use of the HBM of rank 0 and of links over time, the busiest first."""
    result, loads = run.result, run.result.loads
    scale = TimeScale(max(1, loads.span_ticks), LEFT, WIDTH - LEFT - RIGHT)
    links = [row for row, load in enumerate(loads.each) if load.kind is LoadKind.LINK]
    busiest = sorted(links, key=lambda row: -sum(loads.each[row].busy_ticks))
    memory, lanes, top = loads.memory(0), list[str](), AXIS + 8
    for row in (*(() if memory is None else (memory,)), *busiest[:MAX_LOADS]):
        lanes += _strip(result, scale, row, top)
        top += STRIP + GAP
    if len(busiest) > MAX_LOADS:
        lanes += _note(LEFT, f"{len(busiest) - MAX_LOADS} more links carry no more than the last")(top)
        top += LANE
    title = f"{run.title}: {run.expression}"
    return document(WIDTH, top + 12, title, [*heading(title, _summary(run), WIDTH), *_axis(scale, top), *lanes])


def _ranks(run: ShownRun, drawing: _Drawing, max_lanes: int) -> Iterator[_Part]:
    """Yield the lanes of each rank under its name, of as many ranks as there is room for, one at least."""
    result = run.result
    period, drawn = result.timeline.period, 0
    for rank in range(period):
        rows, ops = rows_of(result.timeline, rank), op_rows(run, rank)
        if not rows:  # a profile stands for it
            continue
        if drawn and drawn + len(rows) + len(ops) > max_lanes:
            yield LANE, _note(12, f"{'rank' if rank == period - 1 else f'ranks {rank} to'} {period - 1}: not drawn")
            return
        yield LANE, partial(_title, _rank_title(result, rank))
        for op in ops[:MAX_LANES]:
            yield LANE + GAP, partial(_op_lane, op, drawing.scale)
        if len(ops) > MAX_LANES:
            yield LANE, _note(LEFT, f"{len(ops) - MAX_LANES} more ops are not drawn")
        for row in rows[:max_lanes]:
            yield LANE + GAP, partial(_lane, row, drawing)
        if len(rows) > max_lanes:
            yield LANE, _note(LEFT, f"{len(rows) - max_lanes} more lanes are not drawn")
        yield LANE + GAP, partial(_exposed, result, drawing.scale, rank)
        drawn += len(rows) + len(ops)


def _strips(result: Result, scale: TimeScale) -> Iterator[_Part]:
    for row in _shown_loads(result):
        yield STRIP + GAP, partial(_strip, result, scale, row)


def _note(x: float, said: str, kind: str = "faint") -> Callable[[float], Iterator[str]]:
    return lambda top: iter([text_at(x, top + 13, said, kind)])


def _title(said: str, top: float) -> Iterator[str]:
    """The name of a rank, which no line of the axis crosses."""
    yield rect_at(10, top, 4 + 7.5 * len(said), LANE, "paper")
    yield text_at(12, top + 13, said, "title")


def _summary(run: ShownRun) -> str:
    result = run.result
    hidden = result.overlap_efficiency
    said = "" if hidden is None else f", {hidden:.0%} of the communication hidden"
    if run.result.layers > 1:
        each = "" if run.result.period_ticks is None else f", each {ticks_text(run.result.period_ticks)}"
        shown = ", one of them below" if run.result.num_simulated > SHOWN_LAYER else ""
        return f"{run.result.layers} layers take {ticks_text(run.makespan_ticks)}{each}{shown}{said}; times in us"
    return (
        f"makespan {ticks_text(result.makespan_ticks)}: kernels {ticks_text(result.compute_ticks)}, "
        f"transfers {ticks_text(result.comm_ticks)}{said}; times in us"
    )


def _rank_title(result: Result, rank: int) -> str:
    others = result.num_ranks // result.timeline.period - 1
    same = f"; {others} other{'s' if others > 1 else ''} the same" if others else ""
    return f"rank {rank}{same}"


_KINDS = {
    IntervalKind.COMPUTE: ("compute", "kernel"),
    IntervalKind.REDUCE: ("reduce", "sum"),
    IntervalKind.COMM: ("comm", "transfer"),
}
_CRITICAL = "comm critical", "outlined: on the critical path"
_EXPOSED = "exposed", "communication that no kernel hides"
"""What is painted how, in words."""


def _drawn_kinds(run: ShownRun, drawing: _Drawing) -> Iterator[tuple[str, str]]:
    """Yield the kinds that there are."""
    there = {each.kind for each in run.result.timeline.intervals}
    yield from (entry for kind, entry in _KINDS.items() if kind in there)
    if drawing.critical:
        yield _CRITICAL
    if run.result.exposed_ticks:
        yield _EXPOSED


def _axis(scale: TimeScale, bottom: float) -> Iterator[str]:
    for x, label in scale.marks():
        yield line_down(x, AXIS, bottom)
        yield text_at(x + 3, AXIS + 4, label, "faint")


def _lane(row: Row, drawing: _Drawing, top: float) -> Iterator[str]:
    scale = drawing.scale
    yield text_at(LEFT - 8, top + 14, fitting(row.name, LEFT - 16), anchor="end")
    yield rect_at(LEFT, top, scale.width, LANE, "band")
    shown = [each for each in row.intervals if scale.shows(each.start_ticks, each.end_ticks)]
    for bar in _bars(shown, scale, drawing.critical):
        x, width = scale.x(bar.start), max(MIN_PIXELS, scale.x(bar.end) - scale.x(bar.start))
        first, alone = bar.intervals[0], len(bar.intervals) == 1
        kind, more = first.kind.value, drawing.attributes(first) if alone else ""
        yield rect_at(x, top + 2, width, LANE - 4, f"bar {kind}{' critical' * bar.critical}", _about(bar), more)
        label = fitting(first.name, width - 6) if alone else ""
        if label:
            yield text_at(x + 3, top + 14, label, f"on {kind}")


def _op_lane(row: OpRow, scale: TimeScale, top: float) -> Iterator[str]:
    """An op: in the upper half when any of its kernels runs, in the lower one when any of its copies does."""
    yield text_at(LEFT - 8, top + 14, fitting(row.name, LEFT - 16), anchor="end")
    yield rect_at(LEFT, top, scale.width, LANE, "band")
    half = (LANE - 4) / 2
    for span in row.spans:
        for kind, spans, y in (("compute", span.kernels, top + 2), ("comm", span.copies, top + 2 + half)):
            for start, end in spans:
                if scale.shows(start, end):
                    x = scale.x(start)
                    yield rect_at(
                        x, y, max(MIN_PIXELS, scale.x(end) - x), half, kind, _about_op(span, kind, start, end)
                    )


def _about_op(span: OpSpan, kind: str, start: int, end: int) -> str:
    what = "kernels" if kind == "compute" else "copies"
    whole = f"{ticks_text(span.start_ticks)} to {ticks_text(span.end_ticks)}"
    how = f", {span.schedule}" if span.schedule else ""
    return f"{span.name}, {span.label}{how}, {whole}: {what} from {ticks_text(start)} to {ticks_text(end)}"


def _bars(intervals: Sequence[Interval], scale: TimeScale, critical: frozenset[tuple[int, str]]) -> Iterator[_Bar]:
    """Yield the bars of a lane; what is too narrow to be seen is joined with what follows within a pixel."""
    least = MIN_PIXELS * scale.total_ticks / scale.width
    held: list[Interval] = []

    def bar() -> _Bar:
        return _Bar(tuple(held), any((each.rank, each.name) in critical for each in held))

    for interval in intervals:
        apart = held and (
            interval.kind is not held[0].kind
            or interval.start_ticks - held[-1].end_ticks >= least
            or interval.ticks >= 2 * least
            or held[-1].ticks >= 2 * least
        )
        if apart:
            yield bar()
            held.clear()
        held.append(interval)
    if held:
        yield bar()


def _about(bar: _Bar) -> str:
    first = bar.intervals[0]
    span = f"{ticks_text(bar.start)} to {ticks_text(bar.end)}"
    if len(bar.intervals) > 1:
        return f"{len(bar.intervals)} steps, {first.name} to {bar.intervals[-1].name}: {span}"
    return f"{first.name}: {span}, {ticks_text(first.ticks)}{', on the critical path' * bar.critical}"


def _exposed(result: Result, scale: TimeScale, rank: int, top: float) -> Iterator[str]:
    yield text_at(LEFT - 8, top + 14, "exposed", "faint", anchor="end")
    reached = -1.0
    for start, end in exposed_spans(result.timeline, rank):
        if not scale.shows(start, end):
            continue
        x, width = scale.x(start), max(MIN_PIXELS, scale.x(end) - scale.x(start))
        if x + width < reached:
            continue
        yield rect_at(x, top + 6, width, LANE - 12, "exposed", f"exposed: {ticks_text(start)} to {ticks_text(end)}")
        reached = x + width


def _shown_loads(result: Result) -> Iterator[int]:
    """Rows of the loads that are drawn: the HBM of rank 0, and the busiest link."""
    loads = result.loads
    memory = loads.memory(0)
    if memory is not None:
        yield memory
    links = [row for row, load in enumerate(loads.each) if load.kind is LoadKind.LINK]
    if links:
        yield max(links, key=lambda row: sum(loads.each[row].busy_ticks))


def _strip(result: Result, scale: TimeScale, row: int, top: float) -> Iterator[str]:
    """Utilization over time, from none at the bottom to all at the top."""
    loads = result.loads
    load, used, n = loads.each[row], loads.utilization[row].tolist(), result.num_ranks
    name = "HBM, rank 0" if load.kind is LoadKind.HBM else f"link {_node(load.source, n)} → {_node(load.target, n)}"
    mean = sum(load.busy_ticks) / max(1, load.num_servers * loads.span_ticks)
    yield text_at(LEFT - 8, top + 13, fitting(name, LEFT - 12), anchor="end")
    yield text_at(LEFT - 8, top + 27, f"{mean:.0%} used", "faint", anchor="end")
    yield rect_at(LEFT, top, scale.width, STRIP, "band")
    bottom, path = top + STRIP, [f"M{number(LEFT)} {number(top + STRIP)}"]
    for place, share in enumerate(used):
        right = scale.x(min(scale.end_ticks, loads.span_ticks * (place + 1) // loads.num_buckets))
        if right > LEFT:  # else it lies before what is shown
            path.append(f"V{number(bottom - STRIP * share)}H{number(right)}")
    about = f"{name}: {mean:.0%} of {rate_text(float(loads.capacity_bytes_per_s[row]))} over the run"
    kind = IntervalKind.COMPUTE if load.kind is LoadKind.HBM else IntervalKind.COMM
    yield f'<path {painted(kind.value)} d="{"".join(path)}V{number(bottom)}Z"><title>{about}</title></path>'


def _node(node: int, num_ranks: int) -> str:
    return str(node) if node < num_ranks else f"switch {node - num_ranks}"
