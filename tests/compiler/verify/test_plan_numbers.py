"""Templates of attention on numbers: whatever the order that waits allow, the results are those of the whole kernel.

Softmax is what it is here; the runtime has powers of two in its place, see tests/runtime/test_attention.py.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from magus.compiler.ir import EngineChoice, EngineKind, OpCase, OpChoice, TileGroup, moved_rows
from magus.compiler.planning.build import build_op_plan
from tests.helpers.plans.numeric_executor import Array, Rank, attend, carry_out, merged, rows_of
from tests.helpers.scenarios.workloads import choices_of, workload_of

HEADS, KV_HEADS, D, RANKS, M = 8, 4, 4, 4, 32
PER_KV = HEADS // KV_HEADS

Numbers = tuple[list[Rank], Callable[[Rank, TileGroup], None], Callable[[Rank], bool]]
"""Ranks with what they have, what a kernel does at one of them, and whether a rank has the right results at the end."""


def draw(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def nothing(*shape: int) -> Array:
    return np.full(shape, np.nan)


def whole(q: Array, k: Array, v: Array) -> Array:
    found, _, sums = attend(q, k, v)
    return found / sums[:, None]


def heads_of(columns: Array, head: int, queries: int) -> tuple[Array, Array, Array]:
    """Queries, keys and values of head ``head`` of keys, packed as [queries..., K, V] of each."""
    width = (queries + 2) * D
    mine = columns[:, head * width : (head + 1) * width]
    return mine[:, : queries * D], mine[:, queries * D : -D], mine[:, -D:]


def ring(scenario: OpCase, seed: int) -> Numbers:
    """AG+attention: own queries against the keys of all ranks."""
    rows = M // RANKS
    keys = [draw(100 * seed + r, rows, 2 * KV_HEADS * D) for r in range(RANKS)]
    queries = [draw(100 * seed + 50 + r, rows, HEADS * D) for r in range(RANKS)]
    ranks = []
    for r in range(RANKS):
        blocks = {s: keys[s].copy() if s == r else nothing(*keys[s].shape) for s in range(RANKS)}
        ranks.append(Rank(r, RANKS, blocks))
    parts: dict[tuple[int, int], tuple[Array, Array, Array]] = {}

    def kernel(rank: Rank, group: TileGroup) -> None:
        seen = np.concatenate([block for _, _, block in rows_of(rank, group, rank.sent)])
        width = 2 * D
        for kv in range(group.k.start // width, group.k.stop // width):
            _, k, v = heads_of(seen, kv, 0)
            for head in range(kv * PER_KV, (kv + 1) * PER_KV):
                part = attend(queries[rank.number][:, head * D : (head + 1) * D], k, v)
                at = rank.number, head
                parts[at] = merged(parts[at], part) if group.accumulate else part

    def right(rank: Rank) -> bool:
        every = np.concatenate(keys)
        found = [parts[rank.number, head][0] / parts[rank.number, head][2][:, None] for head in range(HEADS)]
        wanted = [
            whole(queries[rank.number][:, head * D : (head + 1) * D], *heads_of(every, head // PER_KV, 0)[1:])
            for head in range(HEADS)
        ]
        return np.allclose(found, wanted, rtol=1e-9, atol=1e-12)

    return ranks, kernel, right


def to_heads(scenario: OpCase, seed: int) -> Numbers:
    """A2A+attention: rank s has for each rank its own positions of that rank's heads."""
    rows, cols = M // RANKS, (HEADS + 2 * KV_HEADS) * D
    sent = [{t: draw(100 * seed + 10 * s + t, rows, cols) for t in range(RANKS)} for s in range(RANKS)]
    ranks = [Rank(r, RANKS, sent[r], {s: nothing(rows, cols) for s in range(RANKS)}) for r in range(RANKS)]
    for rank in ranks:
        rank.came[rank.number][:] = sent[rank.number][rank.number]
        rank.made["o"] = nothing(M, HEADS * D)

    def kernel(rank: Rank, group: TileGroup) -> None:
        found = sorted(rows_of(rank, group, rank.came), key=lambda each: each[0])
        seen = np.concatenate([block for _, _, block in found])
        assert len(seen) == M and not group.accumulate
        width = (PER_KV + 2) * D
        for kv in range(group.k.start // width, group.k.stop // width):
            q, k, v = heads_of(seen, kv, PER_KV)
            for i in range(PER_KV):
                head = kv * PER_KV + i
                rank.made["o"][:, head * D : (head + 1) * D] = whole(q[:, i * D : (i + 1) * D], k, v)

    def right(rank: Rank) -> bool:
        every = np.concatenate([sent[s][rank.number] for s in range(RANKS)])
        wanted = nothing(M, HEADS * D)
        for head in range(HEADS):
            q, k, v = heads_of(every, head // PER_KV, PER_KV)
            i = head % PER_KV
            wanted[:, head * D : (head + 1) * D] = whole(q[:, i * D : (i + 1) * D], k, v)
        return np.allclose(rank.made["o"], wanted, rtol=1e-9, atol=1e-12)

    return ranks, kernel, right


def to_rows(scenario: OpCase, seed: int) -> Numbers:
    """attention+A2A: every rank has all positions of its heads, and sends each rank the rows that it owns."""
    rows = M // RANKS
    qkv = [draw(100 * seed + r, M, (HEADS + 2 * KV_HEADS) * D) for r in range(RANKS)]

    def output(r: int, at: slice, head: int) -> Array:
        q, k, v = heads_of(qkv[r], head // PER_KV, PER_KV)
        i = head % PER_KV
        return whole(q[at, i * D : (i + 1) * D], k, v)

    def kernel(rank: Rank, group: TileGroup) -> None:
        for block, at, _ in rows_of(rank, group, rank.sent):
            positions = slice(block * rows + at.start, block * rows + at.stop)
            for head in range(group.regions[0].cols.start // D, group.regions[0].cols.stop // D):
                rank.sent[block][at, head * D : (head + 1) * D] = output(rank.number, positions, head)

    def right(rank: Rank) -> bool:
        mine = slice(rank.number * rows, (rank.number + 1) * rows)
        came = {**rank.came, rank.number: rank.sent[rank.number]}
        wanted = {s: np.concatenate([output(s, mine, head) for head in range(HEADS)], axis=1) for s in came}
        return all(np.allclose(came[s], wanted[s], rtol=1e-9, atol=1e-12) for s in came)

    return _empty(scenario, HEADS * D), kernel, right


def _empty(scenario: OpCase, cols: int) -> list[Rank]:
    """Ranks that have yet to make what they send."""
    sizes = [moved_rows(scenario.shape, RANKS, k) for k in range(RANKS)]
    return [
        Rank(
            r,
            RANKS,
            {(r + k) % RANKS: nothing(sizes[k], cols) for k in range(RANKS)},
            {(r - k) % RANKS: nothing(sizes[k], cols) for k in range(1, RANKS)},
        )
        for r in range(RANKS)
    ]


@pytest.mark.quick(3)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("AG+attention", ring),
        ("A2A+attention", to_heads),
        ("attention+A2A", to_rows),
    ],
)
def test_every_template_gives_the_result_of_the_whole(
    name: str, numbers: Callable[[OpCase, int], Numbers], seed: int
) -> None:
    scenario, done = workload_of(name, RANKS, M, D), 0
    for choice in choices_of(scenario, (1, 2, 4)):
        schedule = build_op_plan(scenario, choice)
        ranks, kernel, right = numbers(scenario, seed)
        carry_out(scenario, schedule, ranks, kernel, seed)
        assert all(right(rank) for rank in ranks), choice
        done += 1
    assert done > 3


@pytest.mark.parametrize(
    ("name", "numbers", "step", "changes"),
    [
        ("AG+attention", ring, "g1", {"accumulate": False}),
        ("AG+attention", ring, "g0", {"after": ()}),
        ("A2A+attention", to_heads, "g0", {"after": ()}),
        ("attention+A2A", to_rows, "x1_2", {"after": ()}),
    ],
)
def test_numbers_show_what_is_wrong(
    name: str, numbers: Callable[[OpCase, int], Numbers], step: str, changes: dict[str, object]
) -> None:
    scenario = workload_of(name, RANKS, M, D)
    template = "uniform_fused_2d" if name.startswith("A2A") else "hetero_fused_1d"
    schedule = build_op_plan(scenario, OpChoice(template, 2 * RANKS, EngineChoice(EngineKind.DMA, 3)))
    steps = tuple(replace(one, **changes) if one.name == step else one for one in schedule.steps)  # type: ignore[arg-type]
    wrong = 0
    for seed in range(5):
        ranks, kernel, right = numbers(scenario, seed)
        carry_out(scenario, replace(schedule, steps=steps), ranks, kernel, seed)
        wrong += not all(right(rank) for rank in ranks)
    assert steps != schedule.steps and wrong >= 3
