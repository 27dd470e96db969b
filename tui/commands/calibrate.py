"""The command that refits a profile's constants to measurements: ``calibrate``."""

from pathlib import Path

from ...advisor.measured.calibrate.run import Request, calibrate
from ...advisor.measured.calibrate.text import calibration_document, calibration_text
from ...advisor.measured.calibrate.to_mgs import profile_text
from ...advisor.measured.tables.csv_rows import MeasuredError
from ...compiler.text.writing import check_writable
from ..exit_codes import Exit
from ..text.door import print_json, put, say
from ..text.progress import progress_line
from .advise import answered
from .console import saved


def calibrate_folder(data: Path, request: Request, *, write: Path | None, as_json_text: bool) -> Exit:
    """``magus calibrate``: constants with their errors on rows that no fit has seen, and the profile as a file."""

    def action() -> Exit:
        if write is not None and not write.parent.is_dir():
            say(f"magus calibrate: {write}: there is no folder {write.parent}")
            return Exit.INPUT
        if write is not None:
            check_writable(write)
        try:
            with progress_line() as progress:
                found = calibrate(data, request, progress)
        except MeasuredError as error:
            say(f"magus calibrate: {error}")
            return Exit.INPUT
        text = profile_text(found)
        written = Exit.DONE if write is None else saved(write, text, f"written to {write}")
        if as_json_text:
            print_json(calibration_document(found))
        else:
            put(calibration_text(found))
            if write is None:
                put("\n" + text.removesuffix("\n"))
        return written

    return answered(action)
