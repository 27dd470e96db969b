"""The parts of a profile that are fitted one by one: measured rows of one kind, their constants, and the model."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from ....compiler.ir import TICKS_PER_US, DType, Gpu
from ....simcore.kernels.copy import CopyPhase, dma_copy_time, sm_copy_rate
from ....simcore.kernels.nccl import NcclCollective, NcclProtocol, collective_time
from ..tables.collectives import MIN_SHARE, PHASES, MeasuredPoint, PhaseShare, SmCopies
from ..tables.csv_rows import drawn_fifth
from ..tables.gemm import CAST_STEPS, MIN_WHOLE, GemmTable, peak_us
from ..tables.gemm_times import (
    GemmConstants,
    GemmTerms,
    Ints,
    body_times_us,
    fastest,
    gemm_terms,
    gemm_ticks,
    slowdowns,
)
from .fitting import Constant, ConstantUnit, Fitted, Floats, differences, fit, put_all, with_values

ANY_ROWS_DIVISOR = 5
"""One of this number of sampled rows is any row, if some rows count first."""


@dataclass(frozen=True, slots=True)
class FittedRow:
    """One measured value: its error is summed up under ``group``, and ``key`` identifies what was measured.

    The model is mainly used for rows that are ``first``; a fit takes more of them than of others. ``least_us`` is what
    the math takes at the peak rate.
    """

    group: str
    key: tuple[int | str, ...]
    measured: float
    file: str
    first: bool = False
    least_us: float = 0.0


Predict = Callable[[Gpu, Sequence[FittedRow]], Floats]
Fit = Callable[[Gpu, Gpu, Sequence[FittedRow]], tuple[Fitted, ...]]


@dataclass(frozen=True, slots=True)
class ProfilePart:
    """Rows of one kind with their model.

    ``predict`` returns the values of rows by a profile; ``fit`` takes a profile, the profile whose constants are the
    start, and rows. ``num_constants`` is the number of fitted constants.
    """

    name: str
    rows: tuple[FittedRow, ...]
    predict: Predict
    fit: Fit
    num_constants: int


def parted(rows: Sequence[FittedRow], sample: int, seed: int) -> tuple[tuple[FittedRow, ...], tuple[FittedRow, ...]]:
    """Return at most ``sample`` rows to fit, and the held-out fifth; the order of ``rows`` does not matter.

    Up to four fifths of the sample are rows that count ``first``, the rest any rows.
    """
    held, rest = drawn_fifth(rows, lambda row: (row.group, row.key), seed)
    any_rows = sample // ANY_ROWS_DIVISOR if any(row.first for row in rest) else sample
    taken, left = rest[:any_rows], rest[any_rows:]
    left.sort(key=lambda row: not row.first)
    return (*taken, *left[: sample - len(taken)]), tuple(held)


def fit_rows(
    constants: Sequence[Constant],
    predict: Predict,
    order: Sequence[tuple[int, int]],
    gpu: Gpu,
    start: Gpu,
    rows: Sequence[FittedRow],
) -> tuple[Fitted, ...]:
    """Fit by the closed form: every trial is a profile, whose values ``predict`` returns; ``order`` as for ``fit``."""

    def logs(values: Floats) -> Floats:
        return np.log(predict(with_values(gpu, constants, values.tolist()), rows))

    measured = np.array([row.measured for row in rows])
    return fit(constants, [[constant.of(start) for constant in constants]], logs, measured, order=order)


PROTOCOL_RATES = ("ll_bandwidth", "ll128_bandwidth", "simple_bandwidth")
SWITCH_SIZES = tuple(1 << power for power in range(16, 25))  # for each rank


def _time(path: str, *attributes: str) -> Constant:
    return Constant(f"collectives.{path}", ("collectives", *attributes), ConstantUnit.TIME, 0.02, 500)


def _rate(path: str, *attributes: str) -> Constant:
    return Constant(f"collectives.{path}", ("collectives", *attributes), ConstantUnit.RATE, 0.5, 20_000)


RING = (
    _time("start", "start_ticks"),
    _time("ll_step", "ll", "step_ticks"),
    _rate("ll_bandwidth", "ll", "bytes_per_s"),
    _time("ll128_start", "ll128", "start_ticks"),
    _time("ll128_step", "ll128", "step_ticks"),
    _rate("ll128_bandwidth", "ll128", "bytes_per_s"),
    _time("simple_start", "simple", "start_ticks"),
    _time("simple_step", "simple", "step_ticks"),
    _rate("simple_bandwidth", "simple", "bytes_per_s"),
    _rate("own_bandwidth", "own_bytes_per_s"),
    Constant("collectives.reduce_factor", ("collectives", "reduce_factor"), ConstantUnit.SHARE, 0.3, 2),
)
EXCHANGE = (
    _time("all_to_all.start", "all_to_all", "start_ticks"),
    _time("all_to_all.ll_step", "all_to_all", "ll", "step_ticks"),
    _rate("all_to_all.ll_bandwidth", "all_to_all", "ll", "bytes_per_s"),
    _time("all_to_all.ll128_start", "all_to_all", "ll128", "start_ticks"),
    _rate("all_to_all.ll128_bandwidth", "all_to_all", "ll128", "bytes_per_s"),
    _time("all_to_all.simple_start", "all_to_all", "simple", "start_ticks"),
    _time("all_to_all.simple_step", "all_to_all", "simple", "step_ticks"),
    _rate("all_to_all.simple_bandwidth", "all_to_all", "simple", "bytes_per_s"),
    _rate("all_to_all.own_bandwidth", "all_to_all", "own_bytes_per_s"),
)
NVLS = (_time("nvls.start", "nvls", "start_ticks"), _rate("nvls.bandwidth", "nvls", "bytes_per_s"))
RING_SWITCH = Constant("collectives.simple_from", ("collectives", "simple_from_bytes"), ConstantUnit.SIZE, 1, 1 << 40)
EXCHANGE_SWITCH = Constant(
    "collectives.all_to_all.simple_from",
    ("collectives", "all_to_all", "simple_from_bytes"),
    ConstantUnit.SIZE,
    1,
    1 << 40,
)


def collective_parts(gpu: Gpu, points: Sequence[MeasuredPoint], fit_switch: bool) -> list[ProfilePart]:
    """Return the parts rings, all_to_all and NVLS that ``points`` has rows of.

    The sizes in the profile ``gpu`` decide which points are sums in the switch. With ``fit_switch`` the size from which
    SIMPLE is used is fitted too.
    """
    parts: list[ProfilePart] = []
    for name, constants, switch in (
        ("rings", RING, RING_SWITCH),
        ("all_to_all", EXCHANGE, EXCHANGE_SWITCH),
        ("NVLS", NVLS, None),
    ):
        rows = tuple(_row(point) for point in points if _part_of(gpu, point) == name)
        if rows:
            searched = switch if fit_switch else None
            fit = partial(_fit, constants, searched)
            parts.append(ProfilePart(name, rows, collective_times_us, fit, len(constants) + (searched is not None)))
    return parts


def collective_times_us(gpu: Gpu, rows: Sequence[FittedRow]) -> Floats:
    """Return the time of each row by the profile, in us."""
    return np.array(
        [collective_time(gpu, NcclCollective(row.key[0]), int(row.key[2]), int(row.key[1])).us for row in rows]
    )


def _row(point: MeasuredPoint) -> FittedRow:
    return FittedRow(
        point.operation.value, (point.operation.value, point.ranks, point.num_bytes), point.time_us, point.file
    )


def _part_of(gpu: Gpu, point: MeasuredPoint) -> str:
    if point.operation is NcclCollective.ALL_TO_ALL:
        return "all_to_all"
    in_switch = collective_time(gpu, point.operation, point.num_bytes, point.ranks).protocol is NcclProtocol.NVLS
    return "NVLS" if in_switch else "rings"


def _fit(
    constants: tuple[Constant, ...], switch: Constant | None, gpu: Gpu, start: Gpu, rows: Sequence[FittedRow]
) -> tuple[Fitted, ...]:
    """Fit for each size of the switch; a protocol with more flags is slower: LL than LL128, LL128 than SIMPLE."""
    rates = [index for index, constant in enumerate(constants) if constant.name in PROTOCOL_RATES]
    fit_others = partial(fit_rows, constants, collective_times_us, list(pairwise(rates)))
    if switch is None:
        return fit_others(gpu, start, rows)
    before = switch.of(gpu)
    # The size of the profile comes first, so that it is kept in a tie.
    sizes = sorted({int(before), *SWITCH_SIZES}, key=lambda size: (size != before, size))
    ends = []
    for size in sizes:
        at = Fitted(switch, before, switch.rounded(size), 0.0, at_bound=False)
        ends.append((*fit_others(switch.put(gpu, at.value), start, rows), at))
    return min(ends, key=lambda end: mean_error(collective_times_us, put_all(gpu, end), rows))


def mean_error(predict: Predict, gpu: Gpu, rows: Sequence[FittedRow]) -> float:
    """Return the mean error of predictions by a profile, as a share of what was measured."""
    measured = np.array([row.measured for row in rows])
    return float(np.mean(np.abs(predict(gpu, rows) / measured - 1)))


ALL, LARGE = "smaller", "m,n,k >= 512"

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

OF_FEWEST_WAVES = (
    Constant("gemm.ragged", ("gemm", "ragged_ticks"), ConstantUnit.TIME, 0.0001, 0.1),
    Constant("gemm.uneven", ("gemm", "uneven"), ConstantUnit.SHARE, 0.001, 2),
)
"""Those of kernels that have the block of fewest waves, which neither split nor balance their last wave."""

QUANTISATIONS = (0.05, 0.5, 1.0)
"""Starts for the quantisation: the loss has a local minimum for balanced and for unbalanced last waves."""


GEMM_PARTS = {dtype: "gemm" if dtype is DType.BF16 else f"gemm {dtype.value}" for dtype in CAST_STEPS}


def gemm_constants(dtype: DType, gpu: Gpu) -> tuple[Constant, ...]:
    """Return the constants of GEMMs of ``dtype`` that ``gpu`` has, those of bf16 in the block itself."""
    if dtype is DType.BF16:
        return CONSTANTS
    path, inside = f"gemm.{dtype.value}", ("gemm", dtype.value)
    return tuple(
        replace(each, path=f"{path}.{each.name}", attributes=(*inside, *each.attributes[1:]))
        for each in (*CONSTANTS, *(OF_FEWEST_WAVES if _by_waves(gpu, dtype) else ()))
    )


def _by_waves(gpu: Gpu, dtype: DType) -> bool:
    return gpu.gemm.of(dtype).ragged_ticks is not None


def gemm_parts(gpu: Gpu, tables: Sequence[GemmTable]) -> Iterator[ProfilePart]:
    """Yield the GEMMs of one GPU by type; those with m, n, k >= 512, where schedules compete, count first."""
    for dtype, name in GEMM_PARTS.items():
        rows = tuple(
            FittedRow(f"{name}, {LARGE if large else ALL}", shape, us, table.file, large, peak_us(gpu, dtype, shape))
            for table in tables
            if table.dtype is dtype
            for shape, us in table.times_us.items()
            for large in [min(shape) >= MIN_WHOLE]
        )
        num_constants = len(gemm_constants(dtype, gpu))
        yield ProfilePart(name, rows, partial(gemm_times_us, dtype), partial(fit_gemm, dtype), num_constants)


def fit_gemm(dtype: DType, gpu: Gpu, start: Gpu, rows: Sequence[FittedRow]) -> tuple[Fitted, ...]:
    """Return the constants of ``dtype`` that fit ``rows`` best, with the data sheet and the tiles of ``gpu``.

    The fit starts from the constants of ``start``, and its prior is around them; shares of a rate refer to ``gpu``.
    """
    terms, constants, by_waves = (
        gemm_terms(gpu, _shapes(rows), dtype),
        gemm_constants(dtype, gpu),
        _by_waves(gpu, dtype),
    )
    first = [constant.of(start if _by_waves(start, dtype) == by_waves else gpu) for constant in constants]
    starts = [first, *([*first[:-1], quantisation] for quantisation in QUANTISATIONS if not by_waves)]
    return fit(
        constants,
        starts,
        lambda values: np.log(_times_us(terms, values)),
        np.array([row.measured for row in rows]) / slowdowns(gpu, _shapes(rows), dtype),  # at full clock
        lambda values: _slopes(terms, values),
    )


def gemm_times_us(dtype: DType, gpu: Gpu, rows: Sequence[FittedRow]) -> Floats:
    """Return the time of each row by the profile, in us."""
    times: Floats = gemm_ticks(gpu, _shapes(rows), dtype) / TICKS_PER_US
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


# Rows with few SMs, which do not fill the link, do not determine its limit: then the limit is kept.
SM_COPY = (
    Constant("sm_copy.bandwidth", ("sm_copy", "bytes_per_s"), ConstantUnit.RATE, 0.5, 1000),
    Constant("sm_copy.limit", ("sm_copy", "saturation", "limit_bytes_per_s"), ConstantUnit.RATE, 1, 10_000, width=0.05),
    Constant("sm_copy.exponent", ("sm_copy", "saturation", "exponent"), ConstantUnit.NUMBER, 1, 32, width=0.35),
)
DMA = tuple(
    Constant(f"dma.{phase.value}_phase", ("dma", "phases", f"{phase.value}_ticks"), ConstantUnit.TIME, 0.01, 1000)
    for phase in PHASES
)


def sm_copy_part(copies: Sequence[SmCopies]) -> ProfilePart:
    """Return the part of copies by SMs; the rate of one SM is at most that of all together."""
    rows = tuple(
        FittedRow("SM copy", (copy.sms, round(copy.remote_bytes), copy.label), copy.time_us, copy.file)
        for copy in copies
    )
    fit = partial(fit_rows, SM_COPY, sm_copy_times_us, ((0, 1),))
    return ProfilePart("SM copy", rows, sm_copy_times_us, fit, len(SM_COPY))


def dma_part(shares: Sequence[PhaseShare], file: str) -> ProfilePart:
    """Return the part of DMA phases, without small shares, which suffer from the rounding to whole percents."""
    rows = tuple(
        FittedRow("DMA phase share", (share.num_bytes, share.phase.value, index), share.measured, file)
        for index, share in enumerate(shares)
        if share.measured >= MIN_SHARE
    )
    return ProfilePart("DMA phase share", rows, phase_percents, partial(fit_rows, DMA, phase_percents, ()), len(DMA))


def sm_copy_times_us(gpu: Gpu, rows: Sequence[FittedRow]) -> Floats:
    """Return the time of each row by the profile, in us."""
    return np.array([int(row.key[1]) / sm_copy_rate(gpu, int(row.key[0])) * 1e6 for row in rows])


def phase_percents(gpu: Gpu, rows: Sequence[FittedRow]) -> Floats:
    """Return the share of each row's phase in its copy by the profile, in percent."""
    return np.array([100 * dma_copy_time(gpu, int(row.key[0])).share(CopyPhase(row.key[1])) for row in rows])
