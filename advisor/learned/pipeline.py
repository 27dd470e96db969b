"""Closed-form times of all structures of a library in one situation, by arrays: which of them are worth an estimate.

Pieces follow each other as in a pipeline: a kernel begins when the one before it has ended and its data have landed; if
kernels come first, copies begin when the ones before them have ended and their kernel has. The time of a kernel over a
share of the rows, or of the dimension that is cut, is read between the times of equal parts that the situation holds.
Streams, memory and unequal peers are left out: the trees learn what that does.
"""

import numpy as np
import numpy.typing as npt

from .shapes import Shapes
from .situation import CUTS, FEW_SMS, MANY_SMS, Situation

FloatArray = npt.NDArray[np.float64]

# Bytes sent for each byte of data: LL pairs every 4 with a flag of 4, LL128 every 120 with 8 (NCCL's protocols).
LL_BYTES, LL128_BYTES = 2.0, 128 / 120
_LEAST_SHARE = 1e-3
_LOG_CUTS = np.log(np.array([1, *CUTS], np.float64))


def pipeline_times(situation: Situation, shapes: Shapes) -> FloatArray:
    """Return the logarithm of the time of each structure over that of the undivided kernel, [P]."""
    comm, compute, setup = _rates(situation, shapes)
    event = situation.ratio("event_over_whole")
    kernels = _kernels(situation, shapes) * compute[:, None]
    copies = comm[:, None] * shapes.remote * shapes.cut
    sends = copies > 0
    computed, copied = np.zeros(len(comm)), np.zeros(len(comm))
    for kernel, copy, moves in zip(kernels.T, copies.T, sends.T, strict=True):
        landed = copied + copy
        after_copy = np.maximum(computed, np.where(moves, landed + setup + event, 0.0)) + kernel
        after_kernel = np.where(moves, np.maximum(copied, computed + kernel + event) + copy, copied)
        copied = np.where(shapes.consumes, landed, after_kernel)
        computed = np.where(shapes.consumes, after_copy, computed + kernel)
    ends = np.where(shapes.consumes, computed, np.maximum(computed, copied + setup))
    serial = 1.0 + comm + setup + event
    return np.asarray(np.log(np.where(shapes.knob("serial") > 0, serial, ends)))


def _rates(situation: Situation, shapes: Shapes) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return times over that of the whole kernel, each [P]: of all copies, of the kernel beside them, of a setup."""
    sms = shapes.knob("copy_sms")
    by_sm = sms > 0
    between = np.clip(np.log2(np.maximum(sms, 1.0) / FEW_SMS) / np.log2(MANY_SMS / FEW_SMS), 0.0, 1.0)
    few, many = situation["log_few_over_comm"], situation["log_many_over_comm"]
    comm = situation.ratio("log_comm_over_whole") * np.where(by_sm, np.exp(few + (many - few) * between), 1.0)
    passing = situation.ratio("log_passing_over_comm")
    comm = np.where(shapes.knob("ring") > 0, comm * passing, comm)
    comm = np.where(shapes.knob("double_ring") > 0, comm * passing / 2, comm)
    extra = np.where(shapes.knob("ll") > 0, LL_BYTES, np.where(shapes.knob("ll128") > 0, LL128_BYTES, 1.0))
    compute = np.exp(np.where(by_sm, situation["whole_beside_sms"] * np.minimum(sms / MANY_SMS, 1.0), 0.0))
    of_copies = np.where(by_sm, situation.ratio("sm_setup_over_comm"), situation.ratio("setup_over_comm"))
    return comm * extra, compute, situation.ratio("log_comm_over_whole") * of_copies


def _kernels(situation: Situation, shapes: Shapes) -> FloatArray:
    """Return the time of the kernel of each piece over that of the whole kernel, [P, M]; 0 without rows."""
    own, peers = situation.ratio("own_over_remote"), situation.ratio("log_ranks") - 1
    rows = (shapes.own * own + shapes.remote * peers) / (own + peers)
    by_rows = np.array([0.0, *(situation[f"rows_by_{cuts}"] for cuts in CUTS)])
    by_cut = np.array([0.0, *(situation[f"cut_by_{cuts}"] for cuts in CUTS)])
    size, part = _logs(rows), _logs(shapes.cut)
    return np.where(rows > 0, np.exp(_loss(size, by_rows) + _loss(part, by_cut) - size - part), 0.0)


def _logs(shares: FloatArray) -> FloatArray:
    return np.asarray(-np.log(np.maximum(shares, _LEAST_SHARE)))


def _loss(log_parts: FloatArray, known: npt.NDArray[np.float64]) -> FloatArray:
    """Return the loss of parts of a share, read between those of ``CUTS`` and continued beyond them."""
    slope = max(0.0, float((known[-1] - known[-2]) / (_LOG_CUTS[-1] - _LOG_CUTS[-2])))
    return np.asarray(np.interp(log_parts, _LOG_CUTS, known) + slope * np.maximum(log_parts - _LOG_CUTS[-1], 0.0))
