"""The simulated machine, one event at a time: slow, plain, and written from its rules rather than from the simulator.

Units are events (time, order of ties, unit, hop) in one heap. Ops, stages and pools are objects that call each other.
It reads the same ``Program``, and works out the order of ties for itself.
"""

import itertools
from dataclasses import dataclass
from heapq import heappop, heappush

from magus.simcore.program import Program

NEVER = -1


class Hop:
    """A flow at one server of its route; ``tie`` is (local id, flow of the op, hop of the flow, rank)."""

    __slots__ = ("flow", "next", "server", "tie")

    def __init__(self, flow: "Flow", server: int, tie: tuple[int, int, int, int]) -> None:
        self.flow, self.server, self.tie = flow, server, tie
        self.next: Hop | None = None


class Flow:
    """Units over a route; remembers when its latest unit was delivered."""

    def __init__(self, stage: "Stage", units: int, gap: int, offset: int) -> None:
        self.stage, self.units, self.gap, self.offset = stage, units, gap, offset
        self.undelivered = units
        self.last = NEVER
        self.hops: list[Hop] = []


class Stage:
    """Part of an op: over when its hold time is and nothing is under way."""

    def __init__(self, op: "Op", hold: int) -> None:
        self.op, self.hold = op, hold
        self.flows: list[Flow] = []
        self.end = 0


class Op:
    """Waits, takes a slot, works through its stages."""

    def __init__(self, rank: int, local_id: int, pool: int, setup: int, release: int) -> None:
        self.rank, self.local_id, self.pool, self.setup, self.release = rank, local_id, pool, setup, release
        self.stages: list[Stage] = []
        self.waits_for = 0
        self.followers: list[Op] = []
        self.ready = self.start = self.done = NEVER
        self.stages_over = 0


@dataclass
class OracleRun:
    """Times in ticks, NEVER (-1) where it did not happen."""

    ready: list[int]
    start: list[int]
    done: list[int]
    flow_last: list[int]
    server_free: list[int]
    makespan: int
    line_hops: int


class Oracle:
    """One run of a program."""

    def __init__(self, program: Program) -> None:
        self.service = program.service_ticks.tolist()
        self.latency = program.latency_ticks.tolist()
        self.free = [0] * len(self.service)
        self.slots = program.pool_slots.tolist()
        self.line: list[list[Op]] = [[] for _ in self.slots]  # who queues for each pool, in no order
        self.ops, self.flows = read_program(program)
        self.units: list[tuple[int, tuple[int, int, int, int], int, Hop]] = []  # arrivals: time, tie, unit, where
        self.alarms: dict[int, list[Op]] = {}  # time -> ops to which something happens then
        self.alarm_times: list[int] = []
        self.line_hops = 0

    def run(self) -> OracleRun:
        for op in self.ops:
            if not op.waits_for:
                self.wake(op, op.release)
        while self.alarm_times or self.units:
            if self.alarm_times and (not self.units or self.alarm_times[0] <= self.units[0][0]):
                self.settle(self.alarm_times[0])
            else:
                self.serve()
        return OracleRun(
            [op.ready for op in self.ops],
            [op.start for op in self.ops],
            [op.done for op in self.ops],
            [flow.last for flow in self.flows],
            self.free,
            max([op.done for op in self.ops if op.done != NEVER], default=0),
            self.line_hops,
        )

    def serve(self) -> None:
        """Take the first unit of all through the server it has reached."""
        time, _, unit, hop = heappop(self.units)
        server = hop.server
        leaves = max(time, self.free[server]) + self.service[server]
        self.free[server] = leaves
        arrives = leaves + self.latency[server]
        self.line_hops += 1
        if hop.next is not None:
            heappush(self.units, (arrives, hop.next.tie, unit, hop.next))
            return
        flow = hop.flow
        flow.undelivered -= 1
        flow.last = max(flow.last, arrives)
        if not flow.undelivered:
            self.close_stage(flow.stage)

    def wake(self, op: Op, time: int) -> None:
        if time not in self.alarms:
            self.alarms[time] = []
            heappush(self.alarm_times, time)
        self.alarms[time].append(op)

    def settle(self, now: int) -> None:
        """Everything that happens to ops at ``now``: readies and ends until there are none, then a round of grants."""
        while self.alarms[now]:
            while self.alarms[now]:
                op = self.alarms[now].pop()
                if op.ready == NEVER:
                    self.make_ready(op, now)
                else:
                    self.go_on(op, now)
            for pool, line in enumerate(self.line):
                line.sort(key=lambda op: (op.ready, op.local_id, op.rank))
                granted = line[: self.slots[pool]]
                self.slots[pool] -= len(granted)
                del line[: len(granted)]
                for op in granted:
                    self.begin(op, now)
        del self.alarms[now]
        heappop(self.alarm_times)

    def make_ready(self, op: Op, now: int) -> None:
        op.ready = now
        if op.pool == NEVER:
            self.begin(op, now)
        else:
            self.line[op.pool].append(op)

    def begin(self, op: Op, now: int) -> None:
        op.start = now
        self.open_stage(op, now + op.setup)

    def go_on(self, op: Op, now: int) -> None:
        """A stage is over, or a set-up without any stages to follow."""
        op.stages_over += 1
        if op.stages_over < len(op.stages):
            self.open_stage(op, now)
            return
        op.done = now
        if op.pool != NEVER:
            self.slots[op.pool] += 1
        for follower in op.followers:
            follower.waits_for -= 1
            if not follower.waits_for:
                self.wake(follower, max(now, follower.release))

    def open_stage(self, op: Op, begin: int) -> None:
        if not op.stages:
            self.wake(op, begin)
            return
        stage = op.stages[op.stages_over]
        stage.end = begin + stage.hold
        for flow in stage.flows:
            for unit in range(flow.units):
                hop = flow.hops[0]
                heappush(self.units, (begin + flow.offset + unit * flow.gap, hop.tie, unit, hop))
        self.close_stage(stage)

    def close_stage(self, stage: Stage) -> None:
        if all(not flow.undelivered for flow in stage.flows):
            end = max([stage.end, *[flow.last for flow in stage.flows]])
            self.wake(stage.op, end)


def read_program(program: Program) -> tuple[list[Op], list[Flow]]:
    """The ops and flows of a program as objects, each hop with its place in the order of ties."""
    columns = (program.op_rank, program.op_local_id, program.op_pool, program.op_setup_ticks, program.op_release_ticks)
    ops = [Op(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    for op, first, end in zip(ops, program.op_next_ptr[:-1].tolist(), program.op_next_ptr[1:].tolist(), strict=True):
        op.followers = [ops[follower] for follower in program.op_next[first:end].tolist()]
        for follower in op.followers:
            follower.waits_for += 1
    stages = []
    for op_idx, hold in zip(program.stage_op.tolist(), program.stage_hold_ticks.tolist(), strict=True):
        stages.append(Stage(ops[op_idx], hold))
        ops[op_idx].stages.append(stages[-1])
    flows = []
    shapes = (program.flow_units, program.flow_gap_ticks, program.flow_offset_ticks)
    for stage_idx, *row in zip(program.flow_stage.tolist(), *(column.tolist() for column in shapes), strict=True):
        flows.append(Flow(stages[stage_idx], *row))
        stages[stage_idx].flows.append(flows[-1])
    first_hops = dict(zip(flows, program.flow_first_hop.tolist(), strict=True))
    servers, following = program.hop_server.tolist(), program.hop_next.tolist()
    for op in ops:
        for position, flow in enumerate(flow for stage in op.stages for flow in stage.flows):
            hop_idx = first_hops[flow]
            while hop_idx != NEVER:
                flow.hops.append(Hop(flow, servers[hop_idx], (op.local_id, position, len(flow.hops), op.rank)))
                hop_idx = following[hop_idx]
            for hop, next_hop in itertools.pairwise(flow.hops):
                hop.next = next_hop
    return ops, flows
