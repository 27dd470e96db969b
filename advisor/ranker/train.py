"""``magus train``: simulate random scenarios, fit the ranker, judge it on scenarios it has not seen, write it.

The model that is written is the one that was judged: a fifth of the scenarios is held out and stays so, so the figures
in its card are of that very model.
"""

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from ...compiler.ir import TICKS_PER_US, Progress
from ...compiler.text.writing import check_writable
from .dataset import Dataset, build_dataset
from .features import LOG_ESTIMATE_US, FloatArray
from .fingerprint import fingerprint
from .trees import CARD_FILE, ModelCard, Ranker

SCENARIOS = 120
HOLD_OUT = 5  # one scenario in so many
SHORTLIST = 6
SHIPPED = Path(__file__).parent / "model"


@dataclass(frozen=True, slots=True)
class Score:
    """Quality of predictions on scenarios not trained on.

    ``error_*`` are quantiles of abs(log(simulated / predicted)). ``spearman`` is the rank correlation within a
    scenario, mean over scenarios. A regret is the time of the choice taken over that of the best one simulated, minus
    one: of the first in the ranking (``top1``), or of the best of the first six, which are simulated anyway (``top6``).
    """

    error_median: float
    error_p90: float
    spearman: float
    top1_regret_mean: float
    top1_regret_p90: float
    top6_regret_mean: float
    top6_regret_p90: float


@dataclass(frozen=True, slots=True)
class TrainReport:
    """Summary of a training run, with the scores of the ranker and of the estimate that it corrects."""

    seed: int
    scenarios: int
    held_out: int
    runs: int
    seconds: float
    ranker: Score
    estimate: Score
    folder: Path


def train(
    out: Path | None = None,
    seed: int = 0,
    scenarios: int | None = None,
    workers: int = 2,
    progress: Progress | None = None,
) -> TrainReport:
    """Build the data set, fit, score on the held-out scenarios and write the model to ``out``, the shipped one if None.

    The same seed and number of scenarios give the same files, whatever the number of ``workers``.

    Raises
    ------
    ValueError
        If there are too few scenarios to hold any out.
    OSError
        If the model cannot be written there; as far as that can be known, before the work begins.
    """
    count = SCENARIOS if scenarios is None else scenarios
    if count < 2 * HOLD_OUT:
        raise ValueError(f"training needs at least {2 * HOLD_OUT} scenarios, got {count}")
    report = progress or (lambda stage, done, total: None)
    folder = SHIPPED if out is None else out
    folder.mkdir(parents=True, exist_ok=True)
    check_writable(folder / CARD_FILE)
    started = perf_counter()
    data = build_dataset(seed, count, workers=workers, progress=lambda done, total: report("dataset", done, total))
    report("fit", 0, 1)
    held_out = data.scenario_idx % HOLD_OUT == HOLD_OUT - 1
    fitted = data.of(~held_out)
    ranker = Ranker.fit(fitted.features, fitted.simulated_ticks, seed)
    unseen = data.of(held_out)
    score = score_of(unseen, ranker.predict_matrix(unseen.features))
    baseline = score_of(unseen, np.exp(unseen.features[:, LOG_ESTIMATE_US]))
    metrics = (*_named("", score), *_named("estimate_", baseline))
    card = ModelCard(fingerprint(), seed, count, len(fitted.simulated_ticks), metrics)
    Ranker(ranker.trees, card).save(folder)
    report("fit", 1, 1)
    seconds = perf_counter() - started
    return TrainReport(seed, count, count // HOLD_OUT, len(data.simulated_ticks), seconds, score, baseline, folder)


def score_of(data: Dataset, predicted: FloatArray) -> Score:
    """Score predicted times [N] in us against the simulated ones."""
    error = np.abs(np.log(data.simulated_ticks / TICKS_PER_US) - np.log(predicted))
    correlations, first, best_of_six = [], [], []
    for idx in np.unique(data.scenario_idx):
        rows = data.scenario_idx == idx
        simulated = data.simulated_ticks[rows].astype(np.float64)
        order = np.argsort(predicted[rows], kind="stable")
        regret = simulated[order] / simulated.min() - 1
        first.append(regret[0])
        best_of_six.append(regret[:SHORTLIST].min())
        correlations.append(_correlation(_ranks(simulated), _ranks(predicted[rows])))
    return Score(
        error_median=float(np.median(error)),
        error_p90=float(np.quantile(error, 0.9)),
        spearman=float(np.mean(correlations)),
        top1_regret_mean=float(np.mean(first)),
        top1_regret_p90=float(np.quantile(first, 0.9)),
        top6_regret_mean=float(np.mean(best_of_six)),
        top6_regret_p90=float(np.quantile(best_of_six, 0.9)),
    )


def report_document(report: TrainReport) -> dict[str, object]:
    """The report for ``--json``."""
    return {
        "schema": "magus-train/1",
        "seed": report.seed,
        "scenarios": report.scenarios,
        "held_out": report.held_out,
        "runs": report.runs,
        "seconds": round(report.seconds, 1),
        "ranker": dict(_named("", report.ranker)),
        "estimate": dict(_named("", report.estimate)),
        "folder": str(report.folder),
    }


def report_text(report: TrainReport) -> str:
    """The report as a table for a terminal."""
    size = f"{report.runs} runs of {report.scenarios} scenarios, {report.held_out} of them held out"
    lines = [
        f"{size}, {report.seconds:.0f} s",
        f"{'':<28}{'ranker':>10}{'estimate':>10}",
    ]
    for (name, ranker), (_, estimate) in zip(_named("", report.ranker), _named("", report.estimate), strict=True):
        as_text = (f"{value:.3f}" if name == "spearman" else f"{100 * value:.2f} %" for value in (ranker, estimate))
        lines.append(f"{name.replace('_', ' '):<28}" + "".join(f"{text:>10}" for text in as_text))
    return "\n".join([*lines, f"written to {report.folder}"])


def _named(prefix: str, score: Score) -> tuple[tuple[str, float], ...]:
    return tuple((f"{prefix}{name}", float(getattr(score, name))) for name in Score.__slots__)


def _ranks(values: FloatArray) -> FloatArray:
    """Ranks of [N] values, equal ones sharing the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts + 1) / 2)[inverse]


def _correlation(one: FloatArray, other: FloatArray) -> float:
    """Pearson correlation of two rankings, 1 where either is constant."""
    spread = float(one.std() * other.std())
    return float(((one - one.mean()) * (other - other.mean())).mean() / spread) if spread > 0 else 1.0
