"""What the screen remembers from one run to the next: recent files, theme and pane. No Textual.

The file may be anything: what is not as expected is ignored.
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from platformdirs import user_state_path

from ....compiler.text.writing import replace_whole

FOLDER_VARIABLE = "MAGUS_STATE_DIR"
FILE = "tui.json"
MAX_BYTES, MAX_RECENT, MAX_TEXT = 1 << 16, 12, 4096


@dataclass(frozen=True, slots=True)
class ScreenState:
    """``recent`` are absolute paths, the last one first; ``theme`` and ``pane`` are names, empty if none is known."""

    recent: tuple[str, ...] = ()
    theme: str = ""
    pane: str = ""

    def opened(self, path: Path) -> "ScreenState":
        """Return the state with a file as the last one that was opened."""
        name = str(path.absolute())
        others = tuple(each for each in self.recent if each != name)
        return replace(self, recent=(name, *others)[:MAX_RECENT])


def user_folder() -> Path:
    """Return the folder of the state: ``MAGUS_STATE_DIR``, else in the user's state folder."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else user_state_path("magus", appauthor=False)


def load(folder: Path | None) -> ScreenState:
    """Return what is remembered in a folder; what is broken, or of another form, is not."""
    if folder is None:
        return ScreenState()
    try:
        with (folder / FILE).open("rb") as stream:
            data = json.loads(stream.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return ScreenState()
    if not isinstance(data, dict):
        return ScreenState()
    recent = data.get("recent")
    paths = [each for each in recent if _is_text(each) and each] if isinstance(recent, list) else []
    theme, pane = (each if _is_text(each) else "" for each in (data.get("theme"), data.get("pane")))
    return ScreenState(tuple(paths[:MAX_RECENT]), str(theme), str(pane))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT and "\0" not in value


def save(folder: Path | None, state: ScreenState) -> None:
    """Remember a state; where that is not possible nothing is remembered."""
    if folder is not None:
        data = {"recent": list(state.recent), "theme": state.theme, "pane": state.pane}
        with suppress(OSError, ValueError):
            folder.mkdir(parents=True, exist_ok=True)
            replace_whole(folder / FILE, json.dumps(data, indent=2).encode("utf-8", "backslashreplace") + b"\n")
