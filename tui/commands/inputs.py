"""Inputs of commands: files, ``-`` for stdin, and the scenario of one workload."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from pathlib import Path
from typing import BinaryIO, ParamSpec

from ...compiler.codes import Code
from ...compiler.ir import OpCase, Rejection, Scenario, Settings
from ...compiler.pipeline import Compiled, compile_text
from ...compiler.planning.build import ScheduleError
from ...compiler.text.diagnostics import (
    CODE_COLUMNS,
    CompileError,
    Diagnostic,
    Report,
    Source,
    Span,
    raising_errors,
    render_text,
)
from ...compiler.text.load import read_source, read_stream
from ...compiler.text.parsing.parse import MAX_BYTES
from ...compiler.text.writing import write_whole
from ..text.door import Exit, columns, in_colour, is_terminal, put_text, say, say_raw

P = ParamSpec("P")

# Diagnostics, errors and written files: what every command says on stderr.


def show(diagnostics: Sequence[Diagnostic]) -> None:
    """Print diagnostics on stderr; on a terminal in colour, in lines that fit it."""
    if diagnostics:
        room = columns() - 2 if is_terminal(sys.stderr) else CODE_COLUMNS
        text = render_text(diagnostics, color=in_colour(sys.stderr), room=room)
        say_raw(text + "\n")  # render_text escapes text from outside


def reporting(command: Callable[P, Exit]) -> Callable[P, Exit]:
    """Let errors of the text, of a request or of a file become messages and an exit code, and whatever is refused."""

    @wraps(command)
    def run(*given: P.args, **named: P.kwargs) -> Exit:
        try:
            return command(*given, **named)
        except CompileError as error:
            show(error.diagnostics)
        except OSError as error:
            say(f"magus: {error.filename or 'a file'}: {error.strerror or error}")
        except Exception as error:
            rejection = getattr(error, "rejection", None)
            if not isinstance(rejection, Rejection):
                raise
            say_rejection(rejection)
        return Exit.INPUT

    return run


def say_rejection(rejection: Rejection) -> None:
    """Print why a request is refused on stderr."""
    hint = f"\n  help: {rejection.hint}" if rejection.hint else ""
    say(f"{rejection.code.name} error: {rejection.message}{hint}")


@contextmanager
def reading() -> Iterator[Report]:
    """Yield the report of what is read in the block: its warnings are shown.

    Raises
    ------
    CompileError
        If something cannot be read.
    """
    with raising_errors() as report:
        yield report
    show(report.diagnostics)


_OF_WORKLOADS = frozenset({Code.MGS402, Code.MGS523})
"""What no schedule of a workload can change: it does not fit into memory, or its system replays a profile."""


@contextmanager
def placed(span: Span | None) -> Iterator[None]:
    """Tell of what is wrong with a workload, and not with a schedule, where it is declared: ``span``.

    So it is with what is too large to be simulated.
    """
    from ...simcore.program.limits import RunTooLarge  # those who simulate have it already

    try:
        yield
    except RunTooLarge as error:
        if span is None:
            raise
        raise CompileError((Diagnostic(Code.MGS406, str(error), span),)) from None
    except ScheduleError as error:
        rejection = error.rejection
        if rejection.code not in _OF_WORKLOADS or span is None:
            raise
        raise CompileError((Diagnostic(rejection.code, rejection.message, span, rejection.hint),)) from None


@reporting
def save(path: Path, content: str | bytes, about: str) -> Exit:
    """Write a file and say what it is; an error is reported, so that the caller can still print its answer.

    Write files before printing to stdout: stdout may have no reader any more.
    """
    replaced = write_whole(path, content)
    say(f"{path}{' (replaced)' if replaced else ''}: {about}")
    return Exit.DONE


def deliver(text: str, out: Path | None, about: str) -> Exit:
    """Write ``text`` to ``out``, and say what it is, or to stdout."""
    if out is not None:
        return save(out, text, about)
    put_text(text)
    return Exit.DONE


STDIN = "<stdin>"


def is_stdin(file: Path) -> bool:
    """Whether the text comes on stdin."""
    return str(file) == "-"


def name_of(file: Path) -> str:
    """The name of the file in messages."""
    return STDIN if is_stdin(file) else str(file)


def source_of(file: Path, max_bytes: int = MAX_BYTES) -> Source:
    """The text of a file of at most ``max_bytes``, or of stdin.

    Raises
    ------
    CompileError
        If it cannot be read.
    """
    if is_stdin(file):
        return _text_of(None if sys.stdin is None else sys.stdin.buffer, max_bytes)
    with reading() as report:
        return read_source(file, report, max_bytes=max_bytes)


@lru_cache(maxsize=1)
def _text_of(stdin: BinaryIO | None, max_bytes: int) -> Source:
    """What is on stdin, which can be read once."""
    with reading() as report:
        return read_stream(stdin, STDIN, report, max_bytes)


def compiled(file: Path, settings: Settings) -> Compiled:
    """``compile_file`` for a file or for stdin; stdin's includes are looked up in the working folder."""
    source = source_of(file)
    return compile_text(source.text, source.path, settings)


@dataclass(frozen=True, slots=True)
class ScenarioInput:
    """The scenario that a command is about: ``workload`` of ``file`` under ``settings``; None is the first workload."""

    file: Path
    settings: Settings = ()
    workload: str | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """What names the scenario on the command line."""
        workload = ("--workload", self.workload) if self.workload is not None else ()
        settings = (word for name, value in self.settings for word in ("--set", f"{name}={value}"))
        return str(self.file), *workload, *settings

    def read(self) -> tuple[Compiled, Callable[[Scenario, int], Scenario]]:
        """Compile the file, once; and how one of its scenarios is with the experts of rows drawn with a seed.

        Raises
        ------
        CompileError
            If the file has an error.
        """
        source = source_of(self.file)
        found = compile_text(source.text, source.path, self.settings)

        def drawn(scenario: Scenario, seed: int) -> Scenario:
            there = compile_text(source.text, source.path, self.settings, as_written=False, seed=seed)
            # Rows are sent by what sends them now: the fastest under one seed is not always that under another.
            # What is declared under one seed may fit no other, and then says why.
            return replace(there.scenario(scenario.name), system=scenario.system, schedules=scenario.schedules)

        show(found.warnings)
        return found, drawn

    def scenario(self) -> Scenario:
        """Compile the file and return the scenario of the workload; warnings are shown.

        Raises
        ------
        CompileError
            If the file has an error, or no such workload.
        """
        return self.read()[0].scenario(self.workload)

    def case(self, what: str) -> OpCase:
        """Return the one op of the workload; ``what`` is made of it, in words.

        Raises
        ------
        CompileError
            As ``scenario``.
        ScheduleError
            If the workload is more than one op.
        """
        scenario = self.scenario()
        if scenario.only_case is None:
            raise ScheduleError(reject_several(scenario, what))
        return scenario.only_case

    def subjects(self, found: Compiled) -> tuple[Scenario, ...]:
        """The scenario of the workload or those of its parts, without one those of all.

        Raises
        ------
        CompileError
            If there is no such workload.
        """
        partition = found.partition(self.workload)
        if partition is not None:
            parts = tuple(each for each in found.workloads if each.name in partition.parts)
            return found.workloads if self.workload is None else parts
        named = found.scenario(self.workload)  # which says where there is none
        return found.workloads if self.workload is None else (named,)


def reject_several(scenario: Scenario, what: str) -> Rejection:
    """Return why ``what`` is not made of a workload of several ops."""
    count = len(scenario.workload.ops)
    has = f"has {count} ops" if count > 1 else "says more than its op alone"
    return Rejection(Code.MGS520, f"{scenario.name} {has}, and {what} is of one op", "--workload names another")
