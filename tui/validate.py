"""The command that compares the models with measurements: ``validate``."""

from pathlib import Path

from ..advisor.measured.report import validation_document
from ..advisor.measured.report_text import validation_page, validation_text
from ..advisor.measured.rows import MeasuredError
from ..advisor.measured.validate import validate
from .answer import answered
from .console import print_json, say
from .exits import Exit
from .progress import progress_line


def validate_folder(data: Path, *, sample: int, seed: int, write: Path | None, as_json_text: bool) -> Exit:
    """``magus validate``: errors beside targets, noise and baselines; a missed target is a finding, not a failure."""

    def action() -> Exit:
        try:
            with progress_line() as progress:
                found = validate(data, sample=sample, seed=seed, progress=progress)
        except MeasuredError as error:
            say(f"magus validate: {error}")
            return Exit.INPUT
        if as_json_text:
            print_json(validation_document(found))
        else:
            print(validation_text(found))
        if write is not None:
            write.write_text(validation_page(found), encoding="utf-8")
            say(f"written to {write}")
        return Exit.DONE

    return answered(action)
