"""Stores from tiles: which kernel of a rank stores the bytes of a transfer, and which part of its tiles."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from fractions import Fraction
from operator import itemgetter

from .schedule import Direction, Reach, Reduction, Region, Step, TileGroup, Transfer

Span = tuple[Fraction, Fraction]
"""A part of the units of a kernel, in their order, from 0 to 1."""


def kernels_that_store(steps: Collection[Step]) -> dict[str, TileGroup | Reduction]:
    """Return for each transfer of a rank the kernel whose units store all it moves; transfers without one are left out.

    It is the last of those that the transfer waits for and that compute the region: of several kernels that add to one
    output the last one has the result. A step that waits for a transfer as well passes something on, and has not all of
    it from a kernel.
    """
    kernels = {step.name: (place, step) for place, step in enumerate(steps) if not isinstance(step, Transfer)}
    found: dict[str, TileGroup | Reduction] = {}
    for step in steps:
        if not isinstance(step, Transfer) or step.direction is not Direction.PUT or step.reach is not Reach.PEER:
            continue
        awaited = sorted((kernels[name] for name in step.after if name in kernels), key=itemgetter(0))
        holding = [kernel for _, kernel in awaited if any(_holds(each, step.region) for each in _regions(kernel))]
        if holding and len(awaited) == len(step.after):
            found[step.name] = holding[-1]
    return found


def kernels_of(part: Region, steps: Collection[Step]) -> tuple[TileGroup, ...]:
    """Return the groups of ``steps`` that compute ``part``."""
    groups = (step for step in steps if isinstance(step, TileGroup))
    return tuple(group for group in groups if any(_holds(region, part) for region in group.regions))


def sums_of_all(steps: Collection[Step]) -> Iterator[Transfer]:
    """Yield the transfers that ask a switch for the sum of what all ranks have computed."""
    for step in steps:
        if isinstance(step, Transfer) and step.reach is Reach.ALL and step.direction is Direction.GET:
            yield step


def seen_from(region: Region, offset: int, num_ranks: int) -> Region:
    """Return ``region`` as the rank ``offset`` further names it."""
    return replace(region, owner=(region.owner - offset) % num_ranks)


def span_of(part: Region, kernel: TileGroup | Reduction) -> Span:
    """Return the share of the tiles of ``kernel`` that hold ``part``; all of them if it computes only some of it.

    Tiles go through the regions in order, and through the rows of each; a band of columns is in all tiles of its rows.
    """
    regions = _regions(kernel)
    rows, before = sum(region.rows.size for region in regions), 0
    for region in regions:
        if _holds(region, part):
            first = before + part.rows.start - region.rows.start
            return Fraction(first, rows), Fraction(first + part.rows.size, rows)
        before += region.rows.size
    return Fraction(0), Fraction(1)


def _regions(kernel: TileGroup | Reduction) -> tuple[Region, ...]:
    return kernel.regions if isinstance(kernel, TileGroup) else (kernel.region,)


def _holds(region: Region, part: Region) -> bool:
    """Whether ``part`` lies in ``region``, and is not empty."""
    return (
        region.owner == part.owner
        and region.rows.start <= part.rows.start < part.rows.stop <= region.rows.stop
        and region.cols.start <= part.cols.start < part.cols.stop <= region.cols.stop
    )
