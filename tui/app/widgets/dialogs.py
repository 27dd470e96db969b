"""A question with a few answers, each with its key."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from ....compiler.text.diagnostics import printable
from ..session.listed_files import exists, typed_path


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: the key that gives it, and its words."""

    key: str
    words: str


class AskScreen(ModalScreen[str]):
    """Ask, and return the key of the answer; escape returns an empty text: nothing is done."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give('')", "Back"),
        Binding("left,up", "app.focus_previous", show=False, priority=True),
        Binding("right,down,tab", "app.focus_next", show=False, priority=True),
    ]

    def __init__(self, question: str, answers: Sequence[Answer]) -> None:
        super().__init__()
        self._question, self._answers = question, tuple(answers)

    def compose(self) -> ComposeResult:
        """The question over its answers."""
        with Vertical(id="ask"):
            yield Static(printable(self._question), markup=False)
            with Horizontal():
                for answer in self._answers:
                    yield Button(f"{answer.words} ({answer.key})", id=f"answer-{answer.key}", compact=True)
                yield Button("Back (esc)", id="answer-", compact=True)

    def on_key(self, event: events.Key) -> None:
        """Answer by key."""
        if event.key in [answer.key for answer in self._answers]:
            event.stop()
            self.dismiss(event.key)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer by mouse, or by enter."""
        self.dismiss((event.button.id or "").removeprefix("answer-"))

    def action_give(self, key: str) -> None:
        """Return an answer."""
        self.dismiss(key)


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
