"""``magus evaluate``: how good the learned proposals are on families of scenarios they were not fitted to."""

from functools import partial
from pathlib import Path

from ....advisor.learned.evaluation.evaluate import evaluate, evaluation_document
from ....advisor.learned.evaluation.text import evaluation_text
from ....advisor.learned.table import load_table
from ...exit_codes import Exit
from ...text.door import print_json, put
from ...text.progress import progress_line
from ..running import run_command


def evaluate_table(table: Path, *, limit: int, seed: int, workers: int, as_json: bool) -> Exit:
    """Fit a model without each family, simulate what it proposes there, and print the scores."""

    def action() -> Exit:
        found = load_table(table)
        with progress_line() as progress:
            evaluation = evaluate(found, limit, seed, workers, partial(progress, "evaluate"))
        if as_json:
            print_json({**evaluation_document(evaluation), "table": str(table), "limit": limit, "seed": seed})
        else:
            put(evaluation_text(evaluation))
        return Exit.DONE

    return run_command(action)
