"""FiCCO's static heuristic (arXiv 2512.10236), one of four schedules by sizes, and its fit.

The paper names what the heuristic looks at and prints no thresholds. The form of the rule is ours, and its four
constants are fitted to training scenarios:

- With few operations per byte the kernel should stay whole in rows: slices of columns where M is small against K, else
  the own shard as a kernel that waits for nothing.
- Else, where M is large against K, each slice is a kernel of its own.
- Else slices from all ranks: of columns where there is little memory traffic, of rows where there is more.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt

from ...compiler.ir import ExecutionOptions, GemmShape, Kernels, OpCase, OpChoice, Pattern
from ...compiler.planning.build import reject_choice
from ...compiler.planning.knobs.engine import default_engine
from ...compiler.templates import BY_NAME

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

FOUR = ("uniform_fused_1d", "hetero_fused_1d", "hetero_unfused_1d", "uniform_fused_2d")
UNIFORM_1D, HETERO_FUSED, HETERO_UNFUSED, UNIFORM_2D = range(len(FOUR))
# A choice within this share of the best of the four is exact.
EXACT = 0.005
# Quantiles of the training scenarios among which each constant is searched.
NUM_QUANTILES = 20


def four_choices(scenario: OpCase, *, sharing: bool = False) -> tuple[OpChoice, ...]:
    """Return the four schedules as the paper has them; none where the workload or the rows permit one of them not.

    Each shard is cut into as many pieces as there are ranks and moved by the usual number of copy engines. Kernels of
    ``hetero_unfused_1d`` go to its usual number of streams, or where they are ``sharing`` the SMs, which the GPU must
    permit, to one for each peer, with tiles for their share.
    """
    ranks, engine = scenario.num_ranks, default_engine(scenario.system)
    choices = tuple(OpChoice(name, ranks * ranks, engine, BY_NAME[name].default_streams) for name in FOUR)
    if sharing and scenario.gpu.gemm.fewest_sms:
        tactics = ExecutionOptions(kernel=Kernels.SHARING)
        unfused = replace(choices[HETERO_UNFUSED], streams=ranks - 1, tactics=tactics)
        choices = (*choices[:HETERO_UNFUSED], unfused, *choices[HETERO_UNFUSED + 1 :])
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
