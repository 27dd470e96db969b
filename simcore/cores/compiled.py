"""The compiled core: ops as in ``op_scheduler`` and units as on the windowed core, as machine code made by numba.

The rules and the integers that come out are those of that core; how the next unit is found is not. What reaches a
server are *streams*, each in order of time: the units from one other server, or those of all trains with one gap. So
each server merges its few streams by a small heap of their heads. As on the windowed core, whatever arrives before
``start + W`` is known at ``start``, so one server after the other may work until then; a tree over the times of their
next units says which do. W need not be as short as *quick* servers take: those are served before the others in each
window, and what they deliver bounds it (``effective_windows``). All times stay within the horizon a Program is checked
for.

A train is a flow that injects. The trains of a stream stand in a *ring*, each with its next unit: when that is served
the train goes from the front to the back, a gap later. What is behind are units served before plus the same gap, and
units are served in order of (time, hop); so the ring is in this order too. It is served in a tight loop until another
head is due. A train enters with its second unit; the first is a head of its own. Trains with other gaps have other
rings, since they would have to overtake.

A flow with a window is no train but a stream of its own: when one of its units is delivered, which is after the window
of time it is served in, the next is put there. A server whose first unit has no room where it goes is left out until
the server that gives room back has served a unit; what it then sends arrives after the window of time as well, since it
begins no sooner than that unit leaves.

The loop runs some slices at a time: in between Python looks at the watch, makes room for more units and, where ops
poll, looks for ops that are stuck.

Nothing imports this module, and with it numba, before a run asks for it. The machine code is kept in ``__pycache__``
beside this file, or where that is read-only in the user's cache folder; ``NUMBA_CACHE_DIR`` says otherwise.
"""

import numpy as np

from ...compiler.ir import makes_code
from ..program.arrays import NONE, Int64Array
from ..program.builder import ProgramBuilder
from ..program.program import Program, Served, WatchFn
from .compiled_loop import BLOCK, run_slices
from .compiled_state import BYTES_PER_BLOCK, effective_windows, initial_state
from .compiled_types import Records, State
from .endings import locked_servers, stuck_ops, wait_shift, wait_ticks
from .op_scheduler import IDLE

_LINE_HOPS_PER_SLICE = 1 << 16
"""Units served between two looks for room, which is less than a megabyte for a slice."""

_LEAST_GROWTH, _FEW_BLOCKS = 16, 1 << 16
"""If the blocks of a run have grown by more than this part since the last look, or of so many, fewer slices follow."""

_MOST_SLICES = 32
"""Most slices between two looks at the watch, some ten milliseconds; at first one, then twice as many each time.

For each look a thread waits until Python is free, which takes up to five milliseconds beside a thread that is busy.
"""


def load_code() -> None:
    """Have numba load or make the machine code for programs without buffers, unless it has."""
    if True not in _has_code:
        _load_code(initial_state(ProgramBuilder(1, unit_bytes=1).build()), None)


def _load_code(state: State, buffers: Records | None) -> None:
    """Have numba load or make the machine code for such arguments, unless it has: by a run of no slice."""
    if (buffers is None) not in _has_code:
        makes_code.set()
        try:
            run_slices(state, 0, 0, 0, buffers)
        finally:
            makes_code.clear()
        _has_code.add(buffers is None)


_has_code = set[bool]()
"""By whether a program is without buffers: what code was loaded for."""


def simulate(program: Program, watch: WatchFn, observe: bool = False, last_poll_ticks: int = IDLE) -> Served:
    """Run ``program``, some slices at a time."""
    state = initial_state(program)
    state.counts["last_poll"] = last_poll_ticks
    slice_blocks = _LINE_HOPS_PER_SLICE // BLOCK + len(state.streams) + _blocks_let_in(program)
    counts = state.counts[0]
    counts["observe"] = observe
    counts["wait_shift"] = wait_shift(program) if observe else 0
    buffers = state.buffers if len(state.buffers) else None
    _load_code(state, buffers)
    over, slices, blocks = False, 1, int(counts["blocks"])
    cancelled = watch(0)
    while not over and not cancelled:
        _make_room(state, slice_blocks)
        over = run_slices(state, slices, _LINE_HOPS_PER_SLICE, slice_blocks, buffers)
        grown, blocks = int(counts["blocks"]) - blocks, int(counts["blocks"])
        grows = grown * _LEAST_GROWTH > max(blocks, _FEW_BLOCKS)  # and the watch is asked about memory too
        slices = max(1, slices // 2) if grows else min(2 * slices, _MOST_SLICES)
        if counts["polling"]:  # or nobody would go on for ever
            counts["stuck"] = _count_stuck(program, state)
        cancelled = not over and watch(int(counts["served"]), blocks * BYTES_PER_BLOCK)
    # Others of this thread overwrite the records, whose sums of waits are counted in any case.
    return Served(
        op_ready=state.ops["ready"].copy(),
        op_start=state.ops["start"].copy(),
        op_done=state.ops["done"].copy(),
        op_polls=state.ops["polls"].copy(),
        flow_last=state.flows["last"].copy(),
        server_free=state.servers["free"].copy(),
        server_blocked=_blocked(state),
        line_hops=int(counts["served"]),
        windows=0,
        hop_wait_ticks=wait_ticks(state.hops["waited"], int(counts["wait_shift"])) if observe else None,
    )


def _blocked(state: State) -> Int64Array:
    """[S] hop of the first unit at each server that waits for room, NONE elsewhere."""
    hops = np.full(len(state.servers), NONE, np.int64)
    blocked = np.flatnonzero(state.servers["waits_for"] != NONE)
    hops[blocked] = state.heads["what"][state.servers["heap"][blocked]]
    return hops


def _count_stuck(program: Program, state: State) -> int:
    """Count the stuck ops that do not poll: each of their flows has units behind a circle of full buffers."""
    locked = locked_servers(program, _blocked(state))
    if not locked.any():
        return 0
    hops = state.hops
    heads = [state.heads["what"][first : first + count] for first, count in state.servers[["heap", "heads"]][locked]]
    streams = np.unique(hops["stream"][locked[hops["server"]]])
    held_up = np.concatenate([*heads, *(_hops_in_stream(state, stream) for stream in streams.tolist())])
    ops = state.ops[list(stuck_ops(program, held_up, state.stages["flows_left"]))]
    return int(np.count_nonzero((ops["polling"] == 0) | (ops["flags"] == 0)))


def _hops_in_stream(state: State, stream: int) -> Int64Array:
    """Hops of the units behind the head of a stream; in a ring, that of the head too."""
    front, back, ring, mask = state.streams[["front", "back", "ring", "mask"]][stream]
    if mask != NONE:
        held: Int64Array = state.rings["what"][ring + (np.arange(front, back) & mask)]
        return held
    parts: list[Int64Array] = []
    while front // BLOCK != back // BLOCK:
        block = front // BLOCK
        parts.append(state.units["what"][front : (block + 1) * BLOCK])
        front = state.links[block] * BLOCK
    return np.concatenate([*parts, state.units["what"][front:back]])


def _blocks_let_in(program: Program) -> int:
    """Most blocks that units let in by windows can fill before they are served."""
    windows = effective_windows(program)
    return int((windows // BLOCK + (windows > 0)).sum())


def _make_room(state: State, slice_blocks: int) -> None:
    """Make room for one slice, which may take ``slice_blocks``.

    A unit served enters one queue at most, the next server's or that of its flow. Units that windows let in when a
    stage begins come on top.
    """
    needed = int(state.counts["blocks"][0]) + slice_blocks
    if needed > len(state.links):
        # In place, and without being copied where the system can move pages; nobody else has these arrays.
        num_blocks = needed + needed // 4
        state.links.resize(num_blocks, refcheck=False)
        state.units.resize(num_blocks * BLOCK, refcheck=False)
