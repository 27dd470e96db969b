"""Tables of measured times as CSV, plain or gzipped, and a measured time with its prediction.

Files are not trusted: sizes are limited, text is never evaluated, and a row that does not parse is skipped and named.
Lines that are blank or begin with ``#`` are comments; a field never spans lines.
"""

import csv
import gzip
import math
import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ....compiler.text.units import bytes_text

MAX_FILE_BYTES = 64 << 20  # of text, after decompression
MAX_LINE_CHARS = 4096
MAX_ROWS = 1_000_000
READ_BYTES = 1 << 16
_UNITS = ("_ns", "_us", "_ms", "_s")
MAX_RATIO = 100
"""A time that is as many times as long or short as predicted has another unit."""


class MeasuredError(ValueError):
    """A table cannot be read at all; the message says which and why."""


class TableTooLarge(MeasuredError):
    """The file has more text than is read."""


class MissingTable(MeasuredError):
    """The file does not exist."""


class MissingColumns(MeasuredError):
    """A table that lacks columns, whose ``names`` are a text."""

    def __init__(self, message: str, names: str) -> None:
        super().__init__(message)
        self.names = names


@dataclass(frozen=True, slots=True)
class TableComparison:
    """One measured time and its prediction by the models.

    Errors are summed up by ``operation`` and ``group``; ``label`` names the point. For an operation that is a ratio of
    two times, both "times" are plain ratios. Of a shipped implementation ``error`` is the relative one that it states,
    and ``kind`` says what it does; None and empty of all else.
    """

    gpu: str
    operation: str
    group: str
    label: str
    measured_us: float
    predicted_us: float
    kind: str = ""
    error: float | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one table by column name, and ``file:line: reason`` for each skipped row."""

    rows: tuple[Mapping[str, str], ...]
    skipped: tuple[str, ...]


def read_rows(path: Path, required: Sequence[str], numeric: Sequence[str] = ()) -> Rows:
    """Read a table.

    Parameters
    ----------
    path
        A file named ``.csv`` or ``.csv.gz``.
    required
        Columns that must be present and filled in every row.
    numeric
        Columns that hold a finite number above zero; rows with other values are skipped.

    Raises
    ------
    MissingTable
        If the file does not exist.
    MissingColumns
        If it lacks a column.
    MeasuredError
        If it is not a file, too large or not CSV, or has a time in two units.
    """
    text, cut = text_of(path)
    lines = text_lines(text)
    header = [name.strip() for name in _header(path, lines)]
    missing = [name for name in (*required, *numeric) if name not in header]
    if missing:
        names = ", ".join(dict.fromkeys(missing))
        raise MissingColumns(f"{path}: no column {names}; columns are {', '.join(header)}", names)
    if len(set(header)) < len(header):
        raise MeasuredError(f"{path}: two columns have the same name")
    for time in (name for name in numeric if name.endswith(_UNITS)):
        others = {time.rpartition("_")[0] + unit for unit in _UNITS} & set(header) - {time}
        if others:
            raise MeasuredError(f"{path}: {time} and {min(others)} are one time in two units: leave {time} alone")
    rows: list[Mapping[str, str]] = []
    skipped: list[str] = []
    for number, line in lines:
        if len(rows) + len(skipped) >= MAX_ROWS:
            raise MeasuredError(f"{path}: more than {MAX_ROWS:,} rows")
        row = _row(line, header, required, numeric)
        if isinstance(row, str):
            skipped.append(f"{path.name}:{number}: {row}")
        else:
            rows.append(row)
    if cut:
        skipped.append(f"{path.name}: {cut}; rows after those read are lost")
    return Rows(tuple(rows), tuple(skipped))


def text_of(path: Path) -> tuple[str, str]:
    """Return the text of the file, and why its compressed data end early, empty if they do not."""
    if not path.exists():
        raise MissingTable(f"{path}: no such file")
    if not path.is_file():
        raise MeasuredError(f"{path}: not a file")
    parts, size, cut = [], 0, ""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            while part := stream.read(READ_BYTES):
                parts.append(part)
                size += len(part)
                if size > MAX_FILE_BYTES:
                    raise TableTooLarge(f"{path}: more than {bytes_text(MAX_FILE_BYTES)} of text")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        if not parts:
            raise MeasuredError(f"{path}: not a gzip file") from error
        cut = "the compressed data end early or are damaged"
    except OSError as error:
        raise MeasuredError(f"{path}: {error.strerror or error}") from error
    text = b"".join(parts).decode("utf-8-sig", errors="replace")
    if cut:
        text = text[: text.rfind("\n") + 1]  # the last line may be half of one
    return text, cut


def text_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line) for lines that are not comments."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            yield number, line.removesuffix("\r")


def _header(path: Path, lines: Iterator[tuple[int, str]]) -> list[str]:
    for _, line in lines:
        fields = fields_of(line)
        if isinstance(fields, str):
            raise MeasuredError(f"{path}: the line of column names has {fields}")
        return fields
    raise MeasuredError(f"{path}: empty")


def _row(line: str, header: Sequence[str], required: Sequence[str], numeric: Sequence[str]) -> Mapping[str, str] | str:
    """Return the fields by column, or why the row is invalid."""
    fields = fields_of(line)
    if isinstance(fields, str):
        return fields
    if len(fields) != len(header):
        return f"{len(fields)} fields where there are {len(header)} columns"
    row = {name: field.strip() for name, field in zip(header, fields, strict=True)}
    for name in required:
        if not row[name]:
            return f"no {name}"
    for name in numeric:
        if not is_positive(row[name]):
            return f"{name} is {row[name][:40]!r}, not a number above zero"
    return row


def fields_of(line: str) -> list[str] | str:
    """Return the fields of one line, or why it is invalid."""
    if len(line) > MAX_LINE_CHARS:
        return f"more than {MAX_LINE_CHARS} characters"
    if "\ufffd" in line:
        return "text that is not UTF-8"
    if not line.replace("\t", " ").isprintable():
        return "characters that do not print"
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error:
        return "a quote that does not fit"


def tables_of(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """Return the files of ``folder`` that match the patterns, sorted."""
    return sorted(path for pattern in patterns for path in folder.glob(pattern))


def whole_number(row: Mapping[str, str], name: str, high: int) -> int | None:
    """Return the number in a column of ``row``; None if it is not whole or not from 1 to ``high``."""
    value = float(row[name])
    return int(value) if 1 <= value <= high and value % 1 == 0 else None


def left_out_lines(file: str, left_out: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each reason for which rows of a table are left out, with their number."""
    for reason, count in left_out.items():
        yield f"{file}: {count:,} row{'s' if count > 1 else ''}: {reason}"


Row = TypeVar("Row")
Key = TypeVar("Key", bound=Hashable)


def grouped(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Return the rows of each key, in their order."""
    groups: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return dict(groups)


def rows_in(
    paths: Iterable[Path],
    required: Sequence[str],
    numeric: Sequence[str],
    read: Callable[[Mapping[str, str]], Row | str | None],
) -> Iterator[Row | str]:
    """Yield what ``read`` makes of each row of each table, and a line for each reason it gives for leaving rows out.

    A row of which it makes None is passed over.

    Raises
    ------
    MeasuredError
        As ``read_rows``.
    """
    for path in paths:
        table = read_rows(path, required, numeric)
        yield from reported(path, table, map(read, table.rows))


def reported(path: Path, table: Rows, found: Iterable[Row | str | None]) -> Iterator[Row | str]:
    """Yield what was ``found`` in a table, with a line for each row that was skipped and each reason it holds."""
    yield from table.skipped
    left_out = Counter[str]()
    for each in found:
        if isinstance(each, str):
            left_out[each] += 1
        elif each is not None:
            yield each
    yield from left_out_lines(path.name, left_out)


FIT, HELD_OUT = "fit", "held out"
EVERY = "all"
"""The group of all rows of an operation."""


HELD_OUT_DIVISOR = 5
"""One of this number of rows is held out of the fit of a profile."""


def drawn_fifth(rows: Iterable[Row], key: Callable[[Row], Any], seed: int) -> tuple[list[Row], list[Row]]:
    """Return a fifth of ``rows``, drawn by ``seed``, and the others as drawn; the order of ``rows`` does not matter."""
    shuffled = sorted(rows, key=key)
    random.Random(seed).shuffle(shuffled)
    num_held = len(shuffled) // HELD_OUT_DIVISOR
    return shuffled[:num_held], shuffled[num_held:]


def in_odd_half(name: str) -> bool:
    """Whether a checksum puts ``name`` into the half that is held out, the same in every run."""
    return zlib.crc32(name.encode()) % 2 == 1


def too_fast(label: str, us: float, gpu: str) -> str:
    """Return why a row is left out that takes less than its products at the peak."""
    return f"{label} in {us:.4g} us: faster than the peak of {gpu}"


def is_positive(text: str) -> bool:
    """Whether ``text`` is a finite number above zero, in the digits of ASCII without underscores."""
    if not text.isascii() or "_" in text:
        return False
    try:
        value = float(text)
    except ValueError:
        return False
    return math.isfinite(value) and value > 0
