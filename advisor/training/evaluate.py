"""Evaluation of the proposals on families they were not fitted to, beside simpler ways to choose.

Every way to choose returns schedules, which are simulated; the fastest of them is its answer. Its regret is its time
over that of the best plan known, from the full search or from any of the ways, minus one.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from random import Random

import numpy as np

from ...compiler.ir import Counted
from .build import results_here
from .table import Labels, LabelTable
from .ways import MODEL, WAYS, Answers, answers_in, models_without

# One scenario of so many is held out where no family is.
ONE_IN = 4


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The scenarios whose family has ``value`` as its ``kind``; without a value every ``ONE_IN``-th scenario."""

    kind: str
    value: str = ""

    @property
    def name(self) -> str:
        """What a report calls it."""
        return f"{self.kind} {self.value}" if self.value else f"one {self.kind} in {ONE_IN}"

    def holds(self, labels: Labels) -> bool:
        """Whether the scenario of ``labels`` is held out."""
        return getattr(labels.family, self.kind) == self.value if self.value else labels.idx % ONE_IN == 0


SPLITS = (
    HeldOut("scenario"),
    HeldOut("gpu", "MI355X"),
    HeldOut("gpu", "B200"),
    HeldOut("topology", "ring"),
    HeldOut("pattern", "GEMM+AR"),
    HeldOut("model", "DeepSeek-V3"),
    HeldOut("size", "training"),
)


def sampled(labels: Sequence[Labels], limit: int, seed: int) -> list[Labels]:
    """Return ``limit`` of ``labels``, or all if there are fewer."""
    return Random(f"evaluate {seed}").sample(labels, min(limit, len(labels)))


# Answers up to this multiple of the baseline do no harm.
HARMLESS = 1.001
# An answer without overlap is wrong if an overlapping schedule is faster by more than this share.
OVERLAP_GAIN = 0.01


@dataclass(frozen=True, slots=True)
class SplitScore:
    """Scores of one way over the scenarios of one split; regrets and shares are ratios, ``seconds`` a median.

    ``harm`` is the share of answers that are slower than the serial baseline, ``reported_harm`` that of those which
    advice would recommend. ``false_serial`` is the share in which nothing overlaps, though an overlapping schedule is
    known to be faster than the answer by more than ``OVERLAP_GAIN``, and as much faster than the estimate of the best
    serial schedule.
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
    reported_harm: float
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
        serial, reported = (
            np.array([getattr(answer, each) for answer in mine]) for each in ("is_serial", "is_reported")
        )
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
            float((reported & (ticks > baseline * HARMLESS)).mean()),
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


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores by split: of all ways, and of the model's interval."""

    scores: tuple[SplitScore, ...]
    intervals: tuple[IntervalScore, ...]


def evaluate(
    table: LabelTable, limit: int = 40, seed: int = 0, workers: int = 1, progress: Counted | None = None
) -> Evaluation:
    """Return the scores of all ways on ``limit`` scenarios of each split."""
    report = progress or (lambda done, total: None)
    scores, intervals = list[SplitScore](), list[IntervalScore]()
    for done, split in enumerate(SPLITS):
        report(done, len(SPLITS))
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
    report(len(SPLITS), len(SPLITS))
    return Evaluation(tuple(scores), tuple(intervals))


def evaluation_document(evaluation: Evaluation) -> dict[str, object]:
    """Return the scores for ``--json``."""
    return {"schema": "magus-evaluate/1", **asdict(evaluation)}


# Lines of regrets fill a terminal of 80 columns.
_NAMES, _LONG_NAMES = 24, 28
_HEAD = f"{'n':>4}{'0.5 %':>6}{'1 %':>4}{'3 %':>4}{'mean':>8}{'p95':>7}{'harm':>6}{'told':>6}{'serial':>7}{'ms':>4}"


def evaluation_text(evaluation: Evaluation) -> str:
    """Return all tables."""
    tables = (_regrets(evaluation.scores), _intervals(evaluation.intervals))
    return "\n\n".join("\n".join(table) for table in tables if table)


def _regrets(scores: Sequence[SplitScore]) -> list[str]:
    lines = [f"{'the model without':<{_NAMES}}{_HEAD}"]
    lines += [_regret_line(score.split, score) for score in scores if score.way == MODEL]
    lines += ["", f"{'mean, by way to choose':<{_NAMES}}{_HEAD}"]
    by_way = ([score for score in scores if score.way == way] for way in WAYS)
    return lines + [_regret_line(mine[0].way, mean_of(mine)) for mine in by_way if mine]


def _regret_line(name: str, score: SplitScore) -> str:
    shares = (score.within_half, score.within_one, score.within_three)
    within = "".join(f"{100 * share:>{width}.0f}" for share, width in zip(shares, (6, 4, 4), strict=True))
    regrets = f"{100 * score.mean_regret:>7.2f}%{100 * score.p95_regret:>6.1f}%"
    wrong = f"{100 * score.harm:>5.1f}%{100 * score.reported_harm:>5.1f}%{100 * score.false_serial:>6.1f}%"
    return f"  {name:<{_NAMES - 2}}{score.scenarios:>4}{within}{regrets}{wrong}{1e3 * score.seconds:>4.0f}"


def _intervals(scores: Sequence[IntervalScore]) -> list[str]:
    known, unseen = ([score for score in scores if (score.split == SPLITS[0].name) is same] for same in (True, False))
    lines = [f"{'90 % interval without':<{_LONG_NAMES}}{'n':>5}{'covered':>9}{'width':>9}"] if scores else []
    lines += [_interval_line(score) for score in (*known, *unseen)]
    if unseen:
        covered, width = (float(np.mean([getattr(score, name) for score in unseen])) for name in ("covered", "width"))
        number = sum(score.scenarios for score in unseen)
        lines.append(_interval_line(IntervalScore("mean of unseen families", number, covered, width)))
    return lines


def _interval_line(score: IntervalScore) -> str:
    share, width = f"{100 * score.covered:.0f}%", f"{100 * score.width:.2f}%"
    return f"  {score.split:<{_LONG_NAMES - 2}}{score.scenarios:>5}{share:>9}{width:>9}"
