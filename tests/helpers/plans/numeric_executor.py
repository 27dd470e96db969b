"""Plans carried out on numbers: ranks with arrays, steps in any order that their waits allow, NaN where nothing is yet.

What a step reads before it is there, what is brought twice to different places or never, and what a kernel overwrites
instead of adding to it show in the results.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from magus.compiler.ir import Direction, OpCase, OpPlan, Pattern, Region, TileGroup, Transfer, queued_behind

Array = NDArray[np.float64]
Kernel = Callable[["Rank", TileGroup], None]


@dataclass
class Rank:
    """One rank: blocks that are to move or have come, by absolute rank, and what its kernels have made."""

    number: int
    num_ranks: int
    sent: dict[int, Array]
    """Of a gather the blocks of all ranks, of an exchange those for each rank."""
    came: dict[int, Array] = field(default_factory=dict)
    made: dict[str, Array] = field(default_factory=dict)

    def block(self, region: Region) -> int:
        """The absolute rank whose block ``region`` lies in."""
        return (self.number + region.owner) % self.num_ranks


def carry_out(scenario: OpCase, schedule: OpPlan, ranks: list[Rank], kernel: Kernel, seed: int) -> None:
    """Do every step at every rank, in an order drawn from those that the waits allow."""
    rng, done, arrived = random.Random(seed), set[tuple[int, str]](), set[tuple[int, str]]()
    waits = {(rank.number, step.name): set(step.after) for rank in ranks for step in schedule.steps}
    for rank in ranks:
        for name, before in queued_behind(schedule.steps):
            waits[rank.number, name].add(before)
    steps = {(rank.number, step.name): step for rank in ranks for step in schedule.steps}
    while len(done) < len(steps):
        ready = [key for key in steps if key not in done and _may_run(key[0], waits[key], done | arrived)]
        number, name = rng.choice(ready)
        step = steps[number, name]
        if isinstance(step, Transfer):
            arrived.add((_move(scenario, ranks, number, step), step.signal))
        elif isinstance(step, TileGroup):
            kernel(ranks[number], step)
        else:
            raise AssertionError(f"{step.name} sums, and there is nothing to sum here")
        done.add((number, name))


def _may_run(rank: int, waits: set[str], happened: set[tuple[int, str]]) -> bool:
    return all((rank, name) in happened for name in waits)


def _move(scenario: OpCase, ranks: list[Rank], issuer: int, step: Transfer) -> int:
    """Copy what a transfer moves; the rank at which it arrives."""
    n, puts = len(ranks), step.direction is Direction.PUT
    other = (issuer + step.peer) % n
    source, target = (issuer, other) if puts else (other, issuer)
    rows, cols = (
        slice(step.region.rows.start, step.region.rows.stop),
        slice(step.region.cols.start, step.region.cols.stop),
    )
    block = ranks[issuer].block(step.region)
    gathers = scenario.shape.pattern is Pattern.AG_GEMM
    into = ranks[target].sent[block] if gathers else ranks[target].came[source]
    into[rows, cols] = ranks[source].sent[block][rows, cols]
    return target


def attend(q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    """One head, [queries, d] against [keys, d]: the sum of values not yet divided, the maximum and the sum of rows."""
    scores = q @ k.T / np.sqrt(q.shape[1])
    top = scores.max(axis=1)
    weights = np.exp(scores - top[:, None])
    return weights @ v, top, weights.sum(axis=1)


def merged(one: tuple[Array, Array, Array], other: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    """Two parts over different keys, rescaled to the larger maximum: online softmax."""
    top = np.maximum(one[1], other[1])
    a, b = np.exp(one[1] - top), np.exp(other[1] - top)
    return one[0] * a[:, None] + other[0] * b[:, None], top, one[2] * a + other[2] * b


def rows_of(rank: Rank, group: TileGroup, blocks: dict[int, Array]) -> Iterator[tuple[int, slice, Array]]:
    """(absolute rank, rows, those rows) of each region of a group."""
    for region in group.regions:
        rows = slice(region.rows.start, region.rows.stop)
        yield rank.block(region), rows, blocks[rank.block(region)][rows]
