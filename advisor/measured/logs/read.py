"""Rows of a log, in the columns that ``magus validate`` and ``magus calibrate`` read."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....compiler.codes import Code
from ....compiler.machine.device_ids import device_named
from ....compiler.text.diagnostics import Report, Stopped, did_you_mean, listing
from ....compiler.text.printable import printable
from ....compiler.text.source import Source, Span
from .nccl_json import is_nccl_json, read_nccl_json
from .nccl_text import is_nccl_text, read_nccl_text
from .run import LogRow, LogRun

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


@dataclass(frozen=True, slots=True)
class LogRows:
    """The rows of a log as CSV, and how many there are."""

    text: str
    count: int


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


def read_log(source: Source, gpu: str, collective: str, report: Report) -> LogRows:
    """Return the rows of a log; ``gpu`` and ``collective`` name what it does not say, or are empty.

    Rows with wrong results are left out, with a warning.
    """
    asked = _operation(collective, Span(Source("--collective", collective), 0, len(collective)), report)
    runs = read_nccl_json(source, report) if is_nccl_json(source.text) else read_nccl_text(source, report)
    if not any(run.rows for run in runs):
        message = "the log has no row with a time: nccl-tests prints one for each size"
        raise report.fail(Code.MGS620, message, Span(source, 0, 1))
    lines = [line for run in runs for line in _lines(run, gpu, asked, source, report)]
    if report.has_errors:
        raise report.stop()
    head = f"# From {printable(source.path.rpartition('/')[2])[:128]}, nccl-tests: times out of place."
    return LogRows("\n".join([head, COLUMNS, *lines]) + "\n", len(lines))


def _lines(run: LogRun, gpu: str, asked: tuple[str, bool] | None, source: Source, report: Report) -> Iterator[str]:
    _check_one_node(run, report)
    name = _word(gpu.upper()) or _gpu(run, report)
    operation, sums = asked or _named(run, source, report)
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
