"""A file that is being edited: what is on disk, what changed there meanwhile, and a copy that outlives a crash.

No Textual. Nothing raises: what cannot be done is returned as a sentence.
"""

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from ....compiler.text.diagnostics import CompileError, Report
from ....compiler.text.load import read_source, real_path
from ....compiler.text.writing import write_whole
from .paths import exists
from .state import user_folder

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
