"""Evaluation of the proposals on families they were not fitted to, beside simpler ways to choose.

Every way to choose returns schedules, which are simulated; the fastest of them is its answer. Its regret is its time
over that of the best plan known, from the full search or from any of the ways, minus one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from time import process_time

import numpy as np

from ...compiler.ir import Choice, Counted, Scenario
from ...compiler.planning.build import build_schedule
from ...simcore import RunOutcome, simulate
from ..candidates.shortlist import shortlist_unit
from ..corpus.families import draw
from ..corpus.local import results_here
from .table import Labels, LabelTable
from .ways import WAYS, Models, Way, models_without

# Families that are held out, each with a model of its own; the first is a share of all scenarios.
HELD_OUT = 4
SPLITS = (
    ("scenario", ""),
    ("gpu", "MI355X"),
    ("gpu", "B200"),
    ("topology", "ring"),
    ("pattern", "GEMM+AR"),
    ("model", "DeepSeek-V3"),
    ("size", "training"),
)


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer of one way in one scenario: ticks of what was simulated, the best of them, and CPU time to choose."""

    ticks: int
    simulations: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SplitScore:
    """Scores of one way over the scenarios of one split; regrets and shares are ratios, ``seconds`` a median.

    ``harm`` is the share of answers that are slower than the serial baseline.
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
    simulations: float
    seconds: float


def evaluate(
    table: LabelTable, limit: int = 40, seed: int = 0, workers: int = 1, progress: Counted | None = None
) -> tuple[SplitScore, ...]:
    """Return the scores of all ways on ``limit`` scenarios of each split."""
    report, scores = progress or (lambda done, total: None), list[SplitScore]()
    for done, (kind, value) in enumerate(SPLITS):
        report(done, len(SPLITS))
        held_out = [labels for labels in table.labels if _is_held_out(labels, kind, value)]
        searched = [labels for labels in held_out if np.isfinite(labels.found.best_ticks)]
        tested = Random(f"evaluate {seed}").sample(searched, min(limit, len(searched)))
        if not tested:
            continue
        models = models_without(table, frozenset(labels.idx for labels in held_out), seed)
        found = dict(results_here(workers, partial(_answers, models, table.seed), [each.idx for each in tested]))
        scores += _scores(
            f"{kind} {value}" if value else f"one {kind} in {HELD_OUT}", tested, [found[each.idx] for each in tested]
        )
    report(len(SPLITS), len(SPLITS))
    return tuple(scores)


def _is_held_out(labels: Labels, kind: str, value: str) -> bool:
    return labels.idx % HELD_OUT == 0 if not value else getattr(labels.family, kind) == value


def _answers(models: Models, seed: int, idx: int) -> tuple[int, list[Answered]]:
    """Return (the scenario, the answer of every way in it)."""
    scenario, known = draw(seed, idx).scenario, dict[Choice, int]()
    models.whole.propose(scenario)  # what a running advisor has cached
    return idx, [_answered(way, models, scenario, known) for _, way in WAYS]


def _answered(way: Way, models: Models, scenario: Scenario, known: dict[Choice, int]) -> Answered:
    since = process_time()
    choices = way(models, scenario)
    seconds = process_time() - since
    for choice in choices:
        if choice not in known:
            known[choice] = _simulated(scenario, choice)
    return Answered(min(known[choice] for choice in choices), len(choices) if len(choices) > 1 else 0, seconds)


def _simulated(scenario: Scenario, choice: Choice) -> int:
    schedule = build_schedule(scenario, choice)
    result = simulate(scenario, schedule, unit_bytes=shortlist_unit(scenario, schedule))
    if result.outcome is not RunOutcome.DONE:
        raise RuntimeError(f"{schedule.expression} of {scenario.name}: {result.outcome.value}")
    return result.makespan_ticks


def _scores(split: str, tested: Sequence[Labels], answers: Sequence[Sequence[Answered]]) -> Iterator[SplitScore]:
    best = [
        min(labels.found.best_ticks, *(one.ticks for one in each)) for labels, each in zip(tested, answers, strict=True)
    ]
    for place, (way, _) in enumerate(WAYS):
        mine = [each[place] for each in answers]
        regret = np.array([one.ticks / least - 1 for one, least in zip(mine, best, strict=True)])
        harmed = [one.ticks > labels.found.serial_ticks * 1.001 for one, labels in zip(mine, tested, strict=True)]
        yield SplitScore(
            split,
            way,
            len(tested),
            float((regret <= 0.005).mean()),
            float((regret <= 0.01).mean()),
            float((regret <= 0.03).mean()),
            float(regret.mean()),
            float(np.quantile(regret, 0.95)),
            float(np.mean(harmed)),
            float(np.mean([one.simulations for one in mine])),
            float(np.median([one.seconds for one in mine])),
        )


def report_text(scores: Sequence[SplitScore]) -> str:
    """Return the scores of the model by split, and the mean over the splits of every way."""
    head = f"{'n':>4}{'0.5 %':>7}{'1 %':>6}{'3 %':>6}{'mean':>8}{'p95':>8}{'harm':>7}{'CPU ms':>8}"
    model, *_ = WAYS
    lines = [f"{'the model without':<34}{head}"]
    lines += [_line(score.split, score) for score in scores if score.way == model[0]]
    lines += ["", f"{'mean over these, by way to choose':<34}{head}"]
    for way, _ in WAYS:
        mine = [score for score in scores if score.way == way]
        if mine:
            lines.append(_line(way, mean_of(mine)))
    return "\n".join(lines)


def mean_of(scores: Sequence[SplitScore]) -> SplitScore:
    """Return the mean over splits of one way."""

    def mean(name: str) -> float:
        return float(np.mean([getattr(score, name) for score in scores]))

    shares = (
        "within_half",
        "within_one",
        "within_three",
        "mean_regret",
        "p95_regret",
        "harm",
        "simulations",
        "seconds",
    )
    return SplitScore("mean", scores[0].way, sum(score.scenarios for score in scores), *map(mean, shares))


def _line(name: str, score: SplitScore) -> str:
    shares = (score.within_half, score.within_one, score.within_three)
    within = "".join(f"{100 * share:>{width}.0f}" for share, width in zip(shares, (7, 6, 6), strict=True))
    regrets = f"{100 * score.mean_regret:>7.2f}%{100 * score.p95_regret:>7.1f}%{100 * score.harm:>6.1f}%"
    return f"  {name:<32}{score.scenarios:>4}{within}{regrets}{1e3 * score.seconds:>8.0f}"
