"""Whether layers of a run repeat: everything in one happens as in the layer before, a period later.

What a server, a pool or an op does next depends on what is under way and on what comes. If in two layers every op gets
ready, begins and ends alike, every flow is delivered alike and waited as long at each server of its way, and nothing
from before the layer in front is still under way, then the next layer finds what this one found, and does the same.
So does every later one. The last layer of a run is left out: nothing follows it.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..lower.plan import Lowered
from ..program.arrays import BoolArray, Int64Array
from ..program.outcome import NEVER, Run
from ..program.program import Program

LAYERS_COMPARED = 3
"""Layers in a row, the last but one of the run among them: two pairs with the same period."""


def period_ticks(lowered: Lowered, run: Run) -> int | None:
    """By how much each layer comes after the one before; None where that does not show.

    The run must have observed where units queue.
    """
    by_layer: dict[int, list[int]] = {}
    for place, part in enumerate(lowered.plan.parts):
        by_layer.setdefault(part.layer, []).append(place)
    if len(by_layer) <= LAYERS_COMPARED or run.hop_wait_ticks is None or (run.op_done == NEVER).any():
        return None
    traces = [_Trace(lowered, run, by_layer[layer]) for layer in sorted(by_layer)[:-1]]
    last = traces[-LAYERS_COMPARED:]
    shifts = {one.shift(other) for one, other in pairwise(last)}
    closed = all(one.last <= other.first for one, other in zip(last, last[2:], strict=False))
    return shifts.pop() if closed and len(shifts) == 1 else None


class _Trace:
    """What happens in one layer, in arrays that are alike for all."""

    def __init__(self, lowered: Lowered, run: Run, parts: Sequence[int]) -> None:
        program = lowered.program
        ops = np.concatenate([np.arange(lowered.ops[part].start, lowered.ops[part].stop) for part in parts])
        flows = _ranges(
            program.stage_flow_ptr[program.op_stage_ptr[ops]], program.stage_flow_ptr[program.op_stage_ptr[ops + 1]]
        )
        used = program.flow_units[flows] > 0
        assert run.hop_wait_ticks is not None, "the run has observed its queues"
        self.times = np.concatenate(
            [run.op_ready[ops], run.op_start[ops], run.op_done[ops], run.flow_last[flows[used]]]
        )
        self.same = np.concatenate([run.op_polls[ops], _waits(program, run.hop_wait_ticks, flows)])
        self.releases = program.op_release_ticks[ops]
        self.first, self.last = int(run.op_start[ops].min()), int(run.op_done[ops].max())

    def shift(self, other: "_Trace") -> int | None:
        """How much later all of ``other`` happens; None if it is not alike."""
        if len(self.times) != len(other.times) or len(self.same) != len(other.same):
            return None
        shifts = other.times - self.times
        issued = other.releases - self.releases
        alike: BoolArray = shifts == shifts[0]
        # A host that runs ahead is further ahead in each layer, or holds up every layer alike.
        ahead = bool((issued == issued[0]).all()) and int(issued[0]) <= int(shifts[0])
        return int(shifts[0]) if ahead and alike.all() and (self.same == other.same).all() else None


def _ranges(starts: Int64Array, stops: Int64Array) -> Int64Array:
    """All numbers from each start to its stop."""
    lengths = stops - starts
    first = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    numbers: Int64Array = first + np.arange(lengths.sum())
    return numbers


def _waits(program: Program, waited: npt.NDArray[np.float64], flows: Int64Array) -> npt.NDArray[np.float64]:
    """How long units of ``flows`` waited at each server of their way, in order."""
    hop, found = program.flow_first_hop[flows], list[npt.NDArray[np.float64]]()
    for _ in range(int(program.flow_num_hops[flows].max(initial=0))):
        there = hop >= 0
        found.append(np.where(there, waited[hop], 0))
        hop = np.where(there, program.hop_next[hop], hop)
    return np.concatenate(found) if found else np.zeros(0)
