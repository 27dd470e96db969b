"""Rows finer than a tile: a persistent kernel works on whole tiles, so groups that share one wait for each other.

A tile begins when all of its rows are there, and what it computes may leave when all of it is done. Groups of rows that
a plan cuts finer than the tile of the kernel then wait for the signals of all groups in the tile, or release their
transfers and sums together. Tiles are laid from the rank's own first row on, so that all ranks are alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...compiler.ir import Kernels, Scenario, Schedule, Step, TileGroup, Transfer, num_tile_blocks, tile_rows
from ..kernels.dispatch import stream_work

Mates = Mapping[str, tuple[TileGroup, ...]]
"""The groups that share a tile with each group, itself included, in the order of the plan."""


def in_whole_tiles(scenario: Scenario, schedule: Schedule) -> Schedule:
    """Return ``schedule`` with the waits that whole tiles add; itself where kernels are launched or tiles are finer.

    Plans in which transfers wait for the kernel and the kernel for transfers are left as they are: there the order of
    pieces is the plan's own, and waits for whole tiles could close a circle.
    """
    workload = scenario.workload
    if schedule.tactics.kernel is not Kernels.PERSISTENT or workload.gemm is None or workload.uneven:
        return schedule
    if num_tile_blocks(workload, scenario.num_ranks) == 1 or _goes_both_ways(schedule.steps_of(0)):
        return schedule
    return replace(
        schedule,
        steps=_waiting(scenario, schedule, schedule.steps),
        by_rank=tuple(_waiting(scenario, schedule, steps) for steps in schedule.by_rank),
        overrides=tuple(
            replace(each, step=_extended(each.step, _mates(scenario, schedule, schedule.steps_of(each.rank))))
            for each in schedule.overrides
        ),
    )


def _goes_both_ways(steps: Sequence[Step]) -> bool:
    """Whether kernels wait for transfers and transfers for kernels."""
    groups = {step.name for step in steps if isinstance(step, TileGroup)}
    gathers = any(isinstance(step, TileGroup) and not groups.issuperset(step.after) for step in steps)
    scatters = any(isinstance(step, Transfer) and not groups.isdisjoint(step.after) for step in steps)
    return gathers and scatters


def _waiting(scenario: Scenario, schedule: Schedule, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    mates = _mates(scenario, schedule, steps)
    return tuple(_extended(step, mates) for step in steps) if mates else steps


def _extended(step: Step, mates: Mates) -> Step:
    """``step`` with the waits of the groups that share its tiles, or those that share the tiles it waits for."""
    if isinstance(step, TileGroup):
        # Whoever shares a tile is a mate itself: only signals and transfers are added, no kernels of the tile.
        more = [name for mate in mates.get(step.name, ()) for name in mate.after if name not in mates]
    else:
        more = [mate.name for name in step.after for mate in mates.get(name, ())]
    return replace(step, after=tuple(dict.fromkeys((*step.after, *more))))


def _mates(scenario: Scenario, schedule: Schedule, steps: Sequence[Step]) -> Mates:
    """The groups of each kernel that share tiles; empty if none does."""
    streams: dict[int, list[TileGroup]] = {}
    for step in steps:
        if isinstance(step, TileGroup):
            streams.setdefault(step.stream, []).append(step)
    found: dict[str, tuple[TileGroup, ...]] = {}
    for groups in streams.values():
        work = stream_work(scenario, groups, schedule.compute_sms)
        rows = work.block_cols if scenario.workload.by_columns else work.block_rows
        if rows:
            found |= _sharing(groups, [_tiles(scenario, group, rows) for group in groups])
    return found


def _tiles(scenario: Scenario, group: TileGroup, block_rows: int) -> frozenset[int]:
    """The rows of tiles that ``group`` has a part of."""
    n, rows = scenario.num_ranks, tile_rows(scenario.workload, scenario.num_ranks)
    spans = ((region.owner % n * rows + region.rows.start, region.rows.size) for region in group.regions)
    return frozenset(
        tile for start, size in spans for tile in range(start // block_rows, (start + size - 1) // block_rows + 1)
    )


def _sharing(groups: Sequence[TileGroup], tiles: Sequence[frozenset[int]]) -> dict[str, tuple[TileGroup, ...]]:
    """The groups with common tiles, the same columns and the same slice of the inner dimension."""
    mates = {
        group.name: tuple(
            other
            for other, theirs in zip(groups, tiles, strict=True)
            if not own.isdisjoint(theirs) and other.k == group.k and other.regions[0].cols == group.regions[0].cols
        )
        for group, own in zip(groups, tiles, strict=True)
    }
    return {name: sharing for name, sharing in mates.items() if len(sharing) > 1}
