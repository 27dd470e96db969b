"""The same machine in simpy, as one would write it there: a process for each unit and each op, a Resource per server.

Only a yardstick for speed. Where units arrive at one time simpy serves them in the order of its own events, so its
makespan may differ a little.
"""

from collections.abc import Generator

import simpy

from magus.simcore.program.program import Program
from tests.helpers.oracle.oracle import Flow, Op, read_program

Process = Generator[simpy.Event, object, None]


def makespan(program: Program) -> int:
    """Ticks until the last op is done."""
    machine = _Machine(program)
    machine.env.run()
    return int(machine.env.now)


class _Machine:
    """Servers and pools as resources, and a process for everything that moves."""

    def __init__(self, program: Program) -> None:
        self.env = simpy.Environment()
        self.service, self.latency = program.service_ticks.tolist(), program.latency_ticks.tolist()
        self.servers = [simpy.Resource(self.env) for _ in self.service]
        self.pools = [simpy.Resource(self.env, slots) for slots in program.pool_slots.tolist()]
        ops, _ = read_program(program)
        self.done = {op: self.env.event() for op in ops}
        waits: dict[Op, list[simpy.Event]] = {op: [] for op in ops}
        for op in ops:
            for follower in op.followers:
                waits[follower].append(self.done[op])
        for op in ops:
            self.env.process(self.run(op, waits[op]))

    def run(self, op: Op, waits: list[simpy.Event]) -> Process:
        """An op: wait, take a slot, be set up, go through the stages."""
        yield self.env.all_of([*waits, self.env.timeout(op.release)])
        slot = self.pools[op.pool].request() if op.pool >= 0 else None
        if slot is not None:
            yield slot
        yield self.env.timeout(op.setup)
        for stage in op.stages:
            units = [self.env.process(self.move(flow, unit)) for flow in stage.flows for unit in range(flow.units)]
            yield self.env.all_of([*units, self.env.timeout(stage.hold)])
        if slot is not None:
            self.pools[op.pool].release(slot)
        self.done[op].succeed()

    def move(self, flow: Flow, unit: int) -> Process:
        """A unit: be injected in its turn, then queue at one server after the other."""
        yield self.env.timeout(flow.offset + unit * flow.gap)
        for hop in flow.hops:
            with self.servers[hop.server].request() as turn:
                yield turn
                yield self.env.timeout(self.service[hop.server])
            yield self.env.timeout(self.latency[hop.server])
