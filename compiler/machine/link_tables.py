"""Tables of links between GPUs, as tools print them: a line of names, then a line for each GPU with a word for each."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..codes import Code
from ..text.diagnostics import Report, Source, Span
from .machine import MAX_GPUS

MAX_LINES = 100_000
MAX_NAMED = 512
"""Characters of a line that may say the name of a GPU."""
_GPU = re.compile(r"GPU\d{1,4}")
_ADAPTER = re.compile(r"NIC\d{1,4}|[a-z]\w*_\d{1,4}")  # NIC0, mlx5_0
_GLUED = re.compile(r"GPU\d{1,4}|NIC\d{1,4}|[a-z][a-z\d]*_\d{1,4}|CPU|NV\d{1,3}|SYS|NODE|PHB|PXB|PIX|PSB|SOC|XGMI|PCIE")
_AFFINITY = "CPU"
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a tool's output without escapes for colours, its words, and its place."""

    text: str
    words: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class LinkTable:
    """The words of a table between ``num_gpus`` GPUs, by their numbers, the names of other columns, and its place."""

    num_gpus: int
    words: tuple[tuple[str, ...], ...]
    others: tuple[str, ...]
    spans: tuple[Span, ...]


def lines_of(source: Source, report: Report) -> list[Line]:
    """Return the lines of a text; refuse one with too many."""
    texts = source.text.split("\n")
    if len(texts) > MAX_LINES:
        raise report.fail(Code.MGS130, f"the file has more than {MAX_LINES:,} lines", Span(source, 0, 1))
    lines, start = [], 0
    for text in texts:
        plain = _STYLE.sub("", text).rstrip("\r")
        words = tuple(part for word in plain.split() for part in _parts(word))
        lines.append(Line(plain, words, Span(source, start, start + len(text))))
        start += len(text) + 1
    return lines


def _parts(word: str) -> list[str]:
    """The names of columns, or the links, that stand without a space between them: ``NIC7NIC8``."""
    parts = _GLUED.findall(word) if len(word) <= MAX_NAMED else []
    return parts if len(parts) > 1 and "".join(parts) == word else [word]


def is_head(line: Line) -> bool:
    """Whether a line names the columns of a table of GPUs."""
    first, second = line.words[:1], line.words[1:2]
    return any(map(_GPU.fullmatch, first)) and all(_is_column(word) or word == _AFFINITY for word in second)


def read_table(lines: Sequence[Line], at: int, report: Report) -> LinkTable:
    """Return the table whose head is line ``at``; lines that are short or missing are errors.

    After the words for GPUs and adapters a line may have others, such as affinities, which may be empty.
    """
    head = lines[at]
    columns = list(_columns(head))
    num_gpus = sum(_GPU.fullmatch(name) is not None for name in columns)
    if columns[:num_gpus] != [f"GPU{number}" for number in range(num_gpus)]:
        hint = "a table of all GPUs of the machine is needed, without -i"
        raise report.fail(Code.MGS607, "the columns of GPUs are not GPU0, GPU1 and so on", head.span, hint)
    if num_gpus > MAX_GPUS:
        raise report.fail(Code.MGS603, f"the table has {num_gpus} GPUs, at most {MAX_GPUS} are read", head.span)
    rows, spans = [], []
    for number in range(num_gpus):
        line = lines[at + 1 + number] if at + 1 + number < len(lines) else None
        if line is None or line.words[:1] != (f"GPU{number}",):
            span = head.span if line is None else line.span
            raise report.fail(Code.MGS607, f"the table has {num_gpus} GPUs, and no line of GPU{number} here", span)
        if len(line.words) < 1 + num_gpus:
            message = f"GPU{number} has {len(line.words) - 1} words, the table {num_gpus} GPUs"
            raise report.fail(Code.MGS607, message, line.span)
        rows.append(line.words[1 : 1 + num_gpus])
        spans.append(line.span)
    return LinkTable(num_gpus, tuple(rows), tuple(columns[num_gpus:]), tuple(spans))


def _columns(head: Line) -> Iterator[str]:
    for word in head.words:
        if not _is_column(word):
            return
        yield word


def _is_column(word: str) -> bool:
    return bool(_GPU.fullmatch(word) or _ADAPTER.fullmatch(word))
