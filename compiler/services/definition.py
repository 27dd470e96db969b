"""Where a name is declared: in the text, in a file that it includes, or in a shipped library."""

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from .. import library
from ..text.load import real_path, shipped_libraries
from ..text.names import Entry
from ..text.source import Location, Span
from .context import cursor_at
from .document import Document
from .occurrences import all_occurrences, occurrence_at

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
    return Path(str(files(library).joinpath(*f"{name}.mgs".split("/"))))


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
