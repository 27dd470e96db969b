"""The JSON that nccl-tests writes with ``-J FILE``, versions 2 and 3."""

from ....compiler.codes import Code
from ....compiler.text.diagnostics import Report
from ....compiler.text.json_items import Item, JsonPlace, read_json
from ....compiler.text.source import Source, Span
from .run import LogDevice, LogRow, LogRun

MAX_RESULTS = 100_000
MAX_RANKS = 100_000
MAX_BYTES = 1 << 50
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


def _word(members: dict[str, Item], key: str) -> str:
    return members[key].any_text().strip()[:255] if key in members else ""


def _device(members: dict[str, Item]) -> LogDevice:
    rank, group = (_number(members, key) for key in ("rank", "group"))
    return LogDevice(rank, group, _word(members, "hostname"), _word(members, "device_info"))


def _row(members: dict[str, Item], span: Span) -> LogRow | None:
    """The time out of place, None if there is none."""
    if "out_of_place" not in members or members["out_of_place"].value is None or "size" not in members:
        return None
    found = members["out_of_place"].members()
    time = next((found[key] for key in _TIMES if key in found and not isinstance(found[key].value, str)), None)
    num_bytes = members["size"].number(0, MAX_BYTES)
    if time is None or not num_bytes:
        return None
    time_us = time.decimal(0, 1e12)
    wrong = "nwrong" in found and found["nwrong"].value not in (None, 0, 0.0)
    return LogRow(num_bytes, _word(members, "type"), _word(members, "redop"), time_us, wrong, span) if time_us else None
