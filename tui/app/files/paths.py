"""Paths that a user types, or that a list remembers: whatever they are, nothing raises. No Textual."""

import os
from pathlib import Path


def typed_path(text: str) -> Path:
    """Return the path of what was typed; ``~`` is the home folder, and stays as it is where that is unknown."""
    return Path(os.path.expanduser(text))


def exists(path: Path) -> bool:
    """Whether there is something at a path, as far as can be seen."""
    return os.path.lexists(path)


def is_file(path: Path) -> bool:
    """Whether there is a file at a path, as far as can be seen."""
    return os.path.isfile(path)
