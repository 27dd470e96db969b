"""The help screen: the keys as the panes declare them, and the signs."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.keys import format_key
from textual.screen import ModalScreen
from textual.widgets import Static

KEY_COLUMNS = 12
SIGNS = """\
★ recommended   ≈ tie: the profile cannot tell it from the best
~ an estimate: predicted, or of a few layers   - not simulated
line: simulated by cache lines   packet: by 1 KiB, coarser
█ compute   ▒ comm   ░ reduce (without colours)   ░ time won back
● differs from the file
capital letter: simulated   small letter: predicted"""

Section = tuple[str, Sequence[BindingType]]
"""A heading, and the keys that belong to it."""


class HelpScreen(ModalScreen[None]):
    """The help screen; Escape or ? closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark", "dismiss", "Close"),
        Binding("q", "app.quit", "Quit"),
    ]

    def __init__(self, sections: Sequence[Section]) -> None:
        super().__init__()
        self._text = "\n\n".join(filter(None, (*map(_section, sections), f"Signs\n{SIGNS}")))

    def compose(self) -> ComposeResult:
        """Lay out one text in a box."""
        with VerticalScroll(id="help") as box:
            box.border_title = "Keys and signs"
            box.border_subtitle = "Esc closes, Up and Down scroll"
            yield Static(self._text, markup=False)


def _section(section: Section) -> str:
    heading, bindings = section
    lines = [f"{keys:<{KEY_COLUMNS}}{what}" for keys, what in _keys(bindings)]
    return "\n".join([heading, *lines]) if lines else ""


def _keys(bindings: Sequence[BindingType]) -> Iterator[tuple[str, str]]:
    """Yield keys with what they do."""
    for binding in bindings:
        if isinstance(binding, Binding) and binding.description and (binding.show or not binding.key.isdigit()):
            keys = [_name(key) for key in binding.key.split(",")]
            yield " ".join(keys) if len(keys) > 1 else binding.key_display or keys[0], binding.description


def _name(key: str) -> str:
    """The key as one reads it: ``?`` for ``question_mark``."""
    return "+".join(format_key(part) for part in key.strip().split("+"))
