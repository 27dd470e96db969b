"""Scenarios as the command line names them: files, and ``-`` for what comes on stdin."""

import sys
from pathlib import Path

from ...compiler import CompileError
from ...compiler.ir import Settings
from ...compiler.pipeline import Compiled, compile_text
from ...compiler.text.diagnostics import Report
from ...compiler.text.load import read_source, read_stream
from ...compiler.text.source import Source

STDIN = "<stdin>"


def is_stdin(file: Path) -> bool:
    """Whether the text comes on stdin."""
    return str(file) == "-"


def name_of(file: Path) -> str:
    """What messages call the file."""
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


def compiled(file: Path, bindings: Settings) -> Compiled:
    """``compile_file``, for a file or for stdin; files that stdin includes lie in the working folder."""
    source = source_of(file)
    return compile_text(source.text, source.path, bindings)
