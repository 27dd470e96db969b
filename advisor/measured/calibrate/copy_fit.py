"""The constants of copies fitted: by SMs to DeepEP's combine, by DMA engines to the shares of their phases."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from ....compiler.ir import Gpu
from ....simcore.kernels.copy import CopyPhase, dma_copy_time, sm_copy_rate
from ..tables.copies import MIN_SHARE, PHASES, PhaseShare, SmCopies
from .constants import Constant, ConstantUnit
from .fitting import Fitted, Floats
from .parts import FittedRow, Predict, ProfilePart, fit_rows

# Where few SMs do not fill the link the rows say nothing about its limit: then it stays where it was.
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
    """Copies by SMs; the rate of one SM is at most what all reach together."""
    rows = tuple(
        FittedRow("SM copy", (each.sms, round(each.remote_bytes), each.label), each.time_us, each.file)
        for each in copies
    )
    fit = partial(_fit, SM_COPY, sm_copy_times_us, ((0, 1),))
    return ProfilePart("SM copy", rows, sm_copy_times_us, fit, len(SM_COPY))


def dma_part(shares: Sequence[PhaseShare], file: str) -> ProfilePart:
    """Phases of DMA copies, but for shares that the table's rounding to whole percents makes unreliable."""
    rows = tuple(
        FittedRow("DMA phase share", (each.num_bytes, each.phase.value, index), each.measured, file)
        for index, each in enumerate(shares)
        if each.measured >= MIN_SHARE
    )
    return ProfilePart("DMA phase share", rows, phase_percents, partial(_fit, DMA, phase_percents, ()), len(DMA))


def sm_copy_times_us(gpu: Gpu, rows: Sequence[FittedRow]) -> Floats:
    """What the profile says of each row, in us."""
    return np.array([int(row.key[1]) / sm_copy_rate(gpu, int(row.key[0])) * 1e6 for row in rows])


def phase_percents(gpu: Gpu, rows: Sequence[FittedRow]) -> Floats:
    """The share of the phase of each row in its copy, in percent."""
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
