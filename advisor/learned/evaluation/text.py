"""The evaluation for a terminal: regrets by split and by way, then coverage, then FiCCO's four schedules."""

from collections.abc import Iterator, Sequence

import numpy as np

from .evaluate import Evaluation
from .four import ALL_SPLITS, FourScore
from .scores import IntervalScore, SplitScore, mean_of
from .splits import SPLITS
from .ways import MODEL, WAYS

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
    wrong = f"{100 * score.harm:>5.1f}%{100 * score.told_harm:>5.1f}%{100 * score.false_serial:>6.1f}%"
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
