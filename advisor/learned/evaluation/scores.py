"""Scores of answers: regret, harm and false serial of every way, coverage of the model's interval."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from ..table import Labels
from .answers import Answers
from .ways import MODEL, WAYS

# Answers up to this multiple of the baseline do no harm.
HARMLESS = 1.001
# An answer without overlap is wrong if an overlapping schedule is faster by more than this share.
OVERLAP_GAIN = 0.01


@dataclass(frozen=True, slots=True)
class SplitScore:
    """Scores of one way over the scenarios of one split; regrets and shares are ratios, ``seconds`` a median.

    ``harm`` is the share of answers that are slower than the serial baseline, ``told_harm`` that of those which advice
    would recommend. ``false_serial`` is the share in which nothing overlaps, though an overlapping schedule is known to
    be faster than the answer by more than ``OVERLAP_GAIN``, and as much faster than the estimate of the best serial
    schedule.
    """

    split: str
    way: str
    scenarios: int
    within_half: float
    within_one: float
    within_three: float
    mean_regret: float
    p95_regret: float
    harm: float
    told_harm: float
    false_serial: float
    simulations: float
    seconds: float


@dataclass(frozen=True, slots=True)
class IntervalScore:
    """The interval of the model's answers in one split.

    ``covered`` is the share of answers whose simulated time lies in it, ``width`` its width over the estimate. Answers
    that are the library's schedule have no interval and are not among the ``scenarios``.
    """

    split: str
    scenarios: int
    covered: float
    width: float


def split_scores(split: str, tested: Sequence[Labels], answers: Sequence[Answers]) -> Iterator[SplitScore]:
    """Yield the scores of every way; ``answers`` are in the scenarios of ``tested``."""
    best = np.array([_best_known(each, labels) for each, labels in zip(answers, tested, strict=True)])
    baseline = np.array([labels.found.serial_ticks for labels in tested])
    least_serial = np.array([each.serial_ticks for each in answers])
    for way in WAYS:
        mine = [each.by_way[way] for each in answers]
        ticks = np.array([answer.ticks for answer in mine])
        serial, told = (np.array([getattr(answer, each) for answer in mine]) for each in ("is_serial", "is_told"))
        regret = ticks / best - 1
        yield SplitScore(
            split,
            way,
            len(tested),
            float((regret <= 0.005).mean()),
            float((regret <= 0.01).mean()),
            float((regret <= 0.03).mean()),
            float(regret.mean()),
            float(np.quantile(regret, 0.95)),
            float((ticks > baseline * HARMLESS).mean()),
            float((told & (ticks > baseline * HARMLESS)).mean()),
            float((serial & (np.minimum(ticks, least_serial) > best * (1 + OVERLAP_GAIN))).mean()),
            float(np.mean([answer.simulations for answer in mine])),
            float(np.median([answer.seconds for answer in mine])),
        )


def _best_known(answers: Answers, labels: Labels) -> float:
    return min(labels.found.best_ticks, *(answer.ticks for answer in answers.by_way.values()))


def interval_score(split: str, answers: Sequence[Answers], interval: tuple[float, float]) -> Iterator[IntervalScore]:
    """Yield how often the simulated time of the model's answer is in its interval, given as logarithms."""
    errors = [error for each in answers if (error := each.by_way[MODEL].error) is not None]
    low, high = interval
    if errors:
        covered = float(np.mean([low <= error <= high for error in errors]))
        yield IntervalScore(split, len(errors), covered, math.exp(high) - math.exp(low))


def mean_of(scores: Sequence[SplitScore]) -> SplitScore:
    """Return the mean over splits of one way."""
    numbers = [field.name for field in fields(SplitScore)][3:]
    means = (float(np.mean([getattr(score, name) for score in scores])) for name in numbers)
    return SplitScore("mean", scores[0].way, sum(score.scenarios for score in scores), *means)
