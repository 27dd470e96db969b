"""The names of the panes with their keys, in one line."""

from textual.content import Content
from textual.widgets import Static

from ..panes import PANES


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
