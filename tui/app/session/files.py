"""A file that is being edited, and the files that a scenario is read from, as they change on disk. No Textual."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from ....compiler.services.context import tokens_of
from ....compiler.text.diagnostics import CompileError, Report, Source
from ....compiler.text.load import load, path_inside, read_source, real_path
from ....compiler.text.writing import write_whole
from .listed_files import exists, user_folder

LINE_ENDS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""Characters at which an editor ends a line and the language does not."""


class OnDisk(Enum):
    """What has become of the file since it was read or saved."""

    SAME = auto()
    CHANGED = auto()
    GONE = auto()
    UNREADABLE = auto()


@dataclass(slots=True)
class EditedFile:
    """The text of ``path`` as it was last read or saved, and the folder that keeps unsaved texts.

    ``problem`` says why it could not be read.
    """

    path: Path
    folder: Path
    saved: str = ""
    problem: str = ""

    def read(self) -> str:
        """Read the file and return its text; empty, with a ``problem``, where there is none."""
        text = _text_of(self.path)
        self.problem = text.problem
        self.saved = text.content
        return self.saved

    def save(self, text: str) -> str:
        """Write ``text``; return why that failed, empty if it is written."""
        try:
            write_whole(self.path, text)
        except OSError as error:
            return f"not saved: {error.strerror or error}; your text is kept"
        self.saved, self.problem = text, ""
        self.forget()
        return ""

    def on_disk(self) -> OnDisk:
        """Compare the file with what was last read or saved."""
        text = _text_of(self.path)
        if text.problem:
            return OnDisk.UNREADABLE if exists(self.path) else OnDisk.GONE
        return OnDisk.SAME if text.content == self.saved else OnDisk.CHANGED

    # The copy that outlives a crash.

    def keep(self, text: str) -> None:
        """Keep an unsaved text; a folder that cannot be written keeps none."""
        document = {"path": str(real_path(self.path)), "text": text}
        with suppress(OSError):
            self._copy.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._copy, json.dumps(document))

    def kept(self) -> str | None:
        """Return the unsaved text that was kept, None if there is none that differs from the file."""
        try:
            document = json.loads(self._copy.read_text(encoding="utf-8"))
            text = document["text"] if document["path"] == str(real_path(self.path)) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return text if isinstance(text, str) and text != self.saved else None

    def forget(self) -> None:
        """Drop what was kept: it is saved, or not wanted."""
        with suppress(OSError):
            self._copy.unlink()

    @property
    def _copy(self) -> Path:
        name = hashlib.sha256(str(real_path(self.path)).encode("utf-8", "replace")).hexdigest()[:32]
        return self.folder / f"{name}.json"


def recovery_folder() -> Path:
    """Return the folder of unsaved texts in the user's state folder."""
    return user_folder() / "unsaved"


def can_edit(text: str) -> bool:
    """Whether an editor keeps every character of a text: its lines end as the language's do."""
    return not any(character in LINE_ENDS for character in text) and "\r" not in text.replace("\r\n", "")


@dataclass(frozen=True, slots=True)
class _Text:
    content: str
    problem: str = ""


def _text_of(path: Path) -> _Text:
    report = Report()
    with report.trial():
        return _Text(read_source(path, report).text)
    return _Text("", CompileError(report.diagnostics).first.message)


MAX_WATCHED = 256
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
        return (path, *(each for each in others if each != real_path(path)))[:MAX_WATCHED]
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
