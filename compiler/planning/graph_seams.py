"""Seams by rows: which steps of an op make the rows that a step of another one takes.

Rows are those of a block of the tensor between the two, of a rank counted from the own one. Both sides must be cut by
rows: what comes of a reduce_scatter or of a kernel behind an all_gather, and what an all_gather or a kernel before a
sum takes. Everything else waits for the whole.
"""

from collections.abc import Iterator

from ..ir import (
    Direction,
    Kernels,
    Part,
    Pattern,
    Reduction,
    Region,
    Schedule,
    Step,
    StepWait,
    TileGroup,
    Transfer,
)

_TAKE_ROWS = (Pattern.GEMM_RS, Pattern.GEMM_AR)


def row_waits(maker: Part, taker: Part) -> tuple[StepWait, ...]:
    """The waits of steps of ``taker`` for those of ``maker`` that make the rows they take; empty without a seam."""
    if not (_launched(maker.schedule) and _launched(taker.schedule)):
        return ()
    made, taken = dict(_made(maker)), dict(_taken(taker))
    if not made or not taken or not _covered(maker, made, taken):
        return ()
    return tuple(
        StepWait(step, maker.name, other)
        for step, regions in taken.items()
        for other, theirs in made.items()
        if any(_meet(one, another) for one in regions for another in theirs)
    )


def _launched(schedule: Schedule) -> bool:
    """Whether all ranks do alike, and each step begins by itself."""
    return schedule.symmetric and schedule.tactics.kernel is Kernels.LAUNCHED and not schedule.engine.by_library


def _made(part: Part) -> Iterator[tuple[str, tuple[Region, ...]]]:
    """The steps of a part that leave rows of its output, with the rows of each."""
    for step in part.schedule.steps:
        if part.workload.pattern.reduces and isinstance(step, Reduction):
            yield step.name, (step.region,)
        elif part.workload.pattern is Pattern.AG_GEMM and isinstance(step, TileGroup):
            yield step.name, step.regions


def _taken(part: Part) -> Iterator[tuple[str, tuple[Region, ...]]]:
    """The steps of a part that take rows of its input at their rank, with the rows of each; none where ranks get them.

    Of what is gathered those of the own block are its input; what comes from others has waited at theirs.
    """
    steps, pattern = part.schedule.steps, part.workload.pattern
    if any(isinstance(step, Transfer) and step.direction is Direction.GET for step in steps):
        return
    for step in steps:
        own = tuple(region for region in _regions(step) if region.owner == 0)
        if pattern.gathers and own:
            yield step.name, own
        elif pattern in _TAKE_ROWS and isinstance(step, TileGroup):
            yield step.name, step.regions


def _regions(step: Step) -> tuple[Region, ...]:
    return step.regions if isinstance(step, TileGroup) else (step.region,)


def _covered(maker: Part, made: dict[str, tuple[Region, ...]], taken: dict[str, tuple[Region, ...]]) -> bool:
    """Whether steps of ``maker`` make every row that is taken: where a switch sums, no step does."""
    rows: dict[int, list[tuple[int, int]]] = {}
    for regions in made.values():
        for region in regions:
            rows.setdefault(region.owner, []).append((region.rows.start, region.rows.stop))
    return all(_within(region, sorted(rows.get(region.owner, ()))) for each in taken.values() for region in each)


def _within(region: Region, spans: list[tuple[int, int]]) -> bool:
    reached = region.rows.start
    for start, stop in spans:
        if start <= reached:
            reached = max(reached, stop)
    return reached >= region.rows.stop


def _meet(one: Region, other: Region) -> bool:
    """Whether two regions have rows in common: columns and slices of a row are all needed."""
    return one.owner == other.owner and one.rows.start < other.rows.stop and other.rows.start < one.rows.stop
