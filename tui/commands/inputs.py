"""Inputs of commands: files, ``-`` for stdin, and the scenario of one workload."""

import sys
from dataclasses import dataclass
from pathlib import Path

from ...compiler import CompileError, Scenario
from ...compiler.ir import Settings
from ...compiler.pipeline import Compiled, compile_text
from ...compiler.text.diagnostics import Report
from ...compiler.text.load import read_source, read_stream
from ...compiler.text.source import Source
from .console import show

STDIN = "<stdin>"


def is_stdin(file: Path) -> bool:
    """Whether the text comes on stdin."""
    return str(file) == "-"


def name_of(file: Path) -> str:
    """The name of the file in messages."""
    return STDIN if is_stdin(file) else str(file)


def source_of(file: Path) -> Source:
    """The text of a file, or of stdin, which can be read once.

    Raises
    ------
    CompileError
        If it cannot be read.
    """
    report = Report()
    with report.attempt():
        if is_stdin(file):
            return read_stream(None if sys.stdin is None else sys.stdin.buffer, STDIN, report)
        return read_source(file, report)
    raise CompileError(report.diagnostics)


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

    def scenario(self) -> Scenario:
        """Compile the file and return the scenario; warnings are shown.

        Raises
        ------
        CompileError
            If the file has an error, or no such workload.
        """
        found = compiled(self.file, self.settings)
        show(found.warnings)
        return found.scenario(self.workload)
