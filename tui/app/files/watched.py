"""The files that a scenario is read from, and which of them have changed on disk. No Textual."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from ....compiler.services.context import tokens_of
from ....compiler.text.diagnostics import Report
from ....compiler.text.load import load, path_inside, read_source, real_path
from ....compiler.text.source import Source

MAX_FILES = 256
Stamp = tuple[int, int, int] | None
"""What changes when the content of a file does: its time, size and number; None if there is no file."""


class Watched:
    """Files with their stamps when they were first watched, or last looked at."""

    def __init__(self, files: Iterable[Path] = ()) -> None:
        self._stamps: dict[Path, Stamp] = {path: _stamp(path) for path in files}

    def follow(self, files: "Watched") -> None:
        """Watch these files and no others; of those watched before no change is missed."""
        self._stamps = {path: self._stamps.get(path, found) for path, found in files._stamps.items()}

    def changed(self) -> dict[Path, bool]:
        """Return the files that have changed since the last look, with whether they are there."""
        now = {path: _stamp(path) for path in self._stamps}
        before, self._stamps = self._stamps, now
        return {path: found is not None for path, found in now.items() if found != before[path]}


def files_of(path: Path) -> tuple[Path, ...]:
    """Return a file, those that it includes, and those that a text in them names, such as plans and profiles."""
    report = Report()
    with report.trial():
        scope = load(read_source(path, report), report)
        folder = real_path(path).parent
        named = (each for tree in scope.trees for each in _named(tree.span.source, folder))
        others = dict.fromkeys((*sorted(scope.files), *named))
        return (path, *(each for each in others if each != real_path(path)))[:MAX_FILES]
    return (path,)


def _named(source: Source, folder: Path) -> Iterator[Path]:
    for token in tokens_of(source):
        if token.type == "TEXT":
            path = path_inside(folder, token.strip('"'), real_path(Path(source.path)).parent)
            if path is not None:
                yield path


def _stamp(path: Path) -> Stamp:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
