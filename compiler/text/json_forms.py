"""Forms of JSON: one description of a value, by which it is read and from which its JSON Schema is made.

A form reads an ``Item``; what is wrong is reported there, with the path of the value.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ..codes import Code
from ..ir import JsonObject
from .diagnostics import Report, Span, Stopped, did_you_mean, listing

MAX_FILE_BYTES = 16 << 20
MAX_INT_DIGITS = 20
"""Digits of a 64-bit integer."""
MAX_NAME = 128
_T = TypeVar("_T", dict[str, object], list[object], str, bool, int, float)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
}


class _Refused(ValueError):
    """JSON that a limit or rule forbids; the message says which. Without a code it is of the wrong form."""

    def __init__(self, message: str, code: Code | None = None) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class JsonPlace:
    """The file of a value, the place and report for its errors, and the code of those of its form.

    What stands in the language itself has no file.
    """

    file: str
    span: Span
    report: Report
    wrong_form: Code = Code.MGS137

    def fail(self, code: Code, message: str, hint: str = "") -> Stopped:
        """Report an error in the file."""
        return self.report.fail(code, f"{self.file}: {message}" if self.file else message, self.span, hint)


@dataclass(frozen=True, slots=True)
class Item:
    """One value of a JSON text and its path."""

    value: object
    path: str
    origin: JsonPlace

    def fail(self, message: str, hint: str = "", code: Code | None = None) -> Stopped:
        """Report an error in this value; without a code it has the wrong form."""
        return self.origin.fail(
            code or self.origin.wrong_form, f"{self.path}: {message}" if self.path else message, hint
        )

    def entries(self, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> "dict[str, Item]":
        """Return the members of an object that must have the ``required`` keys and may have the ``optional`` ones."""
        value = self._of(dict)
        known = (*required, *optional)
        for key in value:
            if key not in known:
                hint = did_you_mean(key, known) or f"keys are {listing(known)}"
                raise self.fail(f"there is no key '{key[:64]}' here", hint)
        for key in required:
            if key not in value:
                raise self.fail(f"'{key}' is missing")
        return self.members()

    def members(self) -> "dict[str, Item]":
        """Return all members of an object, with any keys."""
        value = self._of(dict)
        return {key: Item(each, f"{self.path}.{key}" if self.path else key, self.origin) for key, each in value.items()}

    def items(self, most: int, least: int = 0) -> "tuple[Item, ...]":
        """Return the values of a list of ``least`` to ``most`` items."""
        value = self._of(list)
        if not least <= len(value) <= most:
            limit = str(most) if least == most else f"at most {most}" if len(value) > most else f"at least {least}"
            raise self.fail(f"a list of {limit} is expected here, got {len(value)}")
        return tuple(Item(item, f"{self.path}[{index}]", self.origin) for index, item in enumerate(value))

    def number(self, low: int, high: int) -> int:
        """Return a whole number from ``low`` to ``high``."""
        value = self._of(int)
        if not low <= value <= high:
            raise self.fail(f"a number from {low} to {high} is expected here, got {value}", code=Code.MGS307)
        return int(value)

    def decimal(self, low: float, high: float) -> float:
        """Return a number from ``low`` to ``high``, whole or not."""
        value = self._of(int) if isinstance(self.value, int) else self._of(float)
        if not low <= value <= high:
            raise self.fail(f"a number from {low:g} to {high:g} is expected here, got {value:g}", code=Code.MGS307)
        return float(value)

    def flag(self) -> bool:
        """Return true or false."""
        return bool(self._of(bool))

    def text(self) -> str:
        """Return a text of at most ``MAX_NAME`` characters."""
        value = self.any_text()
        if len(value) > MAX_NAME:
            raise self.fail(f"a text of at most {MAX_NAME} characters is expected here, got {len(value)}")
        return value

    def any_text(self) -> str:
        """Return a text of any length."""
        return str(self._of(str))

    def name(self) -> str:
        """Return a name of the language."""
        value = self.text()
        if not _NAME.fullmatch(value):
            raise self.fail(f"'{value[:64]}' is not a name", "letters, digits and _, not a digit first")
        return value

    def word(self, known: tuple[str, ...]) -> str:
        """Return one of the ``known`` words."""
        value = self.text()
        if value not in known:
            hint = did_you_mean(value, known) or f"it is one of {listing(known)}"
            raise self.fail(f"unknown word '{value[:64]}'", hint)
        return value

    # A bool is an int in Python, but not in JSON.
    def _of(self, kind: type[_T]) -> _T:
        if isinstance(self.value, kind) and isinstance(self.value, bool) is (kind is bool):
            return self.value
        kind_found = "nothing" if self.value is None else _KINDS[type(self.value)]
        raise self.fail(f"{_KINDS[kind]} is expected here, got {kind_found}")


def read_json(text: str, origin: JsonPlace) -> Item:
    """Parse a text; refuse duplicate keys, NaN and infinities, numbers that are too long, and deep nesting."""
    try:
        value = json.loads(
            text, object_pairs_hook=members_once, parse_constant=_no_constant, parse_int=_whole, parse_float=_fraction
        )
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" starting at")  # the place, which stands first here
        raise origin.fail(origin.wrong_form, f"line {error.lineno}, column {error.colno}: no JSON: {what}") from None
    except _Refused as error:
        raise origin.fail(error.code or origin.wrong_form, str(error)) from None
    except RecursionError:
        raise origin.fail(Code.MGS132, "brackets are nested too deeply") from None
    return Item(value, "", origin)


def members_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the members of an object, for ``json.loads``.

    Raises
    ------
    ValueError
        If a key stands twice.
    """
    members: dict[str, object] = {}
    for key, value in pairs:
        if key in members:
            raise _Refused(f"the key '{key[:64]}' stands twice in one object")
        members[key] = value
    return members


def _no_constant(word: str) -> object:
    raise _Refused(f"{word} is no number of JSON")


def _whole(digits: str) -> int:
    if len(digits) > MAX_INT_DIGITS:
        raise _Refused(f"a number has {len(digits)} digits, at most {MAX_INT_DIGITS} are read", Code.MGS133)
    return int(digits)


def _fraction(digits: str) -> float:
    if len(digits) > MAX_NAME:
        raise _Refused(f"a number has {len(digits)} digits, at most {MAX_NAME} are read", Code.MGS133)
    return float(digits)


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def object_of(properties: Mapping[str, object], required: Sequence[str]) -> JsonObject:
    """Return the schema of an object that has no other keys than ``properties``."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def list_of(items: object, most: int) -> JsonObject:
    """Return the schema of an array of at most ``most`` items."""
    return {"type": "array", "items": items, "maxItems": most}


def one_of(words: Sequence[str]) -> JsonObject:
    """Return the schema of one of ``words``."""
    return {"enum": list(words)}


def whole_number(low: int, high: int) -> JsonObject:
    """Return the schema of a whole number from ``low`` to ``high``."""
    return {"type": "integer", "minimum": low, "maximum": high}


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """``read`` makes a value of an item; ``schema`` says the same, and refers to ``definitions`` by their names."""

    read: Callable[[Item], T]
    schema: JsonObject
    definitions: JsonObject = field(default_factory=dict)


FLAG = Form(Item.flag, {"type": "boolean"})
TEXT = Form(Item.any_text, {"type": "string"})
SHORT_TEXT = Form(Item.text, {"type": "string", "maxLength": MAX_NAME})
NAME = Form(Item.name, {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "maxLength": MAX_NAME})


def whole(low: int, high: int) -> Form[int]:
    """A whole number from ``low`` to ``high``."""
    return Form(lambda item: item.number(low, high), whole_number(low, high))


def word(values: Mapping[str, T]) -> Form[T]:
    """One of the words of ``values``, read as what stands for it."""
    words = tuple(values)
    return Form(lambda item: values[item.word(words)], one_of(words))


def list_form(each: Form[T], most: int, least: int = 0, *, report_each: bool = False) -> Form[tuple[T, ...]]:
    """A list of ``least`` to ``most`` items; with ``report_each`` reading goes on behind an item that is wrong."""

    def read(item: Item) -> tuple[T, ...]:
        items = item.items(most, least)
        if not report_each:
            return tuple(map(each.read, items))
        found: list[T] = []
        with item.origin.report.whole():
            for one in items:
                with one.origin.report.attempt():
                    found.append(each.read(one))
        return tuple(found)

    schema = list_of(each.schema, most) | ({"minItems": least} if least else {})
    return Form(read, schema, each.definitions)


def record(
    make: Callable[..., T],
    required: Mapping[str, Form[Any]],
    optional: Mapping[str, Form[Any]] | None = None,
    *,
    check: Callable[[Item], None] = lambda item: None,
    also: JsonObject | None = None,
) -> Form[T]:
    """An object, read by ``make`` with the values of its keys; the ``optional`` ones that are left out are not passed.

    ``check`` reports what is wrong with the object before its values are read, and ``also`` says that in the schema.
    """
    forms = {**required, **(optional or {})}

    def read(item: Item) -> T:
        entries = item.entries(tuple(required), tuple(optional or ()))
        check(item)
        return make(**{key: form.read(entries[key]) for key, form in forms.items() if key in entries})

    schema = object_of({key: form.schema for key, form in forms.items()}, tuple(required))
    return Form(read, schema | (also or {}), _definitions(forms.values()))


def variants(key: str, what: str, forms: Mapping[tuple[str, ...], Form[T]]) -> Form[T]:
    """An object of one of several forms, which are told apart by the word of ``key``; ``what`` names it in errors."""
    by_word = {one: form for words, form in forms.items() for one in words}

    def read(item: Item) -> T:
        members = item.members()
        if key not in members:
            raise item.fail(f"'{key}' is missing", f"{what} is one of {listing(by_word)}")
        return by_word[members[key].word(tuple(by_word))].read(item)

    schemas = [form.schema for form in forms.values()]
    return Form(read, {"oneOf": schemas}, _definitions(forms.values()))


def named(name: str, form: Form[T]) -> Form[T]:
    """The same form, described once in the schema under ``name``."""
    return Form(form.read, {"$ref": f"#/$defs/{name}"}, {**form.definitions, name: form.schema})


def unread(form: Form[Any]) -> Form[Item]:
    """A value of ``form`` that is read later, when more is known of it."""
    return Form(lambda item: item, form.schema, form.definitions)


def schema_of(title: str, form: Form[Any]) -> JsonObject:
    """The JSON Schema of a document, draft 2020-12."""
    return {"$schema": DIALECT, "title": title, **form.schema, "$defs": form.definitions}


def _definitions(forms: Iterable[Form[Any]]) -> JsonObject:
    return {name: schema for form in forms for name, schema in form.definitions.items()}
