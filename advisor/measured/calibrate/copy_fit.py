"""The constants of copies fitted to measurements: by SMs to DeepEP's combine, by DMA to the shares of phases."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from ....compiler.ir import Gpu
from ....simcore.kernels.copy import CopyPhase, dma_copy_time, sm_copy_rate
from ..tables.copies import MIN_SHARE, PHASES, PhaseShare, SmCopies
from .constants import Constant, ConstantUnit
from .fitting import Fitted, Floats
from .parts import FittedRow, Predict, ProfilePart, fit_rows

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
    fit = partial(_fit, SM_COPY, sm_copy_times_us, ((0, 1),))
    return ProfilePart("SM copy", rows, sm_copy_times_us, fit, len(SM_COPY))


def dma_part(shares: Sequence[PhaseShare], file: str) -> ProfilePart:
    """Return the part of DMA phases, without small shares, which suffer from the rounding to whole percents."""
    rows = tuple(
        FittedRow("DMA phase share", (share.num_bytes, share.phase.value, index), share.measured, file)
        for index, share in enumerate(shares)
        if share.measured >= MIN_SHARE
    )
    return ProfilePart("DMA phase share", rows, phase_percents, partial(_fit, DMA, phase_percents, ()), len(DMA))


def sm_copy_times_us(gpu: Gpu, rows: Sequence[FittedRow]) -> Floats:
    """Return the time of each row by the profile, in us."""
    return np.array([int(row.key[1]) / sm_copy_rate(gpu, int(row.key[0])) * 1e6 for row in rows])


def phase_percents(gpu: Gpu, rows: Sequence[FittedRow]) -> Floats:
    """Return the share of each row's phase in its copy by the profile, in percent."""
    return np.array([100 * dma_copy_time(gpu, int(row.key[0])).share(CopyPhase(row.key[1])) for row in rows])


def _fit(
    constants: Sequence[Constant],
    predict: Predict,
    order: Sequence[tuple[int, int]],
    gpu: Gpu,
    start: Gpu,
    rows: Sequence[FittedRow],
) -> tuple[Fitted, ...]:
    return fit_rows(constants, gpu, start, rows, predict, order)
