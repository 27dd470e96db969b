"""The pane Editor: the file as text. It asks before anything that is not saved is lost."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message

from ....compiler.services.document import read_document
from ....compiler.text.diagnostics import printable
from ..session.files import EditedFile, OnDisk, can_edit, recovery_folder
from ..session.job import AnyJob
from ..widgets.code_area import CodeArea
from ..widgets.code_editor import CodeEditor
from ..widgets.dialogs import Answer, AskScreen
from . import EDITOR
from .candidates import JobPane

TITLE = EDITOR.title
KEEP_S = 1.0
"""How often an unsaved text is kept for the case of a crash."""
_SAVED_WRONG = "saved; the other panes show the last text without errors"
_NOTES = {
    OnDisk.GONE: "the file is gone; ctrl+s writes it again",
    OnDisk.UNREADABLE: "on disk it is no text any more; your text is kept",
}
_LOCKED = "read only: it holds control characters that an editor would lose"
_TAKE_DISK = Answer("t", "Take what is on disk")


class EditorPane(JobPane[AnyJob]):
    """The file as text."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "save", "Save", priority=True),
        Binding("escape", "leave", "Leave"),
    ]

    @dataclass
    class Saved(Message):
        """The file was written; ``compiles`` tells whether it has no errors."""

        compiles: bool

    @dataclass
    class DiskTaken(Message):
        """The user has taken what is on disk in place of the text."""

    @dataclass
    class Left(Message):
        """The user goes back from the editor."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.editor = CodeEditor(id="editing")
        self._file: EditedFile | None = None

    def compose(self) -> ComposeResult:
        """One editor."""
        self.border_title = TITLE
        yield self.editor

    @property
    def target(self) -> CodeArea:
        """The text."""
        return self.editor.area

    @property
    def holds_changes(self) -> bool:
        """Whether something is not saved."""
        if self._file is None or self.target.read_only:
            return False
        # Of a file with both kinds of line ends the text area keeps one: that is no change of the user's.
        return self.editor.plain_text != self._file.saved.replace("\r\n", "\n")

    @property
    def is_stale(self) -> bool:
        """Whether somebody else has changed the file since it was read or saved."""
        return self._file is not None and self._file.on_disk() is OnDisk.CHANGED

    def show(self, job: AnyJob) -> None:
        """Nothing: the text is that of the file, whatever the job is."""

    def keeps(self, action: str) -> bool:
        """Keep what is typed: the arrows, tab, and letters that are keys elsewhere."""
        return self.target.has_focus and action in ("pan", "next_pane", "zoom", "reload")

    def open(self, path: Path) -> None:
        """Edit a file; a text that was kept when Magus ended without saving is offered."""
        self._file = EditedFile(path, recovery_folder())
        self._load(self._file)
        kept = self._file.kept()
        if kept is not None:
            question = f"{path.name}: changes were not saved when Magus ended."
            answers = (Answer("r", "Recover them"), Answer("d", "Drop them"))
            self.app.push_screen(AskScreen(question, answers), partial(self._recover, self._file, kept))

    def on_mount(self) -> None:
        """Keep what is not saved from time to time."""
        self.set_interval(KEEP_S, self.keep)

    def on_unmount(self) -> None:
        """Keep what is not saved: the program may have been told to end."""
        self.keep()

    def keep(self) -> None:
        """Keep what is not saved for the case of a crash."""
        if self._file is not None and self.holds_changes:
            self._file.keep(self.target.text)

    def _load(self, file: EditedFile) -> None:
        text = file.read()
        self.target.read_only = not can_edit(text)
        self.editor.load(text, str(file.path))
        self.editor.call_after_refresh(self.editor.say, _LOCKED if self.target.read_only else file.problem)
        self._show_title()

    def _recover(self, file: EditedFile, kept: str, answer: str | None) -> None:
        if answer == "r":
            self.editor.put(kept)
        elif answer == "d":
            file.forget()
        else:
            # Not decided: the next thing typed would replace the copy, so undoing leads to it.
            self.editor.put(kept)
            self.editor.put(file.saved)

    @on(CodeEditor.Changed)
    def _show_title(self) -> None:
        name = printable(self._file.path.name) if self._file is not None else ""
        self.border_title = Content(f"{TITLE}: {name}{' *' if self.holds_changes else ''}")

    # Saving.

    def action_save(self) -> None:
        """Write the file, unless somebody else has."""
        if self._file is None or self.target.read_only:
            return
        if self._file.on_disk() is OnDisk.CHANGED:
            self._ask_about_disk(self._file, Answer("k", "Save mine over it"))
        else:
            self.save()

    def save(self) -> bool:
        """Write the file, whatever is there; return whether that worked."""
        if self._file is None:
            return False
        problem = self._file.save(self.target.text)
        if problem:
            self.editor.say(problem)
            return False
        document = read_document(self.editor.plain_text, str(self._file.path))
        compiles = document.examined.compiled is not None
        self.editor.say("saved" if compiles else _SAVED_WRONG)
        self._show_title()
        self.post_message(self.Saved(compiles))
        return True

    def drop(self) -> None:
        """Give up what is not saved."""
        if self._file is not None:
            self._file.forget()
            self.editor.load(self._file.saved, str(self._file.path))

    def action_leave(self) -> None:
        """Go back to the other panes."""
        self.post_message(self.Left())

    # The file on disk.

    def check_again(self) -> None:
        """Look for mistakes again: a file that this one names has changed."""
        read_document.cache_clear()
        self.editor.check()

    def look_at_disk(self) -> bool:
        """Take what is on disk, unless something here is not saved; return whether anything there was new."""
        file = self._file
        state = file.on_disk() if file is not None else OnDisk.SAME
        if file is not None and state is OnDisk.CHANGED and self.holds_changes:
            self._ask_about_disk(file, Answer("k", "Keep my text"))
        elif file is not None and state is OnDisk.CHANGED:
            self._take_disk(file)
        elif state in _NOTES:
            self.editor.say(_NOTES[state])
        return state is not OnDisk.SAME

    def _ask_about_disk(self, file: EditedFile, mine: Answer) -> None:
        def answered(answer: str | None) -> None:
            if answer == "t":
                self._take_disk(file)
                self.post_message(self.DiskTaken())
            elif answer == "k" and mine.words.startswith("Save"):
                self.save()

        question = f"{file.path.name} has changed on disk, and here."
        self.app.push_screen(AskScreen(question, (mine, _TAKE_DISK)), answered)

    def _take_disk(self, file: EditedFile) -> None:
        self.editor.put(file.read())
        self.editor.call_after_refresh(self.editor.say, "read again: it has changed on disk")
