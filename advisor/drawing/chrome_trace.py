"""A run as a trace: JSON that Perfetto (https://ui.perfetto.dev), chrome://tracing and HolisticTraceAnalysis read.

The format: "Trace Event Format", Google, 2016; what Kineto adds: torch.profiler of PyTorch 2.13.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from ... import __version__
from ...compiler.ir import JsonObject, Scenario
from ...compiler.text.printable import printable
from ...simcore import Result
from .trace_events import TraceContext, counter_events, counter_rows, flow_events, metadata_events, slice_events

MAX_EVENTS = 400_000
"""About 100 MB of JSON, which Perfetto opens in some seconds: of large systems the first ranks are written."""


@dataclass(frozen=True, slots=True)
class ChromeTrace:
    """The text of a trace, and the ranks that it shows, of ``num_ranks``."""

    text: str
    ranks: range
    num_ranks: int


def chrome_trace(scenario: Scenario, result: Result, ranks: range | None = None) -> ChromeTrace:
    """Return the trace of ``ranks``, each a process; by default of all, as many as ``MAX_EVENTS`` allow.

    Ranks that were not simulated have the times of those that they repeat.
    """
    context = TraceContext.of(scenario, result)
    shown = _affordable(context) if ranks is None else ranks
    document = json.dumps(_head(context, shown), indent=1).removesuffix("\n}")
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in _events(context, shown))
    return ChromeTrace(f'{document},\n "traceEvents": [\n{lines}\n ]\n}}\n', shown, scenario.num_ranks)


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
    per_rank = max(1, 4 * len(timeline.intervals) // timeline.period)
    per_rank += len(counter_rows(context, range(1))) * (loads.num_buckets + 1)
    # Of ranks that a profile stands for only what they write is known: no intervals.
    last = max((interval.rank for interval in timeline.intervals), default=0)
    told = context.scenario.num_ranks if last + 1 == timeline.period else last + 1
    return range(max(1, min(told, MAX_EVENTS // per_rank)))


def _head(context: TraceContext, ranks: Sequence[int]) -> JsonObject:
    scenario, result = context.scenario, context.result
    everybody = list(range(scenario.num_ranks))
    device = {"name": printable(scenario.gpu.name), "numSms": scenario.gpu.sms}
    return {
        "schemaVersion": 1,
        "displayTimeUnit": "ns",
        "magus": {
            "version": __version__,
            "scenario": printable(result.scenario),
            "workload": printable(scenario.workload.name),
            "schedule": printable(result.schedule.expression),
            "simulated": f"in units of {result.unit_bytes} B, {result.ranks_simulated} of {result.num_ranks} ranks",
            "ranks": f"{ranks[0]} to {ranks[-1]} of {scenario.num_ranks}",
            "makespan_us": result.makespan_us,
            "overlap_efficiency": result.overlap_efficiency,
        },
        "deviceProperties": [{"id": rank, **device} for rank in ranks],
        "distributedInfo": {
            "backend": "nccl",
            "rank": ranks[0],
            "world_size": scenario.num_ranks,
            "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "ranks": everybody}],
        },
    }
