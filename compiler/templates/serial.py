"""serial and bulk: the whole kernel and the whole collective, one after the other or side by side.

``serial`` is the baseline, and often the answer. Per rank one kernel and the transfers of its algorithm, in one piece
(the table in docs/schedules.md). It schedules every pattern, and is illegal only where the algorithm is.

``bulk`` begins with a kernel and a collective that need nothing of each other together; they share what the machine
has. It cuts the transfers into p pieces, and is for the ``||`` patterns alone. So FSDP prefetches the weights of the
next layer.
"""

from collections.abc import Iterator
from dataclasses import replace

from ..ir import IndexRange, Pattern, Region, Step, TileGroup
from .base import Cut, Template, TemplateInput
from .collective import DEFAULT_ALGORITHM, collective_in, emit, period


def build(problem: TemplateInput) -> Iterator[Step]:
    """The collective by its algorithm, with one kernel before or after it where there is a kernel."""
    yield from build_rank(problem, 0)


def build_rank(problem: TemplateInput, rank: int) -> Iterator[Step]:
    """Yield the steps of one absolute rank."""
    pattern = problem.pattern
    if collective_in(pattern) is pattern:
        yield from emit(problem, rank).steps
    elif pattern.consumes:
        moved = emit(problem, rank)
        yield from moved.steps
        yield kernel(problem, moved.all_done)
    else:
        yield kernel(problem)
        if collective_in(pattern) is not None:
            steps = emit(problem, rank, lambda block, piece: ("g0",)).steps
            # A block to pass on may arrive before the own kernel is done, and does not depend on it.
            yield from map(_after_kernel, steps) if pattern.beside else steps


def _after_kernel(step: Step) -> Step:
    return step if "g0" in step.after else replace(step, after=(*step.after, "g0"))


def kernel(problem: TemplateInput, after: tuple[str, ...] = ()) -> TileGroup:
    """The whole compute of a rank as one kernel."""
    if problem.pattern.beside:
        regions: tuple[Region, ...] = (problem.tiles(0, IndexRange(0, problem.output_rows)),)
    elif problem.pattern is Pattern.KERNEL:
        regions = (Region(0, IndexRange(0, 1), IndexRange(0, 1)),)
    else:
        regions = problem.all_gathered()
    inner = IndexRange(0, 1) if problem.pattern is Pattern.KERNEL else problem.all_inner
    return TileGroup("g0", regions, inner, after)


def _period(problem: TemplateInput) -> int:
    return 1 if collective_in(problem.pattern) is None else period(problem)


SERIAL = Template(
    "serial",
    Cut.SHARD,
    overlaps=False,
    min_pieces=1,
    patterns=tuple(Pattern),
    build=build,
    build_rank=build_rank,
    period=_period,
    knobs=("algorithm",),
    default_algorithm=DEFAULT_ALGORITHM,
    words=("all data first, then the kernel", "the kernel first, then all data"),
)


def bulk(problem: TemplateInput) -> Iterator[Step]:
    """One kernel, and the transfers of the collective beside it."""
    yield from bulk_rank(problem, 0)


def bulk_rank(problem: TemplateInput, rank: int) -> Iterator[Step]:
    """Yield the steps of one absolute rank."""
    yield kernel(problem)
    yield from emit(problem, rank).steps


BULK = Template(
    "bulk",
    Cut.ROWS,
    overlaps=True,
    min_pieces=1,
    patterns=tuple(pattern for pattern in Pattern if pattern.beside),
    build=bulk,
    build_rank=bulk_rank,
    period=period,
    knobs=("algorithm",),
    default_algorithm=DEFAULT_ALGORITHM,
    default_pieces=1,
    explored=False,
    words=("the kernel and the collective side by side",) * 2,
)
