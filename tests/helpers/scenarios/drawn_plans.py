"""Schedules that no template with equal chunks has: uneven batches in any order, kernels dealt to streams at will."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product

from magus.compiler.ir import (
    GemmShape,
    IndexRange,
    OpCase,
    OpChoice,
    OpPlan,
    Reduction,
    Region,
    Step,
    TileGroup,
    inner_size,
    tile_cols,
)
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.planning.staging import template_input
from magus.compiler.templates.bespoke import PATTERNS, block_rows, shortened_cuts
from magus.compiler.verify.check import check_plan
from tests.helpers.scenarios.drawn import ENGINES, KERNELS, scenario_of

Part = tuple[int, ...]


def draw_uneven(rng: random.Random, system: str, ranks: int) -> OpCase:
    """An overlapped workload with rows, columns and inner dimension far apart, on ``system``."""
    pattern = rng.choice(PATTERNS)
    m, n, k = (ranks * 64 * round(math.exp(rng.uniform(0, math.log(16)))) for _ in range(3))
    return scenario_of(pattern, system, ranks, m, n, rng.choice((k, 64 * ranks)))


def draw_parts(rng: random.Random, scenario: OpCase) -> tuple[Part, ...]:
    """Up to five batches, in each any rows of the own block and of that for every peer."""
    batches, columns = rng.randint(1, 5), []
    for rows in rows_of(scenario):
        cuts = [0, *sorted(rng.randint(0, rows) for _ in range(batches - 1)), rows]
        columns.append([high - low for low, high in pairwise(cuts)])
    return tuple(part for part in zip(*columns, strict=True) if any(part))


def rows_of(scenario: OpCase) -> Part:
    """Rows of the own block, and of the blocks that concern peer 1, 2, ..."""
    n = scenario.num_ranks
    return block_rows(template_input(scenario, OpChoice("bespoke", n, ENGINES[0])))


def draw_cuts(rng: random.Random, num_parts: int, size: int) -> tuple[Part, ...]:
    """For each of the parts up to three pieces of ``size``, in steps of 64; none at all half of the time."""
    inside, found = range(64, size, 64), []
    for _ in range(num_parts if rng.random() < 0.5 else 0):
        cuts = [0, *sorted(rng.sample(inside, rng.randint(0, min(2, len(inside))))), size]
        found.append(tuple(high - low for low, high in pairwise(cuts)) if len(cuts) > 2 else ())
    return shortened_cuts(tuple(found))


def draw_bespoke(rng: random.Random, scenario: OpCase) -> OpPlan | None:
    """A bespoke schedule with kernels in any streams, None where what was drawn cannot run."""
    tactics, engine, parts = rng.choice(KERNELS), rng.choice(ENGINES), draw_parts(rng, scenario)
    choice = OpChoice(
        "bespoke",
        scenario.num_ranks,
        engine,
        tactics=tactics,
        parts=parts,
        slices=draw_cuts(rng, len(parts), inner_size(scenario.shape)),
        columns=draw_cuts(rng, len(parts), tile_cols(scenario.shape)),
    )
    if reject_choice(scenario, choice) is not None:
        return None
    schedule = build_op_plan(scenario, choice)
    if rng.random() < 0.5 or not schedule.symmetric:
        return schedule
    dealt = replace(schedule, steps=tuple(in_any_stream(rng, step) for step in schedule.steps))
    return schedule if check_plan(scenario, dealt) else dealt


def in_any_stream(rng: random.Random, step: Step) -> Step:
    """A kernel in one of five streams; transfers as they are."""
    return replace(step, stream=rng.randrange(5)) if isinstance(step, TileGroup | Reduction) else step


def draw_grid(rng: random.Random, gemm: GemmShape) -> tuple[TileGroup, ...]:
    """Kernels for a GEMM cut into a random grid of rows, columns and slices, slices in order and all else at once."""
    grain, found = rng.choice((1, 16, 128, 256)), list[TileGroup]()
    slices = cuts(rng, gemm.k, rng.choice((1, 1, 2, 3)), 64)
    for rows, cols in product(cuts(rng, gemm.m, 5, grain), cuts(rng, gemm.n, 5, grain)):
        before: tuple[str, ...] = ()
        for inner in slices:
            name = f"g{len(found)}"
            regions = (Region(0, rows, cols),)
            found.append(TileGroup(name, regions, inner, before, stream=len(found), accumulate=bool(before)))
            before = (name,)
    return tuple(found)


def cuts(rng: random.Random, size: int, most: int, grain: int) -> list[IndexRange]:
    """``size`` in up to ``most`` spans whose edges are multiples of ``grain``."""
    edges = {max(grain, rng.randrange(size) // grain * grain) for _ in range(rng.randrange(most))}
    return [
        IndexRange(low, high) for low, high in pairwise(sorted({0, size, *(edge for edge in edges if edge < size)}))
    ]


def all_batches(rows: tuple[int, int]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Every sequence of batches of (own rows, rows of each peer) that add up to ``rows``."""
    if not any(rows):
        yield ()
        return
    for own, each in product(range(rows[0] + 1), range(rows[1] + 1)):
        if own or each:
            for rest in all_batches((rows[0] - own, rows[1] - each)):
                yield ((own, each), *rest)
