"""The commands about the text alone: ``check`` and ``fmt``."""

from collections.abc import Sequence
from pathlib import Path

from ...compiler import CompileError, format_text
from ...compiler.ir import Settings
from ...compiler.text.diagnostics import Diagnostic, as_json
from ...compiler.text.writing import write_whole
from ..exit_codes import Exit
from ..text.door import print_json, put_text, say
from .console import guarded, show
from .inputs import compiled, is_stdin, name_of, source_of


def check_files(files: Sequence[Path], bindings: Settings, *, as_json_text: bool) -> Exit:
    """``magus check``: every error and warning of every file."""
    found: list[Diagnostic] = []
    wrong = 0
    for file in files:
        try:
            found.extend(compiled(file, bindings).warnings)
        except CompileError as error:
            found.extend(error.diagnostics)
            wrong += 1
    if as_json_text:
        print_json({"schema": "magus-diagnostics/1", "diagnostics": [as_json(one) for one in found]})
    else:
        show(found)
        say(f"{len(files) - wrong} of {len(files)} files are right")
    return Exit.INPUT if wrong else Exit.DONE


def format_files(files: Sequence[Path], *, check_only: bool) -> Exit:
    """``magus fmt``: rewrite in the canonical form, stdin to stdout, or say which files are not in it."""

    def one(file: Path) -> Exit:
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

    return max([guarded(lambda file=file: one(file)) for file in files])  # type: ignore[misc]
