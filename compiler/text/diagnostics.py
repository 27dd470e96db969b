"""Diagnostics: what is wrong, where, and what to write instead; as text and as JSON."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from itertools import islice

from ..codes import Code
from .printable import columns_of, printable
from .source import Span

SHOWN = 50
CODE_COLUMNS = 160
MAX_ERRORS = 200
MAX_GUESSES = 400
_RED, _BLUE, _BOLD, _PLAIN = "\x1b[31m", "\x1b[36m", "\x1b[1m", "\x1b[0m"


class Severity(Enum):
    """Whether a file with this diagnostic can be used."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding; ``hint`` says what to write instead and may be empty."""

    code: Code
    message: str
    span: Span
    hint: str = ""
    severity: Severity = Severity.ERROR


class CompileError(Exception):
    """The text is wrong; ``diagnostics`` holds everything that was found, in the order of the text."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__(render_text(self.diagnostics))


class Stopped(Exception):
    """The error is in the report; the nearest ``attempt`` goes on with the next statement."""


class GaveUp(Exception):
    """There are so many errors that looking for more is of no use; they are in the report."""


class Report:
    """Collects diagnostics while a file is compiled; ``num_failures`` counts the attempts that were left.

    ``lost_words`` are those of statements that could not be read; with ``lost_names`` one of them would have brought
    names from elsewhere.
    """

    def __init__(self, explained: Callable[[Diagnostic], bool] | None = None) -> None:
        self._found: dict[Diagnostic, None] = {}
        self._explained = explained
        self.lost_words: set[str] = set()
        self.lost_names = False
        self.num_failures = 0

    def silence(self, explained: Callable[[Diagnostic], bool]) -> None:
        """Leave out further findings of which ``explained`` says that something told before is their cause."""
        self._explained = explained

    def beside(self) -> "Report":
        """A new report that leaves out the same."""
        return Report(self._explained)

    def error(self, code: Code, message: str, span: Span, hint: str = "") -> None:
        """Record an error and go on."""
        self._add(Diagnostic(code, message, span, hint))

    def warn(self, code: Code, message: str, span: Span, hint: str = "") -> None:
        """Record a warning and go on."""
        self._add(Diagnostic(code, message, span, hint, Severity.WARNING))

    def _add(self, found: Diagnostic) -> None:
        if self._explained is None or not self._explained(found):
            self._found[found] = None
        if len(self._found) >= MAX_ERRORS:
            raise GaveUp

    def fail(self, code: Code, message: str, span: Span, hint: str = "") -> Stopped:
        """Record an error, and return what to raise to leave the enclosing ``attempt``."""
        self.error(code, message, span, hint)
        return Stopped()

    def stop(self) -> Stopped:
        """Return what to raise where something is needed that was reported as wrong before."""
        return Stopped()

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Run a block that may ``fail``; what follows the block runs in any case."""
        try:
            yield
        except Stopped:
            self.num_failures += 1

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All findings, in the order of the text."""
        return tuple(sorted(self._found, key=lambda found: (found.span.source.path, found.span.start)))

    @property
    def has_errors(self) -> bool:
        """Whether an error was recorded."""
        return any(found.severity is Severity.ERROR for found in self._found)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean '...'?`` for the closest known word, else an empty text."""
    by_lower = {name.lower(): name for name in islice(known, MAX_GUESSES)}
    close = get_close_matches(word[:64].lower(), by_lower, n=1, cutoff=0.6)
    return f"did you mean '{by_lower[close[0]]}'?" if close else ""


def listing(words: Iterable[str]) -> str:
    """Join words for a sentence."""
    return ", ".join(words)


def render_text(
    diagnostics: Sequence[Diagnostic], limit: int = SHOWN, color: bool = False, room: int = CODE_COLUMNS
) -> str:
    """Render ``file:line:col: CODE severity: message``, the source line, carets, and the hint, for each diagnostic.

    Of a source line at most ``room`` columns are shown.
    """
    parts = [_render_one(found, color, room) for found in diagnostics[:limit]]
    if len(diagnostics) > limit:
        parts.append(f"and {len(diagnostics) - limit} more")
    return "\n".join(parts)


def _render_one(found: Diagnostic, color: bool, room: int) -> str:
    def paint(text: str, *styles: str) -> str:
        return "".join(styles) + text + _PLAIN if color else text

    at = found.span.location
    tint = _RED if found.severity is Severity.ERROR else _BLUE
    head = f"{printable(found.span.source.path)}:{at.line}:{at.column}: "
    lines = [head + paint(f"{found.code.name} {found.severity.value}: ", tint, _BOLD) + printable(found.message)]
    text = found.span.source.line(at.line)
    if text.strip():
        shown, before, width = _window(text, at.column - 1, found.span.end - found.span.start, room)
        lines += [f"  {shown}", "  " + " " * before + paint("^" * width, tint)]
    if found.hint:
        lines.append(f"  help: {printable(found.hint)}")
    return "\n".join(lines)


def _window(text: str, column: int, width: int, room: int) -> tuple[str, int, int]:
    """Cut a line that does not fit a terminal to the part around the place, and keep the carets inside it."""
    before, marked, after = (
        printable(part.replace("\t", " "))
        for part in (
            text[max(0, column - room) : column],
            text[column : column + min(width, room)],
            text[column + min(width, room) : column + width + room],
        )
    )
    whole = before + marked + after
    start = max(0, len(before) - room // 2) if len(whole) > room else 0
    shown, place = whole[start : start + room], len(before) - start
    return shown, columns_of(shown[:place]), max(1, columns_of(shown[place : place + len(marked)]))


def as_json(found: Diagnostic) -> dict[str, str | int]:
    """Return one diagnostic as a JSON object; lines and columns count from 1, the end is after the last character."""
    start, end = found.span.location, found.span.end_location
    return {
        "code": found.code.name,
        "severity": found.severity.value,
        "message": found.message,
        "hint": found.hint,
        "file": found.span.source.path,
        "line": start.line,
        "column": start.column,
        "end_line": end.line,
        "end_column": end.column,
    }
