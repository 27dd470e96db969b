"""``magus calibrate``: the constants of a GPU refitted to measured times."""

from pathlib import Path

from ...advisor.measured.calibrate.run import Request, calibrate
from ...advisor.measured.calibrate.text import calibration_document, calibration_text
from ...advisor.measured.calibrate.to_mgs import profile_text
from ...advisor.measured.tables.csv_rows import MeasuredError
from ...compiler.text.writing import check_writable
from ..exit_codes import Exit
from ..text.door import print_json, put, say
from ..text.progress import progress_line
from .console import save
from .running import run_command


def calibrate_folder(data: Path, request: Request, *, write: Path | None, as_json: bool) -> Exit:
    """Print the constants with their errors on held-out rows, and the profile; write it to ``write``."""

    def action() -> Exit:
        if write is not None and not write.parent.is_dir():
            say(f"magus calibrate: {write}: there is no folder {write.parent}")
            return Exit.INPUT
        if write is not None:
            check_writable(write)
        try:
            with progress_line() as progress:
                calibration = calibrate(data, request, progress)
        except MeasuredError as error:
            say(f"magus calibrate: {error}")
            return Exit.INPUT
        text = profile_text(calibration)
        written = Exit.DONE if write is None else save(write, text, f"written to {write}")
        if as_json:
            print_json(calibration_document(calibration))
        else:
            put(calibration_text(calibration))
            if write is None:
                put("\n" + text.removesuffix("\n"))
        return written

    return run_command(action)
