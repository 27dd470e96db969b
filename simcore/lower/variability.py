"""Unequal times: what a seed draws for each rank and kernel, and a Program with those times.

Every draw has a generator of its own, PCG64 (O'Neill, 2014) keyed by a hash of (seed, cause, rank, step): the order in
which anything is built does not matter, and a rank has the same luck on a larger system. Each takes one number u of 53
bits, uniform in (0, 1), and inverts the distribution, so that no draw depends on a library's sampling.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import sha256
from statistics import NormalDist

import numpy as np

from ...compiler.ir import Distribution, Shape, System, Variability
from ..program.arrays import Int64Array
from ..program.checks import HorizonError, check_horizon
from ..program.program import MAX_HORIZON_TICKS, OpKind, Program, TrafficClass

FACTOR_BITS = 20
_ONE = 1 << FACTOR_BITS
"""Factors of kernel times are multiples of 2**-20, about a millionth: the last bits of a logarithm do not matter."""

DEVIATIONS = 4
"""Standard deviations at which a normal distribution is cut off."""


@dataclass(frozen=True, slots=True)
class Perturbation:
    """The unequal times of one seed; without a seed only those that are not drawn."""

    variability: Variability
    seed: int | None

    def start_ticks(self, rank: int) -> int:
        """Begin of ``rank`` after time zero: its declared lateness and the drawn skew."""
        late = sum(delay.ticks for delay in self.variability.late if delay.rank == rank)
        skew = self.variability.skew
        if self.seed is None or skew is None:
            return late
        # A normal skew is taken positive: nobody begins before the run does.
        return late + abs(round(_value(skew, _uniform(self.seed, "skew", rank, ""))))

    def factor(self, rank: int, step: str) -> Fraction:
        """Factor on the time of the kernel of ``step`` at ``rank``: jitter, times the factor of a straggler."""
        if self.seed is None:
            return Fraction(1)
        jitter, straggler, factor = self.variability.jitter, self.variability.straggler, Fraction(1)
        if jitter is not None:
            factor += _value(jitter, _uniform(self.seed, "jitter", rank, step))
        if straggler is not None and _uniform(self.seed, "straggler", rank, "") < straggler.share:
            factor *= straggler.factor
        return Fraction(round(factor * _ONE), _ONE)


def perturbation_of(system: System, seed: int | None) -> Perturbation | None:
    """The perturbation of the ranks of ``system``; None if they are alike.

    Raises
    ------
    ValueError
        If the seed is negative.
    """
    if seed is not None and seed < 0:
        raise ValueError(f"a seed is a whole number from 0 up, not {seed}")
    variability = system.variability
    if variability is None or not (variability.late or (variability.random and seed is not None)):
        return None
    return Perturbation(variability, seed)


def perturbed(
    program: Program,
    perturbation: Perturbation,
    ranks: Collection[int],
    gets: Iterable[tuple[range, Sequence[int]]] = (),
) -> Program:
    """``program``, in which every rank is simulated, with other times at ``ranks``; what is done and where stays.

    No op of a late rank is ready before the rank begins, and none of ``gets``, ops with the ranks whose data they read,
    before these begin. The time of a work unit on its SM and the gap between its memory accesses are multiplied by the
    factor of its kernel: the time rounded to the nearest tick, a half up, the gap down.

    Raises
    ------
    ValueError
        If the program is folded; a HorizonError if it could outlast the simulated clock.
    """
    if program.folded:
        raise ValueError("ranks that differ are simulated one by one: lower the plan with fold=False")
    starts = np.array([perturbation.start_ticks(rank) * (rank in ranks) for rank in range(program.num_ranks)], np.int64)
    begins = starts[program.op_rank]  # [O]
    for ops, read in gets:
        begins[ops.start : ops.stop] = np.maximum(begins[ops.start : ops.stop], starts[list(read)].max())
    factors = _op_factors(program, perturbation)  # [O]
    of_stages = np.where(program.stage_polls, _ONE, factors[program.stage_op])  # looking for a flag is no work
    of_flows = np.where(
        program.flow_traffic == TrafficClass.COMPUTE, factors[program.stage_op[program.flow_stage]], _ONE
    )
    varied = replace(
        program,
        op_release_ticks=np.maximum(program.op_release_ticks, begins),
        stage_hold_ticks=_scaled(program.stage_hold_ticks, of_stages, _ONE // 2),
        flow_gap_ticks=_scaled(program.flow_gap_ticks, of_flows, 0),
    )
    check_horizon(varied)
    return varied


def _scaled(ticks: Int64Array, factors: Int64Array, half: int) -> Int64Array:
    """``ticks`` times ``factors`` in 2**-20, rounded down after ``half`` is added."""
    if float(ticks.max(initial=0)) * float(factors.max(initial=_ONE)) / _ONE >= MAX_HORIZON_TICKS >> FACTOR_BITS:
        raise HorizonError("a kernel takes so long that its varied time is past the range of the simulated clock")
    return ticks * factors + half >> FACTOR_BITS


def _op_factors(program: Program, perturbation: Perturbation) -> Int64Array:
    """[O] factors of the times of each op, in 2**-20; 1 for all but work units."""
    factors = np.full(program.num_ops, _ONE, np.int64)
    kernels = np.flatnonzero(np.isin(program.op_kind, (OpKind.TILE, OpKind.REDUCE)))
    keys = program.op_rank[kernels] * len(program.labels) + program.op_label_idx[kernels]
    distinct, back = np.unique(keys, return_inverse=True)
    drawn = []
    for key in distinct.tolist():
        rank, label = divmod(key, len(program.labels))
        drawn.append(int(perturbation.factor(rank, program.labels[label]) * _ONE))
    factors[kernels] = np.array(drawn, np.int64)[back]
    return factors


def _uniform(seed: int, cause: str, rank: int, step: str) -> Fraction:
    """A number in (0, 1) that depends on the key alone."""
    key = sha256(f"{seed}/{cause}/{rank}/{step}".encode()).digest()
    raw = int(np.random.PCG64(int.from_bytes(key[:16], "little")).random_raw())
    return Fraction(2 * (raw >> 11) + 1, 1 << 54)


def _value(distribution: Distribution, u: Fraction) -> Fraction:
    """The quantile of ``distribution`` at ``u``."""
    first = distribution.arguments[0]
    match distribution.shape:
        case Shape.CONSTANT:
            return first
        case Shape.UNIFORM:
            return first + (distribution.arguments[1] - first) * u
        case Shape.NORMAL:
            normal = NormalDist()
            tail = normal.cdf(-DEVIATIONS)
            return first * Fraction(normal.inv_cdf(tail + float(u) * (1 - 2 * tail)))
        case Shape.EXPONENTIAL:
            return first * Fraction(-math.log1p(-float(u)))
