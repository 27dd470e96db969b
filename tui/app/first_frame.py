"""What is seen while the rest of Magus is imported: the workbench without what is in it.

This imports Textual and next to nothing else, so that the first frame comes as soon as Textual can draw it.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.theme import Theme
from textual.widgets import Static

from ...compiler.text.diagnostics import printable
from .panes import PANES
from .widgets.tabs import PaneTabs

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
