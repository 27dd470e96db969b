"""A text area that colours the language, underlines mistakes, and takes what is offered."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.geometry import Offset
from textual.message import Message
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from ....compiler.services.completion import Completion, Completions
from ....compiler.services.document import Colour, colours
from ....compiler.text.diagnostics import Diagnostic, Severity, Source, Span, printable

_TAKES = ("enter", "tab")
_STEPS = {"up": -1, "down": 1, "pageup": -7, "pagedown": 7}
_INDENT = 2


@dataclass(frozen=True, slots=True)
class _Styled:
    start: int
    end: int | None
    name: str


class CodeArea(TextArea):
    """The text of a scenario. ``offering`` is set by the editor while there is something to take."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"code--{colour.value}" for colour in Colour} | {
        "code--error",
        "code--warning",
    }

    @dataclass
    class OfferKey(Message):
        """A key for the list of what is offered: ``take``, ``close``, or a number of rows to move."""

        what: str
        rows: int = 0

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, theme="css", show_line_numbers=True, soft_wrap=False, tab_behavior="focus")
        self.offering = False
        self.indent_width = _INDENT
        self.highlight_cursor_line = False  # it would paint over the colours
        self._coloured = ""
        self._styled: dict[int, list[_Styled]] = defaultdict(list)
        self._wrong: dict[int, list[_Styled]] = defaultdict(list)

    def colour(self) -> None:
        """Colour the text if it is not the one that was coloured last; draw all of it again if other lines change."""
        text = self.text.replace("\r\n", "\n")
        if text == self._coloured:
            return
        before, row = self._styled, self.cursor_location[0]
        self._coloured, self._styled = text, defaultdict(list)
        source = Source("", text)
        for each in colours(text):
            self._add(self._styled, Span(source, each.start, each.end), f"code--{each.colour.value}")
        if any(
            before.get(line) != self._styled.get(line) for line in before.keys() | self._styled.keys() if line != row
        ):
            self._draw_again()

    def mark(self, diagnostics: Sequence[Diagnostic]) -> None:
        """Underline mistakes."""
        before, self._wrong = self._wrong, defaultdict(list)
        for each in diagnostics:
            name = "code--error" if each.severity is Severity.ERROR else "code--warning"
            self._add(self._wrong, each.span, name)
        if self._wrong != before:
            self._draw_again()

    def _draw_again(self) -> None:
        self.notify_style_update()  # drops lines that are kept as they were drawn
        self.refresh()

    def get_line(self, line_index: int) -> Text:
        """Return a line with its colours; control characters are shown as pictures of the same width."""
        self.colour()
        line = super().get_line(line_index)
        shown = "".join(map(_picture, line.plain)) if not line.plain.isprintable() else line.plain
        text = Text(shown, end="", no_wrap=True)
        for each in (*self._styled.get(line_index, ()), *self._wrong.get(line_index, ())):
            text.stylize(self.get_component_rich_style(each.name, partial=True), each.start, each.end)
        return text

    async def on_key(self, event: events.Key) -> None:
        """Give keys to the list while it is open; indent a new line like the one before."""
        if self.offering and (event.key in _TAKES or event.key in _STEPS or event.key == "escape"):
            what = "take" if event.key in _TAKES else "close" if event.key == "escape" else "move"
            event.prevent_default()
            event.stop()
            self.post_message(self.OfferKey(what, _STEPS.get(event.key, 0)))
        elif event.key == "enter" and not self.read_only:
            event.prevent_default()
            event.stop()
            self._new_line()
        elif event.key == "tab" and not self.read_only:
            event.prevent_default()
            event.stop()
            self.insert(" " * _INDENT)

    def _new_line(self) -> None:
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        indent = len(before) - len(before.lstrip(" "))
        opens = before.rstrip().endswith("{")
        self.replace("\n" + " " * (indent + _INDENT * opens), *self.selection)

    @staticmethod
    def _add(styled: dict[int, list[_Styled]], span: Span, name: str) -> None:
        """Add a span, cut at the end of its first line."""
        start, end = span.location, span.end_location
        stop = end.column - 1 if end.line == start.line else None
        stop = start.column if stop is not None and stop < start.column else stop
        styled[start.line - 1].append(_Styled(start.column - 1, stop, name))


def _picture(character: str) -> str:
    r"""Return a control character as the picture that Unicode has of it, others without a shape as U+FFFD."""
    code = ord(character)
    if character == "\t" or character.isprintable():
        return character
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"


MAX_SHOWN = 8


class CompletionList(OptionList, can_focus=False):
    """What may be written at the cursor; the editor moves through it and takes one."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, markup=False)
        self._found: Completions | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is something to take."""
        return self._found is not None

    @property
    def found(self) -> Completions | None:
        """What is offered."""
        return self._found

    @property
    def picked(self) -> Completion | None:
        """The highlighted one."""
        if self._found is None or self.highlighted is None:
            return None
        return self._found.matching[self.highlighted]

    def offer(self, found: Completions, at: Offset) -> None:
        """Show what matches below ``at``, a place on the screen; close if that is nothing new."""
        matching = found.matching
        if not matching or [each.text for each in matching] == [found.prefix]:
            self.close()
            return
        self._found = found
        self.clear_options()
        width = max(len(each.text) for each in matching)
        self.add_options([Option(f"{printable(each.text):{width}}  {each.detail}".rstrip()) for each in matching])
        self.highlighted = 0
        self.styles.height = min(MAX_SHOWN, len(matching)) + 2
        self.absolute_offset = at
        self.display = True

    def close(self) -> None:
        """Offer nothing."""
        self._found = None
        self.display = False

    def step(self, rows: int) -> None:
        """Highlight another one, around the ends."""
        if self._found is not None and self.highlighted is not None:
            self.highlighted = (self.highlighted + rows) % len(self._found.matching)
