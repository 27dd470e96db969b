"""Cache hits by working set: HBM traffic of a tiled GEMM by the capacity of L2, and the hits of a buffer.

A GEMM profile is fitted with the L2 that its GPU has, so that the fitted time already contains what that L2 misses. A
what-if with another L2 adds the difference: extra(other) - extra(fitted), nothing where that is negative.

Tiles run in waves of as many tiles as there are SMs, in the order of grouped launches (Triton, matrix multiplication
tutorial): ``group`` row blocks together, column after column. A wave walks along K in lock step, so that a row panel of
A or a column panel of B comes from memory once in a wave, whatever the capacity. When a later wave uses a panel again,
the part at x (0 to 1) of K finds in an LRU cache what was touched since: all between the two waves, what the first one
still had to touch and what the second has touched already. With F(a, b) the bytes of all panels and outputs of the
tiles from a to b, and waves that begin at p and q:

    reuse distance(x) = (1 - x) F(p, q) + x F(p + wave, q + wave)

and the part hits where that is within the capacity (stack distance: Mattson et al., IBM Systems Journal 9, 1970).

Left out: tiles out of step, which read panels again within a wave; capacities below one step of K of a wave; conflicts
within sets and replacement other than LRU, which blur the cliff; and what other kernels leave in the cache. Against
simulated caches the bytes read are within 4 % of fully associative LRU, and within 12 % of 16 hashed ways where the
capacity is a factor of 1.4 from a cliff; the cliff is where that cache has it, to a factor of 1.4, and can be wrong by
more than half next to it. Against the bytes that an H100 reads (Nsight Compute, a Triton GEMM in 42 shapes and orders,
``advisor/measured/rows/tile_order_h100.csv``) the median error is below 0.5 %, and the largest 11 %, but for one order
whose working set is between 40 and 50 MiB, which reads twice what is said here.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...compiler.ir import GemmShape

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]


def hit_share(working_set_bytes: int, capacity_bytes: int) -> Fraction:
    """The share of re-reads that hit where ``working_set_bytes`` are swept again and again through a cache.

    All where they fit, none from twice the capacity on, linear between. LRU hits nothing as soon as they do not fit,
    an optimal cache capacity / working set, random replacement h = exp((h - 1) working set / capacity): the line lies
    between the first two and within 0.21 of the third, the policy that caches with hashed sets come nearest to.

    Raises
    ------
    ValueError
        If a size is negative.
    """
    if min(working_set_bytes, capacity_bytes) < 0:
        raise ValueError(f"sizes cannot be negative, got {working_set_bytes} B in {capacity_bytes} B")
    if working_set_bytes <= capacity_bytes:
        return Fraction(1)
    if working_set_bytes >= 2 * capacity_bytes:
        return Fraction(0)
    return 2 - Fraction(working_set_bytes, capacity_bytes)


def extra_hbm_bytes(
    shape: GemmShape, tile: tuple[int, int], sms: int, capacity_bytes: int, instances: int, group: int = 8
) -> int:
    """Bytes that a GEMM reads from memory beyond A and B once, with L2 of ``instances`` times ``capacity_bytes``.

    Every instance serves its part of the SMs, and these a part of the tiles that lie together in the order (the order
    that libraries use where there are several L2, such as one for each XCD): an operand that several of them need
    counts for each. For a cache in front of memory that all share, take it as one instance.

    Raises
    ------
    ValueError
        If a size is not positive, or the capacity is negative, or there are fewer SMs than instances.
    """
    if min(shape.m, shape.n, shape.k, *tile, instances, group) < 1 or capacity_bytes < 0 or sms < instances:
        raise ValueError(f"no working set of {shape} in tiles {tile} on {sms} SMs with {instances} caches")
    grid = _Grid.of(shape, tile, group)
    per_wave = sms // instances
    edges = [index * grid.num_tiles // instances for index in range(instances + 1)]
    read = sum(
        _read_bytes(grid, first, stop, per_wave, capacity_bytes) for first, stop in pairwise(edges) if stop > first
    )
    return max(0, round(read - grid.rows * grid.row_bytes - grid.cols * grid.col_bytes))


@dataclass(frozen=True, slots=True)
class _Grid:
    """Tiles in grouped order, with the mean bytes of a row panel, a column panel and a tile of the output."""

    rows: int
    cols: int
    group: int
    row_bytes: float
    col_bytes: float
    tile_bytes: float

    @staticmethod
    def of(shape: GemmShape, tile: tuple[int, int], group: int) -> "_Grid":
        """The grid of ``shape``; panels at the edge that are not whole count as the mean, so that sums are exact."""
        rows, cols = -(-shape.m // tile[0]), -(-shape.n // tile[1])
        row_bytes, col_bytes = shape.left_bytes / rows, shape.right_bytes / cols
        return _Grid(rows, cols, group, row_bytes, col_bytes, shape.output_bytes / (rows * cols))

    @property
    def num_tiles(self) -> int:
        return self.rows * self.cols

    def position(self, tiles: _Ints) -> tuple[_Ints, _Ints, _Ints, _Ints]:
        """[tiles] group, row blocks of the group, column, and number within the group."""
        of_group = self.group * self.cols
        groups = tiles // of_group
        heights = np.minimum(self.group, self.rows - groups * self.group)
        within = tiles - groups * of_group
        return groups, heights, within // heights, within

    def footprint(self, first: _Ints, stop: _Ints) -> _Floats:
        """Bytes of all panels and outputs of the tiles from ``first`` to before ``stop``."""
        group0, height0, col0, within0 = self.position(first)
        group1, height1, col1, within1 = self.position(stop - 1)
        same, between = group0 == group1, group1 - group0 - 1
        tail = np.minimum(height0, height0 * self.cols - within0)
        rows = np.where(same, np.minimum(height0, stop - first), tail + between * self.group)
        rows = rows + np.where(same, 0, np.minimum(height1, within1 + 1))
        wrapped = np.where(between > 0, self.cols, np.minimum(self.cols, self.cols - col0 + col1 + 1))
        cols = np.where(same, col1 - col0 + 1, wrapped)
        return np.asarray(rows * self.row_bytes + cols * self.col_bytes + (stop - first) * self.tile_bytes)


def _read_bytes(grid: _Grid, first: int, stop: int, per_wave: int, capacity: int) -> float:
    """Bytes read from memory by the tiles from ``first`` to before ``stop``, in waves of ``per_wave``."""
    tiles = np.arange(first, stop)
    waves = (tiles - first) // per_wave
    groups, heights, cols, within = grid.position(tiles)
    rows = groups * grid.group + within % heights
    read = 0.0
    for panels, panel_bytes in ((rows, grid.row_bytes), (cols, grid.col_bytes)):
        num_panels, before, after = _reuses(panels, waves)
        begin, again = first + before * per_wave, first + after * per_wave
        at_start = grid.footprint(begin, again)
        at_end = grid.footprint(begin + per_wave, np.minimum(again + per_wave, stop))
        misses = 1 - _share_within(at_start, at_end, capacity)
        read += panel_bytes * (num_panels + float(misses.sum()))
    return read


def _reuses(panels: _Ints, waves: _Ints) -> tuple[int, _Ints, _Ints]:
    """Number of panels, and for each reuse of a panel the wave of the use before and its own wave."""
    num_waves = int(waves[-1]) + 1
    uses = np.unique(panels * num_waves + waves)
    panel, wave = uses // num_waves, uses % num_waves
    again = panel[1:] == panel[:-1]
    return len(uses) - int(again.sum()), wave[:-1][again], wave[1:][again]


def _share_within(start: _Floats, end: _Floats, limit: int) -> _Floats:
    """The share of 0 <= x <= 1 where (1 - x) start + x end is at most ``limit``."""
    low, high = np.minimum(start, end), np.maximum(start, end)
    slope = np.where(high > low, high - low, 1.0)
    return np.where(high <= limit, 1.0, np.clip((limit - low) / slope, 0.0, 1.0))
