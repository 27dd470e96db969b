"""``magus check``: every error and warning of files."""

from collections.abc import Sequence
from pathlib import Path

from ....compiler import CompileError
from ....compiler.ir import Settings
from ....compiler.text.diagnostics import Diagnostic
from ....compiler.text.diagnostics import as_json as json_object
from ...exit_codes import Exit
from ...text.door import print_json, say
from ..console import show
from ..inputs import compiled


def check_files(files: Sequence[Path], settings: Settings, *, as_json: bool) -> Exit:
    """Compile each file and show what is wrong with it; exit 1 if a file has an error."""
    diagnostics: list[Diagnostic] = []
    num_wrong = 0
    for file in files:
        try:
            diagnostics.extend(compiled(file, settings).warnings)
        except CompileError as error:
            diagnostics.extend(error.diagnostics)
            num_wrong += 1
    if as_json:
        print_json({"schema": "magus-diagnostics/1", "diagnostics": list(map(json_object, diagnostics))})
    else:
        show(diagnostics)
        say(_summary(len(files), num_wrong))
    return Exit.INPUT if num_wrong else Exit.DONE


def _summary(num_files: int, num_wrong: int) -> str:
    checked = f"{num_files} file{'s' if num_files > 1 else ''} checked"
    if not num_wrong:
        return f"{checked}, no errors"
    return f"{checked}, {num_wrong} with errors"
