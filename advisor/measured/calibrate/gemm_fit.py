"""The nine constants of the GEMM form fitted to measured shapes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....compiler.ir import TICKS_PER_US, Gpu
from ..tables.gemm import MIN_WHOLE, GemmTable
from ..tables.gemm_times import GemmConstants, GemmTerms, Ints, body_times_us, fastest, gemm_terms, gemm_ticks
from .constants import Constant, ConstantUnit
from .fitting import Fitted, Floats, differences, fit
from .parts import FittedRow, ProfilePart

ALL, LARGE = "gemm, smaller", "gemm, m,n,k >= 512"

CONSTANTS = (
    Constant("gemm.start", ("gemm", "start_ticks"), ConstantUnit.TIME, 0.1, 20),
    Constant("gemm.mma", ("gemm", "mma_fraction"), ConstantUnit.SHARE, 0.02, 1),
    Constant("gemm.hbm", ("gemm", "hbm_fraction"), ConstantUnit.SHARE, 0.05, 1.5),
    Constant("gemm.tile", ("gemm", "tile_ticks"), ConstantUnit.TIME, 0.005, 20),
    Constant("gemm.k_step", ("gemm", "k_step_ticks"), ConstantUnit.TIME, 0.005, 2),
    Constant("gemm.split", ("gemm", "split_ticks"), ConstantUnit.TIME, 0.05, 20),
    Constant("gemm.split_bandwidth", ("gemm", "split_bytes_per_s"), ConstantUnit.RATE, 50, 50_000),
    Constant("gemm.exponent", ("gemm", "exponent"), ConstantUnit.NUMBER, 1.1, 12),
    Constant("gemm.quantisation", ("gemm", "quantisation"), ConstantUnit.SHARE, 0, 1, plain=True),
)
"""Bounds are wide: a constant that ends at one is reported."""

QUANTISATIONS = (0.05, 0.5, 1.0)
"""Starts for the quantisation: the loss has a local minimum for balanced and for unbalanced last waves."""


def gemm_part(tables: Sequence[GemmTable]) -> ProfilePart:
    """Return the part of the GEMMs of one GPU; those with m, n, k >= 512, where schedules compete, count first."""
    rows = [
        FittedRow(LARGE if min(shape) >= MIN_WHOLE else ALL, shape, us, table.file, first=min(shape) >= MIN_WHOLE)
        for table in tables
        for shape, us in table.times_us.items()
    ]
    return ProfilePart("gemm", tuple(rows), gemm_times_us, fit_gemm, len(CONSTANTS))


def fit_gemm(gpu: Gpu, start: Gpu, rows: Sequence[FittedRow]) -> tuple[Fitted, ...]:
    """Return the constants that fit ``rows`` best, with the data sheet and the tiles of ``gpu``.

    The fit starts from the constants of ``start``, and its prior is around them; shares of a rate refer to ``gpu``.
    """
    terms = gemm_terms(gpu, _shapes(rows))
    first = [constant.of(start) for constant in CONSTANTS]
    starts = [first, *([*first[:-1], quantisation] for quantisation in QUANTISATIONS)]
    return fit(
        CONSTANTS,
        starts,
        lambda values: np.log(_times_us(terms, values)),
        np.array([row.measured for row in rows]),
        lambda values: _slopes(terms, values),
    )


def gemm_times_us(gpu: Gpu, rows: Sequence[FittedRow]) -> Floats:
    """Return the time of each row by the profile, in us."""
    times: Floats = gemm_ticks(gpu, _shapes(rows)) / TICKS_PER_US
    return times


def _shapes(rows: Sequence[FittedRow]) -> Ints:
    return np.array([row.key for row in rows], dtype=np.int64).reshape(-1, 3)


def _times_us(terms: GemmTerms, values: Floats) -> Floats:
    """Return the times of all rows without the rounding of the simulator, which would hide small steps."""
    constants = _named(values)
    return fastest(body_times_us(terms, constants))[0] + constants.start


def _slopes(terms: GemmTerms, values: Floats) -> Floats:
    """Return derivatives of the logarithms; only the fastest kernel of each row counts (envelope theorem)."""
    alone = terms.chosen(fastest(body_times_us(terms, _named(values)))[1])
    return differences(lambda at: np.log(_times_us(alone, at)), values)


def _named(values: Floats) -> GemmConstants:
    constants = GemmConstants(*values.tolist())
    return replace(constants, split_bandwidth=constants.split_bandwidth / 1000)
