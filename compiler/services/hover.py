"""What a word means, where a number comes from, and what a name or an expression is worth."""

from collections.abc import Iterator
from dataclasses import dataclass

from ...grammar import load_words
from ..ir import Scenario
from ..resolve.values.device_numbers import NumberWithOrigin
from ..text import syntax as ast
from ..text.diagnostics import Span, printable
from ..text.names import STACKS_FOLDER, Entry, Kind, library_about, shipped_libraries, shipped_stacks
from ..text.units import UNITS, exact_text
from ..text.vocabulary import CACHES
from .context import Cursor, cursor_at
from .document import Document
from .expected import amount_text, expected_at, property_doc, property_of, unit_doc
from .names import all_occurrences, occurrence_at

_SHOWN_NUMBERS = ("sms", "clock", "peak", "hbm.capacity", "hbm.achieved", "dma.engines", "bandwidth", "achieved")
_MAX_CODE = 160


@dataclass(frozen=True, slots=True)
class Hover:
    """What to show at ``span``: ``code`` as the language writes it, then sentences, in which `words` are quoted."""

    span: Span
    code: str
    sentences: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All of it as plain text, a line each; text of the file is escaped."""
        return "\n".join(printable(each) for each in (self.code, *self.sentences) if each)


def hover(document: Document, offset: int) -> Hover | None:
    """Return what is known of the word or expression at an offset."""
    cursor = cursor_at(document.source, offset)
    if cursor.in_comment:
        return None
    span = Span(document.source, cursor.start, cursor.start + len(cursor.word))
    if cursor.in_text:
        return _library(document, cursor, span)
    for look_up in (_name, _word, _stack, _expression):
        found = look_up(document, cursor, offset, span)
        if found is not None:
            return found
    return None


def _library(document: Document, cursor: Cursor, span: Span) -> Hover | None:
    name = document.source.text[cursor.start :].partition('"')[0]
    if cursor.place.head != "use" or name not in shipped_libraries():
        return None
    entries = (document.entry((each,)) for each in document.examined.scope.names(*Kind))
    devices = [each for each in entries if each is not None and each.declaration.span.source.path == f"{name}.mgs"]
    shown = ", ".join(f"{each.kind.value} `{each.name}`" for each in devices)
    return Hover(span, f'use "{name}"', (f"shipped library: {shown}" if shown else "shipped library",))


def _name(document: Document, cursor: Cursor, offset: int, span: Span) -> Hover | None:
    owner = cursor.place.owner
    if owner[:1] == ("base",):
        return _number_of_parent(document, cursor, span)
    if owner and cursor.place.head == "workload":
        return _axis(document, cursor, span)
    use = occurrence_at(document, offset)
    if use is None and not owner:
        return None
    if use is not None and use.home:
        return _local(document, offset, span)
    entry = document.entry((*owner, cursor.word))
    return Hover(span, _head(entry), tuple(_about(document, entry))) if entry is not None else None


def _axis(document: Document, cursor: Cursor, span: Span) -> Hover | None:
    """An axis behind a system: which ranks a group along it has."""
    entry = document.entry(cursor.place.owner[:1])
    axes = document.axes_of(entry) if entry is not None else ()
    axis = next((each for each in axes if each.name == cursor.word), None)
    if axis is None:
        return None
    ranks = ", ".join(str(rank) for rank in range(0, min(axis.size, 3) * axis.stride, axis.stride))
    more = " and so on" if axis.size > 3 else ""
    return Hover(span, f"mesh {axis.name} {axis.size}", (f"groups of {axis.size} ranks: {ranks}{more}",))


def _ops_text(scenario: Scenario) -> str:
    (first, *others) = scenario.cases
    return f"{len(others) + 1} ops" if others else first.shape.pattern.value


def _head(entry: Entry) -> str:
    """The first line of a declaration."""
    return entry.declaration.span.text.partition("\n")[0][:_MAX_CODE].rstrip(" {")


def _about(document: Document, entry: Entry) -> Iterator[str]:
    value = document.value_of(entry)
    if value is not None:
        yield f"= {amount_text(value)}"
    for path, number in document.numbers_of(entry).by_path.items():
        if path in _SHOWN_NUMBERS or path.partition(".")[0] in _SHOWN_NUMBERS:
            yield f"`{path}` {_with_origin(number, entry.name)}"
    if entry.kind is Kind.WORKLOAD:
        scenarios = (each for each in document.scenarios if each.name == entry.name)
        yield from (f"{_ops_text(each)} on {each.num_ranks} GPUs" for each in scenarios)
    home = entry.declaration.span
    if home.source.path != document.source.path:
        yield f"declared in {home.source.path}:{home.location.line}"


def _local(document: Document, offset: int, span: Span) -> Hover | None:
    """A tensor of a workload or a step of a plan: its definition, and the size of a tensor."""
    use = occurrence_at(document, offset)
    assert use is not None
    definitions = [each for each in all_occurrences(document, use) if each.is_definition]
    if not definitions:
        return None
    nodes = _nodes_at(document.tree, definitions[0].span.start)
    statement = next((each for each in reversed(nodes) if isinstance(each, ast.Define)), None)
    line = statement.span if statement is not None else definitions[0].span
    return Hover(span, line.text.partition("\n")[0][:_MAX_CODE], tuple(_tensor(document, statement)))


def _tensor(document: Document, statement: ast.Define | None) -> Iterator[str]:
    match statement:
        case ast.Define(phrase=(ast.GroupNode(parts=(ast.Name(text="tensor"), ast.Index() as shape, *_)), *_)):
            sizes = [document.value(each) for each in shape.subscripts]
            yield " x ".join(exact_text(each) if each is not None else "?" for each in sizes)


def _number_of_parent(document: Document, cursor: Cursor, span: Span) -> Hover | None:
    parent = document.entry(cursor.place.parent)
    path = ".".join((*cursor.place.owner[1:], cursor.word))
    number = document.numbers_of(parent).by_path.get(path) if parent is not None else None
    return Hover(span, f"base.{path}", (_with_origin(number),)) if number is not None else None


def _word(document: Document, cursor: Cursor, offset: int, span: Span) -> Hover | None:
    for section in expected_at(cursor.place).sections:
        doc = load_words().get(section, {}).get(cursor.word)
        if doc is not None:
            wanted = None if cursor.place.statement else property_of(section, cursor.word)
            sentences = [doc, *([property_doc(wanted)] if wanted is not None else [])]
            return Hover(span, cursor.word, (*sentences, *_stated(document, cursor)))
    return None


def _stack(document: Document, cursor: Cursor, offset: int, span: Span) -> Hover | None:
    """A shipped stack: what it is."""
    if not expected_at(cursor.place).stacks or cursor.word not in shipped_stacks():
        return None
    return Hover(span, f"stack {cursor.word}", (library_about(STACKS_FOLDER + cursor.word),))


def _stated(document: Document, cursor: Cursor) -> Iterator[str]:
    """The number that a statement of a device says, with its origin."""
    place = cursor.place
    if place.statement or not place.blocks or len(place.blocks[0]) < 2:
        return
    entry = document.entry((place.blocks[0][1],))
    section = place.block.partition(".")[2]
    inner = CACHES.get(place.blocks[-1][-1], section) if section == "cache" else section
    path = f"{inner}.{cursor.word}" if inner else cursor.word
    number = document.numbers_of(entry).by_path.get(path) if entry is not None else None
    if entry is not None and number is not None:
        yield _with_origin(number, entry.name)


def _expression(document: Document, cursor: Cursor, offset: int, span: Span) -> Hover | None:
    """The innermost expression at the offset that has a value."""
    for node in reversed(_nodes_at(document.tree, offset)):
        if isinstance(node, ast.Measure):
            unit = UNITS[node.unit]
            value = document.value(node)
            worth = f"= {amount_text(value)}" if value is not None else ""
            return Hover(node.span, node.span.text, tuple(filter(None, (worth, unit_doc(node.unit) if unit else ""))))
        if isinstance(node, ast.ChainNode | ast.Call | ast.Negate | ast.Parens):
            value = document.value(node)
            if value is not None:
                return Hover(node.span, node.span.text[:_MAX_CODE], (f"= {amount_text(value)}",))
    return None


def _nodes_at(tree: object, offset: int) -> list[ast.Node]:
    """The nodes around an offset, the outermost first."""
    found = (node for node in ast.nodes_in(tree) if node.span.start <= offset <= node.span.end)
    return sorted(found, key=lambda node: node.span.start - node.span.end)


def _with_origin(number: NumberWithOrigin, at: str = "") -> str:
    """A number, its origin and source, and the device that states it if that is not the one at hand."""
    source = f': "{number.source}"' if number.source else ""
    owner = f", of {number.owner}" if number.owner not in ("", at) else ""
    return f"= {amount_text(number.value)}, {number.origin.value}{source}{owner}"
