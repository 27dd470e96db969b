"""A user's own rows of one implementation: a CSV file whose errors are told at their place, all at once.

A line has a GPU, a number of ranks, a pattern, the shape of the GEMM of one GPU, a type, and a fused time, with a
serial one beside it if the speedup counts. Or it has one time and says whose: then a line of ``torch+nccl`` or
``serial`` is the partner of those that differ only in the time. A row that is well-formed and cannot be compared is
left out with a warning.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from ....compiler import CompileError
from ....compiler.codes import Code
from ....compiler.ir import DType
from ....compiler.machine.known_gpus import LIBRARY_GPUS
from ....compiler.text.diagnostics import Diagnostic, Report, Source, Span, did_you_mean, listing, raising_errors
from .csv_rows import MeasuredError, TableTooLarge, fields_of, is_positive, text_lines, text_of
from .fused import MAX_RANKS, MAX_SIZE, OPERATIONS, parts_of
from .gemm import gpu_named
from .implementations import KNOWN_AS, SERIAL_NAMES, ImplementationRow, semantics_of

US_BY_UNIT: Mapping[str, Fraction] = {
    "ns": Fraction(1, 1000),
    "us": Fraction(1),
    "µs": Fraction(1),
    "ms": Fraction(1000),
    "s": Fraction(10**6),
}
SERIAL, FUSED, TIME, IMPL, GROUP = "serial", "fused", "time", "impl", "source"
PLAIN = ("gpu", "n_gpus", "op", "m", "n", "k", "dtype")
OTHERS = (IMPL, GROUP, "shape_semantics")
_SYNONYMS: Mapping[str, str] = {
    "ranks": "n_gpus",
    "world_size": "n_gpus",
    "pattern": "op",
    "implementation": IMPL,
    "thread": GROUP,
    "group": GROUP,
}
_TIME = re.compile(r"(serial|fused|time)(?:[ _]*time)?(?:[ _]*[\[(]?([a-zµ]+)[\])]?)?")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a line, and where it stands."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Columns:
    """The column of each known name, and the us in one unit of each time."""

    at: Mapping[str, int]
    us: Mapping[str, Fraction]

    @property
    def is_long(self) -> bool:
        """Whether a line has one time and says whose it is, in place of a serial and a fused one."""
        return TIME in self.at


def columns_of(header: Sequence[Field], of_library: bool, report: Report) -> Columns:
    """Return the columns of a header; with ``of_library`` the serial time is the one that counts.

    Columns that are not known are ignored. What is wrong or missing is reported.
    """
    at: dict[str, int] = {}
    us: dict[str, Fraction] = {}
    for index, field in enumerate(header):
        written = field.text.strip().lower()
        name = _SYNONYMS.get(written, written)
        matched = _TIME.fullmatch(name)
        if matched is not None:
            name = matched[1]
            us[name] = _unit(field, matched[1], matched[2], report)
        if name in at:
            first = header[at[name]].text.strip()
            hint = "one column for each time, in one unit" if matched else "one column of each name"
            report.error(Code.MGS206, f"{name} is in two columns, {first} and {field.text.strip()}", field.span, hint)
        elif name in (*PLAIN, *OTHERS) or matched is not None:
            at[name] = index
    _check_complete(header, at, of_library, report)
    return Columns(at, us)


def _unit(field: Field, name: str, unit: str | None, report: Report) -> Fraction:
    hint = f"the unit stands in the name: {name}_us, or {name} [ms]"
    if unit is None:
        report.error(Code.MGS301, f"{name} is a time: in what unit?", field.span, hint)
    elif unit not in US_BY_UNIT:
        report.error(Code.MGS302, f"unknown unit '{unit[:40]}'", field.span, f"times are in {', '.join(US_BY_UNIT)}")
    return US_BY_UNIT.get(unit or "", Fraction(1))


def _check_complete(header: Sequence[Field], at: Mapping[str, int], of_library: bool, report: Report) -> None:
    time = SERIAL if of_library else FUSED
    wanted = (*PLAIN, *((IMPL,) if TIME in at else (time,)))
    missing = [name for name in wanted if name not in at]
    if missing:
        names = [field.text.strip() for field in header]
        close = did_you_mean(missing[0], names).replace("did you mean", f"is {missing[0]} what is called").rstrip("?")
        times = "serial_us" if of_library else "fused_us and, for a speedup, serial_us"
        hint = f"{close}?" if close else f"columns are {', '.join(PLAIN)}, {times}; or impl and time_us"
        if {"bytes", "size", "size_bytes"} & {name.lower() for name in names}:
            hint = "a table of collectives alone: magus calibrate --gpu fits the collectives of a profile to it"
        span = header[0].span.to(header[-1].span)
        report.error(Code.MGS209, f"no column {', '.join(missing)}", span, hint)


MAX_ROWS = 200
MAX_SERIAL_OVER_FUSED = 100
"""A larger ratio is one of units, not of kernels."""
ALONE = (*SERIAL_NAMES, "serial", "torch_nccl")
_WORDS = {word.lower(): word for word in OPERATIONS} | {word.replace("+", "_").lower(): word for word in OPERATIONS}


@dataclass(frozen=True, slots=True)
class OwnRow:
    """A row, and its line in the file."""

    row: ImplementationRow
    span: Span


@dataclass(frozen=True, slots=True)
class OwnRows:
    """The rows of a file that can be compared, and the report of the others."""

    rows: tuple[OwnRow, ...]
    report: Report
    whole: Span


class _Line:
    """The fields of one line by the name of their column."""

    def __init__(self, columns: Columns, fields: Sequence[Field]) -> None:
        self.columns, self.fields = columns, fields
        self.span = fields[0].span.to(fields[-1].span)

    def __getitem__(self, name: str) -> Field:
        return self.fields[self.columns.at[name]]

    def text(self, name: str, usual: str = "") -> str:
        """Return the text of a field, ``usual`` without such a column."""
        return self[name].text.strip() if name in self.columns.at else usual

    @property
    def key(self) -> tuple[str, ...]:
        """What rows of one measurement have in common."""
        return tuple(self.text(name) for name in (*PLAIN, GROUP, "shape_semantics"))


def own_rows(path: Path, name: str, of_library: bool) -> OwnRows:
    """Return the rows of implementation ``name``; with ``of_library`` the times are those of the library, serial.

    Raises
    ------
    CompileError
        If the file cannot be read, or a line is wrong. All errors are told at once.
    """
    source = Source(str(path), _text_of(path))
    with raising_errors() as report:
        lines = list(_lines(source, of_library, report))
        rows = () if report.has_errors else tuple(_rows(lines, name, of_library, report))
    return OwnRows(rows, report, Span(source, 0, len(source.line(1))))


def _text_of(path: Path) -> str:
    hint = "magus calibrate --gpu takes a folder, --implementation one CSV file" if path.is_dir() else ""
    try:
        text, cut = text_of(path)
    except MeasuredError as error:
        code = Code.MGS130 if isinstance(error, TableTooLarge) else Code.MGS120
        message = str(error).removeprefix(f"{path}: ")
        raise CompileError([Diagnostic(code, message, Span(Source(str(path), ""), 0, 0), hint)]) from error
    if cut:
        raise CompileError([Diagnostic(Code.MGS120, cut, Span(Source(str(path), ""), 0, 0))])
    return text


def _lines(source: Source, of_library: bool, report: Report) -> Iterator[_Line]:
    """Yield the lines below the header with as many fields as it has."""
    columns: Columns | None = None
    width = count = 0
    for number, line in text_lines(source.text):
        start = source.start_of(number)
        span = Span(source, start, start + len(line))
        texts = fields_of(line)
        if isinstance(texts, str):
            raise report.fail(Code.MGS121, f"a line with {texts}", span, "a table of text, with commas between fields")
        if columns is None:
            header = list(_fields(source, start, line, texts))
            columns, width = columns_of(header, of_library, report), len(texts)
            if report.has_errors:
                raise report.stop()
        elif count == MAX_ROWS:
            message = f"more than {MAX_ROWS} rows"
            raise report.fail(Code.MGS305, message, span, "each is simulated many times; a few of each size are enough")
        elif len(texts) != width:
            report.error(Code.MGS116, f"{len(texts)} fields where there are {width} columns", span)
            count += 1
        else:
            yield _Line(columns, list(_fields(source, start, line, texts)))
            count += 1
    if columns is None:
        report.error(Code.MGS122, "no line of column names", Span(source, 0, 0), f"columns are {', '.join(PLAIN)}, ...")


def _fields(source: Source, start: int, line: str, texts: Sequence[str]) -> Iterator[Field]:
    """Yield the fields of a line with their places; a field with quotes is found by what it holds."""
    at = 0
    for text in texts:
        found = max(line.find(text, at), at)
        yield Field(text, Span(source, start + found, start + max(found + len(text), found + 1)))
        at = found + len(text)


def _rows(lines: Sequence[_Line], name: str, of_library: bool, report: Report) -> Iterator[OwnRow]:
    """Yield the rows of ``name``, with their serial partners."""
    alone = {line.key: line for line in lines if line.columns.is_long and line.text(IMPL) in ALONE}
    first: dict[tuple[str, ...], int] = {}
    for line in lines:
        if line.columns.is_long and not _is_of(line.text(IMPL), name, of_library):
            continue
        number = line.span.location.line
        if line.key in first:
            message = f"measured twice: the same is on line {first[line.key]}"
            report.error(Code.MGS206, message, line.span, "keep one, or write the median of both")
            continue
        first[line.key] = number
        row = _row(line, None if of_library else alone.get(line.key), name, of_library, report)
        if row is not None:
            yield OwnRow(row, line.span)
    if lines and not first:
        others = tuple(dict.fromkeys(line.text(IMPL) for line in lines))
        hint = did_you_mean(name, others) or f"those are {listing(others)}"
        report.warn(Code.MGS203, f"no row is of {name}", lines[0][IMPL].span, hint)


def _is_of(text: str, name: str, of_library: bool) -> bool:
    if of_library:
        return text in ALONE
    return text == name or any(known in text for known, shipped in KNOWN_AS.items() if shipped == name)


def _row(line: _Line, partner: _Line | None, name: str, of_library: bool, report: Report) -> ImplementationRow | None:
    """Return the row of a line; None if it cannot be compared or is wrong, which is reported."""
    sizes = {column: _whole(line, column, MAX_SIZE, report) for column in "mnk"}
    ranks = _whole(line, "n_gpus", MAX_RANKS, report, low=2)
    dtype = _known(line, "dtype", {each.value: each.value for each in DType}, report)
    pattern = _known(line, "op", _WORDS, report)
    serial_us, fused_us = _times(line, partner, of_library, report)
    if None in (*sizes.values(), ranks, dtype, pattern, fused_us) or ranks is None or fused_us is None or dtype is None:
        return None
    gpu, profile = gpu_named(line.text("gpu"))
    if profile is None:
        hint = (
            did_you_mean(gpu, [each.name for each in LIBRARY_GPUS])
            or "calibrate a GPU of its own first: magus calibrate --gpu"
        )
        report.warn(Code.MGS203, f"there is no profile of the GPU '{gpu[:40]}'", line["gpu"].span, hint)
        return None
    meaning = semantics_of({GROUP: "", "shape_semantics": line.text("shape_semantics", "per GPU")})
    parts = parts_of({"op": pattern or "", "shape_semantics": meaning, **{c: str(sizes[c]) for c in "mnk"}}, ranks)
    if len(parts) != 1:
        message = f"the file does not say whose shape that is, or it does not divide among {ranks} GPUs"
        hint = "m, n and k are those of the GEMM of one GPU; else shape_semantics says global"
        report.warn(Code.MGS310, message, line["m"].span, hint)
        return None
    return ImplementationRow(name, gpu, ranks, DType(dtype), parts[0], fused_us, serial_us, line.text(GROUP))


def _times(line: _Line, partner: _Line | None, of_library: bool, report: Report) -> tuple[float | None, float | None]:
    """Return the serial and the fused time in us; of a library the serial one is the one that counts."""
    if line.columns.is_long:
        fused = _time(line, TIME, report)
        serial = None if partner is None else _time(partner, TIME, report)
    elif of_library:
        return None, _time(line, SERIAL, report)
    else:
        fused = _time(line, FUSED, report)
        has_serial = bool(line.text(SERIAL))
        serial = _time(line, SERIAL, report) if has_serial else None
    if fused is not None and serial is not None:
        ratio = max(fused / serial, serial / fused)
        if ratio > MAX_SERIAL_OVER_FUSED:
            message = f"serial and fused time differ {ratio:,.0f} times: are both in the unit of their column?"
            report.error(Code.MGS303, message, line.span, "one unit for each column, which its name says")
    return serial, fused


def _time(line: _Line, column: str, report: Report) -> float | None:
    field, text = line[column], line.text(column)
    if is_positive(text):
        return float(Fraction(text) * line.columns.us[column])
    number, unit = text.rstrip("abcdefghijklmnopqrstuvwxyzµ "), text.lstrip("0123456789.+-eE ")
    if is_positive(number) and unit in US_BY_UNIT:
        hint = "the unit stands in the name of the column, one for all rows"
        report.error(Code.MGS303, f"a time with a unit of its own: '{text[:40]}'", field.span, hint)
    else:
        report.error(Code.MGS307, f"'{text[:40]}' is no time: a number above zero is expected", field.span)
    return None


def _whole(line: _Line, column: str, high: int, report: Report, low: int = 1) -> int | None:
    text = line.text(column)
    if not is_positive(text) or float(text) % 1:
        report.error(Code.MGS309, f"{column} is a whole number, got '{text[:40]}'", line[column].span)
        return None
    if not low <= float(text) <= high:
        report.error(Code.MGS307, f"{column} is from {low} to {high:,}, got {text[:40]}", line[column].span)
        return None
    return int(float(text))


def _known(line: _Line, column: str, known: Mapping[str, str], report: Report) -> str | None:
    """Return one of the known words; a note behind it, as in ``bf16 (inferred)``, is ignored."""
    text = line.text(column)
    word = known.get(text.partition(" ")[0].lower())
    if word is None:
        names = tuple(dict.fromkeys(known.values()))
        hint = did_you_mean(text, names) or f"known are {', '.join(names)}"
        report.warn(Code.MGS204, f"unknown {column} '{text[:40]}'", line[column].span, hint)
    return word
