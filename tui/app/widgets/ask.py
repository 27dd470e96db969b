"""A question with a few answers, each with its key."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from ....compiler.text.printable import printable


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
