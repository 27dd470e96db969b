"""``magus train``: build the data set, fit the ranker, report on unseen scenarios, write the model."""

from pathlib import Path

from ...advisor.ranker.train import report_document, report_text, train
from ..exit_codes import Exit
from ..text.door import print_json, put
from ..text.progress import progress_line
from .running import run_command


def train_model(out: Path | None, *, seed: int, scenarios: int | None, workers: int, as_json: bool) -> Exit:
    """Train the ranker and write it to ``out``, by default over the shipped model."""

    def action() -> Exit:
        with progress_line() as progress:
            report = train(out=out, seed=seed, scenarios=scenarios, workers=workers, progress=progress)
        if as_json:
            print_json(report_document(report))
        else:
            put(report_text(report))
        return Exit.DONE

    return run_command(action)
