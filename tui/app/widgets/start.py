"""The start: a list of files to open, narrowed by what is typed; and the names of the panes, in one line."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.keys import format_key
from textual.screen import ModalScreen, Screen
from textual.style import Style
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ....compiler.text.diagnostics import columns_of, printable
from ..panes import PANES
from ..session.listed_files import FileEntry, entries


class PaneTabs(Static):
    """One name for each pane; that of the one in front stands out."""

    _front_idx = 0

    def show(self, front_idx: int) -> None:
        """Let the name of a pane stand out."""
        self._front_idx = front_idx
        self._draw()

    def on_resize(self) -> None:
        """Name the panes again: how long their names may be depends on the width."""
        self._draw()

    def _draw(self) -> None:
        """Where there is no room, all names but that in front in fewer letters."""
        titles = [pane.title for pane in PANES]
        longest = max(map(len, titles))
        for letters in range(longest, 0, -1):
            names = [
                f"{idx + 1} {title if idx == self._front_idx else title[:letters].rstrip()}"
                for idx, title in enumerate(titles)
            ]
            if sum(map(len, names)) + len(names) + 1 <= self.app.size.width:
                break
        parts: list[str | tuple[str, str]] = []
        for idx, name in enumerate(names):
            parts += [(name, "reverse bold" if idx == self._front_idx else "dim"), " "]
        self.update(Content.assemble(*parts), layout=False)


NAME_COLUMNS = 26
HEAD = "magus: which overlap schedule to use, what it gains, and how we know"
NOTHING = "no file matches; Backspace widens the list"
EMPTY = "no .mgs files here; magus tui alone lists the shipped examples"


class KeyLine(Static):
    """The keys of a screen in one line; a click on one presses it.

    Textual's footer has a widget for each key, and makes, styles and lays out all of them anew when one changes.
    """

    def __init__(self) -> None:
        super().__init__(id="keys", markup=False)

    def on_mount(self) -> None:
        """Hear of keys that come and go."""
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.call_after_refresh(self._draw))

    def on_click(self, event: events.Click) -> None:
        """Press the key under the mouse."""
        key = event.style.meta.get("key")
        if key is not None:
            self.app.simulate_key(key)

    def _draw(self) -> None:
        if not self.is_attached:
            return
        keys, content = dict[str, Binding](), Content()
        for each in self.screen.active_bindings.values():
            if each.binding.show and each.enabled:
                keys.setdefault(each.binding.action, each.binding)
        for binding in keys.values():
            display = self.app.get_key_display(binding)
            key = Content.styled(display, "bold $footer-key-foreground") + Content(f" {binding.description}")
            content += key.stylize(Style.from_meta({"key": binding.key})) + Content(" ")
        if content != self.content:
            self.update(content, layout=False)


class StartScreen(Screen[Path | None]):
    """Files of a folder, or recent files and the shipped examples; the result is the file to open."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", priority=True),
        Binding("up", "move(-1)", "Up", show=False, priority=True),
        Binding("down", "move(1)", "Down", key_display="↑ ↓", priority=True),
        Binding("pageup", "move(-10)", "Up", show=False, priority=True),
        Binding("pagedown", "move(10)", "Down", show=False, priority=True),
        Binding("escape", "leave", "Back"),
        Binding("ctrl+q", "app.quit", "Quit"),
        Binding("tab", "move(1)", "Next", show=False, priority=True),
    ]

    def __init__(self, folder: Path | None, recent: tuple[str, ...], *, can_leave: bool) -> None:
        super().__init__()
        self._folder, self._recent, self._can_leave = folder, recent, can_leave
        self._entries: tuple[FileEntry, ...] = ()
        self._problem = ""

    def compose(self) -> ComposeResult:
        """A head, what is typed, and the list."""
        yield Static(HEAD, id="start-head", markup=False)
        yield Input(id="start-filter", compact=True, placeholder="type to narrow the list")
        yield OptionList(id="start-files", markup=False)
        yield KeyLine()

    def on_mount(self) -> None:
        """List the files; a folder that cannot be read is said."""
        try:
            self._entries = entries(self._folder, self._recent)
        except OSError as error:
            self._problem = f"{error.strerror or error}: {printable(str(self._folder))}"
        self._fill("")
        self.query_one(Input).focus()

    @property
    def _list(self) -> OptionList:
        return self.query_one(OptionList)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow the list."""
        self._fill(event.value)

    def on_resize(self) -> None:
        """Fill again: what files are about gets the rest of the width."""
        self._fill(self.query_one(Input).value)

    def _fill(self, typed: str) -> None:
        words = typed.lower().split()
        found = [each for each in self._entries if all(word in f"{each.name} {each.about}".lower() for word in words)]
        self._list.clear_options()
        group = ""
        for entry in found:
            if entry.group != group:
                group = entry.group
                self._list.add_option(Option(Text(f" {printable(group)}", style="bold underline"), disabled=True))
            self._list.add_option(Option(_line(entry, self.size.width), id=str(self._entries.index(entry))))
        if not found:
            text = self._problem or (NOTHING if self._entries else EMPTY)
            self._list.add_option(Option(Text(f" {text}"), disabled=True))
        self._list.action_first()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open the file that was clicked."""
        if event.option_id is not None:
            self.dismiss(self._entries[int(event.option_id)].path)

    def action_open(self) -> None:
        """Open the file under the cursor."""
        self._list.action_select()

    def action_move(self, steps: int) -> None:
        """Move the cursor."""
        move = self._list.action_cursor_down if steps > 0 else self._list.action_cursor_up
        for _ in range(abs(steps)):
            at = self._list.highlighted
            move()
            if abs(steps) > 1 and self._wrapped(at, steps):
                break

    def _wrapped(self, before: int | None, steps: int) -> bool:
        now = self._list.highlighted
        return before is not None and now is not None and (now - before) * steps < 0

    def action_leave(self) -> None:
        """Go back to the file that is open, or end."""
        if self._can_leave:
            self.dismiss(None)
        else:
            self.app.exit()


def _line(entry: FileEntry, width: int) -> Text:
    name = printable(entry.name)
    pad = " " * max(1, NAME_COLUMNS - columns_of(name))
    text = Text(f"   {name}{pad}", no_wrap=True, overflow="ellipsis")
    text.append(entry.about, style="dim")
    text.truncate(max(1, width - 6), overflow="ellipsis")
    return text


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
