"""A question with a few answers, each with its key."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, OptionList, Static
from textual.widgets.option_list import Option as Item

from ....compiler.text.diagnostics import printable
from ...text.handover import HANDOVERS, Handover
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


R = TypeVar("R")


class FileScreen(ModalScreen[R | None]):
    """Ask for the name of a file, and once more before one that exists is replaced; Escape returns None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Close")]

    def __init__(self) -> None:
        super().__init__()
        self._to_replace: Path | None = None

    @abstractmethod
    def result(self, path: Path) -> R | str:
        """What to close with, or what is wrong."""

    def on_input_changed(self) -> None:
        """Another name is another file: ask again before it is replaced."""
        self._to_replace = None

    def on_input_submitted(self) -> None:
        """Close with the file, if that can be."""
        name = self.query_one("#file", Input).value.strip()
        path = typed_path(name)
        found = self.result(path) if name else "Name the file."
        if isinstance(found, str):
            self.say(found)
        elif exists(path) and self._to_replace != path:
            self._to_replace = path
            self.say(f"{path} exists. Enter once more replaces it.")
        else:
            self.dismiss(found)

    def say(self, text: str) -> None:
        """Say something under the name."""
        self.query_one("#say", Static).update(printable(text))


class NameScreen(FileScreen[Path]):
    """Ask for a name and nothing else."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__()
        self._what, self._name = what, name

    def compose(self) -> ComposeResult:
        """An input over a line that says what is wrong."""
        with Vertical(id="handover") as box:
            box.border_title = self._what
            box.border_subtitle = "Enter writes it, Esc closes"
            yield Input(self._name, id="file", compact=True)
            yield Static("", id="say", markup=False)

    def result(self, path: Path) -> Path:
        """The file."""
        return path


# The dialog that writes a file: what to write, its name, and options of a runtime. It never replaces one unasked.


@dataclass(frozen=True, slots=True)
class HandoverWanted:
    """What to write, where to, and the values of its options."""

    handover: Handover
    path: Path
    options: dict[str, str]


class HandoverScreen(FileScreen[HandoverWanted]):
    """Pick a format, name the file."""

    def __init__(self) -> None:
        super().__init__()
        self._handover = HANDOVERS[0]

    def compose(self) -> ComposeResult:
        """A list, two inputs and a line that says what is wrong."""
        with Vertical(id="handover") as box:
            box.border_title = "Write a file"
            box.border_subtitle = "Enter picks, Esc closes"
            yield OptionList(*(Item(_line(each), id=each.name) for each in HANDOVERS), id="formats", markup=False)
            yield Static("File", classes="label")
            yield Input(placeholder="its name", id="file", compact=True)
            yield Input(id="options", compact=True)
            yield Static("", id="say", markup=False)

    def on_mount(self) -> None:
        """Begin with the list."""
        self._pick(HANDOVERS[0])
        self.query_one("#formats").focus()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Offer a name for the file of the format under the cursor."""
        self._pick(next(each for each in HANDOVERS if each.name == event.option.id))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Go on to the name."""
        self.query_one("#file").focus()

    def result(self, path: Path) -> HandoverWanted | str:
        """What is wanted."""
        pairs = [word.partition("=") for word in self.query_one("#options", Input).value.split()]
        if not all(sign for _, sign, _ in pairs):
            return "Options are written NAME=VALUE, with spaces between them."
        return HandoverWanted(self._handover, path, {name: value for name, _, value in pairs})

    def _pick(self, handover: Handover) -> None:
        self._handover, self._to_replace = handover, None
        self.query_one("#file", Input).value = handover.file
        options = self.query_one("#options", Input)
        options.value, options.display = "", bool(handover.options)
        options.placeholder = "options: " + " ".join(
            f"{each.name}={'|'.join(each.values) or '...'}" for each in handover.options
        )
        self.say("It is about the recommended schedule, at this one size." if handover.of_advice else "")


NAME_COLUMNS = max(len(each.name) for each in HANDOVERS)


def _line(handover: Handover) -> Content:
    return Content(f"{handover.name:<{NAME_COLUMNS}} {handover.about}")
