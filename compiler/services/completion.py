"""What may be written at a place: words, names, units, libraries and files."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from ...grammar import load_words
from ..ir.operations import OPERATIONS
from ..ir.topologies import TOPOLOGIES
from ..planning.build import OPTIONS
from ..planning.knobs import KNOBS
from ..templates import BY_NAME
from ..text.names import STACKS_FOLDER, Kind, library_about, shipped_libraries, shipped_stacks
from ..text.units import UNITS, Dimension, exact_text
from .context import Cursor, cursor_at
from .document import Document
from .expected import ExpectedWords, expected_at, property_at, unit_doc

_CALLED = ("operation", "topology", "template", "algorithm", "function", "distribution", "expect.function")
_ARGUMENTS = ("knob", "operation.argument", "topology.argument")
_NAMES_OF_SECTIONS = {"file": "declaration", "head": ""}
_COMMON_UNITS = ("us", "ms", "KiB", "MiB", "GiB", "GB/s", "TFLOP/s", "GHz", "%")

# The named arguments of topologies and operations.
_ARGUMENTS_OF: Mapping[str, Mapping[str, frozenset[str]]] = {
    "topology.argument": {each.name: frozenset(one.name for one in each.arguments) for each in TOPOLOGIES},
    "operation.argument": {each.name: frozenset(one.name for one in each.arguments) for each in OPERATIONS},
}


class CompletionKind(Enum):
    """What an offered word is."""

    WORD = "word"
    CALL = "call"
    ARGUMENT = "argument"
    NAME = "name"
    UNIT = "unit"
    LIBRARY = "library"


@dataclass(frozen=True, slots=True)
class Completion:
    """One word to offer: what it is in short, and what it means."""

    text: str
    kind: CompletionKind
    detail: str = ""
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Completions:
    """What may stand at a place in place of the characters from ``start`` to ``end``."""

    start: int
    end: int
    prefix: str
    all: tuple[Completion, ...]

    @property
    def matching(self) -> tuple[Completion, ...]:
        """Those that begin with what is written already, then those that hold it."""
        wanted = self.prefix.lower()
        begins = [each for each in self.all if each.text.lower().startswith(wanted)]
        holds = [each for each in self.all if wanted in each.text.lower() and each not in begins]
        return (*begins, *holds)


def complete(document: Document, offset: int) -> Completions:
    """Return what may be written at an offset; nothing in comments."""
    cursor = cursor_at(document.source, offset)
    found = dict.fromkeys(_offered(document, cursor))
    return Completions(cursor.start, cursor.start + len(cursor.prefix), cursor.prefix, tuple(found))


def _offered(document: Document, cursor: Cursor) -> Iterator[Completion]:
    place = cursor.place
    if cursor.in_comment:
        return
    if cursor.in_text:
        if place.head == "use":
            yield from (Completion(name, CompletionKind.LIBRARY, "library") for name in shipped_libraries())
        return
    if cursor.behind_number:
        wanted = property_at(place)
        yield from _units(wanted.dimension if wanted is not None else None)
    if place.before == "." and len(place.statement) > 1:
        members = tuple(_members(document, cursor))
        if members:
            yield from members
            return
    expected = expected_at(place)
    yield from _names(document, cursor, expected)
    yield from _words(cursor, expected)
    if cursor.at_margin and not place.statement:
        yield from _words(cursor, ExpectedWords(("file",)))  # the brace of a block may be missing


def _words(cursor: Cursor, expected: ExpectedWords) -> Iterator[Completion]:
    fitting = _fitting(cursor)
    for section in expected.sections:
        for word, doc in load_words().get(section, {}).items():
            if section in fitting and word not in fitting[section]:
                continue
            if section in _ARGUMENTS and cursor.place.callee and cursor.place.begins_argument:
                yield Completion(f"{word}=", CompletionKind.ARGUMENT, "argument", doc)
            elif section not in ("operation.argument", "topology.argument"):
                kind = CompletionKind.CALL if section in _CALLED else CompletionKind.WORD
                yield Completion(word, kind, _NAMES_OF_SECTIONS.get(section, section.rpartition(".")[2]), doc)


def _fitting(cursor: Cursor) -> Mapping[str, frozenset[str]]:
    """The words of a section that fit where not all do: the knobs of a template or of a search, arguments of a call."""
    place = cursor.place
    if place.block == "explore" and not place.statement:
        return {"knob": frozenset(knob.word for knob in KNOBS if knob.explored)}
    if place.block == "schedule" and place.head == "plan":
        return {"knob": frozenset(OPTIONS)}
    if place.block == "schedule" and place.head == "sync":
        return {"knob": frozenset(("per",))}
    if place.callee in BY_NAME and place.block != "system":
        has = (knob.word for knob in KNOBS if knob.has(BY_NAME[place.callee]) and knob.word != "schedules")
        return {"knob": frozenset(has)}
    return {section: names.get(place.callee, frozenset()) for section, names in _ARGUMENTS_OF.items()}


def _names(document: Document, cursor: Cursor, expected: ExpectedWords) -> Iterator[Completion]:
    scope = document.examined.scope
    if expected.libraries:
        yield from (Completion(f'"{name}"', CompletionKind.LIBRARY, "library") for name in shipped_libraries())
    if expected.stacks:
        for name in shipped_stacks():
            yield Completion(name, CompletionKind.NAME, "stack", library_about(STACKS_FOLDER + name))
    if expected.local:
        yield from (Completion(name, CompletionKind.NAME, "local") for name in dict.fromkeys(cursor.place.named))
    for kind in expected.kinds:
        for name in scope.names(kind):
            yield Completion(name, CompletionKind.NAME, _value_text(document, name) or kind.value)


def _value_text(document: Document, name: str) -> str:
    entry = document.entry((name,))
    value = document.value_of(entry) if entry is not None else None
    return f"= {exact_text(value)}" if value is not None else ""


def _members(document: Document, cursor: Cursor) -> Iterator[Completion]:
    """What stands behind ``nv.``, behind ``pod.`` of a system and, in a device that extends another, ``base.``."""
    first, *path = cursor.place.owner
    entry = document.entry((first,))
    for axis in document.axes_of(entry) if entry is not None and cursor.place.head == "workload" else ():
        if axis.name not in path:
            yield Completion(axis.name, CompletionKind.NAME, f"axis of {axis.size} ranks")
    if entry is not None and entry.kind is Kind.LIBRARY and not path:
        yield from (Completion(each.name, CompletionKind.NAME, each.kind.value) for each in entry.scope.devices())
    parent = document.entry(cursor.place.parent) if first == "base" else None
    if parent is not None:
        numbers, prefix = document.numbers_of(parent).by_path, "".join(f"{name}." for name in path)
        for full in numbers:
            name, _, rest = full.removeprefix(prefix).partition(".")
            if full.startswith(prefix):
                yield Completion(name, CompletionKind.NAME, "" if rest else exact_text(numbers[full].value))


def _units(dimension: Dimension | None) -> Iterator[Completion]:
    fitting = [name for name, unit in UNITS.items() if dimension is None or unit.dimension == dimension]
    for name in sorted(fitting, key=lambda name: name not in _COMMON_UNITS):
        yield Completion(name, CompletionKind.UNIT, str(UNITS[name].dimension), unit_doc(name))
