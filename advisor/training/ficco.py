"""FiCCO's static heuristic (``policy/static_rule.py``) against the best single schedule and the estimate: scores."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import numpy as np

from ...compiler.ir import Pattern
from ..policy.static_rule import EXACT, FloatArray, fit_rule, four_choices, losses_of, sizes_of
from .build import results_here
from .families import draw
from .table import Labels, LabelTable
from .ways import predicted_ticks, simulated_ticks

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
    """The sizes of the GEMM of scenario ``idx``, as a rule takes them, and estimated ticks of the four schedules."""

    idx: int
    sizes: tuple[float, float, float]
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
    return Four(idx, sizes_of(gemm), tuple(predicted_ticks(scenario, choice) for choice in choices))


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
    sizes, estimated = (np.array([getattr(four, name) for four in trial.known]) for name in ("sizes", "estimated"))
    simulated = losses_of(np.array([ticks[four.idx] for four in trial.tested], np.float64))
    rule, places = fit_rule(sizes, estimated), np.arange(len(trial.tested))
    static = int((losses_of(estimated) <= EXACT).mean(axis=0).argmax())
    picks = {
        RULE: rule.picks(np.array([four.sizes for four in trial.tested])),
        STATIC: np.full(len(places), static),
        ESTIMATE: np.array([four.estimated for four in trial.tested]).argmin(axis=1),
    }
    return {way: simulated[places, each] for way, each in picks.items()}


def _score(fabric: str, split: str, way: str, losses: FloatArray) -> FourScore:
    wrong = losses[losses > EXACT]
    exact, lost = 1 - len(wrong) / len(losses), float(wrong.mean()) if len(wrong) else 0.0
    return FourScore(fabric, split, way, len(losses), exact, lost, float(losses.mean()))
