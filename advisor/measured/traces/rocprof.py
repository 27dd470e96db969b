"""Copies between GPUs in what ``rocprofv3 --memory-copy-trace`` writes, as JSON or as CSV.

Formats: "Using rocprofv3" of ROCprofiler-SDK. Times are in ns. The CSV has no bytes of a copy.
"""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from .kineto import TraceError
from .run import MAX_KEPT, TracedCopy, Unused

_TOOL = "rocprofiler-sdk-tool"
_COLUMNS = ("Source_Agent_Id", "Destination_Agent_Id", "Start_Timestamp", "End_Timestamp")
_FROM_HOST = ("transfer", "within a GPU, from the host or to it")
_GPU_AGENT = 2
"""The type of an agent that is a GPU (``ROCPROFILER_AGENT_TYPE_GPU``)."""
_MAX_JSON = 256 << 20
"""Bytes of a JSON: it is one value, and is read whole."""


def is_rocprof(head: str) -> bool:
    """Whether a text that begins with ``head`` is of rocprofv3."""
    return f'"{_TOOL}"' in head or all(column in head.partition("\n")[0] for column in _COLUMNS)


def read_rocprof_json(file: Path, unused: Unused) -> tuple[TracedCopy, ...]:
    """Return the copies between GPUs in a JSON; GPUs are numbered as their nodes are.

    Raises
    ------
    OSError
        If it cannot be read.
    TraceError
        If it is no profile of copies.
    """
    if file.stat().st_size > _MAX_JSON:
        raise TraceError("a JSON of rocprofv3 has at most 256 MiB: trace copies alone, by --memory-copy-trace")
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise TraceError(f"no JSON: {str(error)[:128]}") from None
    tools = found.get(_TOOL) if isinstance(found, dict) else None
    tools = [tools] if isinstance(tools, dict) else tools
    if not isinstance(tools, list):
        raise TraceError(f"{_TOOL} has no profiles")
    return tuple(copy for tool in tools if isinstance(tool, dict) for copy in _of_tool(tool, unused))


def _of_tool(tool: Mapping[str, object], unused: Unused) -> Iterator[TracedCopy]:
    records = _member(tool.get("buffer_records"), "memory_copy")
    agents = tool.get("agents")
    if not isinstance(records, list) or not isinstance(agents, list):
        raise TraceError("it has no records of copies: trace with --memory-copy-trace")
    gpus = [each for each in agents if isinstance(each, dict) and each.get("type") == _GPU_AGENT]
    gpus.sort(key=lambda each: (_whole(each.get("node_id")), _handle(each.get("id"))))
    ranks = {_handle(each.get("id")): rank for rank, each in enumerate(gpus)}
    for each in records[:MAX_KEPT]:
        start, end, size = (_whole(_member(each, key)) for key in ("start_timestamp", "end_timestamp", "bytes"))
        source, target = (ranks.get(_handle(_member(each, key))) for key in ("src_agent_id", "dst_agent_id"))
        yield from _copy(start, end, source, target, size, unused)


def read_rocprof_csv(file: Path, unused: Unused) -> tuple[TracedCopy, ...]:
    """Return the copies between GPUs in a CSV, which have 0 bytes; agents are numbered by the names of GPUs in it.

    A copy from a GPU to another has ``DEVICE_TO_DEVICE`` in its direction, so that what it names are GPUs.

    Raises
    ------
    OSError
        If it cannot be read.
    TraceError
        If a row is no copy.
    """
    with file.open(encoding="utf-8", errors="replace", newline="") as stream:
        try:
            rows = [row for row, _ in zip(csv.DictReader(stream), range(MAX_KEPT), strict=False)]
        except csv.Error as error:
            raise TraceError(f"no CSV: {str(error)[:128]}") from None
    between = [row for row in rows if "DEVICE_TO_DEVICE" in str(row.get("Direction"))]
    unused[_FROM_HOST] += len(rows) - len(between)
    ends = [tuple(_agent(row.get(column)) for column in _COLUMNS[:2]) for row in between]
    ranks = {number: rank for rank, number in enumerate(sorted({each for pair in ends for each in pair}))}
    found = list[TracedCopy]()
    for row, (source, target) in zip(between, ends, strict=True):
        start, end = (int(text) if (text := str(row.get(key))).isdecimal() else -1 for key in _COLUMNS[2:])
        found += _copy(start, end, ranks[source], ranks[target], 0, unused)
    return tuple(found)


def _copy(
    start: int, end: int, source: int | None, target: int | None, size: int, unused: Unused
) -> Iterator[TracedCopy]:
    if source is None or target is None or source == target:
        unused[_FROM_HOST] += 1
    elif not 0 <= start < end or size < 0:
        unused["transfer", "without time or size"] += 1
    else:
        yield TracedCopy(start / 1000, end / 1000, source, target, size)


def _agent(name: object) -> int:
    """The number of an agent, as in ``Agent 4``; -1 for other words."""
    number = str(name).rpartition(" ")[2]
    return int(number) if number.isdecimal() and len(number) < 10 else -1


def _handle(value: object) -> int:
    return _whole(_member(value, "handle"))


def _member(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else None


def _whole(value: object) -> int:
    """``value`` if it is a whole number of at most 63 bits, else -1."""
    return value if type(value) is int and 0 <= value < 1 << 63 else -1
