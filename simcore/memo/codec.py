"""Values as JSON and back: dataclasses, enums, fractions and tuples of plain values, by the types of their fields.

What is read is data: nothing is built but what the expected type says, and each value is checked against its type. A
dataclass and an enum are a list that begins with the name of the class, as files have it (``stored_name``).

msgspec does not serve: it takes one dataclass in a union, where a step of a plan is one of three, and can leave no part
of a value out.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ...compiler.ir import OpCase, OpChoice, OpShape

T = TypeVar("T")
Given = Sequence[object]
Reader = Callable[[Any, Given], Any]

PLAIN = (int, str, bool, NoneType)
GIVEN = "given"
"""Key of the place of a value in ``given``, in the one kind of JSON object that is written."""

STORED_NAMES: dict[type, str] = {OpChoice: "Choice", OpCase: "Scenario", OpShape: "Workload"}
"""Names of classes in files: the shipped model has them, and keys of a corpus are made of them.

A class that is not here has its own name, and so comes here when it is renamed.
"""


class MalformedError(ValueError):
    """The data is no value of the expected type."""


def stored_name(kind: type) -> str:
    """Return the name of a class in files."""
    return STORED_NAMES.get(kind, kind.__name__)


def plain_parts(value: Any) -> object:
    """Return the name of the class of ``value`` and what makes the value.

    Raises
    ------
    TypeError
        If it is of another kind than those above.
    """
    kind: Any = type(value)
    return stored_name(kind), *_values_of(kind)(value)


def encode(value: object, given: Given = (), parts_of: Callable[[object], object] = plain_parts) -> bytes:
    """Return ``value`` as JSON; parts that are one of the objects ``given`` are left out.

    Raises
    ------
    TypeError
        If ``parts_of`` does not know a part.
    """
    places = {id(part): place for place, part in enumerate(given)}

    def without_given(part: object) -> object:
        place = places.get(id(part))
        return parts_of(part) if place is None else {GIVEN: place}

    default = without_given if places else parts_of  # no value is part of itself
    return json.dumps(value, default=default, separators=(",", ":"), check_circular=False).encode()


@cache
def _values_of(kind: Any) -> Callable[[Any], tuple[object, ...]]:
    """Return the function from a value of type ``kind`` to what makes it, of a dataclass its fields.

    Raises
    ------
    TypeError
        As ``plain_parts``.
    """
    if is_dataclass(kind):
        names = [field.name for field in fields(kind)]
        return attrgetter(*names) if len(names) > 1 else lambda value: tuple(getattr(value, name) for name in names)
    if issubclass(kind, Enum):
        return lambda value: (value.name,)
    if issubclass(kind, Fraction):
        return lambda value: (value.numerator, value.denominator)
    raise TypeError(f"{stored_name(kind)} is no plain data")


def decode(data: bytes, kind: type[T], given: Given = ()) -> T:
    """Return the value of type ``kind`` that ``data`` describes, with the parts ``given`` where they were left out.

    Raises
    ------
    MalformedError
        If there is no such value.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedError(str(error)) from error
    return value_of(content, kind, given)


def value_of(content: object, kind: type[T], given: Given = ()) -> T:
    """Return the value of type ``kind`` that is described by JSON that was read.

    Raises
    ------
    MalformedError
        If there is no such value.
    """
    try:
        value: T = _reader(cast("Any", kind))(content, given)
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise MalformedError(str(error)) from error
    return value


@cache
def _reader(kind: Any) -> Reader:
    """Return the function that makes a value of type ``kind`` from JSON."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _union_reader(get_args(kind))
    if origin is tuple:
        return _tuple_reader(get_args(kind))
    if kind in PLAIN:
        return _plain_reader(kind)
    if kind is float:
        return _plain_reader(float, int)
    if kind is Fraction:
        return _fraction
    if issubclass(kind, Enum):
        return _enum_reader(kind)
    if is_dataclass(kind):
        return _dataclass_reader(kind)
    if hasattr(kind, "_fields"):
        return _named_tuple_reader(kind)
    raise TypeError(f"{kind} is no plain data")


def _plain_reader(*kinds: type) -> Reader:
    def read(value: Any, given: Given) -> Any:
        if type(value) not in kinds:
            raise MalformedError(f"{type(value).__name__} in place of {kinds[0].__name__}")
        return value

    return read


def _union_reader(kinds: Sequence[Any]) -> Reader:
    readers = [(kind, _reader(kind)) for kind in kinds]
    classes = tuple(kind for kind in kinds if isinstance(kind, type))

    def read(value: Any, given: Given) -> Any:
        if isinstance(value, dict) and isinstance(given[value[GIVEN]], classes):
            return given[value[GIVEN]]
        reader = next((reader for kind, reader in readers if _may_be(value, kind)), None)
        if reader is None:
            raise MalformedError(f"{type(value).__name__} in place of any of {kinds}")
        return reader(value, given)

    return read


def _may_be(value: Any, kind: Any) -> bool:
    """Whether ``value`` begins as a value of type ``kind`` does, as JSON."""
    if isinstance(value, list) and isinstance(kind, type):
        return value[:1] == [stored_name(kind)]
    if isinstance(value, list | dict):
        return kind not in PLAIN and kind is not float
    return type(value) is kind or (kind is float and type(value) is int)


def _tuple_reader(kinds: Sequence[Any]) -> Reader:
    if kinds[-1] is Ellipsis:
        one = _reader(kinds[0])
        return lambda value, given: tuple([one(part, given) for part in _listed(value)])
    readers = [_reader(kind) for kind in kinds]
    return lambda value, given: tuple(_read_each(readers, _listed(value), given))


def _named_tuple_reader(kind: Any) -> Reader:
    hints = get_type_hints(kind)
    readers = [_reader(hints[name]) for name in kind._fields]
    return lambda value, given: kind(*_read_each(readers, _listed(value), given))


@cache
def _field_readers(kind: Any) -> tuple[Reader, ...]:
    hints = get_type_hints(kind)
    return tuple(_reader(hints[field.name]) for field in fields(kind))


def _dataclass_reader(kind: Any) -> Reader:
    readers: tuple[Reader, ...] = ()  # found when the first is read: a field may be of the same type

    def read(value: Any, given: Given) -> Any:
        nonlocal readers
        if isinstance(value, dict):
            known = given[value[GIVEN]]
            if not isinstance(known, kind):
                raise MalformedError(f"{type(known).__name__} in place of {kind.__name__}")
            return known
        readers = readers or _field_readers(kind)
        parts = _parts(value, kind)
        return kind(*_read_each(readers[: len(parts)], parts, given))  # fields that are newer have their usual value

    return read


def _enum_reader(kind: type[Enum]) -> Reader:
    """Return the reader of an enum; JSON has the value of one that is a number, and else the name."""
    if issubclass(kind, int):
        number = _plain_reader(int)
        return lambda value, given: kind(number(value, given))

    named, members = stored_name(kind), kind.__members__

    def read(value: Any, given: Given) -> Enum:
        name, member = _listed(value)
        if name != named:
            raise MalformedError(f"{name!r} in place of {named}")
        return members[member]

    return read


def _fraction(value: Any, given: Given) -> Fraction:
    return Fraction(*_read_each([_reader(int)] * 2, _parts(value, Fraction), given))


def _read_each(readers: Sequence[Reader], parts: Sequence[Any], given: Given) -> list[Any]:
    return [read(part, given) for read, part in zip(readers, parts, strict=True)]


def _parts(value: Any, kind: type) -> list[Any]:
    """Return what follows the name of ``kind``."""
    name, *parts = _listed(value)
    if name != stored_name(kind):
        raise MalformedError(f"{name!r} in place of {stored_name(kind)}")
    return parts


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise MalformedError(f"{type(value).__name__} in place of a list")
    return value
