"""Forms of JSON: one description of a value, by which it is read and from which its JSON Schema is made.

A form reads an ``Item``; what is wrong is reported there, with the path of the value.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ..ir import JsonObject
from .diagnostics import listing
from .json_items import MAX_NAME, Item
from .schema_parts import DIALECT, list_of, object_of, one_of, whole_number

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
        for one in items:
            with one.origin.report.attempt():
                found.append(each.read(one))
        if len(found) < len(items):
            raise item.origin.report.stop()
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
