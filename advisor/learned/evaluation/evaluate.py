"""Evaluation of the proposals on families they were not fitted to, beside simpler ways to choose.

Every way to choose returns schedules, which are simulated; the fastest of them is its answer. Its regret is its time
over that of the best plan known, from the full search or from any of the ways, minus one.
"""

from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from ....compiler.ir import Counted
from ...corpus.searches import results_here
from ..table import LabelTable
from .answers import answers_in
from .four import FourScore, four_scores
from .scores import IntervalScore, SplitScore, interval_score, split_scores
from .splits import SPLITS, sampled
from .ways import models_without


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores by split: of all ways, of the model's interval, and of FiCCO's four schedules."""

    scores: tuple[SplitScore, ...]
    intervals: tuple[IntervalScore, ...]
    four: tuple[FourScore, ...]


def evaluate(
    table: LabelTable, limit: int = 40, seed: int = 0, workers: int = 1, progress: Counted | None = None
) -> Evaluation:
    """Return the scores of all ways on ``limit`` scenarios of each split."""
    report, parts = progress or (lambda done, total: None), len(SPLITS) + 1
    scores, intervals = list[SplitScore](), list[IntervalScore]()
    for done, split in enumerate(SPLITS):
        report(done, parts)
        held_out = [labels for labels in table.labels if split.holds(labels)]
        tested = sampled([labels for labels in held_out if np.isfinite(labels.found.best_ticks)], limit, seed)
        if not tested:
            continue
        models = models_without(table, frozenset(labels.idx for labels in held_out), seed)
        task = partial(answers_in, models, table.seed)
        found = {each.idx: each for each in results_here(workers, task, [labels.idx for labels in tested])}
        answers = [found[labels.idx] for labels in tested]
        scores += split_scores(split.name, tested, answers)
        intervals += interval_score(split.name, answers, models.whole.errors.time)
    report(len(SPLITS), parts)
    four = four_scores(table, limit, seed, workers)
    report(parts, parts)
    return Evaluation(tuple(scores), tuple(intervals), four)


def evaluation_document(evaluation: Evaluation) -> dict[str, object]:
    """Return the scores for ``--json``."""
    return {"schema": "magus-evaluate/1", **asdict(evaluation)}
