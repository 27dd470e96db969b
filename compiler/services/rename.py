"""Give a name another one, in a text and in what it includes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..pipeline import examine_text
from ..text.diagnostics import Severity
from ..text.names import RESERVED
from ..text.parsing.tokens import DECLARATIONS
from ..text.source import Source
from .document import Document
from .occurrences import Occurrence, all_occurrences, occurrence_at

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
