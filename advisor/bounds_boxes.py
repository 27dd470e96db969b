"""Bounds on the time and the SM time of GEMM kernels for all shapes in a box, many boxes at once.

A box is a range of m, of n and of k. The time of one kernel grows with each of them, so that its ends are at corners of
the box. Its SM time for each element of m, n and k is bounded term by term: that of tiles is least where they are full
and the inner dimension is longest, memory traffic for each element falls with every dimension, and where a kernel has
one wave at most, memory time relative to that of a tile is bounded by the least traffic over the longest tile.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..compiler.scenario import TICKS_PER_US, DType, Gpu
from ..simcore.kernels.gemm import L2_SHARE, MIN_SPLIT_K

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Boxes:
    """What kernels run on: ``fewest`` to ``most`` SMs; where ``fixed`` each SM has its tiles from the start."""

    gpu: Gpu
    dtype: DType
    fewest: int
    most: int
    fixed: bool

    @property
    def quantisation(self) -> float:
        """Share of an incomplete last wave that is paid."""
        return 1.0 if self.fixed else float(self.gpu.gemm.quantisation)

    def memory_us(self, corner: Floats) -> Floats:
        """Time of the compulsory traffic of shapes [3, B]."""
        m, n, k = corner
        rate = float(self.gpu.gemm.hbm_fraction) * self.gpu.hbm.peak_bytes_per_s
        return np.asarray((m * k + k * n + m * n) * self.dtype.num_bytes / rate * 1e6)

    def tile_us(self, block: tuple[int, int], units: int, k_part: Floats) -> Floats:
        """As ``gemm.tile_time_us``."""
        model, power = self.gpu.gemm, float(self.gpu.gemm.exponent)
        rate = units * (self.gpu.peak(self.dtype) / self.gpu.sms * float(model.mma_fraction))
        math_us, wait_us = (
            2 * block[0] * block[1] * k_part / rate * 1e6,
            k_part / 64 * model.k_step_ticks / TICKS_PER_US,
        )
        return np.asarray((math_us**power + wait_us**power) ** (1 / power) + model.tile_ticks / TICKS_PER_US)

    def together(self, one: Floats, other: Floats) -> Floats:
        """Two times, imperfectly overlapped."""
        power = float(self.gpu.gemm.exponent)
        return np.asarray((one**power + other**power) ** (1 / power))


@dataclass(frozen=True, slots=True)
class KernelOf:
    """The kernel of one tile of ``units`` SMs and one split of the inner dimension."""

    boxes: Boxes
    block: tuple[int, int]
    units: int
    split: int

    def exists(self, high: Floats) -> NDArray[np.bool_]:
        """Whether the inner dimension is long enough for the split somewhere in boxes that end at ``high``."""
        return np.asarray((self.split == 1) | (self._part(high[2]) >= MIN_SPLIT_K))

    def ideal(self, inner: int) -> float:
        """SM time for each element where tiles are full, wait for no memory and have the whole inner dimension."""
        return float(self._ideal(self._part(np.array([float(inner)])))[0])

    def body_us(self, corner: Floats, sms: int) -> Floats:
        """Time without launch and without what L2 takes; it grows with every dimension and falls with ``sms``."""
        boxes, waves = self.boxes, self._slots(corner) / sms
        quantised = np.where(waves <= 1, 1.0, waves + boxes.quantisation * (np.ceil(waves) - waves))
        tiles = quantised * boxes.tile_us(self.block, self.units, self._part(corner[2]))
        return np.asarray(boxes.together(tiles, boxes.memory_us(corner)) + self._split_us(corner[0] * corner[1]))

    def longest_us(self, high: Floats) -> Floats:
        """The most it takes, what L2 takes included, in boxes that end at ``high``; it may add to what is there."""
        gpu, (m, n, k) = self.boxes.gpu, high
        rows, cols = np.ceil(m / self.block[0]), np.ceil(n / self.block[1])
        num_bytes = ((m * cols + n * rows) * k + 2 * m * n) * self.boxes.dtype.num_bytes
        l2 = num_bytes / (L2_SHARE * gpu.l2.instances * gpu.l2.bytes_per_s) * 1e6
        waves = np.ceil(self._slots(high) / self.boxes.fewest)
        latency = waves * (gpu.l2.latency_ticks + gpu.hbm.latency_ticks) / TICKS_PER_US
        return np.asarray(np.maximum(np.maximum(self.body_us(high, self.boxes.fewest), l2), latency))

    def per_element(self, low: Floats, high: Floats) -> Floats:
        """The least SM time for each element of m, n and k in us, in boxes from ``low`` to ``high``."""
        boxes, fewest_slots, most_slots = self.boxes, self._slots(low), self._slots(high)
        part = self._part(high[2])
        ideal = self._ideal(part) * _padding(low[0], high[0], self.block[0]) * _padding(low[1], high[1], self.block[1])
        several = self._of_waves(ideal, fewest_slots / boxes.most, most_slots / boxes.fewest, high)
        memory = boxes.memory_us(low) / boxes.tile_us(self.block, self.units, part)
        one = ideal * boxes.together(np.ones_like(memory), memory)
        several = np.where(most_slots > boxes.fewest, several, np.inf)
        return np.asarray(np.minimum(several, np.where(fewest_slots <= boxes.most, one, np.inf)))

    def _of_waves(self, ideal: Floats, low: Floats, high: Floats, corner: Floats) -> Floats:
        """For kernels of more than one wave, ``low`` to ``high`` of them, in boxes that end at ``corner``."""
        boxes, size = self.boxes, corner[0] * corner[1] * corner[2]
        last = np.ceil(high)
        rounded = np.where(np.ceil(np.maximum(low, 1)) < last, high, last)
        tiles = ideal * (1 + boxes.quantisation * (rounded - high) / high)
        split = self._split_us(corner[0] * corner[1]) / size
        return np.asarray(boxes.together(tiles, boxes.fewest * boxes.memory_us(corner) / size) + boxes.fewest * split)

    def _part(self, inner: Floats) -> Floats:
        """Inner dimension of one tile."""
        return np.asarray(64 * np.ceil(np.ceil(inner / self.split) / 64))

    def _ideal(self, part: Floats) -> Floats:
        tile = self.boxes.tile_us(self.block, self.units, part)
        return np.asarray(self.units * tile / (self.block[0] * self.block[1] * part))

    def _slots(self, corner: Floats) -> Floats:
        """SM slots of all tiles."""
        tiles = np.ceil(corner[0] / self.block[0]) * np.ceil(corner[1] / self.block[1])
        return np.asarray(tiles * (self.split * self.units))

    def _split_us(self, outputs: Floats) -> Floats:
        model = self.boxes.gpu.gemm
        if self.split == 1:
            return np.zeros_like(outputs)
        return model.split_ticks / TICKS_PER_US + 8 * self.split * outputs / model.split_bytes_per_s * 1e6


def _padding(low: Floats, high: Floats, block: int) -> Floats:
    """What blocks of that many cover at least, relative to a size from ``low`` to ``high``."""
    first, last = np.ceil(low / block), np.ceil(high / block)
    return np.asarray(np.where(first == last, last * block / high, 1.0))
