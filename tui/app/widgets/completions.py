"""The list of what may be written, under the cursor."""

from textual.geometry import Offset
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ....compiler.services.completion import Completion, Completions
from ....compiler.text.printable import printable

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
