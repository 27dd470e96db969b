"""Numbers in device blocks, read by a table of properties, each with its origin and source."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from fractions import Fraction
from functools import cache, partial
from types import UnionType
from typing import Any, TypeVar, get_args, get_type_hints

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
        ``split_bytes_per_s`` by ``split_bandwidth``. What is no fraction is rounded half up. A field that is a
        dataclass itself is filled by the numbers of the block of its name, or those that begin with it.
        """
        made = self.filled_if(make, prefix, **others)
        assert made is not None, f"numbers that {prefix} needs were checked for"
        return made

    def filled_if(self, make: Callable[..., T], prefix: str, **others: Any) -> T | None:
        """The same; None if a number is missing that has no default, without which there is no such part."""
        found = dict(others)
        for slot in _slots(make):
            if slot.name not in others:
                value = self._value(slot, prefix)
                if value is not None:
                    found[slot.name] = value
                elif slot.required:
                    return None
        return make(**found)

    def _value(self, slot: "_Slot", prefix: str) -> Any:
        for word in slot.words:
            if prefix + word in self.by_path:
                return slot.read(self, prefix + word)
        if slot.part is None:
            return None
        block = prefix + slot.name
        return self.filled_if(slot.part, f"{block}.") or self.filled_if(slot.part, f"{block}_")

    def is_validated(self, path: str) -> bool:
        """Whether a number was measured, or fitted to what was."""
        return path in self.by_path and self.by_path[path].origin in (Origin.MEASURED, Origin.FITTED)

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


@dataclass(frozen=True, slots=True)
class _Slot:
    """A field of a dataclass: the words of its number, how that is read, and ``part``, the dataclass that it may be."""

    name: str
    words: tuple[str, ...]
    read: Callable[[DeviceNumbers, str], Any]
    part: Callable[..., Any] | None
    required: bool


@cache
def _slots(make: Callable[..., Any]) -> tuple[_Slot, ...]:
    """The fields of a dataclass in their order: those without a default come first."""
    return tuple(map(partial(_slot, get_type_hints(make)), fields(make)))  # type: ignore[arg-type]  # a dataclass


def _slot(hints: Mapping[str, Any], of: Field[Any]) -> _Slot:
    hint = hints[of.name]
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    is_exact, is_time = Fraction in kinds, of.name.endswith("_ticks")
    read = DeviceNumbers.exact if is_exact else DeviceNumbers.ticks if is_time else DeviceNumbers.whole
    part: Any = next(filter(is_dataclass, kinds), None)
    return _Slot(of.name, _words_of(of.name), read, part, of.default is of.default_factory is MISSING)


def _words_of(field: str) -> tuple[str, ...]:
    """The words that the number of a field may have."""
    if field.endswith("bytes_per_s"):
        word = field.removesuffix("bytes_per_s").removeprefix("peak_")  # the rate of a data sheet has no name
        return f"{word}bandwidth", word.rstrip("_")
    for unit in ("_ticks", "_bytes", "_hz", "_flops", "_fraction"):
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
