"""``magus evaluate``: how good the learned proposals are on families of scenarios they were not fitted to."""

from dataclasses import asdict
from functools import partial
from pathlib import Path

from ...advisor.learned.evaluate import evaluate, report_text
from ...advisor.learned.table import load_table
from ..exit_codes import Exit
from ..text.door import print_json, put
from ..text.progress import progress_line
from .running import run_command


def evaluate_table(table: Path, *, limit: int, seed: int, workers: int, as_json: bool) -> Exit:
    """Fit a model without each family, simulate what it proposes there, and print the scores."""

    def action() -> Exit:
        found = load_table(table)
        with progress_line() as progress:
            scores = evaluate(found, limit, seed, workers, partial(progress, "evaluate"))
        if as_json:
            print_json({"schema": "magus-evaluate/1", "table": str(table), "scores": [asdict(each) for each in scores]})
        else:
            put(report_text(scores))
        return Exit.DONE

    return run_command(action)
