"""Read files: the main file, the files it includes, and the shipped libraries it uses.

No file outside the folder of the main file is read, except the library that ships with Magus.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from os.path import isdir
from pathlib import Path
from typing import BinaryIO

from ..codes import CONSEQUENCES, Code
from . import syntax as ast
from .diagnostics import Diagnostic, Report, Source, Span, Stopped, did_you_mean
from .names import Entry, Kind, Scope, library_text, shipped_libraries, within, words_in
from .parsing.parse import MAX_BYTES, parse_file
from .parsing.tokens import MAX_TOKENS
from .units import bytes_text


@dataclass(frozen=True, slots=True)
class MissingText:
    """Text that is missing after parsing.

    ``words`` are those of statements that did not parse; ``damaged`` and ``places`` are the names and spans of the
    declarations with such statements. With ``everything`` any name may be missing: a whole file or library was not
    read.
    """

    words: frozenset[str]
    damaged: frozenset[str]
    places: tuple[Span, ...]
    everything: bool

    @classmethod
    def of(cls, report: Report, entries: Iterable[Entry]) -> "MissingText":
        """Collect the missing text from the errors of parsing in ``report``."""
        errors = [diagnostic.span for diagnostic in report.diagnostics]
        damaged = [entry for entry in entries if any(within(error, entry.declaration.span) for error in errors)]
        lines = [words_in(_line(error)) for error in errors]
        words = frozenset(report.lost_words).union(*lines)
        spans = tuple(entry.declaration.span for entry in damaged)
        everything = report.lost_names or report.num_failures > 0
        return cls(words, frozenset(entry.name for entry in damaged), spans, everything)

    def explains(self, diagnostic: Diagnostic) -> bool:
        """Whether ``diagnostic`` may only follow from missing text."""
        if diagnostic.code not in CONSEQUENCES:
            return False
        if self.everything or any(within(diagnostic.span, place) for place in self.places):
            return True
        missing = {Code.MGS203: self.words, Code.MGS209: self.damaged}.get(diagnostic.code, frozenset())
        return not missing.isdisjoint(words_in(diagnostic.span))


def _line(span: Span) -> Span:
    """Return the line in which ``span`` begins."""
    source, start = span.source, span.source.text.rfind("\n", 0, span.start) + 1
    stop = source.text.find("\n", span.start)
    return Span(source, start, stop if stop >= 0 else len(source.text))


MAX_INCLUDES = 64
MAX_DEPTH = 16
LANGUAGE_VERSION = 1


def read_source(path: Path, report: Report, span: Span | None = None, max_bytes: int = MAX_BYTES) -> Source:
    """Read a file; errors are reported at ``span``, or without one at the file itself."""
    blamed = span or Span(Source(str(path), ""), 0, 0)
    try:
        size = path.stat().st_size
        if path.is_file() and size > max_bytes:
            raise report.fail(Code.MGS130, f"'{path.name}' is larger than {bytes_text(max_bytes)}", blamed)
        if path.exists() and not path.is_file():
            raise unreadable(path, report, blamed)
        with path.open("rb") as stream:
            data = stream.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        raise unreadable(path, report, blamed, error) from None
    return _decoded(data, str(path), path.name, report, blamed)


def unreadable(path: Path, report: Report, span: Span, error: OSError | ValueError | None = None) -> Stopped:
    """Report at ``span`` that a file cannot be read: it is a folder or a device, or for an ``error`` of the system."""
    if isdir(path):  # a Path raises where one may not look
        hint = "an empty name stands for it too" if str(path) == "." else ""
        return report.fail(Code.MGS120, f"'{path}' is a folder, not a file", span, hint)
    if error is None:
        return report.fail(Code.MGS120, f"'{path}' is not a file", span)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else "the path is not valid"
    return report.fail(Code.MGS120, f"cannot read '{path}': {reason}", span)


def read_stream(stream: BinaryIO | None, name: str, report: Report, max_bytes: int = MAX_BYTES) -> Source:
    """Read a stream such as stdin to its end; ``name`` stands for it in diagnostics."""
    blamed = Span(Source(name, ""), 0, 0)
    try:
        data = b"" if stream is None else stream.read(max_bytes + 1)
    except OSError as error:
        raise report.fail(Code.MGS120, f"cannot read '{name}': {error.strerror or error}", blamed) from None
    if len(data) > max_bytes:
        raise report.fail(Code.MGS130, f"'{name}' is larger than {bytes_text(max_bytes)}", blamed)
    return _decoded(data, name, name, report, blamed)


def _decoded(data: bytes, path: str, name: str, report: Report, blamed: Span) -> Source:
    if b"\0" in data:
        raise report.fail(Code.MGS121, f"'{name}' is not text: it holds a zero byte", blamed)
    try:
        return Source(path, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise report.fail(
            Code.MGS121, f"'{name}' is not UTF-8 text: byte {error.start} is none of it", blamed
        ) from None


def real_path(path: Path) -> Path:
    """Return the path with links followed; where that fails, the absolute path."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path.absolute()


def path_inside(folder: Path, name: str, base: Path) -> Path | None:
    """Resolve ``name`` from ``base``; None if it does not lead to a place below ``folder``."""
    if "\0" in name:
        return None
    path = real_path(base / name)
    return path if path != folder and path.is_relative_to(folder) else None


def path_beside(text: ast.Text, kind: str, report: Report) -> Path:
    """Resolve the path in ``text``, which must lie in the folder of the file that names it or below."""
    folder = real_path(Path(text.span.source.path)).parent
    path = path_inside(folder, text.value, folder)
    if path is None:
        hint = f"a {kind} lies in the folder of the file that names it, or below"
        raise report.fail(Code.MGS207, f"'{text.value}' is outside the folder of this file", text.span, hint)
    return path


def load(source: Source, report: Report) -> Scope:
    """Parse a text and everything it includes and uses, and declare all names."""
    loader = _Loader(source, report)
    with report.attempt():
        loader.read(source)
    loader.scope.files = loader.files
    if report.has_errors:
        report.silence(MissingText.of(report, loader.scope.own()).explains)
    return loader.scope


def declared_at(source: Source, name: str, *, explored: bool = False) -> Span | None:
    """Return the first line of a schedule or workload of that name, in a text or what it includes; None if none has it.

    ``explored``: that of ``explore`` about the workload.
    """
    scope = load(source, Report())
    found: list[ast.Node]
    if explored:
        found = [
            each for each in scope.questions if isinstance(each, ast.ExploreNode) and each.workload.names == (name,)
        ]
    else:
        found = [each.declaration for each in scope.of_kind(Kind.SCHEDULE, Kind.WORKLOAD) if each.name == name]
    if not found:
        return None
    span = found[0].span
    first = span.text.partition("\n")[0].rstrip(" {")
    return Span(span.source, span.start, span.start + len(first))


class _Loader:
    def __init__(self, source: Source, report: Report) -> None:
        self._report = report
        self.scope = Scope()
        self._main = real_path(Path(source.path))
        self._seen = {self._main}
        self._open = [self._main]
        self._room = MAX_TOKENS

    @property
    def files(self) -> frozenset[Path]:
        """The main file and those it includes."""
        return frozenset(self._seen)

    def read(self, source: Source) -> None:
        """Parse a text and enter its declarations."""
        file = parse_file(source, self._report, self._room)
        self._room -= file.num_tokens
        _check_version(file, self._report)
        for declaration in file.declarations:
            with self._report.attempt():
                match declaration:
                    case ast.Include():
                        self._include(declaration)
                    case ast.Use():
                        self.scope.use(declaration, self._library(declaration), self._report)
                    case ast.ExploreNode() | ast.Expect():
                        self.scope.questions.append(declaration)
                    case _:
                        self.scope.declare(declaration, self._report)
        self.scope.trees.append(file)

    def _include(self, include: ast.Include) -> None:
        folder, span = self._main.parent, include.span
        path = path_inside(folder, include.path, self._open[-1].parent)
        if path is None:
            hint = "an included file lies in the folder of the main file, or below it"
            raise self._report.fail(Code.MGS207, f"'{include.path}' is outside the folder of the main file", span, hint)
        if path in self._open:
            raise self._report.fail(Code.MGS205, f"'{include.path}' includes itself", span)
        if path in self._seen:
            return
        if len(self._seen) > MAX_INCLUDES:
            raise self._report.fail(Code.MGS134, f"more than {MAX_INCLUDES} included files", span)
        if len(self._open) > MAX_DEPTH:
            raise self._report.fail(Code.MGS134, f"includes nested deeper than {MAX_DEPTH}", span)
        self._seen.add(path)
        self._open.append(path)
        with self._report.attempt():
            self.read(read_source(path, self._report, span))
        self._open.pop()

    def _library(self, use: ast.Use) -> Scope:
        if use.library not in shipped_libraries():
            hint = did_you_mean(use.library, shipped_libraries()) or "there are " + ", ".join(shipped_libraries())
            raise self._report.fail(Code.MGS208, f"unknown library '{use.library[:64]}'", use.span, hint)
        return _library_scope(use.library)


@cache
def _library_scope(name: str) -> Scope:
    scope, report = Scope(), Report()
    scope.is_shipped = True
    for declaration in _library_file(name).declarations:
        if isinstance(declaration, ast.Use):
            assert declaration.alias is not None, "a library takes another under a prefix, and does not pass it on"
            scope.use(declaration, _library_scope(declaration.library), report)
            continue
        assert isinstance(declaration, ast.DeviceNode | ast.Let), "a library holds devices, values and other libraries"
        scope.declare(declaration, report)
    assert not report.has_errors, f"the shipped library {name} declares a name twice"
    return scope


def library_devices(name: str) -> tuple[ast.DeviceNode, ...]:
    """Return the devices that a shipped library declares; none if there is no such library."""
    declarations = _library_file(name).declarations if name in shipped_libraries() else ()
    return tuple(each for each in declarations if isinstance(each, ast.DeviceNode))


@cache
def _library_file(name: str) -> ast.File:
    report = Report()
    file = parse_file(Source(f"{name}.mgs", library_text(name)), report)
    assert not report.has_errors, f"the shipped library {name} does not parse"
    return file


def _check_version(file: ast.File, report: Report) -> None:
    if file.version is not None and file.version.number != str(LANGUAGE_VERSION):
        message = f"this release reads version {LANGUAGE_VERSION} of the language, the file says {file.version.number}"
        raise report.fail(
            Code.MGS115, message, file.version.span, f"write: mgs {LANGUAGE_VERSION}, or install a newer Magus"
        )
