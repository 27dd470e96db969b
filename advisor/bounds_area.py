"""The least SM time of any way to cut a GEMM into kernels, each of the tile that a library picks for its size.

A group of tiles of shape (m, n, k) runs the fastest of the kernels that ``simcore/kernels/gemm.py`` knows. With S SMs,
W waves of tiles, t the time of a tile, h that of the group's memory traffic and p the exponent of the form it takes

    W > 1    S ((Wq t)^p + h^p)^(1/p)         SM time, all SMs for the whole of it
    W <= 1   W S (t^p + h^p)^(1/p)            those that have a tile

What all groups take together is at least the smallest ratio of this to m n k, over all shapes, times the whole. The
ratio is bounded from below for boxes of shapes (``bounds_boxes.py``), and the boxes with the lowest bounds are divided
until little can be gained (branch and bound).
"""

from functools import lru_cache

import numpy as np

from ..compiler.scenario import TICKS_PER_US, GemmShape, Gpu
from ..simcore.kernels.gemm import SPLITS, gemm_work, tile_time_us, tiles_of
from .bounds_boxes import Boxes, Floats, KernelOf

# Each range of a dimension first ends at this share of the one before.
RATIO = 1.6
# Boxes that are divided at a time, and how often: a choice between tightness and time.
BATCH, ROUNDS = 128, 12
# Where the lowest bound is this near to what a whole kernel takes, nothing more is gained.
NEAR = 0.998
# Beyond the last bits of powers, which the kernels round away.
SAFE = 1 - 1e-6


@lru_cache(maxsize=4096)
def least_area(gpu: Gpu, shape: GemmShape, fewest: int, most: int, persistent: bool = False) -> int:
    """SM ticks that ``shape`` takes at least, however cut, where kernels have from ``fewest`` to ``most`` SMs.

    A ``persistent`` kernel has whole columns and the whole inner dimension; it is one for each stream. Others are said
    to take what persistent ones do where they take more: a bound is the smaller of both.
    """
    whole = gemm_work(gpu, shape, most, static_order=persistent)
    ticks = whole.num_units * whole.unit_ticks
    if not persistent:
        ticks = min(ticks, least_area(gpu, shape, fewest, most, persistent=True))
    size = shape.m * shape.n * shape.k
    search = _Search(gpu, shape, fewest, most, persistent, ticks / TICKS_PER_US / size)
    return int(search.least() * SAFE * size * TICKS_PER_US)


class _Search:
    """Divides boxes of shapes, those with the lowest bound first."""

    def __init__(self, gpu: Gpu, shape: GemmShape, fewest: int, most: int, fixed: bool, known: float) -> None:
        self._boxes = Boxes(gpu, shape.dtype, fewest, most, fixed)
        self._known = known
        splits = SPLITS[:1] if fixed else SPLITS
        tiles = [tile for tile in tiles_of(gpu) if tile[1] <= most]
        kernels = [KernelOf(self._boxes, block, units, split) for block, units in tiles for split in splits]
        # Without loss nothing else is cheap enough.
        self._cheap = [kernel for kernel in kernels if kernel.ideal(shape.k) < known]
        # Of tiles of one size the most square reads least; any of them bound the time of the fastest from above.
        rivals = sorted((each for each in kernels if each.split == 1 and each.units <= fewest), key=_oblong)
        sizes = {each.block[0] * each.block[1]: each for each in reversed(rivals)}
        self._rivals = list(sizes.values())
        inner = [end for end in _falling(shape.k) if _ideal(gpu, shape, end) < known] or [shape.k]
        free = (_falling(shape.m), [shape.n] if fixed else _falling(shape.n), [shape.k] if fixed else inner)
        ends = np.stack([each.ravel() for each in np.meshgrid(*(np.array(one, float) for one in free), indexing="ij")])
        begins = [1.0, float(shape.n) if fixed else 1.0, float(shape.k) if fixed else 1.0]
        self._low = np.stack([_begins(axis, each, first) for axis, each, first in zip(ends, free, begins, strict=True)])
        self._high = ends

    def least(self) -> float:
        """SM time in us for each element of m, n and k."""
        low, high = self._low, self._high
        bounds = self._bounds(low, high)
        for _ in range(ROUNDS):
            order = np.argsort(bounds, kind="stable")
            least = float(bounds[order[0]])
            if least >= NEAR * self._known:
                break
            # What is left of a box that lies above what a whole kernel takes is of no interest.
            chosen = [box for box in order[:BATCH] if bounds[box] < self._known and (high[:, box] > low[:, box]).any()]
            if not chosen or chosen[0] != order[0]:
                break
            below, above = _halves(low[:, chosen], high[:, chosen])
            keep = np.setdiff1d(np.flatnonzero(bounds < self._known), chosen)
            parts = self._bounds(below, above)
            low, high = np.hstack([low[:, keep], below]), np.hstack([high[:, keep], above])
            bounds = np.concatenate([bounds[keep], np.maximum(parts, np.tile(bounds[chosen], 2))])
        return min(self._known, float(bounds.min()))

    def _bounds(self, low: Floats, high: Floats) -> Floats:
        """[B] the least SM time for each element of m, n and k in boxes [3, B], of kernels that may be the fastest."""
        fastest = np.full(low.shape[1], np.inf)
        for rival in self._rivals:
            fastest = np.minimum(fastest, rival.longest_us(high))
        bounds = np.full(low.shape[1], self._known)
        for kernel in self._cheap:
            picked = (kernel.body_us(low, self._boxes.most) <= fastest) & kernel.exists(high)
            bounds = np.minimum(bounds, np.where(picked, kernel.per_element(low, high), np.inf))
        return bounds


def _oblong(kernel: KernelOf) -> int:
    return max(kernel.block) // min(kernel.block)


def _falling(size: int) -> list[int]:
    """Upper ends of ranges from ``size`` down to a few dozen, the last of which is the rest."""
    ends = [size]
    while ends[-1] > 64:
        ends.append(int(ends[-1] / RATIO))
    return ends


def _begins(axis: Floats, ends: list[int], first: float) -> Floats:
    """Where the ranges begin that end at ``axis``."""
    after = dict(zip(ends, [*(end + 1.0 for end in ends[1:]), first], strict=True))
    return np.array([after[int(end)] for end in axis])


def _halves(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Boxes cut in two along the dimension that spans the largest ratio, at a multiple of 64 where there is one."""
    axis, boxes = np.argmax(high / low, axis=0), np.arange(low.shape[1])
    first, last = low[axis, boxes], high[axis, boxes]
    middle = np.sqrt(first * last)
    nearest = np.rint(middle / 64) * 64
    middle = np.where((nearest >= first) & (nearest < last), nearest, np.clip(np.floor(middle), first, last - 1))
    upper, lower = low.copy(), high.copy()
    upper[axis, boxes], lower[axis, boxes] = np.minimum(middle + 1, last), middle
    return np.hstack([low, upper]), np.hstack([lower, high])


def _ideal(gpu: Gpu, shape: GemmShape, inner: int) -> float:
    """SM time in us for each element of m, n and k of the best tile, where tiles are full and wait for no memory.

    It falls with the inner dimension: the time of a tile grows less than in proportion.
    """
    steps = -(-inner // 64) * 64
    return min(
        units * tile_time_us(gpu, shape, block, units, steps) / (block[0] * block[1] * steps)
        for block, units in tiles_of(gpu)
    )
