"""Copies by kernels that are written as what their work-groups do: loops of wavefronts over lines.

A copy is dealt to work-groups in turn, each on an SM of its own, and the part of one to its wavefronts. All lines of a
group pass its SM, a server at the rate of ``sm_copy``: a wavefront that waits leaves it to the others.

    get   ask for ``turn`` lines, wait until they are there, and again. The request passes the links to the peer as so
          many bytes, and queues there behind the data that others get from this rank; the lines come back. With
          ``waitcnt`` lines left under way, requests are as many chains of ``turn`` lines each: the next turn is asked
          for when the oldest one is there.
    put   load, and store at the peer; a store is under way until it is written, and at most ``load`` lines are. Nobody
          waits for stores but the signal: a barrier of the wavefronts, one way back until all writes are known, a flag.

The requests of a turn travel together and fill whole lines. Where arbitration is fair, a request queues behind other
requests alone. The bytes that it takes from the link are then units beside the data that it asks for, so that the link
carries as much as it does first come, first served.
"""

from dataclasses import dataclass, replace

from ...compiler.ir import Direction, GroupKernel, Reduction, Transfer, WaveLoop
from ..program.program import Flow, OpKind, OpSpec, Stage, TrafficClass
from .copies import copy_route, copy_workers, ends_of, flag_stages
from .machine import Hop, distance_ticks
from .state import Lowering, Waiters, after_counts, moved_bytes, split_evenly


def lower_by_groups(state: Lowering, rank: int, step: Transfer, kernel: GroupKernel) -> None:
    """One op for each chain of requests of a wavefront; of a put also one for the signal of each group."""
    loop, groups = kernel.loop(step.direction), state.machine.groups
    assert loop is not None and groups is not None, "a checked plan has only copies that its kernel makes"
    lines = -(-moved_bytes(state.scenario, step.region) // state.scenario.gpu.line_bytes)
    setup = state.setup(state.scenario.gpu.sm_copy.setup_ticks)
    flag, first, ops = flag_stages(state, rank, step), list[int](), list[int]()
    shares = split_evenly(lines, copy_workers(state, rank, step))
    for of_group in (share for count, share in shares for _ in range(count)):
        group = state.groups_busy.get(rank, 0)
        state.groups_busy[rank] = (group + 1) % kernel.groups
        copy = _Copy(state, rank, step, kernel, (groups.first_sm + group, rank))
        waves: list[int] = []
        for count, share in split_evenly(of_group, kernel.waves * loop.turns):
            stages = copy.stages(loop, share)
            spec = OpSpec(OpKind.TRANSFER, step.name, stages, pool=groups.waves, setup_ticks=setup)
            waves += state.builder.op(rank, spec, count=count)
        first += waves
        ops += waves
        if flag:
            signal = state.builder.op(rank, OpSpec(OpKind.TRANSFER, step.name, flag))
            state.builder.after(signal, waves)
            ops += signal
    after_counts(state, rank, first)
    state.register(rank, step, range(ops[0], ops[-1] + 1), Waiters(first, first))


@dataclass(frozen=True, slots=True)
class _Copy:
    """The part of ``step`` that one work-group moves, on its ``sm``."""

    state: Lowering
    rank: int
    step: Transfer
    kernel: GroupKernel
    sm: Hop

    def stages(self, loop: WaveLoop, lines: int) -> tuple[Stage, ...]:
        """The stages of one chain of requests, which moves so many ``lines``."""
        read, way, write = copy_route(self.state, self.rank, self.step)
        if self.step.direction is Direction.PUT:
            flow = Flow((*read, self.sm, *way, *write), lines, traffic=TrafficClass.COMM, window_units=loop.load)
            return (Stage(0, (flow,)),)
        if in_registers(self.state, self.rank, self.step):
            write = ()
        data = Flow((*read, *way, self.sm, *write), loop.turn, traffic=TrafficClass.COMM)
        full, rest = divmod(max(1, lines), loop.turn)
        last = self._turn(replace(data, units=min(rest, lines))) if rest else ()
        return self._turn(data) * full + last

    def _turn(self, data: Flow) -> tuple[Stage, ...]:
        """The request for ``data``, and the data when it has come to the peer."""
        state, (source, _) = self.state, ends_of(self.rank, self.step)
        assert state.machine.groups is not None
        asked, own = state.units(data.units * self.kernel.request_bytes), state.machine.groups.requests
        if not asked:
            return Stage(distance_ticks(state.scenario, self.step.peer, self.rank)), Stage(0, (data,))
        request = Flow(state.machine.route(self.rank, source), asked, traffic=TrafficClass.FLAGS)
        if not own:
            return Stage(0, (request,)), Stage(0, (data,))
        first = replace(request, route=state.machine.route(self.rank, source, own), units=data.units)
        return Stage(0, (first,)), Stage(0, (data, request))


def in_registers(state: Lowering, rank: int, step: Transfer | Reduction) -> bool:
    """Whether what a get brings, or all that a sum adds up but the own part, stays in registers.

    So it is where the kernel adds up what it gets: of the gets that add to a region the last adds the own part and
    writes the sum, and a sum of parts that this rank gets writes it where they were added up.
    """
    kernel, steps = state.schedule.engine.kernel, state.schedule.steps_of(rank)
    if kernel is None or not kernel.sums:
        return False
    gets = [each for each in steps if isinstance(each, Transfer) and each.direction is Direction.GET]
    signals = {each.signal for each in gets}
    sums = [each for each in steps if isinstance(each, Reduction) and signals.issuperset(each.after)]
    if isinstance(step, Reduction):
        return step in sums
    if step.reduce:
        return step != [each for each in gets if each.reduce and each.region == step.region][-1]
    return any(step.signal in each.after for each in sums)
