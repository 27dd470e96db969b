"""The pane Editor: the file as text, with its mistakes, and what may be written at the cursor."""

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Offset
from textual.message import Message
from textual.widgets import Static, TextArea

from ....compiler.services.completion import Completions, complete
from ....compiler.services.definition import definition
from ....compiler.services.document import Document, read_document
from ....compiler.services.hover import hover
from ....compiler.text.diagnostics import CompileError, Diagnostic, Severity
from ....compiler.text.fmt import format_text
from ....compiler.text.printable import printable
from ..background import in_thread
from ..edited_file import EditedFile, OnDisk, can_edit, recovery_folder
from ..session import WorkloadSession
from ..widgets.ask import Answer, AskScreen
from ..widgets.code_area import CodeArea
from ..widgets.completions import CompletionList
from .base import JobPane

TITLE = "Editor"
QUIET_S = 0.1
"""Mistakes are looked for once nothing was typed for so long."""
KEEP_S = 1.0
"""How often an unsaved text is kept for the case of a crash, and how often the file is looked at."""
_OPENERS = '.=(@"'
_GONE = "the file is gone; ctrl+s writes it again"
_LOCKED = "read only: it holds control characters that an editor would lose"
_TAKE_DISK, _KEEP_MINE = Answer("t", "Take what is on disk"), Answer("k", "Keep my text")


class EditorPane(JobPane):
    """The file as text."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "save", "Save", priority=True),
        Binding("ctrl+f", "format", "Format", priority=True),
        Binding("f8", "next_mistake(1)", "Next mistake"),
        Binding("shift+f8,f20", "next_mistake(-1)", "Previous mistake", show=False),
        Binding("f12", "definition", "Definition"),
        Binding("ctrl+@,ctrl+space", "complete", "Complete", key_display="^space"),
        Binding("escape", "leave", "Leave"),
    ]

    @dataclass
    class Saved(Message):
        """The file was written; ``compiles`` tells whether it has no errors."""

        compiles: bool

    @dataclass
    class Left(Message):
        """The user wants to leave the editor for the pane before."""

    def __init__(self, *, id: str, folder: Path | None = None) -> None:
        super().__init__(id=id)
        self._area, self._list = CodeArea(id="code"), CompletionList(id="completions")
        self._folder = folder
        self._file: EditedFile | None = None
        self._document: Document | None = None
        self._note = ""
        self._asked: OnDisk | None = None

    def compose(self) -> ComposeResult:
        """The text over what is wrong with it."""
        self.border_title = TITLE
        yield self._area
        yield Static(id="mistake", markup=False)
        yield self._list

    @property
    def target(self) -> CodeArea:
        """The text."""
        return self._area

    @property
    def text(self) -> str:
        """The text as it would be saved."""
        return self._area.text

    @property
    def is_changed(self) -> bool:
        """Whether something is not saved."""
        return self._file is not None and not self._area.read_only and self.text != self._file.saved

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The mistakes of the text as it was when nothing was typed for a moment."""
        return self._document.diagnostics if self._document is not None else ()

    def show(self, job: WorkloadSession) -> None:
        """The text is that of the file, whatever the job is."""

    def keeps(self, action: str) -> bool:
        """Keep what is typed: the arrows, tab, and letters that are keys elsewhere."""
        return self._area.has_focus and action in ("pan", "next_pane", "zoom", "reload")

    def open(self, path: Path) -> None:
        """Edit a file; a text that was kept when Magus ended without saving is offered."""
        self._file = EditedFile(path, self._folder or recovery_folder())
        self._load(self._file.read())
        self._note = self._file.problem
        kept = self._file.kept()
        if kept is not None:
            question = f"{path.name}: Magus ended before changes were saved. What now?"
            answers = (Answer("r", "Recover them"), Answer("d", "Drop them"))
            self.app.push_screen(AskScreen(question, answers), partial(self._recover, kept))

    def on_mount(self) -> None:
        """Look after the file from time to time."""
        self._list.close()
        self.set_interval(KEEP_S, self._look_after)

    def on_unmount(self) -> None:
        """Keep what is not saved: the program may have been told to end."""
        if self._file is not None and self.is_changed:
            self._file.keep(self.text)

    def _load(self, text: str) -> None:
        self._area.read_only = not can_edit(text)
        self._note = _LOCKED if self._area.read_only else ""
        self._area.load_text(text)
        self._area.colour()
        self._check()

    def _recover(self, kept: str, answer: str | None) -> None:
        if self._file is None:
            return
        if answer == "r":
            self._replace_all(kept)
            self._note = "recovered; ctrl+s saves it"
        elif answer == "d":
            self._file.forget()
        self._say()

    def _replace_all(self, text: str) -> None:
        """Put another text in, so that ctrl+z brings the old one back; the cursor stays where it can."""
        at = self._area.cursor_location
        self._area.replace(text, (0, 0), self._area.document.end)
        self._area.move_cursor(at)

    # What is typed, and what is known of it.

    @on(TextArea.Changed)
    def _changed(self) -> None:
        self._note = "" if not self._area.read_only else self._note
        self._area.colour()
        self._show_title()
        self._check()
        self._offer(typed=True)

    @on(TextArea.SelectionChanged)
    def _moved(self) -> None:
        found = self._list.found
        offset = self._offset()
        if found is not None and not found.start <= offset <= found.end + 1:
            self._close_list()
        self._say()

    @work(exclusive=True, group="check")
    async def _check(self) -> None:
        await asyncio.sleep(QUIET_S)
        if self._file is None:
            return
        text, path = self._plain(), str(self._file.path)
        self._document = await in_thread(lambda _: read_document(text, path))
        self._area.mark(self._document.diagnostics)
        self._say()

    @work(exclusive=True, group="complete")
    async def _offer(self, typed: bool) -> None:
        """Offer what may stand at the cursor; while typing only behind a letter or a sign that opens something."""
        row, column = self._area.cursor_location
        before = self._area.document.get_line(row)[:column] if row < self._area.document.line_count else ""
        wanted = not typed or (before[-1:].isalnum() or before[-1:] == "_" or before[-1:] in _OPENERS)
        if self._file is None or self._area.read_only or not before[-1:] and typed or not wanted:
            self._close_list()
            return
        if typed and not self._area.has_focus:
            return
        text, path, offset = self._plain(), str(self._file.path), self._offset()
        found = await in_thread(lambda _: complete(read_document(text, path), offset))
        is_whole = typed and any(each.text == found.prefix for each in found.matching)
        if is_whole:
            self._close_list()
        elif self._plain() == text and self._offset() == offset:
            self._open_list(found)

    def _open_list(self, found: Completions) -> None:
        at = self._area.cursor_screen_offset - Offset(len(found.prefix) + 1, -1)
        self._list.offer(found, at)
        self._area.offering = self._list.is_open
        self._say()

    def _close_list(self) -> None:
        self._list.close()
        self._area.offering = False

    @on(CodeArea.OfferKey)
    def _list_key(self, message: CodeArea.OfferKey) -> None:
        if message.what == "move":
            self._list.step(message.rows)
            self._say()
        elif message.what == "take":
            self._take()
        else:
            self._close_list()
            self._say()

    def _take(self) -> None:
        picked, found = self._list.picked, self._list.found
        self._close_list()
        if picked is None or found is None:
            return
        end = self._area.cursor_location
        start = (end[0], max(0, end[1] - len(found.prefix)))
        with self._area.prevent(TextArea.Changed):
            self._area.replace(picked.text, start, end)
        self._area.colour()
        self._show_title()
        self._check()

    # Keys.

    def action_save(self) -> None:
        """Write the file, unless somebody else has."""
        if self._file is None or self._area.read_only:
            return
        if self._file.on_disk() is OnDisk.CHANGED:
            self._ask_about_disk(saving=True)
        else:
            self.save()

    def save(self) -> bool:
        """Write the file; return whether that worked. The rest of the screen follows if it compiles."""
        if self._file is None:
            return False
        problem = self._file.save(self.text)
        self._note, self._asked = problem or "saved", None
        self._show_title()
        if not problem:
            document = read_document(self._plain(), str(self._file.path))
            compiles = document.examined.compiled is not None
            self._note = "saved" if compiles else "saved; the other panes show the last text without errors"
            self.post_message(self.Saved(compiles))
        self._say()
        return not problem

    def drop(self) -> None:
        """Give up what is not saved."""
        if self._file is not None:
            self._file.forget()
            self._load(self._file.saved)

    def action_format(self) -> None:
        """Write the text in the canonical form."""
        if self._file is None or self._area.read_only:
            return
        try:
            text = format_text(self._plain(), str(self._file.path))
        except CompileError as error:
            self._note = f"not formatted: {printable(error.diagnostics[0].message)}"
        else:
            if text != self._plain():
                self._replace_all(text)
            self._note = "formatted"
        self._say()

    def action_next_mistake(self, step: int) -> None:
        """Go to the next mistake, or to the one before, around the ends."""
        places = sorted({each.span.start for each in self.diagnostics})
        if not places:
            self._note = "no mistakes"
            self._say()
            return
        here = self._offset()
        others = [at for at in places if (at > here if step > 0 else at < here)]
        self._go_to((min(others) if step > 0 else max(others)) if others else places[0 if step > 0 else -1])

    def action_definition(self) -> None:
        """Go to the declaration of the name at the cursor; one in another file is told."""
        target = definition(self._document, self._offset()) if self._document is not None else None
        if target is None or self._file is None:
            self._note = "no name of this file stands here"
        elif target.path == self._file.path:
            self._area.move_cursor((target.start.line - 1, target.start.column - 1))
            return
        else:
            self._note = f"declared in {printable(str(target.path))}:{target.start.line}"
        self._say()

    def action_complete(self) -> None:
        """Offer what may stand at the cursor."""
        self._offer(typed=False)

    def action_leave(self) -> None:
        """Go back to the pane before."""
        self.post_message(self.Left())

    # The file on disk.

    def _look_after(self) -> None:
        """Keep what is not saved, and see whether the file has changed on disk."""
        if self._file is None or len(self.app.screen_stack) > 1:
            return
        if self.is_changed:
            self._file.keep(self.text)
        state = self._file.on_disk()
        if state is OnDisk.SAME or state is self._asked:
            return
        if state is OnDisk.CHANGED and not self.is_changed:
            self._load(self._file.read())
            self._note = "read again: it has changed on disk"
        elif state is OnDisk.CHANGED:
            self._ask_about_disk(saving=False)
        else:
            gone = state is OnDisk.GONE
            self._asked = state
            self._note = _GONE if gone else "on disk it is no text any more; your text is kept"
        self._say()

    def _ask_about_disk(self, *, saving: bool) -> None:
        if self._file is None:
            return
        self._asked = OnDisk.CHANGED
        question = f"{self._file.path.name} has changed on disk, and here."
        mine = Answer("k", "Save mine over it") if saving else _KEEP_MINE

        def answered(answer: str | None) -> None:
            if self._file is not None and answer == "t":
                self._replace_all(self._file.read())
                self._note, self._asked = "taken from disk", None
            elif answer == "k" and saving:
                self.save()
            self._say()

        self.app.push_screen(AskScreen(question, (mine, _TAKE_DISK)), answered)

    # What is said.

    def _show_title(self) -> None:
        name = printable(self._file.path.name) if self._file is not None else ""
        self.border_title = Content(f"{TITLE}: {name}{' *' if self.is_changed else ''}")

    def _say(self) -> None:
        """Say under the text what is wrong at the cursor, what is offered, or what the word there means."""
        row, column = self._area.cursor_location
        state = f"{row + 1}:{column + 1}{' *' if self.is_changed else ''}"
        errors = sum(each.severity is Severity.ERROR for each in self.diagnostics)
        warnings = len(self.diagnostics) - errors
        count = ", ".join(
            f"{number} {word}{'s' * (number > 1)}"
            for number, word in ((errors, "error"), (warnings, "warning"))
            if number
        )
        head = "  ".join(filter(None, (state, count, printable(self._note))))
        for line in self.query("#mistake").results(Static):
            line.update(f"{head}\n{self._about()}".rstrip())

    def _about(self) -> str:
        picked = self._list.picked
        if picked is not None:
            return printable(picked.doc or picked.detail)
        row = self._area.cursor_location[0]
        here = [each for each in self.diagnostics if each.span.location.line == row + 1] or list(self.diagnostics[:1])
        if here:
            at = here[0].span.location
            hint = f"\nhelp: {printable(here[0].hint)}" if here[0].hint else ""
            return f"{here[0].code.name} {at.line}:{at.column}: {printable(here[0].message)}{hint}"
        if self._document is None or self._document.source.text != self._plain():
            return ""
        known = hover(self._document, self._offset())
        return "\n".join(known.text.split("\n")[:2]) if known is not None else ""

    def _plain(self) -> str:
        """The text with the ends of lines that the language has."""
        return self._area.text.replace("\r\n", "\n")

    def _offset(self) -> int:
        row, column = self._area.cursor_location
        lines = self._area.document.lines
        return sum(len(line) + 1 for line in lines[:row]) + column

    def _go_to(self, offset: int) -> None:
        before = self._plain()[:offset]
        self._area.move_cursor((before.count("\n"), len(before) - before.rfind("\n") - 1), center=True)
