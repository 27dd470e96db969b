"""Diagnostics: message, place and hint, rendered as text and as JSON; and the report that collects them."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING
from unicodedata import category, east_asian_width

from ..codes import Code

if TYPE_CHECKING:  # the command line reports mistakes before it needs the rest of the compiler
    from ..ir import Rejection


def printable(text: str, *, block: bool = False) -> str:
    """Return ``text`` with control and format characters, lone surrogates and unknown characters as escapes.

    With ``block`` line ends and tabs stay; otherwise the result is one line.
    """
    if block and "\n" in text:  # line by line, because most lines are printable as they are
        return "\n".join(printable(line, block=True) for line in text.split("\n"))
    if text.isprintable():
        return text
    return "".join(
        character if _is_shown(character) or (block and character == "\t") else _escaped(character)
        for character in text
    )


def columns_of(text: str) -> int:
    """Return the columns that printable text takes: two for a wide character, none for a combining mark."""
    if text.isascii():
        return len(text)
    return sum(
        2 if east_asian_width(character) in "WF" else category(character) not in ("Mn", "Me") for character in text
    )


def _is_shown(character: str) -> bool:
    return character.isprintable() or category(character) == "Zs"  # spaces of other widths are harmless


def _escaped(character: str) -> str:
    short = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}.get(character)
    if short is not None:
        return short
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@dataclass(frozen=True, slots=True)
class Location:
    """Line and column, both counted from 1; columns count characters."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Source:
    """One text with the name that diagnostics show for it. Without a newline carriage returns end its lines."""

    path: str
    text: str = field(repr=False)
    _line_starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if "\r" in self.text and "\n" not in self.text:
            object.__setattr__(self, "text", self.text.replace("\r", "\n"))  # as long: offsets stay
        starts = [0] + [at + 1 for at, character in enumerate(self.text) if character == "\n"]
        object.__setattr__(self, "_line_starts", tuple(starts))

    def location(self, offset: int) -> Location:
        """Return the line and column of a character offset."""
        line = bisect_right(self._line_starts, offset)
        return Location(line, offset - self._line_starts[line - 1] + 1)

    def start_of(self, number: int) -> int:
        """Return the offset of the first character of a line, counted from 1."""
        return self._line_starts[number - 1]

    def line(self, number: int) -> str:
        """Return the text of a line, counted from 1, without its end."""
        start = self.start_of(number)
        end = self._line_starts[number] - 1 if number < len(self._line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r")


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open range of character offsets in one source."""

    source: Source
    start: int
    end: int

    @property
    def location(self) -> Location:
        """Line and column of the first character."""
        return self.source.location(self.start)

    @property
    def end_location(self) -> Location:
        """Line and column of the place after the last character."""
        return self.source.location(self.end)

    @property
    def text(self) -> str:
        """The characters of the span."""
        return self.source.text[self.start : self.end]

    def to(self, other: "Span") -> "Span":
        """Return the span from the start of this one to the end of ``other``."""
        return Span(self.source, self.start, max(self.end, other.end))


MAX_SHOWN = 50
CODE_COLUMNS = 160
MAX_ERRORS = 200
MAX_GUESSES = 400
_RED, _BLUE, _BOLD, _PLAIN = "\x1b[31m", "\x1b[36m", "\x1b[1m", "\x1b[0m"


class Severity(Enum):
    """Whether a file with this diagnostic can be used: it can with warnings."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error or warning; ``hint`` says what to write instead and may be empty."""

    code: Code
    message: str
    span: Span
    hint: str = ""
    severity: Severity = Severity.ERROR


class CompileError(Exception):
    """The text has errors; ``diagnostics`` holds one or more, and all warnings, in the order of the text."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        assert any(map(_is_error, self.diagnostics)), "a text is not refused without an error"
        super().__init__(render_text(self.diagnostics))

    @property
    def first(self) -> Diagnostic:
        """The first error."""
        return next(filter(_is_error, self.diagnostics))


def _is_error(diagnostic: Diagnostic) -> bool:
    return diagnostic.severity is Severity.ERROR


class Stopped(Exception):
    """The error is in the report; the nearest ``attempt`` goes on with the next statement."""


class GaveUp(Exception):
    """There are too many errors to go on; they are in ``report``."""

    def __init__(self, report: "Report") -> None:
        super().__init__()
        self.report = report


class Report:
    """The diagnostics of a file while it is compiled; ``num_failures`` counts the attempts that failed.

    After ``MAX_ERRORS`` errors it gives up. Warnings have no limit: a file with many of them is valid.
    ``lost_words`` are the words of statements that could not be read; ``lost_names`` is True if one of them would have
    brought names from other files.
    """

    def __init__(self, is_explained: Callable[[Diagnostic], bool] | None = None) -> None:
        self._found: dict[Diagnostic, None] = {}
        self._num_errors = 0
        self._is_explained = is_explained
        self.lost_words: set[str] = set()
        self.lost_names = False
        self.num_failures = 0

    def silence(self, is_explained: Callable[[Diagnostic], bool]) -> None:
        """Drop further diagnostics for which ``is_explained`` is true: an earlier one is their cause."""
        self._is_explained = is_explained

    def beside(self) -> "Report":
        """Return a new, empty report that drops the same diagnostics; what fills it runs in its ``trial``."""
        return Report(self._is_explained)

    def error(self, code: Code, message: str, span: Span, hint: str = "") -> None:
        """Record an error and go on."""
        self._add(Diagnostic(code, message, span, hint))

    def warn(self, code: Code, message: str, span: Span, hint: str = "") -> None:
        """Record a warning and go on."""
        self._add(Diagnostic(code, message, span, hint, Severity.WARNING))

    def _add(self, diagnostic: Diagnostic) -> None:
        if diagnostic in self._found or (self._is_explained is not None and self._is_explained(diagnostic)):
            return
        self._found[diagnostic] = None
        self._num_errors += diagnostic.severity is Severity.ERROR
        if self._num_errors >= MAX_ERRORS:
            raise GaveUp(self)

    def fail(self, code: Code, message: str, span: Span, hint: str = "") -> Stopped:
        """Record an error, and return what to raise to leave the enclosing ``attempt``."""
        self.error(code, message, span, hint)
        return Stopped()

    def refuse(self, rejection: "Rejection", span: Span) -> Stopped:
        """As ``fail``, with what a check says."""
        return self.fail(rejection.code, rejection.message, span, rejection.hint)

    def require(self, rejection: "Rejection | None", span: Span) -> None:
        """Leave the enclosing ``attempt`` if a check says why."""
        if rejection is not None:
            raise self.refuse(rejection, span)

    def once(self, word: str, seen: set[str], span: Span) -> None:
        """Add ``word`` to those that were ``seen``; leave the enclosing ``attempt`` if it is one of them."""
        if word in seen:
            raise self.fail(Code.MGS206, f"{word} is said twice", span)
        seen.add(word)

    def stop(self) -> Stopped:
        """Return what to raise where a value is needed whose error was reported before."""
        return Stopped()

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Run a block that may ``fail``; code after the block runs in any case."""
        try:
            yield
        except Stopped:
            self.num_failures += 1

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Run a block with attempts in it, and leave the enclosing ``attempt`` behind it if one of them failed."""
        failures = self.num_failures
        yield
        if self.num_failures > failures:
            raise self.stop()

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Run a block as ``attempt`` does, which also ends where this report gives up: another one goes on."""
        with self.attempt():
            try:
                yield
            except GaveUp as given_up:
                if given_up.report is not self:
                    raise
                raise Stopped from None

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All errors and warnings, in the order of the text."""
        return tuple(sorted(self._found, key=lambda diagnostic: (diagnostic.span.source.path, diagnostic.span.start)))

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """All errors."""
        return tuple(filter(_is_error, self._found))

    @property
    def has_errors(self) -> bool:
        """Whether an error was recorded."""
        return self._num_errors > 0


@contextmanager
def raising_errors() -> Iterator[Report]:
    """Give a report to a block, and raise all that it holds if the block stops or leaves errors in it.

    Raises
    ------
    CompileError
        If there are errors.
    """
    report, is_finished = Report(), False
    with report.trial():
        yield report
        is_finished = True
    if report.has_errors or not is_finished:
        raise CompileError(report.diagnostics) from None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean '...'?`` for the closest known word, else an empty text."""
    close = closest(word, known)
    return f"did you mean '{close}'?" if close else ""


def closest(word: str, known: Iterable[str]) -> str:
    """Return the known word that is most like ``word``, empty if none is like it."""
    by_lower = {name.lower(): name for name in islice(known, MAX_GUESSES)}
    close = get_close_matches(word[:64].lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else ""


def listing(words: Iterable[str]) -> str:
    """Join words for a sentence."""
    return ", ".join(words)


def render_text(
    diagnostics: Sequence[Diagnostic], limit: int = MAX_SHOWN, color: bool = False, room: int = CODE_COLUMNS
) -> str:
    """Render ``file:line:col: CODE severity: message``, the source line, carets, and the hint, for each diagnostic.

    At most ``limit`` are shown, errors rather than warnings, and at most ``room`` columns of a source line.
    """
    errors_first = sorted(range(len(diagnostics)), key=lambda idx: not _is_error(diagnostics[idx]))
    parts = [_render_one(diagnostics[idx], color, room) for idx in sorted(errors_first[:limit])]
    if len(diagnostics) > limit:
        parts.append(f"and {len(diagnostics) - limit} more")
    return "\n".join(parts)


def _render_one(diagnostic: Diagnostic, color: bool, room: int) -> str:
    def paint(text: str, *styles: str) -> str:
        return "".join(styles) + text + _PLAIN if color else text

    at = diagnostic.span.location
    tint = _RED if diagnostic.severity is Severity.ERROR else _BLUE
    head = f"{printable(diagnostic.span.source.path)}:{at.line}:{at.column}: "
    lines = [
        head
        + paint(f"{diagnostic.code.name} {diagnostic.severity.value}: ", tint, _BOLD)
        + printable(diagnostic.message)
    ]
    text = diagnostic.span.source.line(at.line)
    if text.strip():
        shown, before, width = _window(text, at.column - 1, diagnostic.span.end - diagnostic.span.start, room)
        lines += [f"  {shown}", "  " + " " * before + paint("^" * width, tint)]
    if diagnostic.hint:
        lines.append(f"  help: {printable(diagnostic.hint)}")
    return "\n".join(lines)


def _window(text: str, column: int, width: int, room: int) -> tuple[str, int, int]:
    """Cut a line to at most ``room`` columns around the place; return it with position and width of the carets."""
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


def as_json(diagnostic: Diagnostic) -> dict[str, str | int]:
    """Return one diagnostic as a JSON object; lines and columns count from 1, the end is after the last character."""
    start, end = diagnostic.span.location, diagnostic.span.end_location
    return {
        "code": diagnostic.code.name,
        "severity": diagnostic.severity.value,
        "message": diagnostic.message,
        "hint": diagnostic.hint,
        "file": diagnostic.span.source.path,
        "line": start.line,
        "column": start.column,
        "end_line": end.line,
        "end_column": end.column,
    }
