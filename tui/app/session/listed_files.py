"""Paths that a user types, and files to open: lately opened, of a folder, and shipped examples. No Textual."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .... import examples
from ....compiler.text.diagnostics import printable


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
