"""The least SM time of any way to cut a GEMM into kernels, each of the tile that a library picks for its size.

A group of tiles of shape (m, n, k) runs the fastest of the kernels that ``simcore/kernels/gemm.py`` knows. With S SMs,
W waves of tiles, t the time of a tile, h that of the group's memory traffic and p the exponent of the form it takes

    W > 1    S ((Wq t)^p + h^p)^(1/p)         SM time, all SMs for the whole of it
    W <= 1   W S (t^p + h^p)^(1/p)            those that have a tile

What all groups take together is at least the smallest ratio of this to m n k, over all shapes, times the whole. With
little time left, or little to work on, a kernel costs more: the ratio is found for kernels that last at most so long,
and for those of at most so many elements. It is bounded from below for boxes of shapes (``boxes.py``), and the
boxes with the lowest bounds are divided again and again (branch and bound).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from ...compiler.ir import TICKS_PER_US, GemmShape, Gpu
from ...simcore.kernels.elementwise import BYTES_IN_FLIGHT_PER_SM
from ...simcore.kernels.gemm import SPLITS, gemm_work, tiles_of
from .boxes import Floats, GemmForm, TiledKernels
from .kernels import gemm_start_ticks

# Each range of a dimension first ends at this share of the one before.
RATIO = 1.6
# How many boxes are divided at a time where there is no limit, and at least for each limit; their number falls with the
# limit, since most of the work is done by kernels with much time.
MOST, BATCH = 144, 4
# How often boxes are divided at each closer look, the last of which is where little more is gained.
LOOKS = (4, 10, 18, 28)
THOROUGH = LOOKS[-1]
# Tiles end at multiples of these.
GRAINS = (256, 128, 64)
# Limits of time and of size fall by these steps from what the whole takes.
TIMES, SIZES = tuple(1.2**-step for step in range(24)), tuple(1.22**-step for step in range(20))
# Beyond the last bits of powers, which the kernels round away; and such that tell kernels apart that take equally long.
SAFE, TIE = 1 - 1e-6, 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Ratios:
    """The least SM time in us for each element of m, n and k.

    ``of_times`` is that of kernels that last at most ``times`` us, ``of_sizes`` that of kernels of at most ``sizes``
    elements, of which the last is the whole; times end with infinity.
    """

    times: Floats
    of_times: Floats
    sizes: Floats
    of_sizes: Floats

    @property
    def least(self) -> float:
        """The least of all kernels."""
        return float(self.of_times[-1])

    def within(self, us: Floats) -> Floats:
        """The least of kernels that last at most so long."""
        return np.asarray(self.of_times[np.searchsorted(self.times, us)])

    def up_to(self, sizes: Floats) -> Floats:
        """The least of kernels of at most so many elements."""
        return np.asarray(self.of_sizes[np.searchsorted(self.sizes, np.minimum(sizes, self.sizes[-1]))])


@dataclass(frozen=True, slots=True)
class KernelClass:
    """Which kernels: on ``fewest`` to ``most`` SMs; ``persistent`` ones are one for each stream.

    A persistent kernel has whole columns and the whole inner dimension, and what counts is how long its units last. Of
    a ``finished`` kernel all slices of the inner dimension are done in its time, one after the other.
    """

    fewest: int
    most: int
    persistent: bool = False
    finished: bool = False


def least_ratios(gpu: Gpu, shape: GemmShape, kind: KernelClass, rounds: int = THOROUGH) -> Ratios:
    """The least SM time for each element, however ``shape`` is cut into kernels of ``kind``.

    More ``rounds`` take more time and never say less.
    """
    return _search_of(gpu, shape, kind).ratios(rounds)


@lru_cache(maxsize=64)
def _search_of(gpu: Gpu, shape: GemmShape, kind: KernelClass) -> "_Search":
    return _Search(gpu, shape, kind)


class _Search:
    """Divides boxes of shapes, those with the lowest bound under any limit first; it can go on where it stopped.

    Threads may share one.
    """

    def __init__(self, gpu: Gpu, shape: GemmShape, kind: KernelClass) -> None:
        self._lock = Lock()
        self._gpu, self._shape, self._kind = gpu, shape, kind
        whole = gemm_work(gpu, shape, kind.most, static_order=kind.persistent)
        us = whole.waves * whole.unit_ticks / TICKS_PER_US
        self._times = np.append(us * np.array(TIMES[::-1]), np.inf)
        self._sizes = shape.m * shape.n * shape.k * np.array(SIZES[::-1])
        fixed = kind.persistent
        self._form = GemmForm(gpu, shape.dtype, kind.fewest, kind.most, fixed)
        splits = SPLITS[:1] if fixed else SPLITS
        kernels = [(*tile, split) for tile in tiles_of(gpu) if tile[1] <= kind.most for split in splits]
        self._kernels = TiledKernels.of(self._form, kernels)
        # Of tiles of one size the most square reads least; any of them bound the time of the fastest from above.
        rivals = {(each[0][0] * each[0][1], *each[1:]): each for each in sorted(kernels, key=_square)}
        self._rivals = TiledKernels.of(self._form, list(rivals.values()))
        self._low, self._high = _all_boxes(shape, fixed=fixed)
        self._bounds, self._found = self._bounds_of(self._low, self._high), list[Ratios]()

    def ratios(self, rounds: int) -> Ratios:
        """What is known when boxes have been divided so often."""
        with self._lock:
            while len(self._found) <= rounds:
                if self._found:
                    self._divide()
                self._found.append(self._known())
            return self._found[rounds]

    def _known(self) -> Ratios:
        least = self._limited().min(axis=1)
        # A matrix times a vector is bound by what an SM may have under way.
        gpu = self._gpu
        latency_us = (gpu.l2.latency_ticks + gpu.hbm.latency_ticks) / TICKS_PER_US
        vector = latency_us * self._shape.dtype.num_bytes / BYTES_IN_FLIGHT_PER_SM
        least = SAFE * (least if self._kind.persistent else np.minimum(least, vector))
        return Ratios(self._times, least[: len(self._times)], self._sizes, least[len(self._times) :])

    def _divide(self) -> None:
        """Halve the boxes with the lowest bounds."""
        low, high = self._low, self._high
        chosen = np.unique(np.concatenate(list(_lowest(self._limited()))))
        chosen = chosen[(high[:, chosen] > low[:, chosen]).any(axis=0)]
        below, above = _halves(low[:, chosen], high[:, chosen])
        parts = np.maximum(self._bounds_of(below, above), np.tile(self._bounds[:, chosen], 2))
        keep = np.ones(low.shape[1], bool)
        keep[chosen] = False
        self._low, self._high = np.hstack([low[:, keep], below]), np.hstack([high[:, keep], above])
        self._bounds = np.hstack([self._bounds[:, keep], parts])

    def _limited(self) -> Floats:
        """[L, B] the bounds of boxes under each limit, of time and then of size."""
        small = self._low.prod(axis=0) <= self._sizes[:, None]
        return np.vstack([self._bounds, np.where(small, self._bounds[-1], np.inf)])

    def _bounds_of(self, low: Floats, high: Floats) -> Floats:
        """[T, B] the least SM time for each element in boxes [3, B], of kernels that may be the fastest, by time."""
        alone, adding = self._kernels.body_us(low, self._form.most)
        fastest, fastest_adding = (each.min(axis=0) for each in self._rivals.longest_us(low, high))
        picked = ((alone <= TIE * fastest) | (adding <= TIE * fastest_adding)) & self._kernels.exists(high)
        kernels, boxes = np.nonzero(picked)
        low, high, pairs = low[:, boxes], high[:, boxes], self._kernels.at(kernels)
        others = self._other_slices_us(high)
        lasts = pairs.unit_us(low) if self._kind.persistent else alone[picked] + others
        bounds = np.full((len(self._times), picked.shape[1]), np.inf)
        np.minimum.at(bounds, (np.searchsorted(self._times, lasts), boxes), pairs.per_element(low, high))
        return np.minimum.accumulate(bounds, axis=0)

    def _other_slices_us(self, high: Floats) -> Floats:
        """Time of the other slices where all are done one after the other: at least one more kernel, and the steps."""
        if not self._kind.finished:
            return np.zeros(high.shape[1])
        model, left = self._gpu.gemm, self._shape.k - high[2]
        ticks = gemm_start_ticks(self._gpu) + model.tile_ticks + left / 64 * model.k_step_ticks
        return np.asarray(np.where(left > 0, ticks / TICKS_PER_US, 0.0))


def _lowest(limited: Floats) -> Iterator[NDArray[np.intp]]:
    """Under each limit the boxes with the lowest bounds."""
    batches = [max(BATCH, int(MOST * share**2)) for share in (*TIMES[::-1], 1.0, *SIZES[::-1])]
    for row, batch in zip(limited, batches, strict=True):
        found = np.argpartition(row, batch)[:batch] if row.size > batch else np.arange(row.size)
        yield found[np.isfinite(row[found])]


def _square(kernel: tuple[tuple[int, int], int, int]) -> float:
    """1 for kernels of square tiles, less for others."""
    return min(kernel[0]) / max(kernel[0])


def _falling(size: int) -> list[int]:
    """Upper ends of ranges from ``size`` down to a few dozen, the last of which is the rest; none below 1."""
    ends = [size]
    while ends[-1] > 64:
        end = int(ends[-1] / RATIO)
        ends.append(next((end - end % grain for grain in GRAINS if end >= 2 * grain), end))
    return ends if size else []


def _all_boxes(shape: GemmShape, *, fixed: bool) -> tuple[Floats, Floats]:
    """The lower and upper corners [3, B] of boxes of all parts of ``shape``; ``fixed`` ones have all columns and k."""
    # The whole inner dimension is a range of its own: what is not sliced needs no other kernel.
    others = ([shape.n], [shape.k]) if fixed else (_falling(shape.n), [shape.k, *_falling(shape.k - 1)])
    free = (_falling(shape.m), *others)
    ends = np.stack([each.ravel() for each in np.meshgrid(*(np.array(one, float) for one in free), indexing="ij")])
    firsts = [1.0, float(shape.n) if fixed else 1.0, float(shape.k) if fixed else 1.0]
    return np.stack([_begins(axis, each, first) for axis, each, first in zip(ends, free, firsts, strict=True)]), ends


def _begins(axis: Floats, ends: list[int], first: float) -> Floats:
    """Where the ranges begin that end at ``axis``."""
    after = dict(zip(ends, [*(end + 1.0 for end in ends[1:]), first], strict=True))
    return np.array([after[int(end)] for end in axis])


def _halves(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Boxes cut in two along the dimension that spans the largest ratio, where tiles may end."""
    axis, boxes = np.argmax(high / low, axis=0), np.arange(low.shape[1])
    first, last = low[axis, boxes], high[axis, boxes]
    middle = np.sqrt(first * last)
    cut = np.clip(np.floor(middle), first, last - 1)
    for grain in reversed(GRAINS):
        nearest = np.rint(middle / grain) * grain
        cut = np.where((nearest >= first) & (nearest < last), nearest, cut)
    upper, lower = low.copy(), high.copy()
    upper[axis, boxes], lower[axis, boxes] = np.minimum(cut + 1, last), cut
    return np.hstack([low, upper]), np.hstack([lower, high])
