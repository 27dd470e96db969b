"""Write an outline out as a plan for a scenario, or say why it is none."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from ..codes import Code
from ..collectives.base import Names, once
from ..ir import Adds, IndexRange, Kernels, OpCase, OpChoice, Step, TileGroup, Transfer, WrittenPlan
from ..planning.build import reject_execution
from ..planning.staging import template_input
from ..templates import BASELINE
from ..templates.base import TemplateInput, chained
from ..templates.serial import kernel as whole_kernel
from .check import OutlineRejection, outline_rejections
from .outline import Outline, SplitAxis, Sums
from .steps import (
    Cell,
    Kernel,
    Move,
    Moves,
    after_kernels,
    before_kernels,
    in_order,
    inner_slice,
    kernels,
    makers,
    moves,
    num_different,
    regions,
    token,
)


def plan_of(outline: Outline, problem: TemplateInput) -> WrittenPlan:
    """Write out the plan of an outline that ``check.py`` accepts for ``problem``."""
    count = num_different(outline, problem)
    ranks = tuple(_chained(outline, problem, rank) for rank in range(count))
    by_rank = ranks if count > 1 else ()
    return WrittenPlan(outline.engine, ranks[0], (), outline.tactics, by_rank, _overlaps(outline, problem))


def _overlaps(outline: Outline, problem: TemplateInput) -> bool:
    """Whether kernels may run beside transfers; a single kernel runs before or after all of them."""
    if problem.then is not None and _overlaps(outline, problem.then):
        return True
    return problem.pattern.independent or (problem.pattern.overlaps and len(kernels(outline, problem)) > 1)


def _chained(outline: Outline, problem: TemplateInput, rank: int) -> tuple[Step, ...]:
    first = _steps(outline, problem, rank)
    return first if problem.then is None else chained(first, _steps(outline, problem.then, rank))


def _steps(outline: Outline, problem: TemplateInput, rank: int) -> tuple[Step, ...]:
    moving = moves(outline, problem, rank)
    if not problem.pattern.overlaps:
        kernel = (whole_kernel(problem),) if problem.pattern.independent else ()
        return (*kernel, *moving.steps)
    produces = problem.pattern.produces
    ordered = in_order(outline, kernels(outline, problem, moving.hops), moving.moved, produces=produces)
    names = _names(outline, ordered)
    made = makers(outline, problem, names)
    groups = _groups(outline, problem, names, moving)
    if produces:
        waiting = _after_one_kernel(groups, _waiting(moving, made))
        return after_kernels(groups, waiting, sums_behind=outline.sums is Sums.BEHIND)
    return before_kernels(groups, _held(outline, moving, made))


def _names(outline: Outline, ordered: Iterable[Kernel]) -> dict[str, Kernel]:
    """Name the kernels, in their order."""
    named: dict[str, Kernel] = {}
    for kernel in ordered:
        own = outline.grouping.own_alone and kernel.owners == (0,)
        named["own" if own else f"g{len(named) - ('own' in named)}"] = kernel
    return named


def _groups(outline: Outline, problem: TemplateInput, names: Mapping[str, Kernel], moving: Moves) -> list[TileGroup]:
    """Return the kernels as steps, assigned to streams in turn; one that adds to output of others waits for them."""
    groups: list[TileGroup] = []
    index, may_add = 0, outline.split.axis is SplitAxis.COLS or problem.cutting.adds_ranks
    for name, kernel in names.items():
        stream, index = (0, index) if name == "own" else (index % outline.streams, index + 1)
        k, after = inner_slice(outline, problem, kernel), Names()
        before = groups if may_add else []
        earlier = [group for group in before if _adds(problem, kernel, k, names[group.name], group.k)]
        if problem.pattern.consumes:
            cells = sorted(kernel.cells, key=lambda cell: moving.moved[cell])
            after = tuple(signal for cell in cells for signal in moving.arrived[cell])
        after = (*after, *(group.name for group in earlier if group.stream != stream))
        tiles = regions(outline, problem, kernel, moving.moved)
        groups.append(TileGroup(name, tiles, k, once(after), stream, bool(earlier)))
    return groups


def _adds(problem: TemplateInput, kernel: Kernel, k: IndexRange, before: Kernel, k_before: IndexRange) -> bool:
    """Whether a kernel adds to output of ``before``: slices or blocks of one sum, or rows of the same keys."""
    match problem.cutting.adds:
        case Adds.COLUMNS:
            return not set(kernel.owners).isdisjoint(before.owners) and k != k_before
        case Adds.ROWS:
            return k.meets(k_before)
        case Adds.BLOCKS:
            return k != k_before or (kernel.first <= before.last and before.first <= kernel.last)
        case _:
            return False


def _waiting(moving: Moves, made: Mapping[Cell, Names]) -> list[Move]:
    """Return the steps with names of kernels in place of their tokens."""
    known = {token(cell): names for cell, names in made.items()}
    return [
        replace(step, after=once(chain.from_iterable(known.get(name, (name,)) for name in step.after)))
        for step in moving.steps
    ]


def _after_one_kernel(groups: list[TileGroup], moving: list[Move]) -> list[Move]:
    """Make transfers that wait only for other ranks wait for a single kernel too, which ends before anything moves."""
    if len(groups) > 1:
        return moving
    here = {groups[0].name, *(step.name for step in moving)}
    return [
        replace(step, after=(*step.after, groups[0].name))
        if isinstance(step, Transfer) and here.isdisjoint(step.after)
        else step
        for step in moving
    ]


def _held(outline: Outline, moving: Moves, made: Mapping[Cell, Names]) -> list[Move]:
    """Return the steps, where transfers wait until the piece ``depth`` before theirs has left its buffer."""
    order = outline.piece_order
    before = {piece: order[index - outline.depth] for index, piece in enumerate(order) if index >= outline.depth > 0}
    freed = {
        signal: made[owner, before[piece]]
        for (owner, piece), signals in moving.arrived.items()
        for signal in signals
        if piece in before
    }
    return [
        replace(step, after=(*step.after, *freed[step.signal]))
        if isinstance(step, Transfer) and step.signal in freed
        else step
        for step in moving.steps
    ]


# Rejections of the machine that concern transfers; the others concern kernels.
_OF_MOVE = (Code.MGS401, Code.MGS407, Code.MGS408)


def written_out(scenario: OpCase, outline: Outline) -> WrittenPlan:
    """Write every transfer, kernel and sum of an ``outline`` without rejections."""
    return plan_of(outline, _problem(scenario, outline))


def rejections_on(scenario: OpCase, outline: Outline) -> Iterator[OutlineRejection]:
    """Return rejections by the machine, then those by the workload."""
    unfit = reject_execution(scenario, outline.engine, outline.tactics)
    if unfit is not None:
        of_kernels = "kernel" if outline.tactics.kernel is Kernels.PERSISTENT else "sync"
        statement = "move" if unfit.code in _OF_MOVE else of_kernels
        yield OutlineRejection(unfit.code, unfit.message, _worded(unfit.hint), statement)
    yield from outline_rejections(outline, _problem(scenario, outline))


def _problem(scenario: OpCase, outline: Outline) -> TemplateInput:
    n, engine, streams, order = scenario.num_ranks, outline.engine, outline.streams, outline.ordering.order
    choice = OpChoice(BASELINE.name, n, engine, streams, outline.tactics, outline.algorithm, order=order)
    return template_input(scenario, choice)


def _worded(hint: str) -> str:
    """Rewrite a hint in the words of statements: ``kernel persistent`` for ``kernel=persistent``."""
    return hint.replace("use engine ", "move by ").replace("wait=", "sync ").replace("=", " ")
