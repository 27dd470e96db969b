"""Random programs for property tests: small, and dense in coincidences and in loops through the servers."""

import random
from enum import Flag, auto

from hypothesis import strategies as st

from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.program import PRIORITIES, Flow, OpKind, OpSpec, Program, Stage, TrafficClass

KINDS = [kind for kind in OpKind if kind is not OpKind.TRAFFIC]
"""Kinds of ops that a run ends with."""


class Feature(Flag):
    """What a program may have that not every core and every fold can do."""

    WINDOWS = auto()  # flows with a limit on the units under way
    BUFFERS = auto()  # servers with little room before them, and with loops of them where all are full
    POLLING = auto()  # stages that are repeated until flags are set, and flags that never are
    PRIORITIES = auto()  # ops that others let pass in the queue of their pool


PLAIN = Feature(0)
ALL = Feature.WINDOWS | Feature.BUFFERS | Feature.POLLING | Feature.PRIORITIES


def random_program(seed: int, *, num_ranks: int = 1, features: Feature = PLAIN) -> Program:
    """A program with random servers, pools, routes (loops included), stages and dependencies, and ``features``.

    Times are a few ticks on purpose, so that units, ops and slots meet at the same time all the time. It may deadlock
    if it has buffers or polls.
    """
    return _Random(seed, num_ranks, features).program()


class _Random:
    """Draws one program. Features have a generator of their own: without them a seed gives the same program as ever."""

    def __init__(self, seed: int, num_ranks: int, features: Feature) -> None:
        self.rng, self.extra = random.Random(seed), random.Random(f"features of {seed}")
        self.priorities = random.Random(f"priorities of {seed}")
        self.features = features
        self.builder = ProgramBuilder(num_ranks, unit_bytes=128)
        self.num_ranks = num_ranks
        self.scale = self.rng.choice((1, 1, 10, 1000))
        self.servers: list[int] = []
        self.pollers: list[int] = []

    def program(self) -> Program:
        rng, builder, scale = self.rng, self.builder, self.scale
        self.servers = [self.server(f"s{i}") for i in range(rng.randint(1, 5))]
        pools = [builder.pool(f"p{i}", rng.randint(1, 3)) for i in range(rng.randint(0, 3))]
        ops: list[int] = []
        for number in range(rng.randint(1, 12)):
            rank = rng.randrange(self.num_ranks)
            stages = [self.stage(rank) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]
            polls = self.polls(stages, rank)
            defined = builder.op(
                rank,
                OpSpec(
                    rng.choice(KINDS),
                    f"op{number % 4}",
                    stages,
                    pool=rng.choice(pools) if pools and rng.random() < 0.6 else None,
                    setup_ticks=rng.choice((0, 0, 1, 3 * scale)),
                    release_ticks=rng.choice((0, 0, 0, 2, 7 * scale)),
                    priority=self.priorities.choice(PRIORITIES) if Feature.PRIORITIES in self.features else 0,
                ),
                count=rng.choice((1, 1, 1, 2, 5)),
            )
            if ops and rng.random() < 0.7:
                builder.after(defined, rng.sample(ops, rng.randint(1, min(len(ops), 12))))
            if polls:
                self.pollers += defined
                builder.flags(defined, self.extra.sample(ops, self.extra.randint(0, min(len(ops), 3))))
            ops += defined
        if self.pollers and self.extra.random() < 0.25:  # may be a flag that depends on who looks for it
            builder.flags([self.extra.choice(self.pollers)], [self.extra.choice(ops)])
        return builder.build()

    def server(self, name: str) -> int:
        service = self.rng.randint(1, 4) * self.rng.choice((1, self.scale))
        latency, room, credit = self.rng.choice((0, 1, 2, 5, 20)) * self.scale, 0, 0
        if Feature.BUFFERS in self.features and self.extra.random() < 0.5:
            room, credit = self.extra.choice((1, 2, 5, 20)), self.extra.choice((0, 0, 1, 3 * self.scale))
        return self.builder.server(name, service, latency, buffer_units=room, credit_ticks=credit)

    def stage(self, rank: int) -> Stage:
        rng, scale = self.rng, self.scale
        flows = []
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            route = tuple((rng.choice(self.servers), rank + rng.choice((0, 0, 1, 2))) for _ in range(rng.randint(1, 4)))
            units = rng.choice((0, 1, 2, 7, 30))
            gap = rng.choice((0, 0, 1, 2, scale))
            offset, traffic = rng.choice((0, 0, 1, scale)), rng.choice(list(TrafficClass))
            flows.append(Flow(route, units, gap, offset, traffic, self.window()))
        return Stage(rng.choice((0, 0, 1, 4 * scale)), tuple(flows))

    def polls(self, stages: list[Stage], rank: int) -> bool:
        """Put a polling stage among the stages of some ops."""
        extra, scale = self.extra, self.scale
        if Feature.POLLING not in self.features or extra.random() < 0.6:
            return False
        flows = []
        for _ in range(extra.choice((0, 1, 1, 2))):
            route = tuple((extra.choice(self.servers), rank + extra.choice((0, 1))) for _ in range(extra.randint(1, 2)))
            units, gap, offset = extra.choice((0, 1, 1, 2)), extra.choice((0, 1, scale)), extra.choice((0, 0, scale))
            flows.append(Flow(route, units, gap, offset, TrafficClass.FLAGS, self.window()))
        hold = extra.choice((1, 2, 5)) * scale
        stages.insert(extra.randint(0, len(stages)), Stage(hold, tuple(flows), polls=True))
        return True

    def window(self) -> int:
        if Feature.WINDOWS not in self.features:
            return 0
        return self.extra.choice((0, 0, 1, 1, 2, 5))


def programs(max_ranks: int = 3, features: Feature = PLAIN) -> st.SearchStrategy[Program]:
    """Random programs on one to ``max_ranks`` ranks."""
    return st.builds(
        lambda seed, num_ranks: random_program(seed, num_ranks=num_ranks, features=features),
        st.integers(0, 2**32),
        st.integers(1, max_ranks),
    )


def symmetric_program(seed: int, shape: str, num_ranks: int, *, folded: bool) -> Program:
    """The same program on every rank, with relative peers: chunks sent to peers, tiles that wait for chunks to arrive.

    ``shape`` is "mesh" (a link for each peer), "switch" (one way in and one out) or "ring" (chunks passed on).
    """
    rng = random.Random(seed)
    builder = ProgramBuilder(num_ranks, period=1 if folded else None, unit_bytes=128)
    ranks = range(1 if folded else num_ranks)
    hbm, up, down = (builder.server(name, rng.randint(1, 3), rng.choice((0, 3, 20))) for name in ("hbm", "up", "down"))
    links = [builder.server(f"link+{peer}", rng.randint(2, 5), 30) for peer in range(1, num_ranks)]
    engines, sms = builder.pool("dma", rng.randint(1, 3)), builder.pool("sms", rng.randint(1, 4))
    setup, units, gap = rng.choice((0, 1, 7)), rng.randint(1, 40), rng.choice((0, 1, 4))
    hold, tiles, tile_units = rng.choice((0, 5, 60)), rng.randint(1, 6), rng.choice((0, 3, 25))
    steps = [(chunk, peer) for chunk in range(rng.randint(1, 3)) for peer in range(1, num_ranks)]
    sent: dict[tuple[int, int], int] = {}  # (step, rank) -> transfer
    worked: dict[int, range] = {}  # rank -> latest tiles
    for step, (_, peer) in enumerate(steps):
        middle = {"mesh": ((links[peer - 1], 0),), "switch": ((up, 0), (down, peer)), "ring": ((up, 0),)}[shape]
        target = 1 if shape == "ring" else peer
        for rank in ranks:
            route = ((hbm, rank), *((server, rank + offset) for server, offset in middle), (hbm, rank + target))
            stage = Stage(0, (Flow(route, units, gap, 0, TrafficClass.COMM),))
            (sent[step, rank],) = builder.op(
                rank, OpSpec(OpKind.TRANSFER, "send", [stage], pool=engines, setup_ticks=setup)
            )
        for rank in ranks:
            source = (rank - target) % len(ranks)
            if shape == "ring" and step:
                builder.after([sent[step, rank]], [sent[step - 1, source]])
            flow = Flow(((hbm, rank),), tile_units, 2)
            tile_ops = builder.op(rank, OpSpec(OpKind.TILE, "tile", [Stage(hold, (flow,))], pool=sms), count=tiles)
            builder.after(tile_ops, [sent[step, source], *worked.get(rank, ())][: 1 + tiles // 2])
            worked[rank] = tile_ops
    return builder.build()
