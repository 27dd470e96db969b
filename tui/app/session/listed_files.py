"""Paths that a user types, files to open, and what the screen remembers of them. No Textual."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from platformdirs import user_state_path

from .... import examples
from ....compiler.text.diagnostics import printable
from ....compiler.text.writing import replace_whole


def typed_path(text: str) -> Path:
    """Return the path of what was typed; ``~`` is the home folder, and stays as it is where that is unknown."""
    return Path(os.path.expanduser(text))


def exists(path: Path) -> bool:
    """Whether there is something at a path, as far as can be seen."""
    return os.path.lexists(path)


def is_file(path: Path) -> bool:
    """Whether there is a file at a path, as far as can be seen."""
    return os.path.isfile(path)


MAX_LISTED = 500


HEAD_BYTES = 4096


SUFFIX = ".mgs"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file with its name and what its first comment says; ``group`` is the heading that it stands under."""

    path: Path
    name: str
    about: str
    group: str


def entries(folder: Path | None, recent: Sequence[str]) -> tuple[FileEntry, ...]:
    """Return the files of a folder; without one recent files and the examples.

    Raises
    ------
    OSError
        If the folder cannot be read.
    """
    if folder is not None:
        return tuple(_of_folder(folder))
    return (*_recent(recent), *_examples())


def _of_folder(folder: Path) -> Iterator[FileEntry]:
    files = sorted(each for each in folder.iterdir() if each.suffix == SUFFIX and is_file(each))
    for path in files[:MAX_LISTED]:
        yield FileEntry(path, path.name, about(path), f"{folder}")


def _recent(recent: Sequence[str]) -> Iterator[FileEntry]:
    for path in map(Path, recent):
        if is_file(path):
            yield FileEntry(path, f"{path.parent.name}/{path.name}", about(path), "Recent files")


def _examples() -> Iterator[FileEntry]:
    groups = (
        ("Examples", examples.NAMES),
        ("Layers", examples.LAYERS),
        ("Templates", examples.TEMPLATES),
        ("Papers", examples.PAPERS),
    )
    for group, names in groups:
        for name in names:
            path = examples.path(name)
            yield FileEntry(path, name.rpartition("/")[2], about(path), group)


def about(path: Path) -> str:
    """Return the comment at the top of a file, else the title of its first workload; empty where there is neither."""
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
    for line in head.splitlines():
        if line.startswith("#") and line.strip("# "):
            return printable(line.strip("# "))
        if line.strip("# ") and not line.startswith("mgs "):
            break
    title = re.search(r'about "([^"\n]*)"', head)
    return printable(title[1]) if title is not None else ""


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
