"""A schedule with one thing changed: a wait left out, signals swapped, a region moved, a step missing or twice."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from magus.compiler.ir import EngineKind, IndexRange, OpPlan, Reach, Reduction, Region, Step, TileGroup, Transfer

Change = tuple[str, OpPlan]
"""What was changed, and the schedule that came of it."""


def changed(schedule: OpPlan, num_ranks: int) -> Iterator[Change]:
    """Every such change: at all ranks where they are alike, else at the ranks that have the same part."""
    for part, steps in enumerate(schedule.by_rank or (schedule.steps,)):
        for what, others in _changed_steps(steps, schedule, num_ranks):
            parts = tuple(others if each == part else mine for each, mine in enumerate(schedule.by_rank))
            yield what, replace(schedule, steps=parts[0] if parts else others, by_rank=parts)


def _changed_steps(steps: tuple[Step, ...], schedule: OpPlan, num_ranks: int) -> Iterator[tuple[str, tuple[Step, ...]]]:
    for place, step in enumerate(steps):
        for what, others in _instead(step, schedule, num_ranks):
            yield f"{step.name} {what}", (*steps[:place], *others, *steps[place + 1 :])
        if place:
            turned = (*steps[: place - 1], step, steps[place - 1], *steps[place + 1 :])
            yield f"{step.name} before {steps[place - 1].name}", turned
    yield from _swapped(steps)


def _instead(step: Step, schedule: OpPlan, num_ranks: int) -> Iterator[tuple[str, tuple[Step, ...]]]:
    """Steps in place of one."""
    yield "missing", ()
    for name in step.after:
        yield f"without {name}", (replace(step, after=tuple(other for other in step.after if other != name)),)
    match step:
        case Transfer():
            region = step.region
            yield "of another block", (replace(step, region=replace(region, owner=(region.owner + 1) % num_ranks)),)
            yield from ((what, (replace(step, region=other),)) for what, other in _moved(region))
            yield "with a signal that nobody knows", (replace(step, signal="unknown"),)
            yield "twice", (step, replace(step, name=f"{step.name}_again", signal=f"{step.signal}_again"))
            if step.reach is Reach.PEER:
                yield "to another", (replace(step, peer=step.peer % (num_ranks - 1) + 1),)
                if schedule.engine.kind is EngineKind.SM:
                    yield "stores" if step.reduce else "adds", (replace(step, reduce=not step.reduce),)
        case TileGroup():
            first, *others = step.regions
            yield "stores" if step.accumulate else "adds", (replace(step, accumulate=not step.accumulate),)
            yield from ((what, (replace(step, regions=(other, *others)),)) for what, other in _moved(first))
        case Reduction():
            yield "of fewer parts", (replace(step, num_parts=step.num_parts - 1),)


def _moved(region: Region) -> Iterator[tuple[str, Region]]:
    rows = region.rows
    if rows.start:
        yield "a row up", replace(region, rows=IndexRange(rows.start - 1, rows.stop - 1))
    if rows.size > 1:
        yield "a row short", replace(region, rows=IndexRange(rows.start, rows.stop - 1))


def _swapped(steps: tuple[Step, ...]) -> Iterator[tuple[str, tuple[Step, ...]]]:
    """Signals of transfers that follow each other swapped."""
    places = [(place, step) for place, step in enumerate(steps) if isinstance(step, Transfer)]
    for (one, first), (other, then) in pairwise(places):
        turned = list(steps)
        turned[one], turned[other] = replace(first, signal=then.signal), replace(then, signal=first.signal)
        yield f"signals of {first.name} and {then.name}", tuple(turned)
