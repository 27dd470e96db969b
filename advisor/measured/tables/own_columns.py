"""The columns of a user's table of measured implementations: which they are, and the unit that each time has.

The unit of a time stands in the name of its column: ``fused_us``, ``serial time [ms]``, ``time_us``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ....compiler.codes import Code
from ....compiler.text.diagnostics import Report, did_you_mean
from ....compiler.text.source import Span

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
