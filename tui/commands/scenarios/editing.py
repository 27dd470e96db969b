"""``magus fmt`` and ``magus lsp``: files in the canonical form of the language, and the language server of editors."""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ....compiler import format_text
from ....compiler.codes import Code
from ....compiler.pipeline import written_out
from ....compiler.text.writing import write_whole
from ...exit_codes import Exit
from ...text.door import put_text, say
from ..console import report_errors
from ..inputs import is_stdin, name_of, source_of


def format_files(files: Sequence[Path], *, check_only: bool) -> Exit:
    """Rewrite files in the canonical form, stdin to stdout; or only say which files are not in it, and exit 1."""
    return max(report_errors(partial(_format, file, check_only)) for file in files)


def print_derived(files: Sequence[Path]) -> Exit:
    """Print files in the canonical form, with what they derive written out."""
    return max(report_errors(partial(_print_derived, file)) for file in files)


def _print_derived(file: Path) -> Exit:
    source = source_of(file)
    put_text(written_out(source.text, source.path))
    return Exit.DONE


def _format(file: Path, check_only: bool) -> Exit:
    source = source_of(file)
    text = format_text(source.text, source.path)
    if is_stdin(file) and not check_only:
        put_text(text)
        return Exit.DONE
    if text == source.text:
        return Exit.DONE
    if check_only:
        say(f"{name_of(file)} is not in the canonical form")
        return Exit.INPUT
    write_whole(file, text)
    say(f"{file} rewritten")
    return Exit.DONE


def serve_editor() -> Exit:
    """Serve an editor until it says goodbye or closes stdin."""
    try:
        from ...lsp.server import make_server
    except ImportError as error:
        say(f"{Code.MGS432.name} error: {error.name or error} is not installed\n  help: pip install 'magus-gpu[lsp]'")
        return Exit.USAGE
    if not logging.getLogger("magus").isEnabledFor(logging.DEBUG):
        logging.getLogger("pygls").setLevel(logging.CRITICAL)
    make_server().start_io()
    return Exit.DONE
