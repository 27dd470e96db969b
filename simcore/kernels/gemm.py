"""GEMM: tile choice, waves and split-K by a form fitted to library kernels, then equal work units on SM slots.

For a tile (bm, bn) of u SMs and a split s of the inner dimension, with S SMs of which ``sms`` are available:

    ks     = ceil64(K / s)
    W      = ceil(M / bm) * ceil(N / bn) * s * u / sms     waves;  Wq = 1 if W <= 1 else W + q (ceil W - W)
    t_mma  = 2 bm bn ks / (u * peak / S * mma)             t_lat = ks / 64 * k_step
    t_tile = (t_mma^p + t_lat^p)^(1/p) + tile
    t_hbm  = bytes(A, B, C) / (hbm * peak bandwidth)
    T      = start + ((Wq t_tile)^p + t_hbm^p)^(1/p) + (s > 1: split + 8 s M N / split_bandwidth)
    T - start is at least what L2 takes for all bytes, and in every wave the latency of L2 and memory, as simulated

and the smallest T over tiles and splits is the kernel. u is 1, or 2 for the tiles that a pair of SMs computes together
(CTA pairs of Blackwell); such a tile holds two SM slots for its whole time. Tiles side by side in a cluster read from
L2 once what they share. Nine constants per GPU, fitted to 3,000 of 35,700 measured shapes (aiconfigurator's
TensorRT-LLM collector); 5-6 % mean error for M, N, K >= 512.

The quantisation q is near 0 where the library balances its last wave, so a kernel of more than one wave is simulated
as ceil(W) full waves of equal units, which take ceil(W) * unit time = T - start when alone.

The form contains the L2 with which it was fitted. On a GPU with another one (``GemmModel.fitted_l2``) a kernel also
reads what that misses more (``working_set.py``), from the cache in front of memory if there is one and it has it; T is
as before, and the kernel takes longer where memory is then what it waits for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from ...compiler.ir import TICKS_PER_SECOND, TICKS_PER_US, GemmShape, Gpu, Scenario
from .gemm_parts import gemm_part
from .norm import p_norm
from .work import KernelWork, WorkModel, hbm_bytes
from .working_set import extra_hbm_bytes

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
MIN_SPLIT_K = 128
# A kernel that asks L2 for more than this share of its rate waits for the bursts of its own SMs.
L2_SHARE = 0.85
# Kernel times are rounded to this, so that the last bit of a power function never shows in a result.
ROUNDING_TICKS = 10_000

Tile = tuple[tuple[int, int], int]  # rows and columns, and how many SMs compute it together


@dataclass(frozen=True, slots=True)
class Tiling:
    """One tile and split of a kernel; ``body_us`` is T without start.

    ``num_slots`` counts the SM slots that all tiles take, two for each pair tile.
    """

    body_us: float
    block: tuple[int, int]
    pair: bool
    num_slots: int
    l2_read_bytes: int
    split: int = 1


@dataclass(frozen=True, slots=True)
class _Launch:
    """A GEMM as it is launched; fields as the arguments of ``gemm_work``."""

    gpu: Gpu
    shape: GemmShape
    sms: int
    accumulate: bool
    static_order: bool

    def best(self) -> Tiling:
        """The fastest tiling; errors as in ``gemm_work``."""
        gpu, shape = self.gpu, self.shape
        if min(shape.m, shape.n, shape.k, self.sms) < 1:
            size = f"{shape.m}, {shape.n}, {shape.k} on {self.sms}"
            raise ValueError(f"a GEMM needs positive m, n, k and SMs, got {size}")
        if gpu.peak(shape.dtype) <= 0:
            raise ValueError(f"{gpu.name} has no peak rate for {shape.dtype.value}")
        tilings = [
            self._tiling(tile, split)
            for tile in tiles_of(gpu)
            if tile[1] <= self.sms  # a pair needs two SMs
            for split in (SPLITS[:1] if self.static_order or not gpu.gemm.splits_k else SPLITS)
            if split == 1 or split_k(shape, split) >= MIN_SPLIT_K
        ]
        return fastest(gpu, self.sms, tilings)

    def _tiling(self, tile: Tile, split: int) -> Tiling:
        gpu, shape, model = self.gpu, self.shape, self.gpu.gemm
        block, units = tile
        tile_rows, tile_cols = math.ceil(shape.m / block[0]), math.ceil(shape.n / block[1])
        num_slots = tile_rows * tile_cols * split * units
        waves = num_slots / self.sms
        tile_us = tile_time_us(gpu, shape, block, units, split_k(shape, split))
        num_bytes = sum(hbm_bytes(shape, self.accumulate))
        quantisation = 1.0 if self.static_order else float(model.quantisation)
        body_us = tiled_us(gpu, waves, quantisation, tile_us, num_bytes)
        if split > 1:
            body_us += model.split_ticks / TICKS_PER_US + 8 * split * shape.m * shape.n / model.split_bytes_per_s * 1e6
        l2_read_bytes = operand_rows(shape.m, shape.n, tile_rows, tile_cols, model.cluster // units)
        l2_read_bytes *= shape.k * shape.dtype.num_bytes
        l2_bytes = l2_read_bytes + num_bytes - (shape.m + shape.n) * shape.k * shape.dtype.num_bytes
        body_us = max(body_us, least_us(gpu, waves, l2_bytes))
        return Tiling(body_us, block, units == 2, num_slots, l2_read_bytes, split)


def split_k(shape: GemmShape, split: int) -> int:
    """The inner dimension of a part of ``split``, in whole k steps."""
    return 64 * math.ceil(math.ceil(shape.k / split) / 64)


@lru_cache(maxsize=8192)
def gemm_work(gpu: Gpu, shape: GemmShape, sms: int, accumulate: bool = False, static_order: bool = False) -> KernelWork:
    """The kernel a library would pick for ``shape`` when ``sms`` SMs are free for it.

    Parameters
    ----------
    sms
        SMs available to the kernel, a static property of the schedule.
    accumulate
        Whether the output is read and added to.
    static_order
        Whether SM j runs the tiles j, j + SMs and so on, as in a persistent kernel whose tiles wait for chunks: then
        nothing balances the last wave, and the inner dimension stays whole.

    Raises
    ------
    ValueError
        If a dimension or ``sms`` is not positive, or the GPU has no peak for the element type or no tile for ``sms``.
    """
    best = _Launch(gpu, shape, sms, accumulate, static_order).best()
    read, written = hbm_bytes(shape, accumulate)
    hits = max(0, best.l2_read_bytes - read)
    missed, from_mall = _missed_bytes(gpu, shape, sms, best, hits)
    return replace(
        tiled_work(gpu, best, sms, read, written),
        l2_hit_bytes=hits - missed,
        hbm_read_bytes=read + missed - from_mall,
        mall_read_bytes=from_mall,
        missed_bytes=missed,
    )


def fastest(gpu: Gpu, sms: int, tilings: Sequence[Tiling]) -> Tiling:
    """The tiling with the shortest body.

    Raises
    ------
    ValueError
        If there is none.
    """
    if not tilings:
        raise ValueError(f"{gpu.name} has no tile for {sms} SM")
    return min(tilings, key=lambda tiling: tiling.body_us)


def tiled_work(gpu: Gpu, tiling: Tiling, sms: int, read: int, written: int) -> KernelWork:
    """The kernel with ``tiling``, which reads and writes so many bytes of memory."""
    waves = max(1, math.ceil(tiling.num_slots / sms))
    unit_ticks = max(ROUNDING_TICKS, rounded_ticks(tiling.body_us / waves))
    rows, cols = tiling.block
    split = f" split {tiling.split}" if tiling.split > 1 else ""
    return KernelWork(
        num_units=tiling.num_slots if waves == 1 else waves * sms,
        unit_ticks=unit_ticks,
        start_ticks=gpu.gemm.start_ticks,
        waves=waves,
        l2_hit_bytes=max(0, tiling.l2_read_bytes - read),
        hbm_read_bytes=read,
        hbm_write_bytes=written,
        label=f"{rows}x{cols}{' pair' if tiling.pair else ''}{split}",
        block_rows=rows,
        noc_ticks=0 if gpu.noc is None else math.floor(unit_ticks * gpu.noc.gemm_share / gpu.sms),
    )


def _missed_bytes(gpu: Gpu, shape: GemmShape, sms: int, tiling: Tiling, hits: int) -> tuple[int, int]:
    """Bytes that L2 misses and the L2 of the fit did not, of at most ``hits``, and those that the cache below has."""
    if gpu.gemm.fitted_l2 is None:
        return 0, 0
    slots = max(1, sms // 2) if tiling.pair else sms
    part = replace(shape, k=min(shape.k, split_k(shape, tiling.split)))

    def extra(size: int, instances: int) -> int:
        return tiling.split * extra_hbm_bytes(part, tiling.block, slots, size, min(slots, instances))

    now = extra(gpu.l2.size_bytes, gpu.l2.instances)
    missed = min(hits, max(0, now - extra(*gpu.gemm.fitted_l2)))
    if not missed or gpu.mall is None:
        return missed, 0
    return missed, missed - min(missed, extra(gpu.mall.size_bytes, 1))


def min_sm_ticks(gpu: Gpu, shape: GemmShape) -> int:
    """A lower bound on SM-ticks (SMs times time) that any decomposition of ``shape`` along M, N or K takes.

    Every unit of every kernel takes at least t_tile; per operation t_tile is smallest for the whole inner dimension,
    where the overhead of a tile is spread widest, and the best tile bounds all tiles.
    """
    steps = math.ceil(shape.k / 64)
    per_element = [
        units * tile_time_us(gpu, shape, block, units, steps * 64) / (block[0] * block[1])
        for block, units in tiles_of(gpu)
    ]
    us = min(per_element) * shape.m * shape.n
    return math.floor(us * TICKS_PER_US * (1 - 1e-6))


def tiles_of(gpu: Gpu) -> list[Tile]:
    """All tiles, pairs first: of two that take equally long it is the one that reads less."""
    return [(block, 2) for block in gpu.gemm.pair_tiles] + [(block, 1) for block in gpu.gemm.tiles]


def tiled_us(gpu: Gpu, waves: float, quantisation: float, tile_us: float, num_bytes: int) -> float:
    """Time of ``waves`` of tiles and of ``num_bytes`` of memory traffic, imperfectly overlapped."""
    quantised = 1.0 if waves <= 1 else waves + quantisation * (math.ceil(waves) - waves)
    memory_us = num_bytes / (float(gpu.gemm.hbm_fraction) * gpu.hbm.peak_bytes_per_s) * 1e6
    return p_norm(quantised * tile_us, memory_us, float(gpu.gemm.exponent))


def least_us(gpu: Gpu, waves: float, l2_bytes: int) -> float:
    """Lower bound on the time of a kernel: all bytes pass through L2, and each unit waits for its first operands.

    The first matters for small tiles only, the second where a tile has next to no overhead of its own.
    """
    latency_us = max(1, math.ceil(waves)) * (gpu.l2.latency_ticks + gpu.hbm.latency_ticks) / TICKS_PER_US
    return max(l2_us(gpu, l2_bytes), latency_us)


def l2_us(gpu: Gpu, num_bytes: int) -> float:
    """Time in which the L2 passes ``num_bytes`` on to the SMs of one kernel."""
    return num_bytes / (L2_SHARE * gpu.l2.instances * gpu.l2.bytes_per_s) * 1e6


def operand_rows(m: int, n: int, tile_rows: int, tile_cols: int, share: int) -> int:
    """Rows of length K that the tiles read from L2: those of A for each column of tiles, those of B for each row.

    ``share`` tiles side by side in a cluster receive the operand that they have in common by one read that is multicast
    (NVIDIA CUTLASS, TMA multicast): A if they lie along N, B if they lie along M, whichever leaves less to read. A tile
    of a pair of SMs is one tile: that the pair shares an operand is in its size.
    """
    along_n = m * math.ceil(tile_cols / max(1, share)) + n * tile_rows
    along_m = m * tile_cols + n * math.ceil(tile_rows / max(1, share))
    return min(along_n, along_m)


def tile_time_us(gpu: Gpu, shape: GemmShape, block: tuple[int, int], units: int, k_part: int) -> float:
    """Time of one tile on ``units`` SMs: math and latency of its k steps, imperfectly overlapped, and its overhead."""
    model = gpu.gemm
    rate = units * (gpu.peak(shape.dtype) / gpu.sms * float(model.mma_fraction))
    math_us = 2 * block[0] * block[1] * k_part / rate * 1e6
    latency_us = k_part / 64 * model.k_step_ticks / TICKS_PER_US
    return p_norm(math_us, latency_us, float(model.exponent)) + model.tile_ticks / TICKS_PER_US


def rounded_ticks(us: float) -> int:
    """``us`` in ticks, up to the next multiple of ``ROUNDING_TICKS``."""
    return math.ceil(us * TICKS_PER_US / ROUNDING_TICKS) * ROUNDING_TICKS


def ticks_for(num_bytes: int, bytes_per_s: int) -> int:
    """Time of ``num_bytes`` at ``bytes_per_s`` in ticks, rounded half up."""
    return (2 * num_bytes * TICKS_PER_SECOND + bytes_per_s) // (2 * bytes_per_s)


def _least_sm_ticks(scenario: Scenario, shape: GemmShape, share: Fraction) -> int:
    """0 for one column, which has no tiles."""
    return 0 if shape.n == 1 else min_sm_ticks(scenario.gpu, replace(shape, m=max(1, int(shape.m * share))))


MODEL = WorkModel(GemmShape, gemm_work, gemm_part, _least_sm_ticks)
