"""The compiled core: ops as in ``control`` and units as on the other cores, as machine code made by numba.

The rules and the integers that come out are those of the other cores; how the next unit is found is not. What reaches
a server are *streams*, each in order of time: the units from one other server, or those of all trains with one gap.
(A train is a flow that injects. When one of its units is served the next follows a gap later, so after every unit
that waits in the stream.) So each server merges its few streams by a small heap of their heads. As on the windowed
core, whatever arrives before ``start + W`` is known at ``start``, so one server after the other may work until then;
a tree over the times of their next units says which do. All times stay within the horizon a Program is checked for.

The loop runs a slice at a time: between slices Python looks at the watch and makes room for more units.

Optional: needs numba, the extra ``fast``, and nothing else imports this module before a run asks for it. The machine
code is kept in ``__pycache__`` beside this file, or where that is read-only in the user's cache folder;
``NUMBA_CACHE_DIR`` says otherwise.
"""

from typing import NamedTuple

import numpy as np

from .compiled_loop import BLOCK, run_slice
from .compiled_state import UNIT, State, initial_state
from .layout import Int64Array
from .outcome import Served, WatchFn
from .program import Program

_LINE_HOPS_A_SLICE = 1 << 16
"""Units served between two looks at the watch: a few milliseconds, beside which a call into numba is nothing."""


class OpTimes(NamedTuple):
    """What became of the ops, in ticks, NEVER where it did not happen."""

    ready: Int64Array  # [O]
    start: Int64Array  # [O]
    done: Int64Array  # [O]


def simulate(program: Program, watch: WatchFn) -> tuple[OpTimes, Served]:
    """Run ``program`` slice by slice."""
    state = initial_state(program)
    counts = state.counts[0]
    over = False
    cancelled = watch(0)
    while not over and not cancelled:
        state = _with_room(state)
        over = run_slice(state, _LINE_HOPS_A_SLICE)
        cancelled = not over and watch(int(counts["served"]))
    times = OpTimes(*(state.ops[name].copy() for name in OpTimes._fields))
    flow_last, free = state.flows["last"].copy(), state.servers["free"].copy()
    return times, Served(flow_last, free, int(counts["served"]), windows=0, cancelled=cancelled)


def _with_room(state: State) -> State:
    """Make room for one slice: a unit served enters two streams at most, its own train's and the next server's."""
    used = int(state.counts["blocks"][0])
    needed = used + 2 * _LINE_HOPS_A_SLICE // BLOCK + len(state.streams)
    if needed <= len(state.links):
        return state
    num_blocks = max(needed, 2 * len(state.links))  # seldom, since it moves all that is there
    links, units = np.empty(num_blocks, np.int64), np.empty(num_blocks * BLOCK, UNIT)
    links[:used], units[: used * BLOCK] = state.links[:used], state.units[: used * BLOCK]
    return state._replace(links=links, units=units)
