"""Numbers in device blocks, read by a table of properties, each with its origin and source."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from fractions import Fraction
from functools import cache
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
        return make(**self._found(make, prefix, others))

    def filled_if(self, make: Callable[..., T], prefix: str, **others: Any) -> T | None:
        """The same; None if a number is missing that has no default, without which there is no such part."""
        found = self._found(make, prefix, others)
        return make(**found) if _required(make) <= found.keys() else None

    def _found(self, make: Callable[..., T], prefix: str, others: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(others)
        for name, kinds in _kinds(make).items():
            paths = (path for word in _words_of(name) if (path := prefix + word) in self.by_path)
            if name in others:
                pass
            elif path := next(paths, ""):
                read = self.exact if Fraction in kinds else self.ticks if name.endswith("_ticks") else self.whole
                found[name] = read(path)
            elif (part := self._part(kinds, prefix + name)) is not None:
                found[name] = part
        return found

    def _part(self, kinds: tuple[Any, ...], name: str) -> Any:
        """The dataclass among ``kinds`` of the numbers of the block ``name``; None without one, or without numbers."""
        make: Any = next(filter(is_dataclass, kinds), None)
        blocks = (f"{name}.", f"{name}_") if make is not None else ()
        block = next((each for each in blocks if any(path.startswith(each) for path in self.by_path)), None)
        return None if block is None else self.filled_if(make, block)

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


@cache
def _kinds(make: Callable[..., Any]) -> Mapping[str, tuple[Any, ...]]:
    """The types of each field of a dataclass, without those of which it has several."""
    hints = get_type_hints(make)
    return {name: get_args(hint) if isinstance(hint, UnionType) else (hint,) for name, hint in hints.items()}


@cache
def _required(make: Callable[..., Any]) -> frozenset[str]:
    """The fields of a dataclass that have no default."""
    every = fields(make)  # type: ignore[arg-type]  # a dataclass, which has no type of its own
    return frozenset(each.name for each in every if each.default is each.default_factory is MISSING)


@cache
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
