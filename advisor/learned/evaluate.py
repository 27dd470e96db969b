"""Evaluation of the proposals on families they were not fitted to, beside simpler ways to choose.

Every way to choose returns schedules, which are simulated; the fastest of them is its answer. Its regret is its time
over that of the best plan known, from the full search or from any of the ways, minus one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from time import process_time

import numpy as np
from joblib import Parallel, delayed  # type: ignore[import-untyped]

from ...compiler.ir import Choice, Counted, Scenario
from ...compiler.planning.build import build_schedule
from ...simcore import RunOutcome, simulate
from ..candidates.predicted import usual_serials
from ..candidates.shortlist import shortlist_unit
from ..corpus.families import draw
from .fitting import fit_model
from .polish import polished
from .proposal_model import Library, Proposal, ProposalModel
from .structure import Structure, fitted
from .table import ANYWHERE, Labels, Table

# Families that are held out, each with a model of its own; the first is a share of all scenarios.
HELD_OUT = 4
SPLITS = (
    ("scenarios", ""),
    ("gpu", "MI355X"),
    ("gpu", "B200"),
    ("topology", "ring"),
    ("pattern", "GEMM+AR"),
    ("model", "DeepSeek-V3"),
    ("size", "training"),
)
FEW = 3
# Least number of labels by which a structure may be the best static one.
MIN_LABELS = 20


@dataclass(frozen=True, slots=True)
class Models:
    """A model fitted without a family, the same without one of its parts, and the best structures for all scenarios."""

    whole: ProposalModel
    without_trees: ProposalModel
    without_winners: ProposalModel
    static: dict[bool, Structure]


Way = Callable[[Models, Scenario], Sequence[Choice]]


def _best(proposals: Sequence[Proposal], count: int = 1) -> list[Choice]:
    return [proposal.choice for proposal in proposals[:count]]


def _improved(models: Models, scenario: Scenario) -> list[Proposal]:
    proposals = models.whole.propose(scenario)
    return [polished(scenario, proposals[0]), *proposals[1:]]


def _static(models: Models, scenario: Scenario) -> list[Choice]:
    choice = fitted(models.static[scenario.workload.pattern.consumes], scenario)
    return list(usual_serials(scenario)[:1]) if choice is None else [choice]


WAYS: tuple[tuple[str, Way], ...] = (
    ("model", lambda models, scenario: _best(_improved(models, scenario))),
    ("model, 2 simulations", lambda models, scenario: _best(_improved(models, scenario), 2)),
    ("without small changes", lambda models, scenario: _best(models.whole.propose(scenario))),
    (f"{FEW} estimates", lambda models, scenario: _best(models.whole.propose(scenario, FEW))),
    ("without trees", lambda models, scenario: _best(models.without_trees.propose(scenario))),
    ("without winners", lambda models, scenario: _best(models.without_winners.propose(scenario))),
    ("best static schedule", _static),
    ("serial", lambda models, scenario: list(usual_serials(scenario)[:1])),
)


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer of one way in one scenario: ticks of what was simulated, the best of them, and CPU time to choose."""

    ticks: int
    simulations: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Score:
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
    table: Table, limit: int = 40, seed: int = 0, workers: int = 1, progress: Counted | None = None
) -> tuple[Score, ...]:
    """Return the scores of all ways on ``limit`` scenarios of each split."""
    report, scores = progress or (lambda done, total: None), list[Score]()
    for done, (kind, value) in enumerate(SPLITS):
        report(done, len(SPLITS))
        held_out = [labels for labels in table.labels if _is_held_out(labels, kind, value)]
        searched = [labels for labels in held_out if np.isfinite(labels.found.best_ticks)]
        tested = Random(f"evaluate {seed}").sample(searched, min(limit, len(searched)))
        if not tested:
            continue
        models = _models(table, frozenset(labels.idx for labels in held_out), seed)
        parallel = Parallel(n_jobs=workers, batch_size=2)
        answers = parallel(delayed(_answers)(models, table.seed, labels.idx) for labels in tested)
        scores += _scores(f"{kind} {value}".strip(), tested, answers)
    report(len(SPLITS), len(SPLITS))
    return tuple(scores)


def _is_held_out(labels: Labels, kind: str, value: str) -> bool:
    return labels.idx % HELD_OUT == 0 if not value else getattr(labels.family, kind) == value


def _models(table: Table, held_out: frozenset[int], seed: int) -> Models:
    known = frozenset(labels.idx for labels in table.labels) - held_out
    whole = fit_model(table, known, seed)
    found = {winner.structure for winner in table.winners if winner.idx != ANYWHERE}
    before, after = (
        _without(library, found, consumes=kind) for kind, library in ((False, whole.before), (True, whole.after))
    )
    return Models(
        whole, replace(whole, trees=None), replace(whole, before=before, after=after), _best_static(table, known)
    )


def _without(library: Library, found: set[Structure], *, consumes: bool) -> Library:
    kept = [place for place, structure in enumerate(library.structures) if structure not in found]
    return Library.of(tuple(library.structures[place] for place in kept), library.origins[kept], consumes=consumes)


def _best_static(table: Table, known: frozenset[int]) -> dict[bool, Structure]:
    """Return the structures with the least mean loss over the scenarios that are ``known``."""
    losses: dict[int, list[float]] = {}
    everything = np.ones(len(table.winners), np.bool_)
    for labels in table.labels:
        if labels.idx in known:
            fits = labels.among(everything)
            for number, loss in zip(fits.winners.tolist(), fits.losses.tolist(), strict=True):
                losses.setdefault(number, []).append(loss)
    often = {number: float(np.mean(each)) for number, each in losses.items() if len(each) >= MIN_LABELS}
    ranked = sorted(often, key=lambda number: often[number])
    kinds = (False, True)
    return {
        kind: table.winners[next(number for number in ranked if table.winners[number].consumes is kind)].structure
        for kind in kinds
    }


def _answers(models: Models, seed: int, idx: int) -> list[Answered]:
    """Return the answer of every way in one scenario."""
    scenario, known = draw(seed, idx).scenario, dict[Choice, int]()
    models.whole.propose(scenario)  # what a running advisor has cached
    return [_answered(way, models, scenario, known) for _, way in WAYS]


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


def _scores(split: str, tested: Sequence[Labels], answers: Sequence[Sequence[Answered]]) -> Iterator[Score]:
    best = [
        min(labels.found.best_ticks, *(one.ticks for one in each)) for labels, each in zip(tested, answers, strict=True)
    ]
    for place, (way, _) in enumerate(WAYS):
        mine = [each[place] for each in answers]
        regret = np.array([one.ticks / least - 1 for one, least in zip(mine, best, strict=True)])
        harmed = [one.ticks > labels.found.serial_ticks * 1.001 for one, labels in zip(mine, tested, strict=True)]
        yield Score(
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


def report_text(scores: Sequence[Score]) -> str:
    """Return the scores as a table for each way: a line for each split, and their mean."""
    lines = [f"{'way, split':<34}{'n':>4}{'0.5 %':>7}{'1 %':>6}{'3 %':>6}{'mean':>8}{'p95':>8}{'harm':>7}{'CPU ms':>8}"]
    for way, _ in WAYS:
        mine = [score for score in scores if score.way == way]
        lines.append(way)
        lines += [_line(score) for score in mine]
        if len(mine) > 1:
            lines.append(_line(mean_of(mine)))
    return "\n".join(lines)


def mean_of(scores: Sequence[Score]) -> Score:
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
    return Score("mean", scores[0].way, sum(score.scenarios for score in scores), *map(mean, shares))


def _line(score: Score) -> str:
    shares = (score.within_half, score.within_one, score.within_three)
    within = "".join(f"{100 * share:>{width}.0f}" for share, width in zip(shares, (7, 6, 6), strict=True))
    regrets = f"{100 * score.mean_regret:>7.2f}%{100 * score.p95_regret:>7.1f}%{100 * score.harm:>6.1f}%"
    return f"  {score.split:<32}{score.scenarios:>4}{within}{regrets}{1e3 * score.seconds:>8.0f}"
