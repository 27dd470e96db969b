"""A run as a trace: JSON that Perfetto (https://ui.perfetto.dev), chrome://tracing and HolisticTraceAnalysis read.

The format: "Trace Event Format", Google, 2016; what Kineto adds: torch.profiler of PyTorch 2.13.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, pairwise

from ... import __version__
from ...compiler.ir import (
    TICKS_PER_US,
    DType,
    JsonObject,
    TileGroup,
    Transfer,
)
from ...compiler.text.diagnostics import printable
from ...simcore import Loads, Result, ShownRun, exposed_spans
from ...simcore.figures.result import Interval, IntervalKind
from ...simcore.lower.collective import library_operation
from ...simcore.shown_run import op_rows
from .svg import trace_text
from .timeline_svg import rows_of

EXPOSED_THREAD = 9999
"""Thread of the spans in which communication is exposed; no stream, so that no reader takes them for kernels."""

OP_THREADS = 10_000
"""Threads of several ops, each from the begin of its first step to the end of its last."""

MAX_NAMED_RANKS = 30

KINETO_TYPES = {DType.BF16: "BFloat16", DType.FP16: "Half", DType.FP8: "Float8_e4m3fn", DType.FP32: "Float"}
KINETO_TYPES |= dict.fromkeys((DType.FP8_BLOCK, DType.MXFP8), KINETO_TYPES[DType.FP8])
KINETO_TYPES |= dict.fromkeys((DType.NVFP4, DType.MXFP4), "Float4_e2m1fn_x2")
KINETO_NAMES = {
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "all_reduce": "AllReduce",
    "all_to_all": "AllToAll",
    "broadcast": "Broadcast",
    "send_recv": "SendRecv",
}


@dataclass(frozen=True, slots=True)
class TraceContext:
    """What the events of all ranks share.

    ``critical`` are the steps on the critical path, as (rank, name); ``threads`` the number of each interval's thread.
    """

    run: ShownRun
    critical: frozenset[tuple[int, str]]
    threads: Mapping[Interval, int]

    @classmethod
    def of(cls, run: ShownRun) -> "TraceContext":
        """Return the context of a run."""
        timeline = run.result.timeline
        rows = (enumerate(rows_of(timeline, rank)) for rank in range(timeline.period))
        threads = {interval: thread for of_rank in rows for thread, row in of_rank for interval in row.intervals}
        return cls(run, frozenset((op.rank, op.label) for op in run.result.critical_path), threads)

    @property
    def result(self) -> Result:
        """The figures of the run."""
        return self.run.result


def us(ticks: float) -> float:
    """Return a time as Kineto writes it, in microseconds, to the picosecond."""
    return round(ticks / TICKS_PER_US, 6)


def metadata_events(context: TraceContext, rank: int) -> Iterator[JsonObject]:
    """Yield the names of the process of ``rank`` and of its threads, in the order in which they are shown."""

    def named(kind: str, thread: int, **args: object) -> JsonObject:
        return {"ph": "M", "name": kind, "pid": rank, "tid": thread, "ts": 0, "args": args}

    yield named("process_name", 0, name=f"rank {rank}: {printable(context.run.system.gpu.name)}")
    yield named("process_sort_index", 0, sort_index=rank)
    rows = [(thread, row.name) for thread, row in enumerate(rows_of(context.result.timeline, rank))]
    ops = [(OP_THREADS + place, f"op {row.name}") for place, row in enumerate(op_rows(context.run, rank))]
    for thread, name in (*rows, (EXPOSED_THREAD, "exposed communication"), *ops):
        yield named("thread_name", thread, name=printable(name))
        yield named("thread_sort_index", thread, sort_index=thread)


def slice_events(context: TraceContext, rank: int) -> Iterator[JsonObject]:
    """Yield a slice for each step of ``rank``, each span of exposed communication, and each of several ops."""
    timeline, numbers = context.result.timeline, count(1)
    for interval in timeline.of_rank(rank):
        thread, number = context.threads[interval], next(numbers)
        args: JsonObject = {"device": rank, "stream": thread, "correlation": number, "External id": number}
        args |= _args(context, rank, interval)
        yield {
            **_slice(rank, thread, interval.start_ticks, interval.end_ticks),
            "cat": "kernel",
            "name": _name(context, rank, interval),
            "args": args,
        }
    for start, end in exposed_spans(timeline, rank):
        yield {**_slice(rank, EXPOSED_THREAD, start, end), "cat": "exposed", "name": "exposed", "args": {}}
    for place, row in enumerate(op_rows(context.run, rank)):
        for op in row.spans:
            args = {"layer": op.layer, "pattern": op.label, "schedule": printable(op.schedule)}
            yield {
                **_slice(rank, OP_THREADS + place, op.start_ticks, op.end_ticks),
                "cat": "op",
                "name": printable(op.name),
                "args": args,
            }


def _slice(rank: int, thread: int, start: int, end: int) -> JsonObject:
    # The end is rounded, and not the duration: what meets stays so.
    return {"ph": "X", "pid": rank, "tid": thread, "ts": us(start), "dur": round(us(end) - us(start), 6)}


def _name(context: TraceContext, rank: int, interval: Interval) -> str:
    said = printable(interval.name).replace("Sync", "sync")  # a reader takes *Sync* for no kernel
    scenario, step = context.run.part_of(rank, interval.name).scenario, context.run.step_of(rank, interval.name)
    if interval.kind is IntervalKind.COMM:
        return f"ncclDevKernel_{KINETO_NAMES[library_operation(scenario).value]} {said}"
    if not isinstance(step, TileGroup):
        return f"reduce {said}"
    shape = scenario.shape.stage(step.kernel).compute
    return f"{'kernel' if shape is None else shape.operation} {said}"


def _args(context: TraceContext, rank: int, interval: Interval) -> JsonObject:
    part, step = context.run.part_of(rank, interval.name), context.run.step_of(rank, interval.name)
    scenario, moved = part.scenario, part.scenario.shape.moved
    args: JsonObject = {"step": printable(interval.name), "lane": printable(interval.lane)}
    if part.op:
        args |= {"op": printable(part.op), "layer": part.layer}
    if (interval.rank, interval.name) in context.critical:
        args["critical path"] = True
    if interval.kind is not IntervalKind.COMM or moved is None:
        return args
    n = scenario.num_ranks
    args |= {
        "Collective name": library_operation(scenario).value,
        "Process Group Name": "0",
        "Process Group Ranks": _ranks_text(n),
        "Group size": n,
        "dtype": KINETO_TYPES[moved.dtype],
    }
    if isinstance(step, Transfer):
        elements = step.region.elements
        args |= {"In msg nelems": elements, "Out msg nelems": elements, "bytes": moved.dtype.bytes_of(elements)}
        args |= {"direction": step.direction.value, "peer": (rank + step.peer) % n, "signal": printable(step.signal)}
    else:  # a call of the library
        args |= {"In msg nelems": moved.rows * moved.cols // n, "Out msg nelems": moved.rows * moved.cols}
    return args


def _ranks_text(num_ranks: int) -> str:
    """The ranks as Kineto writes them, which leaves most of many out."""
    ranks = list(range(num_ranks))
    return str(ranks) if num_ranks <= MAX_NAMED_RANKS else f"[{str(ranks[:MAX_NAMED_RANKS])[1:-1]}, ..., {ranks[-1]}]"


def flow_events(context: TraceContext, ranks: Sequence[int]) -> Iterator[JsonObject]:
    """Yield arrows from each transfer to the step that waited for it, between ``ranks``."""
    shown, numbers = set(ranks), count(1)
    for rank in ranks:
        for flow in context.run.flows(rank):
            if flow.issuer not in shown:
                continue
            number, transfer, waiter = next(numbers), flow.transfer, flow.waiter
            common: JsonObject = {"cat": "data", "name": printable(flow.signal), "id": number}
            begins = {"ph": "s", "pid": flow.issuer, "tid": context.threads[transfer], "ts": us(transfer.start_ticks)}
            # Tiles may begin before all has come: an arrow ends within what waits, and never before it begins.
            at = max(waiter.start_ticks, transfer.start_ticks)
            ends = {"ph": "f", "bp": "e", "pid": rank, "tid": context.threads[waiter], "ts": us(at)}
            yield common | begins
            yield common | ends


def counter_events(context: TraceContext, ranks: Sequence[int]) -> Iterator[JsonObject]:
    """Yield the load of the HBM of ``ranks`` and of the links from them (from a switch: to them), in GB/s."""
    loads, rows = context.result.loads, counter_rows(context, ranks)
    if not rows:
        return
    edges = [us(edge) for edge in loads.edges_ticks.tolist()]
    lengths_s = [max(1e-15, (end - begin) / 1e6) for begin, end in pairwise(edges)]
    num_bytes = loads.num_bytes
    for (rank, name), row in rows.items():
        before = None
        for place, passed in enumerate(num_bytes[row].tolist()):
            rate = round(passed / lengths_s[place] / 1e9, 3)
            if rate != before:
                yield {"ph": "C", "name": name, "pid": rank, "tid": 0, "ts": edges[place], "args": {"GB/s": rate}}
            before = rate
        yield {"ph": "C", "name": name, "pid": rank, "tid": 0, "ts": edges[-1], "args": {"GB/s": 0}}


def counter_rows(context: TraceContext, ranks: Sequence[int]) -> Mapping[tuple[int, str], int]:
    """Return the row of the loads for each counter, by the rank under which it stands and its name."""
    loads, n = context.result.loads, context.run.num_ranks
    found: dict[tuple[int, str], int] = {}
    for rank in ranks:
        memory = loads.memory(rank)
        if memory is not None:
            found[rank, f"HBM (of {_peak(loads, memory)} GB/s)"] = memory
    shown = set(ranks)
    for (source, target), row in loads.links(context.run.network).items():
        rank = source if source < n else target
        if rank in shown:
            ends = (f"switch {end - n}" if end >= n else str(end) for end in (source, target))
            found[rank, f"link {' -> '.join(ends)} (of {_peak(loads, row)} GB/s)"] = row
    return found


def _peak(loads: Loads, row: int) -> str:
    return f"{loads.capacity_bytes_per_s[row] / 1e9:.0f}"


MAX_EVENTS = 400_000
"""About 100 MB of JSON, which Perfetto opens in some seconds: of large systems the first ranks are written."""


@dataclass(frozen=True, slots=True)
class TraceText:
    """The text of a trace, and the ranks that it shows, of ``num_ranks``."""

    text: str
    ranks: range
    num_ranks: int


def chrome_trace(run: ShownRun, ranks: range | None = None) -> TraceText:
    """Return the trace of ``ranks`` of a run, each a process; by default of all, as many as ``MAX_EVENTS`` allow.

    Ranks that were not simulated have the times of those that they repeat.
    """
    context = TraceContext.of(run)
    shown = _affordable(context) if ranks is None else ranks
    return TraceText(trace_text(_head(context, shown), _events(context, shown)), shown, run.num_ranks)


def _events(context: TraceContext, ranks: range) -> Iterator[JsonObject]:
    return chain(
        *(metadata_events(context, rank) for rank in ranks),
        *(slice_events(context, rank) for rank in ranks),
        flow_events(context, ranks),
        counter_events(context, ranks),
    )


def _affordable(context: TraceContext) -> range:
    """The first ranks, as many as there is room for; one at least."""
    timeline, loads = context.result.timeline, context.result.loads
    # An interval has a slice, perhaps an exposed one beside it, and arrows to and from it.
    per_rank = max(1, len(context.run.ops) + 4 * len(timeline.intervals) // timeline.period)
    per_rank += len(counter_rows(context, range(1))) * (loads.num_buckets + 1)
    # Of ranks that a profile stands for only what they write is known: no intervals.
    last = max((interval.rank for interval in timeline.intervals), default=0)
    reported = context.run.num_ranks if last + 1 == timeline.period else last + 1
    return range(max(1, min(reported, MAX_EVENTS // per_rank)))


def _head(context: TraceContext, ranks: Sequence[int]) -> JsonObject:
    run, result = context.run, context.result
    everybody, gpu = list(range(run.num_ranks)), run.system.gpu
    device = {"name": printable(gpu.name), "numSms": gpu.sms}
    return {
        "schemaVersion": 1,
        "displayTimeUnit": "ns",
        "magus": {
            "version": __version__,
            "scenario": printable(result.scenario),
            "workload": printable(run.title),
            "schedule": printable(run.expression),
            "simulated": f"in units of {result.unit_bytes} B, {result.ranks_simulated} of {result.num_ranks} ranks",
            "ranks": f"{ranks[0]} to {ranks[-1]} of {run.num_ranks}",
            "makespan_us": result.makespan_us,
            "overlap_efficiency": result.overlap_efficiency,
            **_layers(run),
        },
        "deviceProperties": [{"id": rank, **device} for rank in ranks],
        "distributedInfo": {
            "backend": "nccl",
            "rank": ranks[0],
            "world_size": run.num_ranks,
            "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "ranks": everybody}],
        },
    }


def _layers(run: ShownRun) -> JsonObject:
    """Of layers that repeat how many the trace has, and the time of all."""
    if run.result.layers == 1:
        return {}
    return {
        "layers": run.result.layers,
        "layers_in_trace": run.result.num_simulated,
        "makespan_of_all_us": us(run.makespan_ticks),
    }
