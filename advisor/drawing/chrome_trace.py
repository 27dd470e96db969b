"""A run as a trace: JSON that Perfetto (https://ui.perfetto.dev), chrome://tracing and HolisticTraceAnalysis read.

The format: "Trace Event Format", Google, 2016; what Kineto adds: torch.profiler of PyTorch 2.13.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from ... import __version__
from ...compiler.ir import JsonObject
from ...compiler.text.printable import printable
from ...simcore import ShownRun
from .trace_events import TraceContext, counter_events, counter_rows, flow_events, metadata_events, slice_events, us

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
    document = json.dumps(_head(context, shown), indent=1).removesuffix("\n}")
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in _events(context, shown))
    return TraceText(f'{document},\n "traceEvents": [\n{lines}\n ]\n}}\n', shown, run.num_ranks)


def _events(context: TraceContext, ranks: range) -> Iterator[JsonObject]:
    return chain(
        *(metadata_events(context, rank) for rank in ranks),
        *(slice_events(context, rank) for rank in ranks),
        flow_events(context, ranks, first=1),
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
    told = context.run.num_ranks if last + 1 == timeline.period else last + 1
    return range(max(1, min(told, MAX_EVENTS // per_rank)))


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
