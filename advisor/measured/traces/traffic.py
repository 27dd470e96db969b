"""What GPUs wrote into each other's memory in a run, from profiles, as the table that ``traffic { file }`` reads.

Profiles are those of torch.profiler (JSON), rocprofv3 (JSON, CSV) and Nsight Systems (SQLite). A collective is written
as its ring is: to the next rank of its group, an all_to_all to each, evenly over the time of its kernel.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from ....compiler import compile_text
from ....compiler.codes import Code
from ....compiler.machine.machine import requested_gpu
from ....compiler.text.diagnostics import Report, Source, Span
from ....compiler.text.rewriting import comment_lines
from .kineto import ChromeTrace, TraceError, read_run
from .nsight import is_nsight, read_nsight
from .rocprof import is_rocprof, read_rocprof_csv, read_rocprof_json
from .run import TracedCollective, TracedCopy, TracedRun, Unused, reported
from .workloads import HEAD, TraceOrigin, head_of, is_trace, system_text, text_pieces

HEADER = "time_us,from,to,bytes"
MAX_ROWS = 30_000
"""Rows of a table: a file that a scenario names has at most 1 MiB."""
MAX_PAUSE_US = 1e6
"""Files of one run lie less than this apart."""
PIECE_BYTES, MAX_PIECES = 1 << 20, 64
"""A copy is written in pieces of 1 MiB, at most 64, that begin evenly in its time: so it keeps its measured rate."""


@dataclass(frozen=True, slots=True)
class TrafficTable:
    """The text of a table, and the number of its rows."""

    text: str
    count: int


def traffic_table(files: Sequence[Path], gpu: str, report: Report) -> TrafficTable:
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
    copies = sorted((copy for run in runs for copy in run), key=lambda copy: (copy.start_us, copy.source, copy.target))
    if not copies:
        seen = "; ".join(reported(unused))
        message = f"no copy between GPUs, and no collective with its size{f': {seen}' if seen else ''}"
        raise report.fail(Code.MGS631, message, _at(files[0]))
    rows = list(_rows(copies))
    if len(rows) > MAX_ROWS:
        notes.append(f"the first {MAX_ROWS:,} of {len(rows):,} writes, until {rows[MAX_ROWS][0] / 1000:.6g} ms")
    names = ", ".join(file.name for file in files)
    doubts = (*notes, *(f"not used: {each}" for each in reported(unused)))
    head = comment_lines(f"Writes between GPUs in {names}.") + [each for note in doubts for each in comment_lines(note)]
    lines = [f"{time:.3f},{source},{target},{size}" for time, source, target, size in rows[:MAX_ROWS]]
    return TrafficTable("\n".join([*head, HEADER, *lines, ""]), len(lines))


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
    node = "\n".join([*head_of(TraceOrigin(file.name, "", None, ()), model), system_text(model, 2)])
    one = "workload one on node_2 {\n  x = tensor bf16[8, 8] shard rows\n  y = all_gather(x)\n}"
    (link, *_) = compile_text(f"{node}\n{one}\n").scenario("one").case.network.route(0, 1)
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
