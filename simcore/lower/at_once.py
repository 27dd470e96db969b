"""The plan as kernels carry it out: sums of everything from everybody in one go, and persistent kernels tile by tile.

A region lies in one block, so a plan in which every rank is sent all that others have (``one_shot``) moves and sums it
block by block. The kernel does not (vLLM csrc/custom_all_reduce.cuh, ``cross_device_reduce_1stage``; TensorRT-LLM
customAllReduceKernels.cu, ``oneShotAllReduceKernel``): its SMs exchange all blocks with a peer in one loop, and add up
all of them in another. So copies with the same peer after the same steps become one, and the sums that wait for them.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from ...compiler.ir import (
    EngineKind,
    GraphPlan,
    IndexRange,
    Part,
    Reach,
    Reduction,
    Region,
    Scenario,
    Schedule,
    Step,
    TileGroup,
    Transfer,
)
from .whole_tiles import in_whole_tiles


def as_kernels(scenario: Scenario, schedule: Schedule, apart: Collection[str] = ()) -> Schedule:
    """Return ``schedule`` as its kernels carry it out; steps and signals in ``apart`` are waited for elsewhere."""
    return in_whole_tiles(scenario, all_blocks_at_once(scenario, schedule, apart))


def part_as_kernels(scenario: Scenario, plan: GraphPlan, part: Part) -> Schedule:
    """The same of a part of a graph plan; ``scenario`` is that of the part."""
    waiting = [each.step for each in part.step_waits]
    awaited = [each.of for other in plan.parts for each in other.step_waits if each.on == part.name]
    return as_kernels(scenario, part.schedule, {*waiting, *awaited})


def all_blocks_at_once(scenario: Scenario, schedule: Schedule, apart: Collection[str] = ()) -> Schedule:
    """Return ``schedule`` with the blocks of each piece exchanged and summed in one go.

    Itself where copy engines or tiles move the data, ranks differ in more than the rows of blocks, or other steps wait
    for a block or a part of it, as those do that wait for what is in ``apart``.
    """
    engine, plans = schedule.engine, schedule.by_rank or (schedule.steps,)
    by_sms = engine.kind is EngineKind.SM and not engine.by_library and not engine.by_tiles
    if not by_sms or apart or schedule.overrides or not _pieces(scenario, plans[0]):
        return schedule
    if any(list(map(_but_rows, steps)) != list(map(_but_rows, plans[0])) for steps in plans[1:]):
        return schedule
    merged = tuple(_merged(scenario, steps) for steps in plans)
    return replace(schedule, steps=merged[0], by_rank=merged if schedule.by_rank else ())


def _but_rows(step: Step) -> tuple[object, ...]:
    """All of a step of an uneven plan that is the same at all ranks."""
    if isinstance(step, TileGroup):
        return step.name, step.after, step.stream
    return step.name, step.after, step.region.owner, step.region.cols, step.peer if isinstance(step, Transfer) else None


def _merged(scenario: Scenario, steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps of a rank, those of each piece as a copy for each peer and one sum."""
    merged: dict[str, Step | None] = {}
    for sums, copies in _pieces(scenario, steps):
        merged |= dict.fromkeys([each.name for each in sums] + [copy.name for copy in copies])
        by_peer: dict[int, list[Transfer]] = {}
        for copy in copies:
            by_peer.setdefault(copy.peer, []).append(copy)
        signals = {copy.signal: blocks[0].signal for blocks in by_peer.values() for copy in blocks}
        for blocks in by_peer.values():
            merged[blocks[0].name] = replace(blocks[0], region=_together(blocks))
        after = dict.fromkeys(signals.get(name, name) for each in sums for name in each.after)
        merged[sums[0].name] = replace(sums[0], region=_together(sums), after=tuple(after))
    found = (merged.get(step.name, step) for step in steps)
    return tuple(step for step in found if step is not None)


def _pieces(scenario: Scenario, steps: Sequence[Step]) -> list[tuple[list[Reduction], list[Transfer]]]:
    """The sums of each piece of all blocks, and the copies that bring their parts; none unless all are of that kind."""
    n = scenario.num_ranks
    sums = [step for step in steps if isinstance(step, Reduction)]
    if len(sums) < n or any(each.num_parts != n for each in sums):
        return []
    copies = {step.signal: step for step in steps if isinstance(step, Transfer)}
    pieces: dict[int, list[Reduction]] = {}
    seen: Counter[int] = Counter()
    for each in sums:
        pieces.setdefault(seen[each.region.owner % n], []).append(each)
        seen[each.region.owner % n] += 1
    awaited = Counter(name for step in steps for name in step.after)
    found = [
        (group, [copies[name] for each in group for name in each.after if name in copies]) for group in pieces.values()
    ]
    whole = len(seen) == n > 1 and all(len(group) == n for group in pieces.values())
    alike = whole and all(_alike(n, *each) for each in found)
    alone = all(awaited[signal] == 1 for signal in copies) and not any(awaited[each.name] for each in sums)
    return found if alike and alone and sum(len(parts) for _, parts in found) == len(copies) else []


def _alike(num_ranks: int, sums: Sequence[Reduction], copies: Sequence[Transfer]) -> bool:
    """Whether every block is summed from all ranks, and its copies can be one with each peer."""
    plain = all(copy.reach is Reach.PEER and not copy.reduce and copy.lane is None for copy in copies)
    peers = Counter(copy.peer for copy in copies)
    return (
        plain
        and len(peers) == num_ranks - 1
        and set(peers.values()) == {num_ranks}
        and len({(copy.direction, copy.after, copy.region.cols) for copy in copies}) == 1
        and {each.region.cols for each in sums} == {copies[0].region.cols}
    )


def _together(steps: Iterable[Transfer | Reduction]) -> Region:
    """As many rows as the regions of ``steps`` have together."""
    regions = [step.region for step in steps]
    return replace(regions[0], rows=IndexRange(0, sum(region.rows.size for region in regions)))
