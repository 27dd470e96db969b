"""Programs that do the same on every rank but for a perturbation of choice, and comparisons of their runs."""

import random
from dataclasses import dataclass, replace

import numpy as np

from magus.simcore.cores.engine import run
from magus.simcore.fold.refine import Classes, detect
from magus.simcore.fold.run import Folded, expand, quotient
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.program import Flow, OpKind, OpSpec, Program, Run, RunOutcome, Stage
from tests.helpers.oracle.oracle import Oracle

OP_TIMES = ("op_ready", "op_start", "op_done")
OTHER_TIMES = ("op_polls", "flow_last", "server_free", "server_blocked", "server_busy_ticks")


def fold(program: Program) -> Folded:
    classes = detect(program)
    assert isinstance(classes, Classes), classes
    return quotient(program, classes)


def same(one: Run, other: Run) -> bool:
    """All integers equal; of runs in a deadlock those that do not depend on when it was noticed."""
    outcomes = [(found.outcome, found.makespan_ticks, found.stuck) for found in (one, other)]
    stopped = one.outcome is RunOutcome.DEADLOCK
    times = OP_TIMES if stopped else (*OP_TIMES, *OTHER_TIMES)
    times_agree = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in times)
    return outcomes[0] == outcomes[1] and times_agree and (stopped or one.line_hops == other.line_hops)


def assert_exact(program: Program, folded: Folded) -> None:
    """The expanded run has the integers of the oracle, and those of the engine on the whole program."""
    found, expected = expand(folded, run(folded.program)), Oracle(program).run()

    assert found.op_ready.tolist() == expected.ready
    assert found.op_start.tolist() == expected.start
    assert found.op_done.tolist() == expected.done
    assert found.makespan_ticks == expected.makespan
    if found.outcome is RunOutcome.DONE:
        assert found.flow_last.tolist() == expected.flow_last
        assert found.server_free.tolist() == expected.server_free
        assert found.line_hops == expected.line_hops
    assert same(found, run(program))


@dataclass(frozen=True)
class Spmd:
    """A program for ranks (node, place in the node): ops with relative routes and waits."""

    nodes: int
    places: int
    servers: tuple[tuple[int, int, int, int], ...]  # service, latency, room, credit
    pools: tuple[int, ...]
    ops: tuple[tuple[Stage, int | None, int, int, int], ...]  # route ranks are offsets; pool, setup, release, count
    waits: tuple[tuple[int, int, int], ...]  # op, op waited for, offset
    flags: tuple[tuple[int, int, int], ...]  # op that polls, op that sets the flag, offset

    def peer(self, rank: int, offset: int) -> int:
        """Offsets count nodes and places in a torus; from 100 on they mean place 0 of the node."""
        node, place = divmod(rank, self.places)
        if offset >= 100:
            return (node + offset) % self.nodes * self.places
        return (node + offset // self.places) % self.nodes * self.places + (place + offset) % self.places

    def build(self, rng: random.Random, perturbation: str) -> Program:
        num_ranks = self.nodes * self.places
        builder = ProgramBuilder(num_ranks, unit_bytes=128)
        for number, (service, latency, room, credit) in enumerate(self.servers):
            builder.server(f"s{number}", service, latency, buffer_units=room, credit_ticks=credit)
        for number, slots in enumerate(self.pools):
            builder.pool(f"p{number}", slots)
        made: dict[tuple[int, int], range] = {}
        odd = rng.randrange(num_ranks)
        for rank in range(num_ranks):
            order = list(range(len(self.ops)))
            if perturbation == "order" and rank == odd:
                rng.shuffle(order)
            for number in order:
                stage, pool, setup, release, count = self.ops[number]
                flows = [f._replace(route=tuple((s, self.peer(rank, by)) for s, by in f.route)) for f in stage.flows]
                stages = [stage._replace(flows=tuple(flows))] if stage.flows or stage.hold_ticks else []
                release += perturbation == "release" and rank == odd and number == 0
                made[number, rank] = builder.op(
                    rank,
                    OpSpec(OpKind.TILE, f"x{number}", stages, pool=pool, setup_ticks=setup, release_ticks=release),
                    count=count,
                )
        for waiter, source, offset in self.waits:
            for rank in range(num_ranks):
                by = -offset if perturbation == "pattern" and rank % 2 else offset
                builder.after(made[waiter, rank], made[source, self.peer(rank, by)])
        for poller, source, offset in self.flags:
            for rank in range(num_ranks):
                builder.flags(made[poller, rank], made[source, self.peer(rank, offset)])
        if perturbation == "wait" and len(self.ops) > 1:
            builder.after(made[len(self.ops) - 1, odd], made[0, rng.randrange(num_ranks)])
        return self._perturbed(builder.build(), odd, perturbation)

    def _perturbed(self, program: Program, odd: int, perturbation: str) -> Program:
        num_ranks = self.nodes * self.places
        evens, opposite = list(range(0, num_ranks, 2)), [0, num_ranks // 2]
        slow = {"server": [odd], "latency": [odd], "every other": evens, "opposite": opposite}.get(perturbation, [])
        service, latency, slots = program.service_ticks.copy(), program.latency_ticks.copy(), program.pool_slots.copy()
        (latency if perturbation == "latency" else service)[slow] += 1  # instances of the first server
        if perturbation == "pool" and len(slots):
            slots[odd] += 1
        room = program.buffer_units.copy()
        if perturbation == "room" and len(room):
            room[odd % len(room)] += 1
        return replace(program, service_ticks=service, latency_ticks=latency, pool_slots=slots, buffer_units=room)


PERTURBATIONS = (
    *("none", "server", "latency", "every other", "opposite", "pool"),
    *("wait", "order", "release", "pattern", "room"),
)


def random_spmd(seed: int) -> tuple[Spmd, random.Random]:
    """Times of a few ticks, so that everything meets at the same time; joins, idle servers and pools included."""
    rng = random.Random(seed)
    nodes, places = rng.choice(((1, 2), (1, 3), (1, 4), (2, 2), (1, 6), (2, 3), (1, 8), (4, 2)))
    held_back = rng.random() < 0.5  # by windows and buffers
    servers = tuple(
        (rng.randint(1, 4), rng.choice((0, 1, 2, 5, 20)), rng.choice((0, 0, 1, 3)) * held_back, rng.choice((0, 1, 9)))
        for _ in range(rng.randint(1, 4))
    )
    pools = tuple(rng.randint(1, 3) for _ in range(rng.randint(0, 2)))
    offsets = [0, 0, 0, 1, 2, -1, places, places + 1] + [100] * (rng.random() < 0.15)
    ops, waits, flags = [], [], []
    for number in range(rng.randint(1, 5)):
        flows = []
        for _ in range(rng.choice((0, 1, 1, 2))):
            route = tuple((rng.randrange(len(servers)), rng.choice(offsets)) for _ in range(rng.randint(1, 4)))
            shape = (rng.choice((0, 1, 3, 8)), rng.choice((0, 1, 2)), rng.choice((0, 0, 1)))
            flows.append(Flow(route, *shape, window_units=rng.choice((0, 1, 2)) * held_back))
        pool = rng.randrange(len(pools)) if pools and rng.random() < 0.6 else None
        count = rng.choice((1, 1, 2, 3)) if flows else rng.choice((1, 9))
        polls = rng.random() < 0.2
        stage = Stage(rng.choice((1, 4)) if polls else rng.choice((0, 1, 4)), tuple(flows), polls)
        ops.append((stage, pool, rng.choice((0, 1)), rng.choice((0, 0, 2)), count))
        for _ in range(rng.choice((0, 1, 2)) if number else 0):
            waits.append((number, rng.randrange(number), rng.choice(offsets[:-1])))
        if polls and number:
            flags.append((number, rng.randrange(number), rng.choice(offsets[:-1])))
    if ops[0][0].polls:
        flags.append((0, len(ops) - 1, 1))  # nobody will set it if the last op waits for the first
    return Spmd(nodes, places, servers, pools, tuple(ops), tuple(waits), tuple(flags)), rng


def senders(next_rank: list[int], steps: int = 4) -> ProgramBuilder:
    """Every rank passes chunks on to the next, ``steps`` times; tiles wait for what arrives."""
    num_ranks = len(next_rank)
    builder = ProgramBuilder(num_ranks, unit_bytes=128)
    hbm, link, engines, sms = builder.server("hbm", 2, 5), builder.server("link", 3, 20), 0, 1
    assert (builder.pool("dma", 2), builder.pool("sms", 3)) == (engines, sms)
    before = next_rank.index
    sent: list[list[int]] = []
    for step in range(steps):
        now: list[int] = []
        for rank in range(num_ranks):
            stage = Stage(0, (Flow(((hbm, rank), (link, rank), (hbm, next_rank[rank])), 9, 1),))
            now += builder.op(rank, OpSpec(OpKind.TRANSFER, f"send {step}", [stage], pool=engines))
            tiles = builder.op(
                rank, OpSpec(OpKind.TILE, "tile", [Stage(7, (Flow(((hbm, rank),), 3),))], pool=sms), count=9
            )
            builder.after(tiles, range(now[-1], now[-1] + 1))
            last = builder.op(rank, OpSpec(OpKind.TILE, "more", [Stage(2)], pool=sms), count=10)
            builder.after(last, tiles)  # 9 x 10 waits: the builder puts a join between
        for rank in range(num_ranks):
            if sent:
                builder.after([now[rank]], [sent[-1][before(rank)]])
        sent.append(now)
    return builder


def slowed(program: Program, name: str, rank: int) -> Program:
    service = program.service_ticks.copy()
    service[program.server_instance(program.server_names.index(name), rank)] += 3
    return replace(program, service_ticks=service)
