"""The text that nccl-tests and rccl-tests print: lines of comments, and a line for each size.

The line of column names says where the time stands: older versions have no root, and all_gather no redop. ``mpirun``
may put the rank before each line. The form is that of nccl-tests' ``src/util.cu``.
"""

import re
from collections import Counter
from collections.abc import Sequence

from ....compiler.codes import Code
from ....compiler.text.diagnostics import Report
from ....compiler.text.source import Source, Span
from .run import LogDevice, LogRow, LogRun

MAX_LINES = 1_000_000
MAX_LINE = 1024
"""Characters of a line that is read; longer ones are of other programs."""
_PREFIX = re.compile(r"\s*\[\d+,\d+\]<std\w+>:")
_START = re.compile(r"# Collective test starting: (\w+)")
_CONFIG = re.compile(r"# nThread +(\d{1,4}) +nGpus +(\d{1,4}) ")
_RANK = re.compile(
    r"# +Rank +(\d{1,6}) +Group +(\d{1,6}) +Pid +\d+ +on +(\S{1,255}) +device +\d+ +\[[^\]]{1,20}\] *(.*)"
)
_OLD_RANK = re.compile(r"# +Rank +(\d{1,6}) +Pid +\d+ +on +(\S{1,255}) +device +\d+ +\[[^\]]{1,20}\] *(.*)")
_PROGRAM = re.compile(r"\b(\w+_perf)\b")
_USUAL = ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,9})?(?:e\+\d{1,2})?")


def is_nccl_text(text: str) -> bool:
    """Whether the text is a log of nccl-tests."""
    return re.search(r"# nThread +\d|# Collective test starting:|#[ \t]+size[ \t]+count[ \t]+type", text) is not None


def read_nccl_text(source: Source, report: Report) -> tuple[LogRun, ...]:
    """Return the runs of a log; rows that cannot be read are reported as warnings."""
    lines = source.text.split("\n")
    if len(lines) > MAX_LINES:
        raise report.fail(Code.MGS130, f"the log has more than {MAX_LINES:,} lines", Span(source, 0, 1))
    reader, start = _Reader(report), 0
    for line in lines:
        if len(line) <= MAX_LINE:
            prefix = _PREFIX.match(line)
            plain = line[prefix.end() :] if prefix is not None else line
            reader.read(plain.rstrip("\r"), Span(source, start, start + len(line)))
        start += len(line) + 1
    return reader.runs()


class _Reader:
    """Reads a log line by line; a line of settings, or a program that starts, begins a run."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._runs: list[LogRun] = []
        self._program = self._mentioned = ""
        self._begin()

    def _begin(self) -> None:
        self._per_process = 1
        self._devices: list[LogDevice] = []
        self._rows: list[LogRow] = []
        self._columns: Sequence[str] = _USUAL
        self._left_out: Counter[str] = Counter()
        self._first: dict[str, Span] = {}

    def runs(self) -> tuple[LogRun, ...]:
        """Return all runs that have rows."""
        self._end()
        return tuple(self._runs)

    def _end(self) -> None:
        if self._rows:
            span = self._rows[0].span
            run = LogRun(
                self._program or self._mentioned, tuple(self._devices), self._per_process, tuple(self._rows), span
            )
            self._runs.append(run)
        for reason, count in self._left_out.items():
            self._report.warn(Code.MGS622, f"{count} rows left out: {reason}", self._first[reason])
        self._begin()

    def read(self, line: str, span: Span) -> None:
        """Take up one line."""
        words = line.split()
        if not words:
            return
        if words[0].isascii() and words[0].isdigit():
            self._read_row(words, span)
        elif (start := _START.match(line)) is not None:
            self._end()
            self._program = self._mentioned = start[1]
        elif (config := _CONFIG.match(line)) is not None:
            if self._rows:
                self._end()
            self._program = self._mentioned
            self._per_process = max(1, int(config[1]) * int(config[2]))
        elif (rank := _RANK.match(line)) is not None:
            self._devices.append(LogDevice(int(rank[1]), int(rank[2]), rank[3], rank[4].strip()))
        elif (rank := _OLD_RANK.match(line)) is not None:
            self._devices.append(LogDevice(int(rank[1]), 0, rank[2], rank[3].strip()))
        elif words[:3] == ["#", "size", "count"]:
            self._columns = words[1:]
        elif (program := _PROGRAM.search(line)) is not None:
            self._mentioned = program[1]

    def _read_row(self, words: list[str], span: Span) -> None:
        columns = self._columns
        if "cputime" in columns:
            self._leave_out("they are times of the CPU (-C 1)", span)
        elif "time" not in columns or len(words) < columns.index("time") + 3 or len(words[0]) > 15:
            self._leave_out("they are no rows of nccl-tests, or end early", span)
        else:
            # Times in place have columns of the same names, further to the right.
            self._add(dict(reversed(list(zip(columns, words, strict=False)))), span)

    def _add(self, found: dict[str, str], span: Span) -> None:
        time, num_bytes = found["time"], int(found["size"])
        if _NUMBER.fullmatch(time) is None or not float(time) or not num_bytes:
            self._leave_out("no bytes, or no time", span)
            return
        wrong = found.get("#wrong", "0")
        row = LogRow(
            num_bytes, found.get("type", ""), found.get("redop", ""), float(time), wrong not in ("0", "N/A"), span
        )
        self._rows.append(row)

    def _leave_out(self, reason: str, span: Span) -> None:
        self._left_out[reason] += 1
        self._first.setdefault(reason, span)
