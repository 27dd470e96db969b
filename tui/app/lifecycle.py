"""How the app begins and ends: its first frame, what is imported behind it, the file it opens, what it remembers.

What is not needed for the first frame is imported behind it, in ``_load``; here it is named in annotations alone.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import App, ComposeResult

from .background import in_thread, start_resource_tracker
from .first_frame import DARK, READING, THEMES, FirstFrame, import_rest, title_of_path
from .panes import PANES
from .session.listed_files import is_file
from .session.listed_files import load as load_state
from .session.listed_files import save as save_state
from .widgets.start import KeyLine, StartScreen

if TYPE_CHECKING:
    from ...compiler.ir import Settings
    from .session.backend import Backend
    from .session.session import Session
    from .work import OpenFile, Work
    from .workbench import Workbench

DEFAULT_WORKERS = 2
LOOK_S = 1.0
"""Seconds between two looks whether files have changed on disk."""
END_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, name))
"""Signals that end the program, with the exit code of shells: 128 plus the number."""


class Lifecycle(App[None]):
    """The app from its first frame to its end, without its keys; ``bench`` and what stands behind it come later."""

    bench: Workbench
    work: Work
    file: OpenFile

    def __init__(
        self,
        path: Path | None,
        settings: Settings = (),
        workload: str | None = None,
        *,
        workers: int = DEFAULT_WORKERS,
        backend: Backend | None = None,
        state_folder: Path | None = None,
        at_once: bool = False,
    ) -> None:
        super().__init__()
        self._state_folder, self.state = state_folder, load_state(state_folder)
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = self.state.theme if self.state.theme in self.available_themes else DARK.name
        self._folder = path if path is not None and path.is_dir() else None
        self._requested = None if path is None or self._folder is not None else (path, settings, workload)
        self._backend, self._num_workers = backend, workers
        names = [pane.name for pane in PANES]
        self._frame = FirstFrame(path, names.index(self.state.pane) if self.state.pane in names else 0)
        self._is_loaded = False
        if not at_once:
            self._load()
        start_resource_tracker()

    def _load(self) -> None:
        """Import what the first frame does without."""
        from .session.backend import default_backend
        from .session.session import Session
        from .work import OpenFile, Work
        from .workbench import Workbench

        session = Session(*self._requested or (Path(), (), None), self._backend or default_backend(self._num_workers))
        self.bench = Workbench(id="workbench")
        self.work = Work(self, self.bench, session)
        self.file = OpenFile(self, self.bench, self.work)
        self._is_loaded = True

    @property
    def session(self) -> Session:
        """The session on screen."""
        return self.work.session

    def compose(self) -> ComposeResult:
        """The workbench over the keys."""
        yield self._front
        yield KeyLine()

    @property
    def _front(self) -> FirstFrame | Workbench:
        return self.bench if self._is_loaded else self._frame

    # Begin and end.

    def on_load(self) -> None:
        """Install handlers of signals, so that the terminal is restored at the end."""
        for number in END_SIGNALS:
            with suppress(NotImplementedError, RuntimeError, ValueError):  # not on Windows, nor in a thread
                asyncio.get_running_loop().add_signal_handler(number, self._end_by, number)

    def _end_by(self, number: int) -> None:
        """End as after ``q`` and restore the terminal; a second signal ends the program at once."""
        asyncio.get_running_loop().remove_signal_handler(number)
        self.workers.cancel_all()
        self.exit(return_code=128 + number)

    def on_mount(self) -> None:
        """Read the file, or ask which."""
        if self._is_loaded:
            self._begin()
        else:
            self.call_after_refresh(self.run_worker, self._load_behind(), group="load")
        if self._requested is None:
            self.action_browse()

    async def _load_behind(self) -> None:
        """Put the workbench in the place of the first frame once it is imported."""
        await in_thread(import_rest)
        if not self._frame.is_attached:
            return  # the program has ended meanwhile
        screen = self._frame.screen
        self._load()
        with self.batch_update():
            await screen.mount(self.bench, before=self._frame)
            await self._frame.remove()
            self._begin()

    def _begin(self) -> None:
        self.bench.show_pane(self._frame.pane_idx)
        if self._requested is not None:
            path = self._requested[0]
            self.bench.ask(title_of_path(path), READING)
            self.file.open(path, self._remember, keep=True)
        self.set_interval(LOOK_S, self.file.look)

    def on_unmount(self) -> None:
        """Tell all work to stop, so that the program can end, and remember how the screen was."""
        self.workers.cancel_all()
        pane = PANES[self._front.pane_idx].name
        save_state(self._state_folder, replace(self.state, theme=self.theme, pane=pane))
        for number in END_SIGNALS:
            with suppress(NotImplementedError, RuntimeError, ValueError):
                asyncio.get_running_loop().remove_signal_handler(number)

    async def action_quit(self) -> None:
        """End now, unless something is not saved; work is told to stop, and not waited for."""
        if self._is_loaded:
            self.file.when_saved("Save and quit", self._end)
        else:
            self._end()

    def _end(self) -> None:
        self.workers.cancel_all()
        self.exit()

    # The file.

    def open_file(self, path: Path | None) -> None:
        """Open another file."""
        if path is not None and not self._is_loaded:
            self._requested = (path, (), None)
            self._frame.ask(path)
        elif path is not None:
            self.file.open(path, self._remember)

    def _remember(self, path: Path) -> None:
        self._requested = self._requested or (path, (), None)
        if is_file(path):
            self.state = self.state.opened(path)
            save_state(self._state_folder, replace(self.state, theme=self.theme))

    def action_browse(self) -> None:
        """Ask which file to open."""
        self.push_screen(
            StartScreen(self._folder, self.state.recent, can_leave=self._requested is not None), self.open_file
        )
