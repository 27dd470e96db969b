"""Random programs for property tests: small, and dense in coincidences and in loops through the servers."""

import random

from hypothesis import strategies as st

from magus.simcore.program import Flow, OpKind, Program, ProgramBuilder, Stage, TrafficClass


def random_program(seed: int, *, num_ranks: int = 1) -> Program:
    """A program with random servers, pools, routes (loops included), stages and dependencies; it may deadlock.

    Times are a few ticks on purpose, so that units, ops and slots meet at the same time all the time.
    """
    rng = random.Random(seed)
    builder = ProgramBuilder(num_ranks, folded=False, unit_bytes=128)
    scale = rng.choice((1, 1, 10, 1000))
    servers = [
        builder.server(f"s{i}", rng.randint(1, 4) * rng.choice((1, scale)), rng.choice((0, 1, 2, 5, 20)) * scale)
        for i in range(rng.randint(1, 5))
    ]
    pools = [builder.pool(f"p{i}", rng.randint(1, 3)) for i in range(rng.randint(0, 3))]
    ops: list[int] = []
    for number in range(rng.randint(1, 12)):
        rank = rng.randrange(num_ranks)
        stages = [_random_stage(rng, servers, rank, scale) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]
        defined = builder.op(
            rank,
            rng.choice(list(OpKind)),
            f"op{number % 4}",
            stages,
            pool=rng.choice(pools) if pools and rng.random() < 0.6 else None,
            setup_ticks=rng.choice((0, 0, 1, 3 * scale)),
            release_ticks=rng.choice((0, 0, 0, 2, 7 * scale)),
            count=rng.choice((1, 1, 1, 2, 5)),
        )
        if ops and rng.random() < 0.7:
            builder.after(defined, rng.sample(ops, rng.randint(1, min(len(ops), 12))))
        ops += defined
    if rng.random() < 0.05:  # a cycle of waits
        builder.after([ops[0]], [ops[-1]])
    return builder.build()


def _random_stage(rng: random.Random, servers: list[int], rank: int, scale: int) -> Stage:
    flows = []
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        route = tuple((rng.choice(servers), rank + rng.choice((0, 0, 1, 2))) for _ in range(rng.randint(1, 4)))
        units = rng.choice((0, 1, 2, 7, 30))
        gap = rng.choice((0, 0, 1, 2, scale))
        flows.append(Flow(route, units, gap, rng.choice((0, 0, 1, scale)), rng.choice(list(TrafficClass))))
    return Stage(rng.choice((0, 0, 1, 4 * scale)), tuple(flows))


def programs(max_ranks: int = 3) -> st.SearchStrategy[Program]:
    """Random programs on one to ``max_ranks`` ranks."""
    return st.builds(
        lambda seed, num_ranks: random_program(seed, num_ranks=num_ranks),
        st.integers(0, 2**32),
        st.integers(1, max_ranks),
    )


def symmetric_program(seed: int, shape: str, num_ranks: int, *, folded: bool) -> Program:
    """The same program on every rank, with relative peers: chunks sent to peers, tiles that wait for chunks to arrive.

    ``shape`` is "mesh" (a link for each peer), "switch" (one way in and one out) or "ring" (chunks passed on).
    """
    rng = random.Random(seed)
    builder = ProgramBuilder(num_ranks, folded=folded, unit_bytes=128)
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
            (sent[step, rank],) = builder.op(rank, OpKind.TRANSFER, "send", [stage], pool=engines, setup_ticks=setup)
        for rank in ranks:
            source = (rank - target) % len(ranks)
            if shape == "ring" and step:
                builder.after([sent[step, rank]], [sent[step - 1, source]])
            flow = Flow(((hbm, rank),), tile_units, 2)
            tile_ops = builder.op(rank, OpKind.TILE, "tile", [Stage(hold, (flow,))], pool=sms, count=tiles)
            builder.after(tile_ops, [sent[step, source], *worked.get(rank, ())][: 1 + tiles // 2])
            worked[rank] = tile_ops
    return builder.build()
