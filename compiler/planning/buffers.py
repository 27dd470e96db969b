"""Buffers for what a rank gathers: which transfers may use one after the other, and how many bytes that takes.

A buffer is free again when everything that reads it is done. Only a get knows: it is issued by the rank that reads,
after those steps. A put is issued by another rank and waits for nothing here, so it has a buffer of its own.
"""

from dataclasses import dataclass
from graphlib import CycleError

from ..ir import Direction, Rect, Step, TileGroup, Transfer, before_each


@dataclass(slots=True)
class _Buffer:
    """Memory of ``elements``, last used by ``holder``, whose ``readers`` must be done before the next may have it."""

    elements: int
    holder: Transfer
    readers: frozenset[str]


def elements_reused(steps: tuple[Step, ...], num_ranks: int, *, exchanges: bool) -> int:
    """Elements of what the gets of a rank bring that need no memory of their own, because a buffer is free by then.

    Each get takes a buffer that is surely free and large enough, that of the same peer before others, or else a new
    one: so no plan can overwrite what is still to be read, whatever it waits for. Of an all_to_all (``exchanges``)
    kernels know what a get brings from rank r + k as rows of r + k.
    """
    gets = [step for step in steps if isinstance(step, Transfer) and step.direction is Direction.GET]
    if not any(step.after for step in gets):
        return 0
    try:
        before = before_each(steps)
    except CycleError:  # such a plan is refused, and never runs
        return 0
    buffers: list[_Buffer] = []
    for step in gets:
        owner = (step.peer if exchanges else step.region.owner) % num_ranks
        _place(buffers, step, before[step.name], _readers(steps, step, owner, num_ranks))
    return sum(map(_elements, gets)) - sum(buffer.elements for buffer in buffers)


def _elements(step: Transfer) -> int:
    return step.region.rows.size * step.region.cols.size


def _place(buffers: list[_Buffer], step: Transfer, before: frozenset[str], readers: frozenset[str]) -> None:
    elements = _elements(step)
    free = [each for each in buffers if each.elements >= elements and each.readers and each.readers <= before]
    if not free:
        buffers.append(_Buffer(elements, step, readers))
        return
    chosen = min(free, key=lambda each: (each.holder.peer != step.peer, each.elements))
    chosen.holder, chosen.readers = step, readers


def _readers(steps: tuple[Step, ...], step: Transfer, owner: int, num_ranks: int) -> frozenset[str]:
    """Kernels and puts of this rank that read any of what ``step`` gets from the shard of r + ``owner``."""
    here = Rect.of(step.region)
    return frozenset(
        each.name
        for each in steps
        if any((block - owner) % num_ranks == 0 and here.clip(rect) is not None for block, rect in _read_by(each))
    )


def _read_by(step: Step) -> list[tuple[int, Rect]]:
    """(owner, rectangle) of the moved tensor that a step reads from what is gathered."""
    if isinstance(step, TileGroup):
        rows = ((tiles.owner, tiles.rows) for tiles in step.regions)
        return [(owner, Rect(span.start, span.stop, step.k.start, step.k.stop)) for owner, span in rows]
    puts = isinstance(step, Transfer) and step.direction is Direction.PUT
    return [(step.region.owner, Rect.of(step.region))] if isinstance(step, Transfer) and puts else []
