"""Bounds on the time and the SM time of GEMM kernels for all shapes in a box, many boxes and many kernels at once.

A box is a range of m, of n and of k. The time of a kernel grows with each of them, so that its extremes are at corners
of the box. Its SM time for each element of m n k is bounded term by term: that of tiles is least for full tiles and the
longest inner dimension; memory traffic for each element falls with every dimension; and for kernels of at most one wave
memory time relative to the time of a tile is at least that of the least traffic over the longest tile.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...compiler.ir import MIN_SPLIT_K, TICKS_PER_US, GemmModel, GemmShape, Gpu
from ...simcore.kernels.gemm_form import l2_bytes_per_s

Floats = NDArray[np.float64]

# Ratio of the ends of neighbouring initial ranges of a dimension.
RANGE_RATIO = 1.6
# Tiles end at multiples of these.
GRAINS = (256, 128, 64)


@dataclass(frozen=True, slots=True)
class GemmForm:
    """The fitted form of GEMMs on ``fewest`` to ``most`` SMs; if ``fixed``, each SM has its tiles from the start.

    They have the types of ``types``, of whatever size. The last wave of ``shared`` ones may cost nothing.
    """

    gpu: Gpu
    types: GemmShape
    fewest: int
    most: int
    fixed: bool
    shared: bool = False

    @property
    def model(self) -> GemmModel:
        """The constants."""
        return self.gpu.gemm.of(self.types.dtype)

    @property
    def element_bytes(self) -> tuple[float, float, float]:
        """Bytes of an element of A, B and C."""
        types = self.types
        return types.dtype.mean_bytes, types.right.mean_bytes, types.product.mean_bytes

    @property
    def quantisation(self) -> float:
        """Share of an incomplete last wave that is paid."""
        if self.shared:
            return 0.0
        return 1.0 if self.fixed or self.by_waves else float(self.model.quantisation)

    @property
    def by_waves(self) -> bool:
        """Whether a kernel has the block of fewest waves: it may be any, and takes at least what its form says."""
        return self.model.ragged_ticks is not None and not self.fixed

    def memory_us(self, corner: Floats, *, adds: bool = False) -> Floats:
        """Time of the compulsory traffic of shapes [3, B]; a kernel that ``adds`` to an output also reads it."""
        m, n, k = corner
        rate = float(self.model.hbm_fraction) * self.gpu.hbm.peak_bytes_per_s
        left, right, out = self.element_bytes
        return np.asarray((m * k * left + k * n * right + (1 + adds) * m * n * out) / rate * 1e6)

    def together(self, one: Floats, other: Floats) -> Floats:
        """Two times, not both 0, imperfectly overlapped: ``p_norm`` of the kernels, several times as fast."""
        power, larger = float(self.model.exponent), np.maximum(one, other)
        with np.errstate(divide="ignore"):  # a time of 0 adds nothing
            ratio = np.exp(power * np.log(np.minimum(one, other) / larger))
        return np.asarray(larger * np.exp(np.log1p(ratio) / power))


@dataclass(frozen=True, slots=True)
class TiledKernels:
    """Kernels by tile, SMs for each tile and split of the inner dimension.

    Fields are [K, 1] and results [K, B] for all kernels against boxes [3, B]; both are [B] for pairs (see ``at``).
    """

    form: GemmForm
    rows: Floats
    cols: Floats
    units: Floats
    split: Floats

    @classmethod
    def of(cls, form: GemmForm, kernels: Sequence[tuple[tuple[int, int], int, int]]) -> "TiledKernels":
        """Return kernels of (tile, SMs for a tile, split)."""
        fields = [(*block, units, split) for block, units, split in kernels]
        rows, cols, units, split = np.array(fields, float).T[:, :, None]
        return cls(form, rows, cols, units, split)

    def at(self, chosen: NDArray[np.intp]) -> "TiledKernels":
        """Return the kernels at the indices ``chosen``, one for each pair."""
        rows, cols, units, split = (field[chosen, 0] for field in (self.rows, self.cols, self.units, self.split))
        return TiledKernels(self.form, rows, cols, units, split)

    def exists(self, corner: Floats) -> NDArray[np.bool_]:
        """Whether the inner dimension is long enough for the split."""
        return np.asarray((self.split == 1) | (self._part(corner[2]) >= MIN_SPLIT_K))

    def tile_us(self, part: Floats) -> Floats:
        """Time of a tile, as ``TileForm.us`` of ``gemm_form.py``."""
        gpu, model = self.form.gpu, self.form.model
        rate = self.units * (gpu.peak(self.form.types.dtype) / gpu.sms * float(model.mma_fraction))
        math_us = 2 * self.rows * self.cols * part / rate * 1e6
        wait_us = part / 64 * model.k_step_ticks / TICKS_PER_US
        return self.form.together(math_us, wait_us) + model.tile_ticks / TICKS_PER_US

    def unit_us(self, corner: Floats) -> Floats:
        """Least time of a unit: that of a tile."""
        return self.tile_us(self._part(corner[2]))

    def waves_us(self, corner: Floats, sms: int, unit_us: Floats) -> Floats:
        """Times of the waves of tiles, each of ``unit_us``, without memory traffic."""
        waves = self._slots(corner) / sms
        paid = waves + self.form.quantisation * (np.ceil(waves) - waves)
        return np.asarray(unit_us * np.where(waves <= 1, 1.0, paid))

    def split_us(self, corner: Floats) -> Floats:
        """Times [K, B] in which the parts of a split inner dimension are summed."""
        return self._split_us(corner[0] * corner[1])

    def fastest_us(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Return [B] the longest times in boxes, with L2, of the fastest kernels by these: that write, and that add.

        A library picks the fastest kernel, so that no picked kernel takes longer. Kernels that may not exist in a box
        take infinitely long.
        """
        form, shape = self.form, (len(self.rows), high.shape[1])
        inner, places = np.unique(high[2], return_inverse=True)  # boxes share few inner dimensions
        unit_us = self.tile_us(self._part(inner))[:, places]
        waves, split, least = self.waves_us(high, form.fewest, unit_us), self.split_us(high), self._least_us(low, high)

        def fastest(memory: Floats) -> Floats:
            # Two times together take as long as the longer, and at most as both would if they were as long.
            longer, at_most = np.maximum(waves, memory), 2 ** (1 / float(form.model.exponent))
            limit = np.maximum(at_most * longer + split, least).min(axis=0)
            rivals = np.maximum(longer + split, least) <= limit * (1 + 1e-9)
            times, memory = np.full(shape, np.inf), np.broadcast_to(memory, shape)
            times[rivals] = np.maximum(form.together(waves[rivals], memory[rivals]) + split[rivals], least[rivals])
            return np.asarray(times.min(axis=0))

        return fastest(form.memory_us(high)), fastest(form.memory_us(high, adds=True))

    def _least_us(self, low: Floats, high: Floats) -> Floats:
        """Times [K, B] of L2 for the largest shapes, infinite for kernels that may not exist in a box."""
        gpu, (m, n, k) = self.form.gpu, high
        rows, cols = np.ceil(m / self.rows), np.ceil(n / self.cols)
        left, right, out = self.form.element_bytes
        num_bytes = (m * cols * left + n * rows * right) * k + 2 * m * n * out
        l2 = num_bytes / l2_bytes_per_s(gpu) * 1e6
        waves = np.ceil(rows * cols * (self.split * self.units) / self.form.fewest)
        latency = waves * (gpu.l2.latency_ticks + gpu.hbm.latency_ticks) / TICKS_PER_US
        exists = self.exists(low) & (self.units <= self.form.fewest)
        return np.asarray(np.where(exists, np.maximum(l2, latency), np.inf))

    def per_element(self, low: Floats, high: Floats, body_us: Floats) -> Floats:
        """The least SM time for each element of m, n and k in us, in boxes from ``low`` to ``high``.

        ``body_us`` are the times of kernels that write their output, of the least shapes on the most SMs.
        """
        form, fewest_slots, most_slots = self.form, self._slots(low), self._slots(high)
        part = self._part(high[2])
        tile = self.tile_us(part)
        ideal = self.units * tile / (self.rows * self.cols * part)
        ideal = ideal * _padding(low[0], high[0], self.rows) * _padding(low[1], high[1], self.cols)
        several = self._of_waves(ideal, fewest_slots / form.most, most_slots / form.fewest, high)
        one = ideal * (form.together(tile, form.memory_us(low)) / tile) + self._split_of_one(low, high)
        # In small boxes the time at the lower corner is the tighter bound.
        corner = body_us / high.prod(axis=0)
        one = np.maximum(one, corner * fewest_slots)
        several = np.where(most_slots > form.fewest, np.maximum(several, corner * form.fewest), np.inf)
        return np.asarray(np.minimum(several, np.where(fewest_slots <= form.most, one, np.inf)))

    def _split_of_one(self, low: Floats, high: Floats) -> Floats:
        """SM time of the split for each element of a kernel of one wave: all its slots wait for it."""
        slots_per_output = self.split * self.units / (self.rows * self.cols)
        return np.asarray(slots_per_output * self._split_us(low[0] * low[1]) / high[2])

    def _of_waves(self, ideal: Floats, low: Floats, high: Floats, corner: Floats) -> Floats:
        """SM time for each element of kernels of ``low`` to ``high`` waves, above 1, in boxes up to ``corner``."""
        form, size = self.form, corner[0] * corner[1] * corner[2]
        last = np.ceil(high)
        rounded = np.where(np.ceil(np.maximum(low, 1)) < last, high, last)
        tiles = ideal * (1 + form.quantisation * (rounded - high) / high)
        split = self._split_us(corner[0] * corner[1]) / size
        memory = form.fewest * form.memory_us(corner) / size
        return np.asarray(form.together(tiles, memory) + form.fewest * split)

    def _part(self, inner: Floats) -> Floats:
        """Inner dimension of one tile."""
        return np.asarray(64 * np.ceil(np.ceil(inner / self.split) / 64))

    def _slots(self, corner: Floats) -> Floats:
        """SM slots of all tiles."""
        return np.asarray(np.ceil(corner[0] / self.rows) * np.ceil(corner[1] / self.cols) * (self.split * self.units))

    def _split_us(self, outputs: Floats) -> Floats:
        model = self.form.model
        us = model.split_ticks / TICKS_PER_US + 8 * self.split * outputs / model.split_bytes_per_s * 1e6
        return np.asarray(np.where(self.split > 1, us, 0.0))


def _padding(low: Floats, high: Floats, block: Floats) -> Floats:
    """Least size that whole blocks cover, relative to a size from ``low`` to ``high``."""
    first, last = np.ceil(low / block), np.ceil(high / block)
    return np.asarray(np.where(first == last, last * block / high, 1.0))


def _falling(size: int) -> list[int]:
    """Return upper ends of ranges from ``size`` down to a few dozen; the last range is the rest. None for size 0."""
    ends = [size]
    while ends[-1] > 64:
        end = int(ends[-1] / RANGE_RATIO)
        ends.append(next((end - end % grain for grain in GRAINS if end >= 2 * grain), end))
    return ends if size else []


def all_boxes(shape: GemmShape, *, fixed: bool) -> tuple[Floats, Floats]:
    """Return the corners [3, B] of boxes that cover all parts of ``shape``; ``fixed`` parts have all of n and k."""
    # The whole inner dimension is a range of its own: without slices no other kernel follows.
    others = ([shape.n], [shape.k]) if fixed else (_falling(shape.n), [shape.k, *_falling(shape.k - 1)])
    free = (_falling(shape.m), *others)
    ends = np.stack([each.ravel() for each in np.meshgrid(*(np.array(one, float) for one in free), indexing="ij")])
    firsts = [1.0, float(shape.n) if fixed else 1.0, float(shape.k) if fixed else 1.0]
    return np.stack([_begins(axis, each, first) for axis, each, first in zip(ends, free, firsts, strict=True)]), ends


def _begins(axis: Floats, ends: list[int], first: float) -> Floats:
    """Return the begins of the ranges that end at ``axis``."""
    after = dict(zip(ends, [*(end + 1.0 for end in ends[1:]), first], strict=True))
    return np.array([after[int(end)] for end in axis])


def halves(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Halve boxes along the dimension with the largest ratio of ends, where tiles may end."""
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
