"""Bytes that a run moves at one rank: by the plan, and the flags as they were read."""

from collections.abc import Sequence
from dataclasses import astuple, replace
from functools import reduce

import numpy as np

from ...compiler.ir import EngineKind, Reach, Transfer
from ..cores.endings import units_delivered
from ..lower.copies import ends_of
from ..lower.protocols import sent_per_byte
from ..lower.state import StepOps, moved_bytes
from ..lower.steps import LoweredPart
from ..program.outcome import Run
from ..program.program import OpKind, Program, TrafficClass
from .result import Traffic


def traffic_of(parts: Sequence[LoweredPart], run: Run) -> Traffic:
    """Bytes at one rank by the plans of ``parts``, of the rank with the most HBM traffic; flags as they were read."""
    ranks = sorted({ops.rank for part in parts for ops in part.steps} or {0})
    by_rank = [
        reduce(_sum, (traffic_at(part, [ops for ops in part.steps if ops.rank == rank]) for part in parts))
        for rank in ranks
    ]
    busiest = max(by_rank, key=lambda traffic: traffic.hbm_read_bytes + traffic.hbm_write_bytes)
    reads = _flag_reads(parts[0].program, run)
    return replace(busiest, flag_reads=reads, flag_bytes=reads * parts[0].scenario.gpu.line_bytes)


def _sum(one: Traffic, other: Traffic) -> Traffic:
    return Traffic(*(mine + theirs for mine, theirs in zip(astuple(one), astuple(other), strict=True)))


def _flag_reads(program: Program, run: Run) -> int:
    """Reads of flags, of the rank that read most; a copy that sends a flag reads none."""
    op = program.stage_op[program.flow_stage]
    flags = (program.flow_traffic == TrafficClass.FLAGS) & (program.op_kind[op] != OpKind.TRANSFER)
    units = units_delivered(program, run.flow_last, run.op_polls)[flags]
    return int(np.bincount(program.op_rank[op[flags]], units, minlength=1).max())


def traffic_at(lowered: LoweredPart, steps: list[StepOps]) -> Traffic:
    """Bytes that the steps of one rank move: its kernels', and each transfer at both ends as if both were here."""
    works = [ops.kernel for ops in steps if ops.kernel is not None]
    read = sum(work.hbm_read_bytes for work in works)
    written = sum(work.hbm_write_bytes for work in works)
    l2 = sum(work.l2_hit_bytes + work.below_l2_bytes + work.hbm_write_bytes for work in works)
    links = 0
    for ops in steps:
        if isinstance(ops.step, Transfer):
            moved = _copied(lowered, ops.rank, ops.step)
            read += moved.hbm_read_bytes
            written += moved.hbm_write_bytes
            l2 += moved.l2_bytes
            links += moved.link_bytes
    return Traffic(read, written, l2, links, 0, 0)


def _copied(lowered: LoweredPart, rank: int, step: Transfer) -> Traffic:
    """Bytes that one transfer moves, flags in between included where they are sent with the data."""
    size, n = moved_bytes(lowered.scenario, step.region), lowered.scenario.num_ranks
    sent = int(size * sent_per_byte(lowered.schedule))
    through_l2 = size if lowered.schedule.engine.kind is EngineKind.SM else 0
    if step.reach is Reach.PEER:
        hits = int(size * lowered.hits.at_source(rank, step)), int(size * lowered.hits.at_target(rank, step))
        read = size + (sent if step.reduce else 0) - sum(hits)
        if lowered.machine.memory[0].mall is None:
            through_l2 += hits[1] + (0 if through_l2 else hits[0])
        return Traffic(read, sent, through_l2, sent * lowered.machine.num_links(*ends_of(rank, step)), 0, 0)
    if step.reduce:
        return Traffic(n * size, size, n * through_l2, (n + 1) * size, 0, 0)
    return Traffic(size, (n - 1) * size, through_l2, n * size, 0, 0)
