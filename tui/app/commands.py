"""What the command palette offers beside Textual's own commands: panes, workloads, files, themes."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.command import DiscoveryHit, Hit, Hits, Provider

from ...compiler.text.printable import printable
from .panes import PANES
from .themes import THEMES

if TYPE_CHECKING:
    from .app import MagusApp

Command = tuple[str, str, Callable[[], object]]
"""What is typed, what it does, and how."""


class MagusCommands(Provider):
    """Commands of the screen."""

    async def discover(self) -> Hits:
        """Offer all of them."""
        for name, what, action in self._commands():
            yield DiscoveryHit(name, action, help=what)

    async def search(self, query: str) -> Hits:
        """Offer those that match."""
        matcher = self.matcher(query)
        for name, what, action in self._commands():
            score = matcher.match(name)
            if score > 0:
                yield Hit(score, matcher.highlight(name), action, help=what)

    def _commands(self) -> Iterator[Command]:
        app: MagusApp = self.app  # type: ignore[assignment]
        for idx, pane in enumerate(PANES):
            yield f"Pane: {pane.title}", f"Bring it to the front, key {idx + 1}", partial(app.action_pane, idx)
        for idx, job in enumerate(app.session.jobs if len(app.session.jobs) > 1 else ()):
            yield (
                f"Workload: {printable(job.scenario.name)}",
                "Show this workload of the file",
                partial(app.work.show_workload, idx),
            )
        yield "Open a file", "Recent files and the shipped examples, key o", app.action_browse
        for path in map(Path, app.state.recent):
            if path != app.session.path.absolute():
                yield f"Open: {printable(path.name)}", printable(str(path)), partial(app.open_file, path)
        for theme in THEMES:
            yield (
                f"Theme: {theme.name.removeprefix('magus-')}",
                "Colours of the screen",
                partial(app.use_theme, theme.name),
            )
        yield "Read the file again", "Key e", app.action_reload
        yield "Details", "Figures, confidence and marks on a small screen, key d", app.action_details
        if app.check_action("report", ()):
            yield "Write a report", "The answer on screen as a page to send, key W", app.action_report
        yield "Keys and signs", "Key ?", app.action_help
