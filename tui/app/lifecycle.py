"""How the app begins and ends: its first frame, what is imported behind it, the file it opens, what it remembers.

What is not needed for the first frame is imported behind it, in ``_load``; here it is named in annotations alone.

The first frame is the workbench without what is in it. It needs Textual and next to nothing else, so that it comes as
soon as Textual can draw it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import App, ComposeResult
from textual.containers import Container, Vertical
from textual.theme import Theme
from textual.widgets import Static

from ...compiler.text.diagnostics import printable
from .background import in_thread, start_resource_tracker
from .panes import PANES
from .session.listed_files import is_file
from .session.listed_files import load as load_state
from .session.listed_files import save as save_state
from .widgets.start import KeyLine, PaneTabs, StartScreen

READING = "reading ..."
PROGRAM = "magus"
HEAVY = ("numpy", "...compiler.changed", "...simcore", "...advisor.candidates.advice", ".panes.timeline", ".workbench")
"""What the workbench imports, in steps."""


def import_rest(should_stop: Callable[[], bool]) -> None:
    """Import what the workbench needs; between two steps it may be stopped."""
    for name in HEAVY:
        if not should_stop():
            import_module(name, __package__)


def title_of_path(path: Path | None) -> str:
    """Return what a file or folder is called while it is read: its name first, so that a narrow screen has it."""
    if path is None:
        return PROGRAM
    return f"{path.name} · {path.parent}" if path.parent.name else str(path)


class FirstFrame(Container):
    """The head with a title, the names of the panes, and a line of what is going on; where ``Workbench`` has them."""

    def __init__(self, path: Path | None, pane_idx: int) -> None:
        super().__init__(id="first-frame")
        self._path, self._pane_idx = path, pane_idx

    def compose(self) -> ComposeResult:
        """Lay out what the workbench will have there."""
        with Vertical(id="head"):
            yield Static(printable(title_of_path(self._path)), id="title", markup=False)
            yield Static(READING, id="verdict", markup=False)
        yield PaneTabs(id="tabs")
        yield Container(id="panes")
        yield Static(id="selected", markup=False)
        yield Static("starting ...", id="activity", markup=False)

    def on_mount(self) -> None:
        """Show which pane will be in front."""
        self.show_pane(self._pane_idx)

    def ask(self, path: Path) -> None:
        """Show another file."""
        self.query_one("#title", Static).update(printable(title_of_path(path)))

    @property
    def pane_idx(self) -> int:
        """The pane that will be in front."""
        return self._pane_idx

    def show_pane(self, pane_idx: int) -> None:
        """Let a pane be in front."""
        self._pane_idx = pane_idx % len(PANES)
        self.query_one(PaneTabs).show(self._pane_idx)


DARK = Theme(
    name="magus-dark",
    primary="#4aa3ff",
    secondary="#9d6bc4",
    accent="#ffb454",
    warning="#ffb454",
    error="#ff6b6b",
    success="#5fd38d",
    foreground="#e0e0e0",
    background="#121212",
    surface="#1e1e1e",
    panel="#2a2a2a",
)
LIGHT = Theme(
    name="magus-light",
    primary="#0057b8",
    secondary="#7a3fa0",
    accent="#9a5b00",
    warning="#9a5b00",
    error="#b3261e",
    success="#0f7a3d",
    foreground="#1b1b1b",
    background="#fbfbfb",
    surface="#efefef",
    panel="#e2e2e2",
    dark=False,
)
COLOUR_BLIND = Theme(
    name="magus-colour-blind",
    # The palette of Okabe and Ito, "Color Universal Design", 2008.
    primary="#56b4e9",
    secondary="#cc79a7",
    accent="#f0e442",
    warning="#e69f00",
    error="#d55e00",
    success="#009e73",
    foreground="#f0f0f0",
    background="#101010",
    surface="#1c1c1c",
    panel="#282828",
)
THEMES = (DARK, LIGHT, COLOUR_BLIND)


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
            self.call_after_refresh(self.run_worker, self._load_behind, group="load")
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
