"""Seams by rows: which steps of an op make the rows that a step of another one takes.

Rows are those of a block of the tensor between the two, of a rank counted from the own one. Both sides must be cut by
rows: what comes of a reduce_scatter or of a kernel behind an all_gather, and what an all_gather or a kernel before a
sum takes; or what an all_to_all brings, and a GEMM that is cut along it. Everything else waits for the whole.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ..ir import (
    Direction,
    Kernels,
    Part,
    Pattern,
    Rect,
    Reduction,
    Region,
    Schedule,
    Step,
    StepWait,
    TileGroup,
    Transfer,
)
from .graph_brought import Brought

_TAKE_ROWS = (Pattern.GEMM_RS, Pattern.GEMM_AR)

Places = tuple[tuple[int, Rect], ...]
"""Rectangles of what is between two ops, each in the block of a rank: all columns, where only rows count."""


def row_waits(maker: Part, taker: Part, num_ranks: int) -> tuple[StepWait, ...]:
    """The waits of steps of ``taker`` for what makes the rows that they take, in ``maker``; empty without a seam."""
    if not (_begins_by_itself(maker.schedule) and _begins_by_itself(taker.schedule)):
        return ()
    made, taken = _sides(maker, taker, num_ranks)
    if not made or not taken or not _covered(made, taken):
        return ()
    return tuple(
        StepWait(step, maker.name, other)
        for step, mine in taken.items()
        for other, theirs in made.items()
        if any(_meet(one, another) for one in mine for another in theirs)
    )


def _sides(maker: Part, taker: Part, num_ranks: int) -> tuple[dict[str, Places], dict[str, Places]]:
    """What steps and signals of ``maker`` leave, and what steps of ``taker`` take of it."""
    brought = Brought.of(maker.workload, taker.workload, num_ranks)
    if brought is None or len(taker.schedule.steps) == 1:
        return dict(_made(maker)), dict(_taken(taker))
    made: dict[str, Places] = {}
    for name, rect in brought.landing(maker.schedule):
        made[name] = (*made.get(name, ()), (0, rect))
    return made, dict(_input(taker.schedule))


def _begins_by_itself(schedule: Schedule) -> bool:
    """Whether all ranks do alike, and each step begins by itself."""
    return schedule.symmetric and schedule.tactics.kernel is Kernels.LAUNCHED and not schedule.engine.by_library


def _made(part: Part) -> Iterator[tuple[str, Places]]:
    """The steps of a part that leave rows of its output, with the rows of each."""
    for step in part.schedule.steps:
        if part.workload.pattern.reduces and isinstance(step, Reduction):
            yield step.name, _rows((step.region,))
        elif part.workload.pattern is Pattern.AG_GEMM and isinstance(step, TileGroup):
            yield step.name, _rows(step.regions)


def _taken(part: Part) -> Iterator[tuple[str, Places]]:
    """The steps of a part that take rows of its input at their rank, with the rows of each; none where ranks get them.

    Of what is gathered those of the own block are its input; what comes from others has waited at theirs.
    """
    steps, pattern = part.schedule.steps, part.workload.pattern
    if any(isinstance(step, Transfer) and step.direction is Direction.GET for step in steps):
        return
    for step in steps:
        own = tuple(region for region in _regions(step) if region.owner == 0)
        if pattern.gathers and own:
            yield step.name, _rows(own)
        elif pattern in _TAKE_ROWS and isinstance(step, TileGroup):
            yield step.name, _rows(step.regions)


def _input(schedule: Schedule) -> Iterator[tuple[str, Places]]:
    """What each kernel of a lone GEMM takes of its input."""
    for step in schedule.steps:
        if isinstance(step, TileGroup):
            yield step.name, tuple((0, Rect.of(replace(region, cols=step.k))) for region in step.regions)


def _regions(step: Step) -> tuple[Region, ...]:
    return step.regions if isinstance(step, TileGroup) else (step.region,)


def _rows(regions: Iterable[Region]) -> Places:
    """Whole rows: columns and slices of them are all needed."""
    return tuple((each.owner, Rect(each.rows.start, each.rows.stop, 0, 1)) for each in regions)


def _covered(made: Mapping[str, Places], taken: Mapping[str, Places]) -> bool:
    """Whether steps make every row that is taken: where a switch sums, no step does.

    Of a row all slices are made, or none: a plan that leaves some out is refused by itself.
    """
    spans: dict[int, list[tuple[int, int]]] = {}
    for places in made.values():
        for owner, rect in places:
            spans.setdefault(owner, []).append((rect.top, rect.bottom))
    return all(_within(rect, sorted(spans.get(owner, ()))) for each in taken.values() for owner, rect in each)


def _within(rect: Rect, spans: list[tuple[int, int]]) -> bool:
    reached = rect.top
    for start, stop in spans:
        if start <= reached:
            reached = max(reached, stop)
    return reached >= rect.bottom


def _meet(one: tuple[int, Rect], other: tuple[int, Rect]) -> bool:
    return one[0] == other[0] and one[1].clip(other[1]) is not None
