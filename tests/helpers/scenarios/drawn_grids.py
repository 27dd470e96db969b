"""Plans written out at random: kernels cut by rows, columns and slices of the inner dimension, in up to 16 streams."""

import random
from collections.abc import Iterator
from itertools import product

from magus.compiler.ir import (
    Direction,
    EngineMode,
    OpCase,
    OpPlan,
    Pattern,
    Reduction,
    Region,
    Step,
    TileGroup,
    Transfer,
    WrittenPlan,
)
from magus.compiler.planning.build import build_op_plan
from magus.compiler.verify.check import check_plan
from tests.helpers.scenarios.drawn import ENGINES, KERNELS
from tests.helpers.scenarios.drawn_plans import cuts

STREAMS = (1, 2, 4, 16)


def draw_grid_plan(rng: random.Random, scenario: OpCase) -> OpPlan | None:
    """A plan for AG+GEMM or GEMM+RS, None where what was drawn is no plan."""
    engine = rng.choice([each for each in ENGINES if each.mode is not EngineMode.BROADCAST])
    tactics = rng.choice(KERNELS)
    draw = _gathered if scenario.shape.pattern is Pattern.AG_GEMM else _scattered
    schedule = build_op_plan(scenario, WrittenPlan(engine, tuple(draw(rng, scenario)), tactics=tactics), "plan")
    return None if check_plan(scenario, schedule) else schedule


def _gathered(rng: random.Random, scenario: OpCase) -> Iterator[Step]:
    """Pieces of each shard are fetched; kernels on own rows, and on those of one or of all others, slice by slice."""
    moved, gemm, n = scenario.shape.moved, scenario.shape.gemm, scenario.num_ranks
    assert moved is not None and gemm is not None
    rows, inner = cuts(rng, moved.rows // n, 4, rng.choice((16, 64))), cuts(rng, gemm.k, rng.choice((1, 1, 3, 5)), 64)
    for i, j, peer in product(range(len(rows)), range(len(inner)), range(1, n)):
        yield Transfer(f"x{i}_{j}_{peer}", Direction.GET, Region(peer, rows[i], inner[j]), peer, f"s{i}_{j}_{peer}")
    streams, together, columns = rng.choice(STREAMS), rng.random() < 0.6, cuts(rng, gemm.n, rng.choice((1, 1, 3)), 64)
    owners = [[0], [*range(1, n)]] if together else [[owner] for owner in range(n)]
    for number, ((i, row), cols, each) in enumerate(product(enumerate(rows), columns, owners)):
        before: tuple[str, ...] = ()
        for j, part in enumerate(inner):
            regions = tuple(Region(owner, row, cols) for owner in each)
            after = (*(f"s{i}_{j}_{peer}" for peer in each if peer), *before)
            yield TileGroup(f"g{number}_{j}", regions, part, after, number % streams, accumulate=bool(before))
            before = (f"g{number}_{j}",)


def _scattered(rng: random.Random, scenario: OpCase) -> Iterator[Step]:
    """Pieces of the partial sums leave when all slices are done, and are summed when all parts have come."""
    moved, gemm, n = scenario.shape.moved, scenario.shape.gemm, scenario.num_ranks
    assert moved is not None and gemm is not None
    rows, inner = cuts(rng, moved.rows // n, 4, rng.choice((16, 64))), cuts(rng, gemm.k, rng.choice((1, 1, 2, 3)), 64)
    streams, number = rng.choice(STREAMS), 0
    for row, cols in product(rows, cuts(rng, gemm.n, rng.choice((1, 1, 3)), 64)):
        owners = [[*range(1, n)], [0]] if rng.random() < 0.5 else [[owner] for owner in (*range(1, n), 0)]
        before: tuple[str, ...] = ()
        for each in owners:
            before = ()
            for part in inner:
                regions = tuple(Region(owner, row, cols) for owner in each)
                name = f"g{number}_{part.start}"
                yield TileGroup(name, regions, part, before, number % streams, accumulate=bool(before))
                before = (name,)
            number += 1
            for owner in filter(None, each):
                name = f"{row.start}_{cols.start}_{owner}"
                yield Transfer(f"t{name}", Direction.PUT, Region(owner, row, cols), owner, f"s{name}", before)
        after = (*before, *(f"s{row.start}_{cols.start}_{owner}" for owner in range(1, n)))
        yield Reduction(f"r{row.start}_{cols.start}", Region(0, row, cols), n, after, rng.choice((60, 61)))
