"""``magus validate`` and ``calibrate``: models compared with measured times, and constants fitted to them."""

from collections.abc import Callable
from pathlib import Path

from ....advisor.measured.calibrate.implementation_run import ImplementationCalibration, calibrate_implementation
from ....advisor.measured.calibrate.run import Calibration, FitRequest, calibrate
from ....advisor.measured.calibrate.text import calibrated_text, calibration_document, calibration_text
from ....advisor.measured.tables.csv_rows import MeasuredError
from ....advisor.measured.validate.report import validate, validation_document
from ....advisor.measured.validate.text import validation_page, validation_text
from ....compiler.ir import Progress
from ....compiler.text.writing import check_writable
from ...exit_codes import Exit
from ...text.door import print_json, put, say
from ...text.progress import progress_line
from ..console import save
from ..running import run_command

Fit = Callable[[Progress], Calibration | ImplementationCalibration]


def calibrate_folder(data: Path, request: FitRequest, *, write: Path | None, as_json: bool) -> Exit:
    """Print the constants of a GPU with their errors on held-out rows, and the profile; write it to ``write``."""
    return _fit_and_write(lambda progress: calibrate(data, request, progress), write, as_json)


def calibrate_rows(data: Path, implementation: str, *, write: Path | None, as_json: bool) -> Exit:
    """Print the constants of an implementation with their errors, and the text that has them; write it to ``write``."""
    return _fit_and_write(lambda progress: calibrate_implementation(data, implementation, progress), write, as_json)


def _fit_and_write(fit: Fit, write: Path | None, as_json: bool) -> Exit:
    def action() -> Exit:
        if write is not None and not write.parent.is_dir():
            say(f"magus calibrate: {write}: there is no folder {write.parent}")
            return Exit.INPUT
        if write is not None:
            check_writable(write)
        try:
            with progress_line() as progress:
                calibration = fit(progress)
        except MeasuredError as error:
            say(f"magus calibrate: {error}")
            return Exit.INPUT
        text = calibrated_text(calibration)
        written = Exit.DONE if write is None else save(write, text, f"written to {write}")
        if as_json:
            print_json(calibration_document(calibration))
        else:
            put(calibration_text(calibration))
            if write is None:
                put("\n" + text.removesuffix("\n"))
        return written

    return run_command(action)


def validate_folder(data: Path, *, sample: int, seed: int, write: Path | None, as_json: bool) -> Exit:
    """Print errors beside targets, noise and baselines; a missed target is a finding, not a failure."""

    def action() -> Exit:
        if write is not None:
            check_writable(write)
        try:
            with progress_line() as progress:
                validation = validate(data, sample=sample, seed=seed, progress=progress)
        except MeasuredError as error:
            say(f"magus validate: {error}")
            return Exit.INPUT
        written = Exit.DONE if write is None else save(write, validation_page(validation), f"written to {write}")
        if as_json:
            print_json(validation_document(validation))
        else:
            put(validation_text(validation))
        return written

    return run_command(action)
