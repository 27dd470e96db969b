"""A grid that is closed in each direction.

Routes go one dimension after the other, the last (fastest) first; half around up, but on sides of 4, 8 and so on down
from odd places: then both ways carry as much.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from ...codes import Code
from ..stopping import Rejection
from .base import LINK, ArgumentKind, Fabric, Topology, TopologyArgument, layout_of
from .network import Edge, Network, Symmetry, edge_over


@dataclass(frozen=True, slots=True)
class Torus:
    """Sides of the grid; the last coordinate of a rank counts fastest.

    Where routes half around do not ``alternate``, all of them go up.
    """

    shape: tuple[int, ...]
    alternate: bool = True


def _connect(fabric: Fabric, n: int) -> Network:
    torus = layout_of(fabric, Torus)
    shape = torus.shape
    strides = [prod(shape[dimension + 1 :]) for dimension in range(len(shape))]
    # A shift by whole layers of the first dimension that has a side; by less it would carry into that one.
    layer, layers = next(((stride, side) for stride, side in zip(strides, shape, strict=True) if side > 1), (1, 1))
    period = layer * (2 if torus.alternate and layers % 4 == 0 else 1)

    def moved(rank: int, dimension: int, step: int) -> int:
        stride, side = strides[dimension], shape[dimension]
        at = rank // stride % side
        return rank + ((at + step) % side - at) * stride

    def edges() -> Iterator[Edge]:
        for rank in range(period):
            for dimension, side in enumerate(shape):
                if side > 1:
                    yield edge_over(fabric.link, rank, moved(rank, dimension, 1), f"torus{dimension}+")
                if side > 2:  # with two, up and down lead to the same neighbour, over the same link
                    yield edge_over(fabric.link, rank, moved(rank, dimension, -1), f"torus{dimension}-")

    def step(node: int, destination: int) -> int:
        for dimension in reversed(range(len(shape))):
            stride, side = strides[dimension], shape[dimension]
            ahead = (destination // stride - node // stride) % side
            if ahead:
                alternates = torus.alternate and side % 4 == 0
                down = 2 * ahead > side or (2 * ahead == side and alternates and node // stride % 2)
                return moved(node, dimension, -1 if down else 1)
        return destination

    return Network(prod(shape), tuple(edges()), step, Symmetry(period, alike=layer == 1))


def _reject(fabric: Fabric, n: int) -> Rejection | None:
    shape = layout_of(fabric, Torus).shape
    if prod(shape) == n:
        return None
    sides = " x ".join(str(side) for side in shape)
    return Rejection(Code.MGS420, f"a torus of {sides} has {prod(shape)} gpus, the system {n}")


def _grid(fabric: Fabric) -> tuple[int, ...]:
    return layout_of(fabric, Torus).shape


def _plainer(fabric: Fabric) -> Fabric | None:
    """The torus whose routes half around all go up."""
    torus = layout_of(fabric, Torus)
    return replace(fabric, layout=replace(torus, alternate=False)) if torus.alternate else None


def _part(fabric: Fabric, stride: int, size: int) -> Fabric | None:
    """Whole sides of the grid next to each other: routes in them leave no other side's coordinate."""
    shape = layout_of(fabric, Torus).shape
    for first in range(len(shape)):
        for last in range(first + 1, len(shape) + 1):
            if prod(shape[last:]) == stride and prod(shape[first:last]) == size:
                return replace(fabric, layout=Torus(shape[first:last]))
    return None


SHAPE = TopologyArgument(
    "shape",
    ArgumentKind.COUNTS,
    max_items=3,
    label="a side of the torus",
    too_many="a torus has up to {} sides",
    example="[4, 4]",
)

TOPOLOGY = Topology(
    "torus",
    (LINK, SHAPE),
    "torus(xgmi, shape=[4, 4])",
    connect=_connect,
    part=_part,
    plainer=_plainer,
    layout=Torus,
    reject=_reject,
    grid=_grid,
)
