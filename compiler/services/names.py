"""Where a name is declared: in the text, in a file that it includes, or in a shipped library."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from lark import Token

from ...grammar import load_words
from ..pipeline import examine_text
from ..text import syntax as ast
from ..text.diagnostics import Location, Severity, Source, Span
from ..text.load import real_path
from ..text.names import LIBRARY, RESERVED, Entry, Kind, kind_of, shipped_libraries
from ..text.parsing.tokens import DECLARATIONS
from ..text.vocabulary import BACKWARD_WORDS
from .context import Context, cursor_at, tokens_of
from .document import Document
from .expected import expected_at

_EDGES = "edges"
_RATIO = re.compile(r"x[0-9]+")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One use of a name. ``home`` is the workload or plan that it belongs to, empty for a name of the file."""

    name: str
    home: str
    span: Span
    is_definition: bool


def occurrences_in(source: Source) -> tuple[Occurrence, ...]:
    """Return every use of a name in a text, in the order of the text."""
    uses = list(_uses(source))
    local = {(use.home, use.name) for use in uses if use.is_definition and use.home}
    return tuple(_at_home(use, local) for use in uses)


def occurrence_at(document: Document, offset: int) -> Occurrence | None:
    """Return the name that stands at an offset, or right before it."""
    here = [use for use in occurrences_in(document.source) if use.span.start <= offset <= use.span.end]
    return here[-1] if here else None


def all_occurrences(document: Document, of: Occurrence, includers: Sequence[Document] = ()) -> tuple[Occurrence, ...]:
    """Return all uses of a name in a text and, if it is a name of the file, in what it includes.

    Of ``includers``, those that read a file which defines the name have uses of it too.
    """
    sources = [document.source]
    if not of.home:
        sources += _included(document)
    found = _of(sources, of)
    homes = {real_path(Path(use.span.source.path)) for use in found if use.is_definition and not of.home}
    for each in includers:
        known = {real_path(Path(source.path)) for source in sources}
        if homes & each.examined.scope.files:
            new = [each.source, *_included(each)]
            sources += [source for source in new if real_path(Path(source.path)) not in known]
    return _of(sources, of)


def _included(document: Document) -> list[Source]:
    trees = document.examined.scope.trees
    return [tree.span.source for tree in trees if tree.span.source.path != document.source.path]


def _of(sources: Sequence[Source], of: Occurrence) -> tuple[Occurrence, ...]:
    each = (use for source in sources for use in occurrences_in(source))
    return tuple(use for use in each if (use.name, use.home) == (of.name, of.home))


def _at_home(use: Occurrence, local: set[tuple[str, str]]) -> Occurrence:
    """The use under the plan, workload or file that defines the name."""
    plan, _, workload = use.home.partition(" for ")
    home = next((each for each in (use.home, workload or plan) if (each, use.name) in local), "")
    return Occurrence(use.name, home, use.span, use.is_definition)


def _uses(source: Source) -> Iterator[Occurrence]:
    """Every name with the block that it stands in as its home."""
    place, forward = Context(), ""
    tokens = list(tokens_of(source))
    for token, following in pairwise([*tokens, Token("$END", "")]):
        if token.type == "NAME" and token and _is_name(place, token, following):
            span = Span(source, token.start_pos or 0, token.end_pos or 0)
            home, defines = _home(place), _defines(place, following)
            if place.block == "workload" and place.head == BACKWARD_WORDS[0]:
                forward = str(token)
            if place.block == "workload" and place.head == BACKWARD_WORDS[1]:
                home = forward  # results of the other workload
            if home and not defines and place.brackets and place.statement[place.brackets[-1]].type == "_INDEX":
                home = ""  # sizes are values of the file
            yield Occurrence(str(token), home, span, defines)
        place.feed(token)


def _home(place: Context) -> str:
    match place.blocks:
        case [["workload", name, *_], *_]:
            return name
        case [["schedule", name, "for", workload, *_], *_]:
            return f"{name} for {workload}"
        case _:
            return ""


def _defines(place: Context, following: Token) -> bool:
    if not place.blocks:
        return len(place.statement) == 1 and place.head not in ("explore", "expect", "use", "include")
    starts = not place.statement and following.type == "EQUAL"
    return starts or place.before == "signal"


def _is_name(place: Context, token: Token, following: Token) -> bool:
    """Whether a token is a name that the text invents or uses, and no word of the language."""
    if place.before in (".", "@") or (place.blocks and not place.statement and following.type != "EQUAL"):
        return place.block.startswith("expect") and not place.statement and token not in _words_at(place)
    if _RATIO.fullmatch(token) and place.statement and place.statement[-1].type in ("NUMBER", "QUANTITY"):
        return False  # the steps of a range: 16..65536 x2
    if (place.block, place.head) == ("system", "mesh") and not place.brackets and place.before in ("mesh", ",", "over"):
        return False  # an axis, which may have the name of a value
    in_call = bool(place.callee) and following.type == "EQUAL"
    if in_call:
        return place.callee == _EDGES
    return _defines(place, following) or token not in _words_at(place)


def _words_at(place: Context) -> set[str]:
    return {word for section in expected_at(place).sections for word in load_words().get(section, {})}


_DECLARED = re.compile(r"\w+\s+(\w+)")
_START = Location(1, 1)


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A place in a file, from ``start`` to ``end``."""

    path: Path
    start: Location = _START
    end: Location = _START


def definition(document: Document, offset: int) -> FilePlace | None:
    """Return where the name at an offset is declared, or the file that a ``use`` or ``include`` names."""
    cursor = cursor_at(document.source, offset)
    if cursor.in_text:
        return _named_file(document, cursor.place.head, document.source.text[cursor.start :].partition('"')[0])
    owner = cursor.place.owner
    names = cursor.place.parent if owner[:1] == ("base",) else (*owner, cursor.word)
    entry = document.entry(names) if names else None
    use = occurrence_at(document, offset)
    if use is not None and use.home:
        defined = (each for each in all_occurrences(document, use) if each.is_definition)
        return next((_target(document, each.span) for each in defined), None)
    return _target(document, name_span(entry)) if entry is not None else None


def name_span(entry: Entry) -> Span:
    """Return the span of the name in a declaration."""
    span = entry.declaration.span
    found = _DECLARED.match(span.text)
    if found is None or found.group(1) != entry.name:
        return span
    return Span(span.source, span.start + found.start(1), span.start + found.end(1))


def library_path(name: str) -> Path:
    """Return where a shipped library lies: ``nvidia/h100``."""
    return Path(str(LIBRARY.joinpath(*f"{name}.mgs".split("/"))))


def _target(document: Document, span: Span) -> FilePlace:
    name = span.source.path.removesuffix(".mgs")
    is_library = span.source.path != document.source.path and name in shipped_libraries()
    return FilePlace(library_path(name) if is_library else Path(span.source.path), span.location, span.end_location)


def _named_file(document: Document, head: str, name: str) -> FilePlace | None:
    if head == "use":
        return FilePlace(library_path(name)) if name in shipped_libraries() else None
    try:
        path = real_path(document.path.parent / name)
        return FilePlace(path) if name and "\0" not in name and path.is_file() else None
    except (OSError, ValueError):
        return None


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class RenameError(ValueError):
    """Why a name cannot be changed, in words for a user."""


@dataclass(frozen=True, slots=True)
class Renamed:
    """The text of one file, and the places in it at which ``new_name`` stands in place of the old one."""

    source: Source
    uses: tuple[Occurrence, ...]
    new_name: str

    @property
    def text(self) -> str:
        """The text with the new name."""
        return replaced(self.source.text, self.uses, self.new_name)


def renameable(document: Document, offset: int) -> Occurrence:
    """Return the name at an offset.

    Raises
    ------
    RenameError
        If none stands there, or one that a library or Magus gives.
    """
    use = occurrence_at(document, offset)
    if use is None:
        raise RenameError("no name stands here")
    if not any(each.is_definition for each in all_occurrences(document, use)):
        raise RenameError(f"'{use.name}' is not declared in this file or in one that it includes")
    return use


def renaming(document: Document, offset: int, new_name: str, includers: Sequence[Document] = ()) -> tuple[Renamed, ...]:
    """Return what changes in each file if the name at an offset becomes ``new_name``.

    ``includers`` are other texts that may include the file which declares it.

    Raises
    ------
    RenameError
        If the name cannot be changed, or the new one is none, is taken, or brings errors.
    """
    use = renameable(document, offset)
    if not _NAME.fullmatch(new_name) or new_name in (*RESERVED, *DECLARATIONS, "in"):
        raise RenameError(f"'{new_name[:64]}' cannot be a name")
    uses = all_occurrences(document, use, includers)
    by_path = {each.span.source.path: each.span.source for each in uses}
    changed = [
        Renamed(source, tuple(each for each in uses if each.span.source.path == path), new_name)
        for path, source in by_path.items()
    ]
    if new_name != use.name:
        _check(document, changed, new_name, includers)
    return tuple(changed)


def replaced(text: str, uses: Sequence[Occurrence], new_name: str) -> str:
    """Return ``text`` with a name in place of each use."""
    for use in sorted(uses, key=lambda use: -use.span.start):
        text = text[: use.span.start] + new_name + text[use.span.end :]
    return text


def _check(document: Document, changed: Sequence[Renamed], new_name: str, includers: Sequence[Document]) -> None:
    """Refuse a name that the text uses for something else: it would have errors that it has not now."""
    if document.entry((new_name,)) is not None:
        raise RenameError(f"'{new_name}' is taken")
    paths = {each.source.path for each in changed}
    for each in includers:
        if each.source.path in paths and each.entry((new_name,)) is not None:
            raise RenameError(f"'{new_name}' is taken in {each.path.name}")
    if [each.source.path for each in changed] != [document.source.path]:
        return  # the included files are still those on disk
    before = [each.code for each in document.examined.diagnostics if each.severity is Severity.ERROR]
    after = examine_text(changed[0].text, document.source.path).diagnostics
    new = [each for each in after if each.severity is Severity.ERROR]
    if len(new) > len(before):
        raise RenameError(f"with '{new_name}' the file would have an error: {new[0].message}")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name that a text declares. ``kind`` is None for a tensor or a step, and for a question about a workload."""

    name: str
    kind: Kind | None
    detail: str
    span: Span
    children: tuple["Symbol", ...] = ()


def symbols(document: Document) -> tuple[Symbol, ...]:
    """Return what a text declares and asks, in the order of the text."""
    tree = document.tree
    return (
        tuple(_symbol(each) for each in tree.declarations if not isinstance(each, ast.Use | ast.Include))
        if tree
        else ()
    )


def _symbol(declaration: ast.Declaration) -> Symbol:
    match declaration:
        case ast.ExploreNode():
            return Symbol(f"explore {declaration.workload}", None, "explore", declaration.span)
        case ast.Expect():
            return Symbol(f"expect {declaration.workload or ''}".rstrip(), None, "expect", declaration.span)
        case ast.Use() | ast.Include():
            raise AssertionError("files have no symbol")
    kind = kind_of(declaration)
    block = declaration.block if isinstance(declaration, ast.WorkloadNode | ast.PlanNode) else None
    inner = (each for each in block.statements if isinstance(each, ast.Define)) if block is not None else ()
    word = "tensor" if isinstance(declaration, ast.WorkloadNode) else "step"
    children = tuple(Symbol(each.name, None, word, each.span) for each in inner)
    return Symbol(declaration.name, kind, kind.value, declaration.span, children)
