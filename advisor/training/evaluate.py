"""Evaluation of the proposals on families they were not fitted to, beside simpler ways to choose.

Every way to choose returns schedules, which are simulated; the fastest of them is its answer. Its regret is its time
over that of the best plan known, from the full search or from any of the ways, minus one.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from random import Random

import numpy as np

from ...compiler.ir import Counted, Pattern
from ..learned.boosted_trees import picked
from ..policy.distill import EXACT, FloatArray, fitted_tree, four_choices, rates_of
from .build import results_here
from .families import draw
from .table import Labels, LabelTable
from .ways import MODEL, WAYS, Answers, answers_in, models_without, predicted_ticks, simulated_ticks

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


RULE, STATIC, ESTIMATE = "FiCCO's rule", "the best one", "the estimate"
# The setting of the paper, GPUs that are connected directly, and all others.
MESH, ANY = "full mesh", "all fabrics"
ALL_SPLITS = "all"


@dataclass(frozen=True, slots=True)
class Four:
    """The ratios of the GEMM of scenario ``idx``, as a rule takes them, and estimated ticks of the four schedules."""

    idx: int
    ratios: tuple[float, ...]
    estimated: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """The scenarios that the rule is fitted to, and those in which it picks."""

    fabric: str
    split: str
    known: tuple[Four, ...]
    tested: tuple[Four, ...]


@dataclass(frozen=True, slots=True)
class FourScore:
    """Picks of one way among the four: how many are exact, and the mean loss of those that are not and of all."""

    fabric: str
    split: str
    way: str
    scenarios: int
    exact: float
    loss_when_wrong: float
    mean_loss: float


def four_scores(table: LabelTable, limit: int, seed: int, workers: int) -> tuple[FourScore, ...]:
    """Return the scores of all ways, on ``limit`` scenarios of each split and fabric and on all of these together."""
    rows = [labels for labels in table.labels if labels.family.pattern == Pattern.AG_GEMM.value]
    found = results_here(workers, partial(_estimated, table.seed), [labels.idx for labels in rows])
    fours = {four.idx: four for four in found if four is not None}
    rows = [labels for labels in rows if labels.idx in fours]
    trials = [trial for fabric in (MESH, ANY) for trial in _trials(fabric, rows, fours, (limit, seed))]
    tested = sorted({four.idx for trial in trials for four in trial.tested})
    ticks = dict(results_here(workers, partial(_simulated, table.seed), tested))
    losses = [(trial, way, loss) for trial in trials for way, loss in _losses(trial, ticks).items()]
    return (*(_score(trial.fabric, trial.split, way, loss) for trial, way, loss in losses), *_together(losses))


def _together(losses: Sequence[tuple[Trial, str, FloatArray]]) -> Iterator[FourScore]:
    """Yield the scores over the scenarios of all splits."""
    for fabric, way in dict.fromkeys((trial.fabric, way) for trial, way, _ in losses):
        mine = [loss for trial, name, loss in losses if (trial.fabric, name) == (fabric, way)]
        yield _score(fabric, ALL_SPLITS, way, np.concatenate(mine))


def _estimated(seed: int, idx: int) -> Four | None:
    scenario = draw(seed, idx).scenario
    choices, gemm = four_choices(scenario), scenario.shape.gemm
    if not choices or gemm is None:
        return None
    ratios = rates_of(scenario, gemm).ratios(gemm.m, gemm.n, gemm.k)
    return Four(idx, ratios, tuple(predicted_ticks(scenario, choice) for choice in choices))


def _simulated(seed: int, idx: int) -> tuple[int, tuple[int, ...]]:
    scenario = draw(seed, idx).scenario
    return idx, tuple(simulated_ticks(scenario, choice) for choice in four_choices(scenario))


def _trials(fabric: str, rows: Sequence[Labels], fours: Mapping[int, Four], sample: tuple[int, int]) -> Iterator[Trial]:
    """Yield the splits that have scenarios to fit to and to test; ``sample`` is the limit and the seed."""
    rows = [labels for labels in rows if fabric == ANY or labels.family.topology == "full_mesh"]
    for split in SPLITS:
        held_out = sampled([labels for labels in rows if split.holds(labels)], *sample)
        known = tuple(fours[labels.idx] for labels in rows if not split.holds(labels))
        if held_out and known:
            yield Trial(fabric, split.name, known, tuple(fours[labels.idx] for labels in held_out))


def _losses(trial: Trial, ticks: Mapping[int, tuple[int, ...]]) -> dict[str, FloatArray]:
    """Return the losses of each way in the scenarios that are tested."""
    ratios, estimated = (np.array([getattr(four, name) for four in trial.known]) for name in ("ratios", "estimated"))
    simulated = _over_best(np.array([ticks[four.idx] for four in trial.tested], np.float64))
    rule, places = fitted_tree(ratios, estimated, static=True), np.arange(len(trial.tested))
    static = int((_over_best(estimated) <= EXACT).mean(axis=0).argmax())
    picks = {
        RULE: np.array([picked(rule, four.ratios) for four in trial.tested]),
        STATIC: np.full(len(places), static),
        ESTIMATE: np.array([four.estimated for four in trial.tested]).argmin(axis=1),
    }
    return {way: simulated[places, each] for way, each in picks.items()}


def _over_best(ticks: FloatArray) -> FloatArray:
    """Return times [N, 4] over the best of the four, minus one."""
    return np.asarray(ticks / ticks.min(axis=1, keepdims=True) - 1)


def _score(fabric: str, split: str, way: str, losses: FloatArray) -> FourScore:
    wrong = losses[losses > EXACT]
    exact, lost = 1 - len(wrong) / len(losses), float(wrong.mean()) if len(wrong) else 0.0
    return FourScore(fabric, split, way, len(losses), exact, lost, float(losses.mean()))


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


# Lines of regrets fill a terminal of 80 columns.
_NAMES, _LONG_NAMES = 24, 28
_HEAD = f"{'n':>4}{'0.5 %':>6}{'1 %':>4}{'3 %':>4}{'mean':>8}{'p95':>7}{'harm':>6}{'told':>6}{'serial':>7}{'ms':>4}"


def evaluation_text(evaluation: Evaluation) -> str:
    """Return all tables."""
    tables = (_regrets(evaluation.scores), _intervals(evaluation.intervals), _four(evaluation.four))
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


def _four(scores: Sequence[FourScore]) -> list[str]:
    together = [score for score in scores if score.split == ALL_SPLITS]
    head = f"{'one of four, AG+GEMM':<{_LONG_NAMES}}{'n':>5}{'exact':>9}{'if wrong':>10}{'mean':>9}"
    return [head, *_four_lines(together)] if together else []


def _four_lines(scores: Sequence[FourScore]) -> Iterator[str]:
    for score in scores:
        name = f"{score.fabric}, {score.way}"
        exact, wrong = f"{100 * score.exact:.0f}%", f"{100 * score.loss_when_wrong:.1f}%"
        yield f"  {name:<{_LONG_NAMES - 2}}{score.scenarios:>5}{exact:>9}{wrong:>10}{100 * score.mean_loss:>8.2f}%"
