"""Numbers in device blocks, read by a table of properties, each with its origin and source."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, TypeVar, get_args

from ...codes import Code
from ...ir import TICKS_PER_SECOND, Origin, Provenance
from ...text import syntax as ast
from ...text.diagnostics import Report, Span, did_you_mean
from ...text.units import Quantity, round_half_up
from ...text.vocabulary import Property
from .evaluate import Reading
from .words import single

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NumberWithOrigin:
    """One number with its origin and source; ``owner`` is the device that states it, even if others inherit it."""

    value: Quantity
    origin: Origin
    source: str
    span: Span
    owner: str = ""


@dataclass(frozen=True, slots=True)
class StatedNumber:
    """One number of a device, by its path, such as ``MI300X.hbm.achieved``.

    ``inherited`` is the device that states it, empty if that is the device itself.
    """

    path: str
    value: Quantity
    origin: Origin
    source: str
    inherited: str = ""

    @property
    def device(self) -> str:
        """The device that it belongs to."""
        return self.path.partition(".")[0]


@dataclass(frozen=True, slots=True)
class DeviceNumbers:
    """All numbers of a device by path, for instance ``hbm.achieved``."""

    by_path: Mapping[str, NumberWithOrigin]

    def whole(self, path: str) -> int:
        """Return a count, a size in bytes or a rate per second, rounded half up."""
        return round_half_up(self.by_path[path].value.amount)

    def ticks(self, path: str) -> int:
        """Return a time in ticks, rounded half up."""
        return round_half_up(self.by_path[path].value.amount * TICKS_PER_SECOND)

    def whole_if(self, path: str) -> int | None:
        """Return a count, a size or a rate, None if it is missing."""
        return self.whole(path) if path in self.by_path else None

    def ticks_if(self, path: str) -> int | None:
        """Return a time in ticks, None if it is missing."""
        return self.ticks(path) if path in self.by_path else None

    def exact(self, path: str) -> Fraction:
        """Return a number in base units, as it is."""
        return self.by_path[path].value.amount

    def filled(self, make: Callable[..., T], prefix: str, **others: Any) -> T:
        """Make a dataclass of the numbers below ``prefix``, and of ``others``; one that is missing has its default.

        A field is named after its number and the unit of that: ``setup_ticks`` is filled by ``setup``,
        ``split_bytes_per_s`` by ``split_bandwidth``. What is no fraction is rounded half up.
        """
        found = dict(others)
        for each in fields(make):  # type: ignore[arg-type]  # a dataclass, which has no type of its own
            paths = (path for word in _words_of(each.name) if (path := prefix + word) in self.by_path)
            if each.name not in others and (path := next(paths, "")):
                is_exact = Fraction in (each.type, *get_args(each.type))
                read = self.exact if is_exact else self.ticks if each.name.endswith("_ticks") else self.whole
                found[each.name] = read(path)
        return make(**found)

    def filled_if(self, make: Callable[..., T], prefix: str, first: str, **others: Any) -> T | None:
        """The same; None if the number ``first`` is missing, without which there is no such part."""
        return self.filled(make, prefix, **others) if prefix + first in self.by_path else None

    def stated(self, device: str) -> tuple[StatedNumber, ...]:
        """Return each number with its path."""
        return tuple(
            StatedNumber(
                f"{device}.{path}", each.value, each.origin, each.source, "" if each.owner == device else each.owner
            )
            for path, each in self.by_path.items()
        )

    def provenance(self, device: str) -> tuple[Provenance, ...]:
        """Return origin and source of each number."""
        return tuple(Provenance(each.path, each.origin, each.source, each.inherited) for each in self.stated(device))


def _words_of(field: str) -> tuple[str, ...]:
    """The words that the number of a field may have."""
    if field.endswith("bytes_per_s"):
        word = field.removesuffix("bytes_per_s")
        return f"{word}bandwidth", word.rstrip("_")
    for unit in ("_ticks", "_bytes", "_flops", "_fraction"):
        if field.endswith(unit):
            return (field.removesuffix(unit),)
    return (field,)


@dataclass(frozen=True, slots=True)
class Default:
    """Origin and source of a block's numbers without notes, as its ``source`` statement gives them."""

    origin: Origin = Origin.ASSUMED
    source: str = ""


def figure(reading: Reading, wanted: Property, group: ast.GroupNode, skip: int, default: Default) -> NumberWithOrigin:
    """Read ``word value note``; ``skip`` words stand before the value."""
    if len(group.parts) <= skip:
        raise reading.report.fail(Code.MGS116, f"{wanted.name} needs a value", group.span)
    value = reading.number(wanted, single(group.parts[skip:], reading.report))
    noted = origin(group.note, default, reading.report)
    return NumberWithOrigin(value, noted.origin, noted.source, group.span)


def origin(note: ast.Note | None, default: Default, report: Report) -> Default:
    """Read a note; its arguments become part of the source."""
    if note is None:
        return default
    known = [each.value for each in Origin]
    if note.origin not in known:
        hint = did_you_mean(note.origin, known) or "origins are " + ", ".join(known)
        raise report.fail(Code.MGS201, f"unknown origin '@{note.origin[:64]}'", note.span, hint)
    arguments = ", ".join(argument.span.text for argument in note.arguments)
    return Default(Origin(note.origin), " ".join(filter(None, (note.source, f"({arguments})" if arguments else ""))))


def default_of(statement: ast.Say, report: Report) -> Default:
    """Read ``source nominal "..."``."""
    known = [each.value for each in Origin]
    match statement.phrase[0].parts[1:]:
        case (ast.Name(text=word), ast.Text(value=text)) if word in known:
            return Default(Origin(word), text)
        case _:
            hint = f'for instance: source nominal "data sheet"; origins are {", ".join(known)}'
            raise report.fail(Code.MGS116, "source says an origin and a text", statement.span, hint)
