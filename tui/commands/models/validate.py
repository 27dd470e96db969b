"""``magus validate``: the models compared with measured times."""

from pathlib import Path

from ....advisor.measured.tables.csv_rows import MeasuredError
from ....advisor.measured.validate.report import validation_document
from ....advisor.measured.validate.run import validate
from ....advisor.measured.validate.text import validation_page, validation_text
from ....compiler.text.writing import check_writable
from ...exit_codes import Exit
from ...text.door import print_json, put, say
from ...text.progress import progress_line
from ..console import save
from ..running import run_command


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
