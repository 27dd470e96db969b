"""Traffic of other programs: writes to peers that begin by themselves, and that nothing in a plan waits for."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from ...compiler.ir import BackgroundTraffic, BackgroundWrite, WriteStream, checkpoint
from ..cores.endings import busy_ticks
from ..kernels.gemm import ticks_for
from ..program.builder import ProgramBuilder
from ..program.limits import RunTooLarge
from ..program.program import NEVER, Flow, OpKind, OpSpec, Program, Run, Stage, TrafficClass
from .draws import drawn
from .state import Lowering
from .switch import copied

LABEL = "traffic"

MAX_WRITES = 200_000
"""Writes beside one plan; each is an op of its own."""


def writes_until(traffic: BackgroundTraffic, until: int, seed: int) -> tuple[BackgroundWrite, ...]:
    """Return the writes that begin before ``until``, in ticks, by time; ``seed`` draws the intervals.

    Raises
    ------
    RunTooLarge
        If there are more than ``MAX_WRITES``.
    """
    found = [write for write in traffic.writes if write.ticks < until]
    for number, stream in enumerate(traffic.streams):
        for rank in stream.ranks:
            checkpoint()
            for ticks in _begins(stream, rank, until, (seed, number)):
                found += [BackgroundWrite(ticks, rank, stream.target, stream.num_bytes)] * stream.count
                if len(found) > MAX_WRITES:
                    message = f"the traffic beside the plan has more than {MAX_WRITES} writes until it ends"
                    raise RunTooLarge(f"{message}: say larger and rarer ones")
    return tuple(sorted(found, key=lambda write: (write.ticks, write.rank, write.target)))


def _begins(stream: WriteStream, rank: int, until: int, key: tuple[int, int]) -> Iterator[int]:
    seed, number = key
    at = 0
    for turn in count():
        at += max(1, round(drawn(stream.interval, seed, f"traffic {number}", rank, str(turn))))
        if at >= until:
            return
        yield at


def without_later_traffic(program: Program, run: Run) -> Run:
    """Return ``run`` as if it had ended with the plan: writes that begin later did not happen."""
    later = (program.op_kind == OpKind.TRAFFIC) & (program.op_release_ticks >= run.makespan_ticks)  # [O]
    ready, start, done = (np.where(later, NEVER, each) for each in (run.op_ready, run.op_start, run.op_done))
    flow_last = np.where(later[program.stage_op[program.flow_stage]], NEVER, run.flow_last)  # [F]
    busy = busy_ticks(program, flow_last, run.op_polls)
    return replace(run, op_ready=ready, op_start=start, op_done=done, flow_last=flow_last, server_busy_ticks=busy)


def add_writes(builder: ProgramBuilder, state: Lowering, writes: Sequence[BackgroundWrite]) -> None:
    """Add ``writes`` behind all else on the machine of ``state``, each at the pace of a copy engine and its links."""
    scenario, memory = state.scenario, state.machine.memory_for(TrafficClass.COMM)
    n = scenario.num_ranks
    for write in writes:
        links = scenario.network.route(write.rank, write.target)
        rate = min(scenario.gpu.dma.bytes_per_s, *(link.bytes_per_s for link in links))
        gap = ticks_for(state.unit_bytes, rate)
        ends = (memory.hbm, write.rank % n), (memory.hbm, write.target % n)
        route = (ends[0], *state.machine.route(write.rank, write.target), ends[1])
        flow = Flow(route, state.units(write.num_bytes), gap, gap, TrafficClass.COMM)
        spec = OpSpec(OpKind.TRAFFIC, LABEL, (Stage(0, copied(state, flow)),), release_ticks=write.ticks)
        builder.op(write.rank, spec)
