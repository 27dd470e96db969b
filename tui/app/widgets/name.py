"""The question for the name of a file to write; one that exists is replaced only after Enter was pressed once more."""

from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ....compiler.text.printable import printable
from ..files.paths import exists, typed_path


class NameScreen(ModalScreen[Path | None]):
    """Ask for a name; Escape returns None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Close")]

    def __init__(self, what: str, name: str) -> None:
        super().__init__()
        self._what, self._name = what, name
        self._to_replace: Path | None = None

    def compose(self) -> ComposeResult:
        """An input over a line that says what is wrong."""
        with Vertical(id="handover") as box:
            box.border_title = self._what
            box.border_subtitle = "Enter writes it, Esc closes"
            yield Input(self._name, id="file", compact=True)
            yield Static("", id="say", markup=False)

    def on_input_changed(self) -> None:
        """Another name is another file: ask again before it is replaced."""
        self._to_replace = None

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close with the name, if that can be."""
        path = typed_path(event.value.strip())
        if not event.value.strip():
            self.query_one("#say", Static).update("Name the file.")
        elif exists(path) and self._to_replace != path:
            self._to_replace = path
            self.query_one("#say", Static).update(printable(f"{path} exists. Enter once more replaces it."))
        else:
            self.dismiss(path)
