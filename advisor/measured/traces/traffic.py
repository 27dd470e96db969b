"""What GPUs wrote into each other's memory in a run, from profiles, as the table that ``traffic { file }`` reads.

Profiles are those of torch.profiler (JSON), rocprofv3 (JSON, CSV) and Nsight Systems (SQLite). A collective is written
as its ring is: to the next rank of its group, an all_to_all to each, evenly over the time of its kernel.
"""

import csv
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from ....compiler.codes import Code
from ....compiler.machine.machine import requested_gpu
from ....compiler.resolve.devices.variability import MAX_BYTES
from ....compiler.text.diagnostics import Report, Source, Span
from ....compiler.text.rewriting import comment_lines
from .. import Imported
from ..tables.samples import collective_on
from .chrome import ChromeTrace, TraceError, member
from .kineto import read_run
from .run import MAX_KEPT, TracedCollective, TracedCopy, TracedRun, Unused, reported
from .workloads import HEAD, is_trace, text_pieces

# Copies between GPUs in what ``nsys export --type sqlite`` writes.
#
# The tables are those of Nsight Systems' "SQLite Export Schema Reference"; they are made lazily, and times are in ns.
# The file is hostile until checked: it is opened to be read alone, no view or trigger of it runs, and each value is
# checked.

_MAGIC = b"SQLite format 3\0"
_KERNELS, _COPIES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY"
_NEEDED = ("start", "end", "bytes", "srcDeviceId", "dstDeviceId")
_MAX_STEPS = 2_000_000_000
"""Instructions of SQLite's machine: what a file that was made to hang takes before it is given up."""


def is_nsight(file: Path) -> bool:
    """Whether ``file`` is a database of SQLite.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    with file.open("rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


def read_nsight(file: Path, unused: Unused) -> tuple[TracedCopy, ...]:
    """Return the copies between GPUs in a database; what is left out goes to ``unused``.

    Raises
    ------
    TraceError
        If it is no profile, or is damaged.
    """
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            _guard(database)
            return tuple(_copies(database, unused))
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise TraceError(f"SQLite cannot read it: {str(error)[:128]}") from None


def _guard(database: sqlite3.Connection) -> None:
    """Let nothing run that the file brings, and end what takes too long."""
    for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", "mmap_size = 0"):
        database.execute(f"PRAGMA {setting}")
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1_000_000
        return int(steps > _MAX_STEPS)

    database.set_progress_handler(count, 1_000_000)


def _copies(database: sqlite3.Connection, unused: Unused) -> Iterator[TracedCopy]:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not any(isinstance(name, str) and name.startswith("CUPTI_ACTIVITY_KIND_") for name in tables):
        raise TraceError("it has no table of Nsight Systems (CUPTI_ACTIVITY_KIND_...)")
    if _KERNELS in tables:
        (number,) = database.execute(f"SELECT count(*) FROM {_KERNELS}").fetchone()
        unused["kernel", "of which the profile does not say what it writes, collectives too"] += number
    if _COPIES not in tables:
        return
    columns = {row[1] for row in database.execute(f"PRAGMA table_info({_COPIES})")}
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        raise TraceError(f"its table of copies has no column {', '.join(missing)}")
    wanted = ", ".join(f'"{name}"' for name in _NEEDED)  # "end" is a word of SQL
    for row in database.execute(f"SELECT {wanted} FROM {_COPIES} LIMIT {MAX_KEPT}"):
        start, end, size, source, target = (each if each is None else _whole(each) for each in row)
        if size != 0:
            yield from _copy(start, end, source, target, size, unused)


# Copies between GPUs in what ``rocprofv3 --memory-copy-trace`` writes, as JSON or as CSV.
#
# Formats: "Using rocprofv3" of ROCprofiler-SDK. Times are in ns. The CSV has no bytes of a copy.

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
    records = member(tool.get("buffer_records"), "memory_copy")
    agents = tool.get("agents")
    if not isinstance(records, list) or not isinstance(agents, list):
        raise TraceError("it has no records of copies: trace with --memory-copy-trace")
    gpus = [each for each in agents if isinstance(each, dict) and each.get("type") == _GPU_AGENT]
    gpus.sort(key=lambda each: (_whole(each.get("node_id")), _handle(each.get("id"))))
    ranks = {_handle(each.get("id")): rank for rank, each in enumerate(gpus)}
    for each in records[:MAX_KEPT]:
        start, end, size = (_whole(member(each, key)) for key in ("start_timestamp", "end_timestamp", "bytes"))
        source, target = (ranks.get(_handle(member(each, key))) for key in ("src_agent_id", "dst_agent_id"))
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
        start, end = (_decimal(row.get(key)) for key in _COLUMNS[2:])
        found += _copy(start, end, ranks[source], ranks[target], 0, unused)
    return tuple(found)


def _copy(
    start: int | None, end: int | None, source: int | None, target: int | None, size: int | None, unused: Unused
) -> Iterator[TracedCopy]:
    if source is None or target is None or source == target >= 0:
        unused[_FROM_HOST] += 1
    elif min(source, target) < 0:
        unused["transfer", "between what are no numbers of GPUs"] += 1
    elif start is None or end is None or size is None or not (0 <= start < end and 0 <= size <= MAX_BYTES):
        unused["transfer", "without a time or a size that a copy has"] += 1
    else:
        yield TracedCopy(start / 1000, end / 1000, source, target, size)


def _agent(name: object) -> int:
    """The number of an agent, as in ``Agent 4``; -1 for other words."""
    number = str(name).rpartition(" ")[2]
    return int(number) if number.isdecimal() and len(number) < 10 else -1


def _handle(value: object) -> int:
    return _whole(member(value, "handle"))


def _decimal(text: object) -> int:
    """The whole number of at most 18 digits that a text is, else -1."""
    digits = str(text)
    return int(digits) if digits.isdecimal() and len(digits) <= 18 else -1


def _whole(value: object) -> int:
    """``value`` if it is a whole number of at most 63 bits, else -1."""
    return value if type(value) is int and 0 <= value < 1 << 63 else -1


HEADER = "time_us,from,to,bytes"
MAX_ROWS = 30_000
"""Rows of a table: a file that a scenario names has at most 1 MiB."""
MAX_US = 1e9
"""Times of a table lie before this."""
MAX_PAUSE_US = 1e6
"""Files of one run lie less than this apart."""
PIECE_BYTES, MAX_PIECES = 1 << 20, 64
"""A copy is written in pieces of 1 MiB, at most 64, that begin evenly in its time: so it keeps its measured rate."""


def traffic_table(files: Sequence[Path], gpu: str, report: Report) -> Imported:
    """Return what the profiles in ``files``, of one run, say of writes between GPUs.

    Parameters
    ----------
    files
        One profile of all GPUs of a node, or one of each rank.
    gpu
        The GPU of the library whose link gives the bytes of copies that have only a time; may be empty.
    report
        Receives what is wrong, at the file.

    Raises
    ------
    OSError
        If a file cannot be read.
    """
    unused, notes = Unused(), list[str]()
    runs = [_read(file, unused, notes, report) for file in files]
    runs = [_sized(run, file, gpu, notes, report) for run, file in zip(runs, files, strict=True)]
    _check_clock(files, runs, report)
    every = [copy for run in runs for copy in run]
    fitting = [copy for copy in every if copy.num_bytes <= MAX_BYTES]
    unused["transfer", "of more bytes than a table takes"] += len(every) - len(fitting)
    copies = sorted(fitting, key=lambda copy: (copy.start_us, copy.source, copy.target))
    if not copies:
        seen = "; ".join(reported(unused))
        message = f"no copy between GPUs, and no collective with its size{f': {seen}' if seen else ''}"
        raise report.fail(Code.MGS631, message, _at(files[0]))
    rows = list(_rows(copies))
    kept = [row for row in rows[:MAX_ROWS] if row[0] < MAX_US]
    if len(kept) < len(rows):
        notes.append(f"the first {len(kept):,} of {len(rows):,} writes, until {rows[len(kept)][0] / 1000:.6g} ms")
    names = ", ".join(file.name for file in files)
    doubts = (*notes, *(f"not used: {each}" for each in reported(unused)))
    head = comment_lines(f"Writes between GPUs in {names}.") + [each for note in doubts for each in comment_lines(note)]
    lines = [f"{time:.3f},{source},{target},{size}" for time, source, target, size in kept]
    return Imported("\n".join([*head, HEADER, *lines, ""]), len(lines))


def _at(file: Path) -> Span:
    return Span(Source(str(file), ""), 0, 0)


def _read(file: Path, unused: Unused, notes: list[str], report: Report) -> tuple[TracedCopy, ...]:
    try:
        if is_nsight(file):
            return read_nsight(file, unused)
        head = next(text_pieces(file), "")[:HEAD]
        if is_rocprof(head):
            read = read_rocprof_json if head.lstrip().startswith("{") else read_rocprof_csv
            return read(file, unused)
        if is_trace(head):
            return tuple(_of_run(read_run(ChromeTrace(text_pieces(file))), unused, notes))
        raise TraceError("it is no trace of torch.profiler, and none of rocprofv3 or Nsight Systems (.sqlite)")
    except TraceError as error:
        raise report.fail(Code.MGS630, str(error), _at(file)) from None


def _sized(
    run: tuple[TracedCopy, ...], file: Path, gpu: str, notes: list[str], report: Report
) -> tuple[TracedCopy, ...]:
    """``run`` with bytes for copies that have none: what a link of ``gpu`` carries in their time."""
    if all(copy.num_bytes for copy in run):
        return run
    if not gpu:
        hint = "write JSON, by --output-format json; or take what a link carries: --gpu MI300X"
        raise report.fail(Code.MGS631, "it has no bytes of copies", _at(file), hint)
    model = requested_gpu(gpu, Span(Source("--gpu", gpu), 0, len(gpu)), report)
    (link, *_) = collective_on(model.name, 2).network.route(0, 1)
    notes.append(f"{file.name} has no bytes: they are what a link of {model.name} carries in the time of a copy")
    per_us = link.bytes_per_s / 1e6
    return tuple(replace(copy, num_bytes=max(1, round((copy.end_us - copy.start_us) * per_us))) for copy in run)


def _of_run(run: TracedRun, unused: Unused, notes: list[str]) -> Iterator[TracedCopy]:
    """Yield the copies of one rank, and what its collectives write."""
    notes += run.notes
    yield from run.copies
    for each in run.collectives:
        if run.rank is None:
            unused["collective", "of a trace that does not say its rank"] += 1
        elif not each.element_bytes:
            unused["collective", "of a type whose size is not known"] += 1
        else:
            yield from _writes(each, run.rank)
    notes += (f"not used: {each}" for each in run.unused if "GEMM" not in each)


def _writes(each: TracedCollective, rank: int) -> Iterator[TracedCopy]:
    """Yield what ``rank`` writes to others in a collective; see the sizes of NCCL's rings in its performance notes."""
    first = rank // each.num_ranks * each.num_ranks
    group = each.group if rank in each.group else tuple(range(first, first + each.num_ranks))
    ranks = each.num_ranks
    place = group.index(rank)
    size = each.element_bytes
    sent = {
        "all_gather": (ranks - 1) * each.num_in * size,
        "reduce_scatter": (ranks - 1) * each.num_out * size,
        "all_reduce": 2 * (ranks - 1) * each.num_in * size // ranks,
        "all_to_all": each.num_in * size // ranks,
    }[each.operation]
    targets = range(1, ranks) if each.operation == "all_to_all" else (1,)
    for ahead in targets:
        target = group[(place + ahead) % ranks]
        if sent and target != rank:
            yield TracedCopy(each.start_us, each.end_us, rank, target, sent)


def _check_clock(files: Sequence[Path], runs: Sequence[Sequence[TracedCopy]], report: Report) -> None:
    """Refuse files between which more than a second lies: they are of different runs, or of hosts with other clocks."""
    spans = sorted(
        (min(each.start_us for each in run), max(each.end_us for each in run), file)
        for run, file in zip(runs, files, strict=True)
        if run
    )
    ends = accumulate((end for _, end, _ in spans), max)  # one file may last beyond those that begin behind it
    for end, (_, _, file), (start, _, other) in zip(ends, spans, spans[1:], strict=False):
        if start - end > MAX_PAUSE_US:
            message = f"{(start - end) / 1e6:.3g} s lie between {file.name} and {other.name}"
            raise report.fail(Code.MGS634, message, _at(other), "take the files of one host and one run")


def _rows(copies: Sequence[TracedCopy]) -> Iterator[tuple[float, int, int, int]]:
    """The rows of a table, sorted: us since the first copy began, two ranks, bytes."""
    begin = copies[0].start_us
    found = list[tuple[float, int, int, int]]()
    for each in copies:
        pieces = min(MAX_PIECES, -(-each.num_bytes // PIECE_BYTES))
        step = (each.end_us - each.start_us) / pieces
        for turn in range(pieces):
            low, high = (each.num_bytes * at // pieces for at in (turn, turn + 1))
            found.append((each.start_us - begin + turn * step, each.source, each.target, high - low))
    yield from sorted(found)
