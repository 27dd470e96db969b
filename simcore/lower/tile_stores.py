"""Stores from inside kernels: each unit puts what it has computed where that is wanted, when it has computed it.

- A transfer is stored by the units of the kernel that computed it, each its part, and takes no SM: an SM issues stores
  one behind the other and goes on with its next unit. It holds before the one after that until they have landed, since
  what it stores from has room for one tile beside the one it works on (NVIDIA CUTLASS: epilogues of Hopper's persistent
  kernels store from shared memory while the next tile is computed).
- Nothing is read from memory for it, and a tile that only its owner wants is not written at home.
- Each unit sets a flag at each destination after its bytes: as many flags as units times destinations (Punniyamurthy et
  al., arXiv 2305.06942: one ready flag for each work-group and peer). Sums of the plan are units of the same kernel,
  after all tiles. With ``per=tile`` one waits for the flags of the tiles that it sums, else for all of its piece.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise, product

from ...compiler.ir import (
    Reduction,
    Step,
    TileGroup,
    Transfer,
    WaitPer,
    kernels_of,
    seen_from,
    span_of,
    sums_of_all,
)
from ..kernels.gemm import ticks_for
from ..program.program import Flow, OpKind, OpSpec, Stage
from .copies import data_stage, flag_stages
from .state import Lowering, StepOps, Waiters, moved_bytes
from .waits import tell


def lower_stores(state: Lowering, rank: int, step: Transfer, kernel: TileGroup | Reduction) -> None:
    """Ops for each unit of ``kernel`` that computes a part of what ``step`` moves, with that part of the bytes."""
    tiles = state.step_ops[rank, kernel.name].work
    # Dealt in units of the simulation: a tile's part may be less than one, where these are large.
    units = state.units(moved_bytes(state.scenario, step.region))
    # Where later kernels hold the rest of the tile no SM waits for the store.
    held = all((rank, name) in state.step_ops for name in step.after)
    # Tiles are many, and their parts of few sizes.
    flows_of = cache(lambda part: data_stage(state, rank, step, part * state.unit_bytes).flows)
    flag = flag_stages(state, rank, step)
    ops: list[int] = []
    for tile, part in _shares(span_of(step.region, kernel), len(tiles), units):
        stores = _stored(state, rank, step.name, tiles[tile], part, flows_of)
        if held:
            state.stores.setdefault(tiles[tile], []).extend(stores)
        told = state.builder.op(rank, OpSpec(OpKind.TRANSFER, step.name, flag)) if flag else range(0)
        state.builder.after(told, stores)
        ops += [*stores, *told]
    state.register(rank, step, range(ops[0], ops[-1] + 1), Waiters(ops, ops, stored_by=kernel.name))


def _stored(
    state: Lowering, rank: int, name: str, tile: int, units: int, flows_of: Callable[[int], tuple[Flow, ...]]
) -> range:
    """The stores of one tile, in two halves: its SM sends one behind the other, and behind what it stores before."""
    per_unit = ticks_for(state.unit_bytes, state.scenario.gpu.sm_copy.bytes_per_s)
    stores: list[int] = []
    for part in (units // 2, units - units // 2) if units > 1 else (units,):
        lead = state.sent_units.get(tile, 0) * per_unit
        state.sent_units[tile] = state.sent_units.get(tile, 0) + part
        later = tuple(replace(flow, offset_ticks=flow.offset_ticks + lead) for flow in flows_of(part))
        stores += state.builder.op(rank, OpSpec(OpKind.TRANSFER, name, (Stage(0, later),)))
    state.builder.after(stores, (tile,))
    return range(stores[0], stores[-1] + 1)


def _shares(span: tuple[Fraction, Fraction], num_tiles: int, units: int) -> Iterator[tuple[int, int]]:
    """The tiles that lie in ``span``, each with its part of ``units``, 0 where a part is less than one."""
    low, high = span
    first, last = math.floor(low * num_tiles), math.ceil(high * num_tiles)
    edges = [max(low, Fraction(tile, num_tiles)) for tile in range(first, last)] + [high]
    cuts = [int(units * (edge - low) / (high - low)) for edge in edges]
    return ((tile, after - before) for tile, (before, after) in zip(range(first, last), pairwise(cuts), strict=True))


def announce(state: Lowering, ranks: range) -> Mapping[tuple[int, str], list[int]]:
    """Add the flags by which tiles say that a switch may sum what they have computed: one for each group and reader.

    Returns the flags by the rank that asks for the sum, and its step. They are added sender by sender, so that those of
    a folded plan are in the order of any rank.
    """
    flags: dict[tuple[int, str], list[int]] = {}
    n = state.scenario.num_ranks
    sums = {rank: tuple(sums_of_all(state.schedule.steps_of(rank))) for rank in ranks if state.by_tiles}
    for rank, offset in product(ranks if any(sums.values()) else (), range(1, n)):
        reader = (rank + offset) % state.period
        for step in sums[reader]:
            region = seen_from(step.region, n - offset, n)
            groups = kernels_of(region, state.schedule.steps_of(rank))
            done = [state.step_ops[rank, group.name].done for group in groups]
            told = tell(state, rank, offset, step.name, f"{step.signal} {offset}", done)
            flags.setdefault((reader, step.name), []).append(told)
    return flags


def order_stores(state: Lowering, units: Sequence[tuple[int, int]]) -> None:
    """Make stores wait for those of the tile that their SM ran before, and tiles for those of the last but one.

    ``units`` are those of the persistent kernels of a rank in order, each as the op that begins it and its own.
    """
    sms = state.schedule.compute_sms
    for (_, before), (_, after) in zip(units, units[sms:], strict=False):
        for earlier, later in zip(state.stores.get(before, ()), state.stores.get(after, ()), strict=False):
            state.builder.after((later,), (earlier,))
    for (_, before), (start, _) in zip(units, units[2 * sms :], strict=False):
        state.builder.after((start,), state.stores.get(before, ()))


def stored_away_bytes(state: Lowering, rank: int, steps: Iterable[Step]) -> Mapping[str, int]:
    """Bytes that tiles store at their owner alone, another rank, by the group: these are not written at home.

    What the rank sums itself it needs at home too.
    """
    steps, n = tuple(steps), state.scenario.num_ranks
    summed = {step.region.owner % n for step in steps if isinstance(step, Reduction)}
    stored = state.stored_by.get(rank, {})
    moves = [step for step in steps if isinstance(step, Transfer) and step.name in stored]
    times = Counter(step.region for step in moves)
    away: Counter[str] = Counter()
    for step in moves:
        if times[step.region] == 1 and step.region.owner % n == step.peer % n and step.peer % n not in summed:
            away[stored[step.name].name] += moved_bytes(state.scenario, step.region)
    return away


def wait_tile_by_tile(
    state: Lowering, step: Reduction, waiters: Waiters, kernels: Sequence[StepOps], landed: Sequence[StepOps]
) -> None:
    """Make each unit of a sum wait for the tiles that it sums: the own ones, and the flags of those of others."""
    count = len(waiters.on_kernels)
    own, others = ([_parts(ops, step, count) for ops in side] for side in (kernels, landed))
    for number in range(count):
        tiles, stores = ([op for parts in side for op in parts[number]] for side in (own, others))
        state.builder.after(waiters.on_kernels[number : number + 1], tiles)
        state.builder.after(waiters.on_transfers[number : number + 1], stores)
        state.builder.flags(waiters.polling[number : number + 1], stores)


def sums_tile_by_tile(state: Lowering) -> bool:
    """Whether the units of sums wait for tiles one by one."""
    return state.by_tiles and state.schedule.tactics.per is WaitPer.TILE


def _parts(ops: StepOps, step: Reduction, count: int) -> list[Sequence[int]]:
    """The ops that each of the ``count`` units of a sum waits for."""
    if isinstance(ops.step, Transfer):
        if ops.step.region.rows != step.region.rows:
            return [ops.work] * count
        low, high = Fraction(0), Fraction(1)
    else:
        low, high = span_of(step.region, ops.step)
    edges = [(low + number * (high - low) / count) * len(ops.work) for number in range(count + 1)]
    return [ops.work[math.floor(first) : math.ceil(last)] for first, last in pairwise(edges)]
