"""Flows with a window, for the windowed core: how many of their units are under way, and when the next may enter."""

import numpy as np

from ..program.arrays import Int64Array, starts
from ..program.program import Program


class Gates:
    """Lets units of flows with a window in as others are delivered; all times absolute."""

    def __init__(self, program: Program) -> None:
        self.window = program.flow_window_units  # [F]
        self._units, self._gap = program.flow_units, program.flow_gap_ticks
        self._to_inject = np.zeros(program.num_flows, np.int64)  # [F] units that wait for others to be delivered
        self._to_deliver = np.zeros(program.num_flows, np.int64)  # [F]
        self._latest = np.zeros(program.num_flows, np.int64)  # [F] injection

    def begin(self, flow: int, time: int) -> int:
        """A flow begins at ``time``; returns how many units it injects without waiting, one a gap."""
        units = int(self._units[flow])
        at_once = min(units, int(self.window[flow]))
        self._to_deliver[flow], self._to_inject[flow] = units, units - at_once
        self._latest[flow] = time + (at_once - 1) * int(self._gap[flow])
        return at_once

    def delivered(self, flows: Int64Array, times: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """Units of ``flows`` are delivered at ``times`` [units each]; those of one flow in order.

        Returns the flows that are delivered whole and when, and the flow and time of each unit that enters.
        """
        order = np.argsort(flows, kind="stable")
        flows, times = flows[order], times[order]
        pointers = np.flatnonzero(np.concatenate(([True], flows[1:] != flows[:-1], [True])))
        first, counts, flow = pointers[:-1], np.diff(pointers), flows[pointers[:-1]]
        self._to_deliver[flow] -= counts
        whole = self._to_deliver[flow] == 0
        done, done_times = flow[whole], times[pointers[1:][whole] - 1]
        enter = np.minimum(counts, self._to_inject[flow])
        self._to_inject[flow] -= enter
        some = enter > 0
        entering, when = self._enter(flow[some], enter[some], first[some], times)
        return done, done_times, entering, when

    def _enter(
        self, flow: Int64Array, counts: Int64Array, first: Int64Array, times: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """Flow and time of the units that enter: each when one is delivered, and a gap after the one before."""
        begins = starts(counts)
        place = np.arange(begins[-1]) - begins[:-1].repeat(counts)  # of a unit among those of its flow
        ramp = self._gap[flow].repeat(counts) * place
        level = times[first.repeat(counts) + place] - ramp
        level[begins[:-1]] = np.maximum(level[begins[:-1]], self._latest[flow] + self._gap[flow])
        # One running maximum for all flows: each is lifted over the ones before.
        if len(level):
            lowest, height = int(level.min()), int(level.max()) - int(level.min()) + 1
            lift = (np.arange(len(flow)) * height).repeat(counts)
            level = np.maximum.accumulate(level - lowest + lift) - lift + lowest
        when = level + ramp
        self._latest[flow] = when[begins[1:] - 1]
        return flow.repeat(counts), when
