"""The help screen: keys and signs."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

HELP = """\
Panes        1 candidates   2 timeline   3 why   Tab next
Candidates   Up Down  j k      pick; the other panes follow
             Enter             to its timeline
             s                 sort by the next column
Timeline     + -               zoom in and out; 0 shows everything
             h l  Left Right   earlier, later
             r                 one rank, or all of them
             Up Down           scroll the rows
File         e  Ctrl+R         read the file again
             w                 next workload of the file
             x                 stop the run
             q                 quit, at any time

★ recommended   ≈ tie: the profile cannot tell it from the best
~ speedup from a predicted time   - not simulated
line: simulated by cache lines   packet: by 1 KiB, coarser
compute blue, comm orange, reduce violet   ░ time won back"""


class HelpScreen(ModalScreen[None]):
    """The help screen; Escape or ? closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark", "dismiss", "Close"),
        Binding("q", "app.quit", "Quit"),
    ]

    def compose(self) -> ComposeResult:
        """Lay out one text in a box."""
        with VerticalScroll(id="help") as box:
            box.border_title = "Keys and signs"
            box.border_subtitle = "Esc closes"
            yield Static(HELP, markup=False)
