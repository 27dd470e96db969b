"""Profiles of writes: lines ``time_us,rank,signal,bytes`` sorted by time; ``#`` starts a comment.

A signal may have several writes of one rank; it is set when all of them have landed. One of 0 bytes is a flag: a line
that only says that tiles have stored, where a schedule has such flags. Times have at most eight decimals,
which is a tick of 10 fs. Errors are reported at their line.
"""

import re
from collections.abc import Iterable, Iterator

from ...codes import Code
from ...ir import TICKS_PER_US, Replay, Write
from ...text import syntax as ast
from ...text.diagnostics import Report
from ...text.load import path_beside, read_source
from ...text.source import Source, Span
from ...text.units import exact

HEADER = "time_us,rank,signal,bytes"
_EXAMPLE = "for instance: 12.5,3,x1,262144"
_TIME = re.compile(r"[0-9]{1,9}(\.[0-9]{1,8})?")
_COUNT = re.compile(r"[0-9]{1,15}")
_SIGNAL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
MAX_BYTES = 1 << 40
"""Bytes of one write."""


def read_replay(text: ast.Text, num_ranks: int, report: Report) -> Replay:
    """Read the profile at the path ``text``, in the folder of the file that names it or below."""
    source = read_source(path_beside(text, "profile", report), report, text.span)
    failures_before = report.num_failures
    writes = tuple(_writes(source, num_ranks, report))
    if report.num_failures > failures_before:
        raise report.stop()
    return Replay(text.value, writes)


def write_profile(writes: Iterable[Write]) -> str:
    """Write a profile with exact times."""
    rows = [f"{_us(write.ticks)},{write.rank},{write.signal},{write.num_bytes}" for write in writes]
    return "\n".join([HEADER, *rows, ""])


def _us(ticks: int) -> str:
    whole, rest = divmod(ticks, TICKS_PER_US)
    return f"{whole}.{rest:08d}"


def _writes(source: Source, num_ranks: int, report: Report) -> Iterator[Write]:
    rows = list(_rows(source))
    if not rows or rows[0][0].replace(" ", "") != HEADER:
        span = rows[0][1] if rows else Span(source, 0, 0)
        raise report.fail(Code.MGS136, f"a profile begins with the line {HEADER}", span)
    before, writers = 0, dict[str, int]()
    for row, span in rows[1:]:
        with report.attempt():
            write = _write(row, span, num_ranks, report)
            writer = writers.setdefault(write.signal, write.rank)
            if writer != write.rank:
                message = f"signal {write.signal} is set by rank {writer} and by rank {write.rank}"
                raise report.fail(Code.MGS136, message, span, "a signal has one writer")
            if write.ticks < before:
                message = "this write is earlier than the one before it"
                raise report.fail(Code.MGS136, message, span, "sort the rows by time")
            before = write.ticks
            yield write


def _rows(source: Source) -> Iterator[tuple[str, Span]]:
    """Return the lines that are neither empty nor comments, each with its span."""
    at = 0
    for line in source.text.split("\n"):
        row = line.partition("#")[0].strip()
        if row:
            start = at + line.index(row)
            yield row, Span(source, start, start + len(row))
        at += len(line) + 1


def _write(row: str, span: Span, num_ranks: int, report: Report) -> Write:
    fields = [field.strip() for field in row.split(",")]
    if len(fields) != 4:
        raise report.fail(Code.MGS136, f"a row has four fields, got {len(fields)}", span, _EXAMPLE)
    time, rank, signal, size = fields
    if not _TIME.fullmatch(time):
        message = "a time is in us, from 0 up, with at most eight decimals"
        raise report.fail(Code.MGS136, message, span, _EXAMPLE)
    if not _COUNT.fullmatch(rank) or not _COUNT.fullmatch(size) or not _SIGNAL.fullmatch(signal):
        message = "a rank and bytes are whole numbers, a signal is a name"
        raise report.fail(Code.MGS136, message, span, _EXAMPLE)
    if not 1 <= int(rank) < num_ranks:
        message = f"rank is from 1 to {num_ranks - 1}, got {rank}: rank 0 is the one that is simulated"
        raise report.fail(Code.MGS307, message, span)
    if int(size) > MAX_BYTES:
        raise report.fail(Code.MGS307, f"bytes are at most {MAX_BYTES}, got {size}", span, "0 bytes are a flag")
    return Write(int(exact(time) * TICKS_PER_US), int(rank), signal, int(size))
