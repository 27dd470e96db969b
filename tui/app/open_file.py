"""The file on screen: opened, changed on disk, saved in the editor, and left. Nothing that is not saved is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .files.watched import Watched
from .widgets.ask import Answer, AskScreen

if TYPE_CHECKING:
    from textual.app import App

    from .work import Work
    from .workbench import Workbench


class OpenFile:
    """What becomes of the file that ``work`` is about; there may be none yet."""

    def __init__(self, app: App[None], bench: Workbench, work: Work) -> None:
        self._app, self._bench, self._work = app, bench, work
        self.is_open = False

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._work.session.path

    def open(self, path: Path, opened: Callable[[Path], None], *, keep: bool = False) -> None:
        """Open another file once this one is saved, and tell; ``keep`` the settings and the workload."""
        self.when_saved("Save and open the other", partial(self._open, path, opened, keep))

    def _open(self, path: Path, opened: Callable[[Path], None], keep: bool) -> None:
        if not keep:
            self._work.stop_all()
            self._work.session = self._work.session.of_other(path)
        self.is_open = True
        self._work.watched = Watched((path,))
        self._bench.editor.open(path)
        opened(path)
        self._work.read()

    def when_saved(self, words: str, then: Callable[[], None]) -> None:
        """Do ``then`` at once, or when the user has said what becomes of changes that are not saved."""
        editor = self._bench.editor

        def answered(answer: str | None) -> None:
            if answer == "d":
                editor.drop()
            if answer == "d" or (answer == "s" and editor.save()):
                then()

        if isinstance(self._app.screen, AskScreen):
            return  # one question at a time; ctrl+q reaches here from any screen
        if editor.holds_changes:
            answers = (Answer("s", words), Answer("d", "Drop the changes"))
            also = " It has changed on disk too: saving overwrites that." if editor.is_stale else ""
            question = f"{self.path.name} has changes that are not saved.{also}"
            self._app.push_screen(AskScreen(question, answers), answered)
        else:
            then()

    def read_again(self) -> None:
        """Read the file again, whether it has changed or not."""
        if not self.look():
            self._work.read()

    def look(self) -> bool:
        """Read the file again if it, or one that it names, has changed on disk; return whether it is read again.

        What has vanished stays on screen, as it was.
        """
        if not self.is_open or len(self._app.screen_stack) > 1:
            return False
        changed = self._work.watched.changed()
        others = [path for path in changed if path != self.path]
        if others:
            self._bench.editor.check_again()
        differs = self.path in changed and self._bench.editor.look_at_disk()
        gone = [path for path, is_there in changed.items() if not is_there]
        if gone:
            self._bench.say(f"{gone[0]} has vanished; this is what it was")
        elif differs and any(view.holds_changes for view in self._bench.views):
            self._bench.say("the file has changed on disk; changes made here are not saved")
        elif differs or others:
            self._work.read()
            return True
        elif changed:
            self._bench.say("")  # it is as it was, or the editor has saved it
        return False

    def saved(self, compiles: bool) -> None:
        """Answer anew for what the editor has saved if it has no errors; otherwise the last answer stays."""
        if compiles or self._work.session.job is None:
            self._work.read()
