"""Logs of nccl-tests, as text or JSON, read as rows that ``magus validate`` and ``calibrate`` take."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...compiler.codes import Code
from ...compiler.machine.known_gpus import device_named
from ...compiler.text.diagnostics import Report, Source, Span, Stopped, did_you_mean, listing, printable
from ...compiler.text.json_forms import Item, JsonPlace, read_json
from . import Imported


@dataclass(frozen=True, slots=True)
class LogDevice:
    """A rank, or the first rank of a process: its number, group and host, and the name of its GPU."""

    rank: int
    group: int
    host: str
    name: str


@dataclass(frozen=True, slots=True)
class LogRow:
    """A measured time; ``reduction`` is the operation that sums, ``none`` without one. ``span`` is its place."""

    num_bytes: int
    dtype: str
    reduction: str
    time_us: float
    is_wrong: bool
    span: Span


@dataclass(frozen=True, slots=True)
class LogRun:
    """One run. ``program`` is empty where the log does not name it; ``per_process`` are the ranks of a process."""

    program: str
    devices: tuple[LogDevice, ...]
    per_process: int
    rows: tuple[LogRow, ...]
    span: Span

    @property
    def num_ranks(self) -> int:
        """The number of ranks, 0 if the log does not say. A report may name the first rank of each process alone."""
        ranks = sorted({device.rank for device in self.devices})
        if not ranks:
            return 0
        if ranks == [number * self.per_process for number in range(len(ranks))]:
            return len(ranks) * self.per_process
        return len(ranks)


MAX_RESULTS = 100_000
MAX_RANKS = 100_000
_MOST_BYTES_SENT = 1 << 50
_TIMES = ("time", "avg_us")


def is_nccl_json(text: str) -> bool:
    """Whether the text is a report of nccl-tests."""
    return text.lstrip().startswith("{") and '"results"' in text and '"nccl_version"' in text


def read_nccl_json(source: Source, report: Report) -> tuple[LogRun, ...]:
    """Return the one run of a report; results without a time are left out with a warning."""
    span = Span(source, 0, 1)
    document = read_json(source.text, JsonPlace("report", span, report, Code.MGS620))
    members = document.members()
    config = members["config"].members() if "config" in members else {}
    items = [item.members() for item in _list(members, "results", MAX_RESULTS)]
    rows = [row for row in (_row(result, span) for result in items) if row is not None]
    if len(rows) < len(items):
        message = f"{len(items) - len(rows)} results left out: no bytes, or no time out of place"
        report.warn(Code.MGS622, message, span)
    devices = _list(config, "devices", MAX_RANKS) or _list(members, "devices", MAX_RANKS)
    arguments = _list(members, "args", MAX_RESULTS)
    return (
        LogRun(
            arguments[0].any_text().rpartition("/")[2] if arguments else "",
            tuple(_device(item.members()) for item in devices),
            max(1, _number(config, "nthreads") * _number(config, "ngpus")),
            tuple(rows),
            span,
        ),
    )


def _list(members: dict[str, Item], key: str, most: int) -> tuple[Item, ...]:
    return members[key].items(most) if key in members else ()


def _number(members: dict[str, Item], key: str) -> int:
    return members[key].number(0, MAX_RANKS) if key in members else 1


def _text_of(members: dict[str, Item], key: str) -> str:
    return members[key].any_text().strip()[:255] if key in members else ""


def _device(members: dict[str, Item]) -> LogDevice:
    rank, group = (_number(members, key) for key in ("rank", "group"))
    return LogDevice(rank, group, _text_of(members, "hostname"), _text_of(members, "device_info"))


def _row(members: dict[str, Item], span: Span) -> LogRow | None:
    """The time out of place, None if there is none."""
    if "out_of_place" not in members or members["out_of_place"].value is None or "size" not in members:
        return None
    found = members["out_of_place"].members()
    time = next((found[key] for key in _TIMES if key in found and not isinstance(found[key].value, str)), None)
    num_bytes = members["size"].number(0, _MOST_BYTES_SENT)
    if time is None or not num_bytes:
        return None
    time_us = time.decimal(0, 1e12)
    wrong = "nwrong" in found and found["nwrong"].value not in (None, 0, 0.0)
    return (
        LogRow(num_bytes, _text_of(members, "type"), _text_of(members, "redop"), time_us, wrong, span)
        if time_us
        else None
    )


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


MAX_BYTES = 16 << 20
COLUMNS = "gpu,n_gpus,op,dtype,bytes,time_us"
HALF = "half"
_HEAD = 4096
_UNITS = re.compile(r"\busecs?\b|\(us\)|\bmsecs?\b|\(ms\)|latency"), re.compile(r"g[bi]+t?s?/s|busbw|algbw|bandwidth")
"""What says in a line of titles that a table has times, and rates."""
_ROW = re.compile(r"\s*\d[\d.,]*(?:[\s|]+\d[\d.,]*){2,}[\s|]*")
"""A row of numbers alone."""
_OPERATIONS = {
    "allgather": ("all_gather", False),
    "allreduce": ("all_reduce", True),
    "reducescatter": ("reduce_scatter", True),
    "alltoall": ("all_to_all", False),
}
"""By their names without marks between words: the name in tables, and whether they sum."""
_NAMES = tuple(name for name, _ in _OPERATIONS.values())
_COLLECTIVE = re.compile(r"(?<![a-z])(?:all_?gather|all_?reduce|reduce_?scatter|all_?to_?all)(?![a-z0-9])")
_MAKERS = re.compile(r"(?:NVIDIA|AMD|Instinct|Tesla)\s+", re.IGNORECASE)


def is_log(text: str) -> bool:
    """Whether the text is a log that rows are read from."""
    return is_nccl_json(text) or is_nccl_text(text)


def is_other_table(text: str) -> bool:
    """Whether a text that is no such log begins with a table of times and rates, as other benchmarks print."""
    lines = text[:_HEAD].lower().splitlines()
    titles = (at for at, line in enumerate(lines) if all(unit.search(line) for unit in _UNITS))
    first = next(titles, len(lines))
    return any(_ROW.fullmatch(line) for line in lines[first + 1 : first + 4])


def refuse_other_table(source: Source, report: Report) -> Stopped:
    """Say that a table is none of nccl-tests, whose names of columns tell what stands in each."""
    message = "this is a table of times, and no log of nccl-tests or rccl-tests"
    hint = "their logs have a line '# size count type redop root time algbw busbw'"
    return report.fail(Code.MGS620, message, Span(source, 0, len(source.text.split("\n", 1)[0])), hint)


def read_log(source: Source, gpu: str, collective: str, report: Report) -> Imported:
    """Return the rows of a log; ``gpu`` and ``collective`` name what it does not say, or are empty.

    Rows with wrong results are left out, with a warning.
    """
    requested = _operation(collective, Span(Source("--collective", collective), 0, len(collective)), report)
    runs = read_nccl_json(source, report) if is_nccl_json(source.text) else read_nccl_text(source, report)
    if not any(run.rows for run in runs):
        message = "the log has no row with a time: nccl-tests prints one for each size"
        raise report.fail(Code.MGS620, message, Span(source, 0, 1))
    lines = [line for run in runs for line in _lines(run, gpu, requested, source, report)]
    if report.has_errors:
        raise report.stop()
    head = f"# From {printable(source.path.rpartition('/')[2])[:128]}, nccl-tests: times out of place."
    return Imported("\n".join([head, COLUMNS, *lines]) + "\n", len(lines))


def _lines(run: LogRun, gpu: str, requested: tuple[str, bool] | None, source: Source, report: Report) -> Iterator[str]:
    _check_one_node(run, report)
    name = _word(gpu.upper()) or _gpu(run, report)
    operation, sums = requested or _named(run, source, report)
    if not run.num_ranks:
        hint = "keep the lines '# Rank 0 ... on HOST device 0' in the log"
        raise report.fail(Code.MGS621, "the log does not say how many ranks there were", run.span, hint)
    for row in _right(run.rows, sums, operation, report):
        yield f"{name},{run.num_ranks},{operation},{_word(row.dtype)},{row.num_bytes},{row.time_us:g}"


def _operation(text: str, span: Span, report: Report) -> tuple[str, bool] | None:
    if not text:
        return None
    found = _OPERATIONS.get(re.sub(r"[^a-z]", "", text.lower()))
    if found is None:
        hint = did_you_mean(text, _NAMES) or f"there are {listing(_NAMES)}"
        raise report.fail(Code.MGS621, f"no model of '{text[:64]}'", span, hint)
    return found


def _named(run: LogRun, source: Source, report: Report) -> tuple[str, bool]:
    """The collective that the log says, or if it does not, the name of the file."""
    said = run.program or source.path.rpartition("/")[2]
    match = _COLLECTIVE.search(said.lower())
    if match is not None:
        return _OPERATIONS[match[0].replace("_", "")]
    message = f"no model of '{run.program[:64]}'" if run.program else "the log does not say which collective this is"
    raise report.fail(Code.MGS621, message, run.span, f"name it: --collective with {listing(_NAMES)}")


def _gpu(run: LogRun, report: Report) -> str:
    """The name of the GPU as tables have it: that of its profile is its first word."""
    names = list(dict.fromkeys(device.name for device in run.devices if device.name))
    if len(names) != 1:
        message = (
            f"GPUs of several kinds: {listing(names[:4])}" if names else "the log does not say which GPUs these are"
        )
        raise report.fail(Code.MGS605 if names else Code.MGS621, message, run.span, "name it: --gpu H100")
    plain = _word(_MAKERS.sub("", names[0]))
    device = device_named(names[0])
    if device is not None and not device.nearest:
        return plain.replace("-", "_")  # one word, which no profile of another GPU has
    return plain


def _word(text: str) -> str:
    """A field of a table: letters, digits and dashes."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-")[:64]


def _check_one_node(run: LogRun, report: Report) -> None:
    hosts = list(dict.fromkeys(device.host for device in run.devices))
    groups = {device.group for device in run.devices}
    if len(hosts) > 1 or len(groups) > 1:
        what = f"{len(hosts)} nodes ({listing(hosts[:4])})" if len(hosts) > 1 else f"{len(groups)} groups at once"
        message = f"the run is one on {what}: the constants of a GPU are those of one node"
        raise report.fail(Code.MGS623, message, run.span, "run nccl-tests on one node")


def _right(rows: Sequence[LogRow], sums: bool, operation: str, report: Report) -> Iterator[LogRow]:
    """The rows with right results; others, and types that no model was fitted to, are told."""
    for row in rows:
        if row.reduction and (row.reduction != "none") is not sums:
            message = f"redop {row.reduction[:16]} does not fit {operation}"
            raise report.fail(Code.MGS621, message, row.span, "is this the log of another collective?")
    wrong = [row for row in rows if row.is_wrong]
    if wrong:
        message = f"{len(wrong)} rows left out: their results are wrong"
        report.warn(Code.MGS622, message, wrong[0].span, "is the machine sound?")
    others = {row.dtype: row for row in rows if row.dtype != HALF}
    for dtype, row in list(others.items())[:4]:
        message = f"rows of {dtype[:32]}: magus validate and calibrate compare {HALF} alone"
        report.warn(Code.MGS624, message, row.span, f"run nccl-tests with -d {HALF}")
    yield from (row for row in rows if not row.is_wrong)
