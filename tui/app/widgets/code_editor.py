"""A scenario as text: coloured, its mistakes underlined and told, and what may be written offered at the cursor."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.geometry import Offset
from textual.message import Message
from textual.widgets import Static, TextArea

from ....compiler.services.completion import Completions, complete
from ....compiler.services.document import Document, read_document
from ....compiler.services.hover import Hover, hover
from ....compiler.services.names import definition
from ....compiler.text.diagnostics import CompileError, Diagnostic, Severity, printable
from ....compiler.text.fmt import format_text
from ..background import in_thread
from .code_area import CodeArea, CompletionList

QUIET_S = 0.1
"""Mistakes are looked for once nothing was typed for so long."""
_OPENERS = (".", "=", "(", "@", '"')


class CodeEditor(Container):
    """A text with what is known of it, as if it stood in the file ``path``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+f", "format", "Format", priority=True),
        Binding("f8", "next_mistake(1)", "Next mistake"),
        Binding("shift+f8,f20", "next_mistake(-1)", "Previous mistake", show=False),
        Binding("f12", "definition", "Definition"),
        Binding("ctrl+@,ctrl+space", "complete", "Complete", key_display="^space"),
    ]

    @dataclass
    class Changed(Message):
        """The text has changed."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.area, self._list = CodeArea(id="code"), CompletionList(id="completions")
        self._path = ""
        self._document: Document | None = None
        self._known: Hover | None = None
        self._note = ""

    def compose(self) -> ComposeResult:
        """The text over what is wrong with it."""
        yield self.area
        yield Static(id="mistake", markup=False)
        yield self._list

    @property
    def plain_text(self) -> str:
        """The text with the ends of lines that the language has."""
        return self.area.text.replace("\r\n", "\n")

    @property
    def cursor_offset(self) -> int:
        """The place of the cursor in the plain text."""
        row, column = self.area.cursor_location
        return sum(len(line) + 1 for line in self.area.document.lines[:row]) + column

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The mistakes of the text as it was when nothing was typed for a moment."""
        return self._document.diagnostics if self._document is not None else ()

    def load(self, text: str, path: str) -> None:
        """Show another text, from its beginning."""
        self._path = path
        self.area.load_text(text)
        self.check()

    def put(self, text: str) -> None:
        """Put another text in, so that ctrl+z brings the old one back; the cursor stays where it can."""
        at = self.area.cursor_location
        with self.area.prevent(TextArea.Changed):  # nothing is typed: nothing is offered
            self.area.replace(text, (0, 0), self.area.document.end)
        self._close_list()
        self.area.move_cursor(at)
        self._text_changed()

    def say(self, note: str) -> None:
        """Say something until the text changes."""
        self._note = note
        self._show_state()

    # What is typed, and what is known of it.

    @on(TextArea.Changed)
    def _changed(self) -> None:
        self._note = ""
        self._text_changed()
        self._offer(typed=True)

    def _text_changed(self) -> None:
        self._known = None
        self.check()
        self.post_message(self.Changed())

    @on(TextArea.SelectionChanged)
    def _moved(self) -> None:
        found = self._list.found
        if found is not None and not found.start <= self.cursor_offset <= found.end + 1:
            self._close_list()
        self._known = None
        self._show_state()
        self._look_up()

    @work(exclusive=True, group="check")
    async def check(self) -> None:
        """Look for mistakes once nothing was typed for a moment."""
        await asyncio.sleep(QUIET_S)
        text, path = self.plain_text, self._path
        self._document = await in_thread(lambda _: read_document(text, path))
        self.area.mark(self._document.diagnostics)
        self._show_state()

    @work(exclusive=True, group="look up")
    async def _look_up(self) -> None:
        """Find out what the word at the cursor means, once the cursor rests."""
        await asyncio.sleep(QUIET_S)
        text, path, offset = self.plain_text, self._path, self.cursor_offset
        self._known = await in_thread(lambda _: hover(read_document(text, path), offset))
        self._show_state()

    @work(exclusive=True, group="complete")
    async def _offer(self, typed: bool) -> None:
        """Offer what may stand at the cursor; while typing only behind a letter or a sign that opens something."""
        row, column = self.area.cursor_location
        last = self.area.document.get_line(row)[:column][-1:]
        wanted = last.isalnum() or last == "_" or last in _OPENERS
        if self.area.read_only or (typed and not (wanted and self.area.has_focus)):
            self._close_list()
            return
        text, path, offset = self.plain_text, self._path, self.cursor_offset
        found = await in_thread(lambda _: complete(read_document(text, path), offset))
        is_whole = any(each.text == found.prefix for each in found.matching)
        if typed and (is_whole or not (found.prefix or last in _OPENERS)):
            self._close_list()
        elif self.plain_text == text and self.cursor_offset == offset:
            self._open_list(found)

    # The list of what is offered.

    def _open_list(self, found: Completions) -> None:
        at = self.area.cursor_screen_offset - Offset(len(found.prefix) + 1, -1)
        self._list.offer(found, at)
        self.area.offering = self._list.is_open
        self._show_state()

    def _close_list(self) -> None:
        self._list.close()
        self.area.offering = False

    @on(CodeArea.OfferKey)
    def _list_key(self, message: CodeArea.OfferKey) -> None:
        if message.what == "move":
            self._list.step(message.rows)
        elif message.what == "take":
            self._take()
        else:
            self._close_list()
        self._show_state()

    def _take(self) -> None:
        picked, found = self._list.picked, self._list.found
        self._close_list()
        if picked is None or found is None:
            return
        row, column = self.area.cursor_location
        with self.area.prevent(TextArea.Changed):  # which would offer again
            self.area.replace(picked.text, (row, max(0, column - len(found.prefix))), (row, column))
        self._text_changed()

    # Keys.

    def action_complete(self) -> None:
        """Offer what may stand at the cursor."""
        self._offer(typed=False)

    def action_format(self) -> None:
        """Write the text in the canonical form."""
        if self.area.read_only:
            return
        try:
            text = format_text(self.plain_text, self._path)
        except CompileError as error:
            self.say(f"not formatted: {error.first.message}")
            return
        if text != self.plain_text:
            self.put(text)
        self.call_after_refresh(self.say, "formatted")  # behind the message of the change

    def action_next_mistake(self, step: int) -> None:
        """Go to the next mistake, or to the one before, around the ends."""
        places = sorted({each.span.start for each in self.diagnostics})
        here = self.cursor_offset
        others = [at for at in places if (at > here if step > 0 else at < here)] or places
        if others:
            before = self.plain_text[: others[0] if step > 0 else others[-1]]
            self.area.move_cursor((before.count("\n"), len(before) - before.rfind("\n") - 1), center=True)
        else:
            self.say("no mistakes")

    def action_definition(self) -> None:
        """Go to the declaration of the name at the cursor; one in another file is told."""
        target = definition(self._document, self.cursor_offset) if self._document is not None else None
        if target is None:
            self.say("no declared name stands here")
        elif str(target.path) == self._path:
            self.area.move_cursor((target.start.line - 1, target.start.column - 1), center=True)
        else:
            self.say(f"declared in {target.path}:{target.start.line}")

    # What is said.

    def _show_state(self) -> None:
        """Say under the text where the cursor is, what is wrong or offered there, or what the word there means."""
        row, column = self.area.cursor_location
        head = "  ".join(filter(None, (f"{row + 1}:{column + 1}", self._count(), printable(self._note))))
        for line in self.query("#mistake").results(Static):
            line.update("\n".join((head, *self._about(row + 1))), layout=False)

    def _count(self) -> str:
        errors = sum(each.severity is Severity.ERROR for each in self.diagnostics)
        counts = ((errors, "error"), (len(self.diagnostics) - errors, "warning"))
        return ", ".join(f"{number} {word}{'s' * (number > 1)}" for number, word in counts if number)

    def _about(self, line: int) -> Iterator[str]:
        picked = self._list.picked
        here = [each for each in self.diagnostics if each.span.location.line == line] or list(self.diagnostics[:1])
        if picked is not None:
            yield printable(picked.doc or picked.detail)
        elif here:
            at = here[0].span.location
            yield f"{here[0].code.name} {at.line}:{at.column}: {printable(here[0].message)}"
            if here[0].hint:
                yield f"help: {printable(here[0].hint)}"
        elif self._known is not None:
            yield from self._known.text.split("\n")[:2]
