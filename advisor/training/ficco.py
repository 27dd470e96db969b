"""FiCCO's static heuristic (arXiv 2512.10236), one of four schedules by sizes; its fit, and its scores.

The paper names what the heuristic looks at and prints no thresholds. The form of the rule is ours, and its four
constants are fitted to training scenarios:

- With few operations per byte the kernel should stay whole in rows: slices of columns where M is small against K, else
  the own shard as a kernel that waits for nothing.
- Else, where M is large against K, each slice is a kernel of its own.
- Else slices from all ranks: of columns where there is little memory traffic, of rows where there is more.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from random import Random

import numpy as np
import numpy.typing as npt

from ...compiler.ir import GemmShape, OpCase, OpChoice, Pattern
from ...compiler.planning.build import reject_choice
from ...compiler.planning.knobs.engine import default_engine
from ...compiler.templates import BY_NAME
from .build import results_here
from .families import draw
from .table import Labels, LabelTable
from .ways import predicted_ticks, simulated_ticks

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

FOUR = ("uniform_fused_1d", "hetero_fused_1d", "hetero_unfused_1d", "uniform_fused_2d")
UNIFORM_1D, HETERO_FUSED, HETERO_UNFUSED, UNIFORM_2D = range(len(FOUR))
# A choice within this share of the best of the four is exact.
EXACT = 0.005
# Quantiles of the training scenarios among which each constant is searched.
NUM_QUANTILES = 20


def four_choices(scenario: OpCase) -> tuple[OpChoice, ...]:
    """Return the four schedules as the paper has them; none where the workload or the rows permit one of them not.

    Each shard is cut into as many pieces as there are ranks and moved by the usual number of copy engines. Kernels of
    ``hetero_unfused_1d`` go to its usual number of streams.
    """
    ranks, engine = scenario.num_ranks, default_engine(scenario.system)
    choices = tuple(OpChoice(name, ranks * ranks, engine, BY_NAME[name].default_streams) for name in FOUR)
    legal = scenario.shape.pattern is Pattern.AG_GEMM and scenario.shape.gemm is not None
    return choices if legal and all(reject_choice(scenario, choice) is None for choice in choices) else ()


def sizes_of(gemm: GemmShape) -> tuple[float, float, float]:
    """Return operations per byte, M over K and bytes of memory traffic of the GEMM of one rank."""
    traffic = gemm.operand_bytes + gemm.output_bytes
    return gemm.flops / traffic, gemm.m / gemm.k, traffic


@dataclass(frozen=True, slots=True)
class FiccoRule:
    """The constants: operations per byte, M over K for columns and for kernels of one slice, traffic in bytes."""

    intensity: float
    few_rows: float
    many_rows: float
    traffic: float

    def picks(self, sizes: FloatArray) -> IntArray:
        """Return which of the ``FOUR`` the rule picks for ``sizes`` [N, 3], in the order of ``sizes_of``."""
        intensity, rows, traffic = sizes.T
        low = np.where(rows <= self.few_rows, UNIFORM_2D, HETERO_FUSED)
        usual = np.where(traffic < self.traffic, UNIFORM_2D, UNIFORM_1D)
        high = np.where(rows > self.many_rows, HETERO_UNFUSED, usual)
        return np.where(intensity < self.intensity, low, high)


def fit_rule(sizes: FloatArray, ticks: FloatArray) -> FiccoRule:
    """Return the rule with most exact picks, then the least mean loss; ``sizes`` [N, 3], ``ticks`` [N, 4].

    The search over the quantiles is complete: above and below one value of ``intensity`` the picks depend on different
    constants.
    """
    intensities, rows, traffics = (np.unique(np.quantile(one, np.linspace(0, 1, NUM_QUANTILES + 1))) for one in sizes.T)
    losses = losses_of(ticks)

    def goodness(rule: FiccoRule) -> tuple[float, float]:
        loss = losses[np.arange(len(losses)), rule.picks(sizes)]
        return float((loss <= EXACT).mean()), -float(loss.mean())

    return max((_fitted(FiccoRule(each, *3 * (0.0,)), rows, traffics, goodness) for each in intensities), key=goodness)


def _fitted(
    rule: FiccoRule, rows: FloatArray, traffics: FloatArray, goodness: Callable[[FiccoRule], tuple[float, float]]
) -> FiccoRule:
    """Return ``rule`` with the best other constants."""
    rule = max((replace(rule, few_rows=each) for each in rows), key=goodness)
    pairs = product(rows, traffics)
    return max((replace(rule, many_rows=row, traffic=traffic) for row, traffic in pairs), key=goodness)


def losses_of(ticks: FloatArray) -> FloatArray:
    """Return times over the best of the four, minus one, [N, 4]."""
    return np.asarray(ticks / ticks.min(axis=1, keepdims=True) - 1)


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
