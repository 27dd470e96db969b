"""The records that the compiled core works on, and the state of a run made of them.

A record has what belongs to one server, hop, flow and so on, so that what is used together lies together.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..program.arrays import Int64Array

Records = npt.NDArray[np.void]


def _layout(*names: str) -> np.dtype[np.void]:
    return np.dtype([(name, np.int64) for name in names])


ENTRY = _layout("time", "what")  # of a heap; or a unit in a stream and its hop
# heap: where among the heads its own begin; waits_for: the buffer in which its first unit has no room, or NONE
SERVER = _layout("service", "latency", "free", "heap", "heads", "waits_for")
# front, back: first unit and the place for the next; live: whether one is among the heads; runs: whether more than one
# came before other heads of late. In a ring front and back count turns, each at the place that mask leaves of it, from
# ring on. mask: NONE for a stream that is no ring
STREAM = _layout("front", "back", "live", "runs", "ring", "mask", "gap", "server")
TURN = _layout("time", "what", "left")  # of a train in a ring: its next unit, the hop, how many units are left
# train: whether a train brings units here; buffer: which they go to; leaves_buffer: which they come through
HOP = _layout("server", "stream", "train", "following", "flow", "buffer", "leaves_buffer", "waited")
# early: ticks from arrival to delivery of a train that is delivered by a quick server, 0 for other flows
# window: 0 for a train; in_ring: whether it is in its ring; to_inject, injected: units to come and the latest injection
# of a flow with a window
FLOW = _layout(
    *("gap", "to_inject", "in_ring", "to_deliver", "window", "last", "stage", "first_hop", "injected"),
    *("offset", "units", "early"),
)
BUFFER = _layout("units", "credit", "feeder", "room", "first", "free")  # a ring of its slots begins at room
STAGE = _layout("op", "hold", "polls", "end", "num_flows", "flows_left", "first_flow", "flows_end")
# ahead: what its priority adds to the time at which it got ready, by which a pool orders its queue
OP = _layout(
    *("pool", "turn", "ahead", "setup", "release", "waits", "stage", "stages_end", "first_follower", "followers_end"),
    *("ready", "start", "done", "polls", "polling", "flags", "flags_time", "first_poller", "pollers_end"),
)
POOL = _layout("slots", "queue", "queued", "stirred")  # queue: where in the queues its own begins
COUNTS = _layout(
    *("window", "events", "stirred", "served", "free_block", "blocks"),
    *("under_way", "polling", "stuck", "in_vain", "observe", "wait_shift", "last_poll", "ends"),
)


class State(NamedTuple):
    """Everything a run knows; the arrays change in place."""

    servers: Records  # [S]
    streams: Records
    hops: Records  # [H]
    flows: Records  # [F]
    stages: Records  # [T]
    ops: Records  # [O]
    pools: Records  # [P]
    followers: Int64Array  # [E] ops that wait for an op
    pollers: Int64Array  # [G] ops that poll for an op's flag
    buffers: Records  # [B]
    room: Int64Array  # [slots of all buffers] when each free slot is there
    by_turn: Int64Array  # [O] ops in order of (local id, rank)
    heads: Records  # a heap of (time, hop) for each server: heads of its streams, and trains that begin
    quick: Int64Array  # servers that are served before all others in each window of time
    next_unit: Int64Array  # tree of minima; the latter half is by server, the time of its next unit or IDLE
    events: Records  # [O] heap of (time, op): whatever comes next for the op, so there is one at most
    ends: Records  # heap of (time, flow): the soonest that early trains under way can be delivered
    queues: Records  # [O] a heap of (ready and what priority adds, turn) for each pool
    stirred: Int64Array  # [P] pools with a new slot or a new op in the queue
    units: Records  # blocks of units in streams; grows
    links: Int64Array  # [blocks] the block that continues this one, or the next that is free; grows
    rings: Records  # the turns of each ring
    counts: Records  # [1] W, and how much of the arrays above is in use
