"""A ``Program`` as objects, for the oracle and whoever else simulates it: ops, stages, flows and hops.

It is read from the arrays; only the order of ties is worked out anew, from its rule.
"""

import itertools
from collections import deque

from magus.simcore.program.program import Program

NEVER = -1
NONE = -1


class Hop:
    """A flow at one server of its route; ``tie`` is (local id, flow of the op, hop of the flow, ranks from the server).

    Of a folded program ranks are not known, only how it numbers hops; it is compared with the whole elsewhere.
    """

    __slots__ = ("came_from", "flow", "from_buffer", "next", "server", "tie", "to_buffer", "turn", "wait")

    def __init__(self, flow: "Flow", server: int, to_buffer: int, tie: tuple[int, int, int, int]) -> None:
        self.flow, self.server, self.tie = flow, server, tie
        self.to_buffer = to_buffer  # where a unit needs room before it is served here, or NONE
        self.from_buffer = NONE  # where a unit leaves room when it has been served here
        self.came_from = NONE  # the server before, NONE at the first
        self.turn = 0  # place of ``tie`` among those of all hops
        self.wait = 0  # from arrival to service, summed over units
        self.next: Hop | None = None


class Flow:
    """A source of units over a route. With a window it takes a credit for each unit, which comes back on delivery."""

    def __init__(self, stage: "Stage", units: int, gap: int, offset: int, window: int) -> None:
        self.stage, self.units, self.gap, self.offset, self.window = stage, units, gap, offset, window
        self.uninjected = self.undelivered = units
        self.credits: deque[int] = deque()  # times from which they can be used
        self.next_time = NEVER  # the gap is over
        self.starved = False  # units are left, and no credit
        self.last = NEVER  # delivery so far
        self.delivered = NEVER  # of the last unit, in the last round that was delivered whole
        self.hops: list[Hop] = []


class Stage:
    """Part of an op: over when its hold time is and nothing is under way; one that polls may then begin again."""

    def __init__(self, op: "Op", hold: int, polls: bool) -> None:
        self.op, self.hold, self.polls = op, hold, polls
        self.flows: list[Flow] = []
        self.end = 0


class Op:
    """Waits, takes a slot, works through its stages, sets flags."""

    def __init__(self, rank: int, local_id: int, pool: int, priority: int, setup: int, release: int) -> None:
        self.rank, self.local_id, self.pool, self.priority = rank, local_id, pool, priority
        self.setup, self.release = setup, release
        self.stages: list[Stage] = []
        self.waits_for = 0
        self.followers: list[Op] = []
        self.sets: list[Op] = []  # whose flags this op sets
        self.flags_unset = 0
        self.flag_time = NEVER  # the latest flag was set
        self.ready = self.start = self.done = NEVER
        self.stages_over = 0
        self.polls = 0
        self.polling = False

    def can_move(self) -> bool:
        """Whether the op will become ready or get further without others doing anything."""
        if self.start == NEVER:
            return self.ready == NEVER and not self.waits_for
        return self.done == NEVER and not (self.polling and self.flags_unset)

    def waits_for_units(self) -> bool:
        under_way = self.stages[self.stages_over : self.stages_over + 1] if self.start != NEVER else []
        return any(flow.undelivered for stage in under_way for flow in stage.flows)


def read_program(program: Program) -> tuple[list[Op], list[Flow]]:
    """The ops and flows of a program as objects, each hop with its place in the order of ties."""
    places = (program.op_rank, program.op_local_id, program.op_pool, program.op_priority)
    columns = (*places, program.op_setup_ticks, program.op_release_ticks)
    ops = [Op(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    for op, waits, sets in zip(
        ops,
        itertools.pairwise(program.op_next_ptr.tolist()),
        itertools.pairwise(program.op_sets_ptr.tolist()),
        strict=True,
    ):
        op.followers = [ops[follower] for follower in program.op_next[slice(*waits)].tolist()]
        op.sets = [ops[poller] for poller in program.op_sets[slice(*sets)].tolist()]
        for follower in op.followers:
            follower.waits_for += 1
        for poller in op.sets:
            poller.flags_unset += 1
    stages = []
    kinds = (program.stage_hold_ticks.tolist(), program.stage_polls.tolist())
    for op_idx, hold, polls in zip(program.stage_op.tolist(), *kinds, strict=True):
        stages.append(Stage(ops[op_idx], hold, polls))
        ops[op_idx].stages.append(stages[-1])
    flows = []
    shapes = (program.flow_units, program.flow_gap_ticks, program.flow_offset_ticks, program.flow_window_units)
    for stage_idx, *row in zip(program.flow_stage.tolist(), *(column.tolist() for column in shapes), strict=True):
        flows.append(Flow(stages[stage_idx], *row))
        stages[stage_idx].flows.append(flows[-1])
    first_hops = dict(zip(flows, program.flow_first_hop.tolist(), strict=True))
    servers, buffers, following = program.hop_server.tolist(), program.hop_buffer.tolist(), program.hop_next.tolist()
    for op in ops:
        for position, flow in enumerate(flow for stage in op.stages for flow in stage.flows):
            hop_idx = first_hops[flow]
            while hop_idx != NONE:
                rank = servers[hop_idx] % program.num_ranks
                ahead = hop_idx if program.folded else (op.rank - rank) % program.num_ranks
                tie = (op.local_id, position, len(flow.hops), ahead)
                flow.hops.append(Hop(flow, servers[hop_idx], buffers[hop_idx], tie))
                hop_idx = following[hop_idx]
            for hop, next_hop in itertools.pairwise(flow.hops):
                hop.next, next_hop.came_from, next_hop.from_buffer = next_hop, hop.server, hop.to_buffer
    by_turn = sorted((hop for flow in flows for hop in flow.hops), key=lambda hop: hop.tie)
    for turn, hop in enumerate(by_turn):
        hop.turn = turn
    return ops, flows
