"""The keys of everywhere, which of them need what, and the sections of the help screen."""

from collections.abc import Sequence

from textual.binding import Binding, BindingType

from .panes import PANES
from .widgets.help import Section

ANSWER_ACTIONS = ("sort", "step", "report")
"""Actions that need an answer on screen."""
BENCH_ACTIONS = (*ANSWER_ACTIONS, "reload", "workload", "details", "stop", "command_palette")
"""Actions that need the workbench."""
SCREEN_ACTIONS = (*ANSWER_ACTIONS, "pane", "next_pane", "reload", "workload", "details", "stop", "browse")
"""Actions that another screen over the workbench has no use for."""

BINDINGS: list[BindingType] = [
    Binding("q", "quit", "Quit"),
    Binding("question_mark", "help", "Help", key_display="?"),
    Binding("1", "pane(0)", "Pane", key_display=f"1-{len(PANES)}"),
    *(Binding(str(idx + 1), f"pane({idx})", pane.title, show=False) for idx, pane in enumerate(PANES) if idx),
    Binding("tab", "next_pane", "Next pane", show=False, priority=True),
    Binding("j", "step(1)", "Next", show=False),
    Binding("k", "step(-1)", "Previous", show=False),
    Binding("s", "sort", "Sort"),
    Binding("e,ctrl+r", "reload", "Reload", key_display="e"),
    Binding("w", "workload", "Workload"),
    Binding("d", "details", "Details"),
    Binding("o", "browse", "Open"),
    Binding("W", "report", "Write a report", show=False),
    Binding("t", "next_theme", "Theme", show=False),
    Binding("ctrl+p", "command_palette", "Commands", show=False),
    Binding("x,escape", "stop", "Stop", key_display="Esc"),
]

PACKAGE = __name__.rpartition(".")[0]


def everywhere() -> Section:
    """Return the section of the keys of everywhere."""
    return "Everywhere", BINDINGS


def keys_of(widgets: Sequence[object]) -> list[BindingType]:
    """Return the keys that the classes of widgets declare themselves, not those that Textual gives them."""
    own = (kind for each in widgets for kind in type(each).__mro__ if kind.__module__.startswith(PACKAGE))
    return [binding for kind in dict.fromkeys(own) for binding in vars(kind).get("BINDINGS", ())]
