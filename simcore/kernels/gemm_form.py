"""The form of library GEMMs: the time of a kernel of equal tiles, fitted to measured kernels.

For a tile (bm, bn) of u SMs and a split s of the inner dimension, with S SMs of which ``sms`` are available:

    ks     = ceil64(K / s)
    W      = ceil(M / bm) * ceil(N / bn) * s * u / sms     waves;  Wq = 1 if W <= 1 else W + q (ceil W - W)
    t_mma  = 2 bm bn ks / (u * peak / S * mma)             t_lat = ks / 64 * k_step
    t_tile = (t_mma^p + t_lat^p)^(1/p) + tile
    t_hbm  = bytes(A, B, C) / (hbm * peak bandwidth)
    T      = start + ((Wq t_tile)^p + t_hbm^p)^(1/p) + (s > 1: split + 8 s M N / split_bandwidth)
    T - start is at least what L2 takes for all bytes, and in every wave the latency of L2 and memory, as simulated

A whole GEMM of more work than its GPU does at full clock takes ``slowdown`` times T - start, and so do all its parts.

u is 1, or 2 for the tiles that a pair of SMs computes together (CTA pairs of Blackwell); such a tile holds two SM slots
for its whole time. Tiles side by side in a cluster read from L2 once what they share. Nine constants per GPU, fitted to
3,000 of 35,700 measured shapes (aiconfigurator's TensorRT-LLM collector); 5-6 % mean error for M, N, K >= 512. Kernels
of fp8 have nine of their own where they were fitted (``GemmModel.of``).

Kernels of fp8_block on Hopper are DeepGEMM's, whose block is that of fewest waves and not the fastest (``WaveBlock``).
Of its ceil(W) waves as many as the ragged blocks fill, those with r rows beyond M, have longer tiles:

    t_tile = ((t_mma (1 + uneven))^p + t_lat^p + (ks / 64 * r * min(1, W) * ragged)^p)^(1/p) + tile

What these wait for all SMs share: fewer blocks than SMs wait that much less.

The constants are read once for many tiles: ``TileForm`` for those of a GPU, ``BodyForm`` for those of a kernel.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from ...compiler.ir import (
    MIN_SPLIT_K,
    SPLITS,
    TICKS_PER_SECOND,
    TICKS_PER_US,
    DType,
    GemmModel,
    GemmShape,
    Gpu,
    split_k,
)


def p_norm(one: float, other: float, power: float) -> float:
    """``(one**power + other**power) ** (1 / power)``; no power is huge, since the larger term stands outside."""
    smaller, larger = sorted((one, other))
    return larger * float((1 + (smaller / larger) ** power) ** (1 / power)) if larger else 0.0


# A kernel that asks L2 for more than this share of its rate waits for the bursts of its own SMs.
L2_SHARE = 0.85

Tile = tuple[tuple[int, int], int]  # rows and columns, and how many SMs compute it together

# Each tile with the splits of the inner dimension, and with each the time of a tile in us.
TileTimes = tuple[tuple[Tile, tuple[tuple[int, float], ...]], ...]


@dataclass(frozen=True, slots=True)
class TileForm:
    """t_tile of one GPU and element type; ``sm_flops`` is the rate of one SM, ``overhead_us`` the constant term."""

    exponent: float
    sm_flops: float
    k_step_ticks: int
    overhead_us: float

    @classmethod
    def of(cls, gpu: Gpu, dtype: DType) -> "TileForm":
        """The form of the tiles of ``gpu``."""
        model = gpu.gemm.of(dtype)
        sm_flops = gpu.peak(dtype) / gpu.sms * float(model.mma_fraction)
        return cls(float(model.exponent), sm_flops, model.k_step_ticks, model.tile_ticks / TICKS_PER_US)

    def us(self, tile: Tile, k_part: int) -> float:
        """Time of one tile: its k steps and its overhead."""
        return self.step_us(tile, k_part) + self.overhead_us

    def step_us(self, tile: Tile, k_part: int, longer: float = 1.0) -> float:
        """Math, ``longer`` times as long, and latency of the k steps of a tile, imperfectly overlapped."""
        (rows, cols), units = tile
        math_us = 2 * rows * cols * k_part / (units * self.sm_flops) * 1e6
        latency_us = k_part / 64 * self.k_step_ticks / TICKS_PER_US
        return p_norm(math_us * longer, latency_us, self.exponent)


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


def found(tiling: Tiling | None, gpu: Gpu, sms: int) -> Tiling:
    """``tiling``, of a kernel on ``sms`` SMs.

    Raises
    ------
    ValueError
        If there is none.
    """
    if tiling is None:
        raise ValueError(f"{gpu.name} has no tile for {sms} SM")
    return tiling


@dataclass(frozen=True, slots=True)
class BodyForm:
    """T without start and split of one kernel, as a function of its waves, of the time of a tile and of its L2 traffic.

    ``num_bytes`` is its memory traffic, ``memory_us`` the time of it, ``latency_ticks`` the latency of L2 and memory.
    """

    exponent: float
    quantisation: float
    num_bytes: int
    memory_us: float
    l2_bytes_per_s: float
    latency_ticks: int

    @classmethod
    def of(cls, gpu: Gpu, model: GemmModel, num_bytes: int, quantisation: float) -> "BodyForm":
        """The form of a kernel that reads and writes ``num_bytes`` of memory, with the constants of ``model``."""
        memory_us = num_bytes / (float(model.hbm_fraction) * gpu.hbm.peak_bytes_per_s) * 1e6
        latency_ticks = gpu.l2.latency_ticks + gpu.hbm.latency_ticks
        return cls(float(model.exponent), quantisation, num_bytes, memory_us, l2_bytes_per_s(gpu), latency_ticks)

    def waves_us(self, waves: float, tile_us: float) -> float:
        """Wq t_tile; no kernel is faster, since no p-norm is below one of its terms."""
        return (1.0 if waves <= 1 else waves + self.quantisation * (math.ceil(waves) - waves)) * tile_us

    def body_us(self, waves_us: float) -> float:
        """Time of the waves and of the memory traffic, imperfectly overlapped."""
        return p_norm(waves_us, self.memory_us, self.exponent)

    def least_us(self, waves: float, l2_bytes: int) -> float:
        """Lower bound: all bytes pass through L2, and each unit waits for its first operands.

        The first matters for small tiles only, the second where a tile has next to no overhead of its own.
        """
        latency_us = max(1, math.ceil(waves)) * self.latency_ticks / TICKS_PER_US
        return max(l2_bytes / self.l2_bytes_per_s * 1e6, latency_us)


def l2_bytes_per_s(gpu: Gpu) -> float:
    """Rate at which the L2 passes bytes on to the SMs of one kernel."""
    return L2_SHARE * gpu.l2.instances * gpu.l2.bytes_per_s


SWAPPED_BELOW, SIDES, OTHER_SIDES = 32, (64, 128), range(16, 129, 8)
"""Rows below which blocks lie across, and the sizes of their sides: TensorRT-LLM, ``fp8_blockscale_gemm``, on SM90."""


def library_tiles(gpu: Gpu, dtype: DType) -> list[Tile]:
    """All tiles that a launched kernel of ``dtype`` may have."""
    if gpu.gemm.of(dtype).ragged_ticks is None:
        return gpu.tiles_of(dtype)
    blocks = {block for side in SIDES for other in OTHER_SIDES for block in ((side, other), (other, side))}
    return [(block, 1) for block in sorted(blocks)]


@dataclass(frozen=True, slots=True)
class WaveBlock:
    """The block of a kernel of ``num_blocks`` in ``waves``, of which ``ragged_waves`` are as long as ragged blocks.

    Those have ``beyond`` rows beyond M. The columns of ``uneven`` blocks do not divide a block of scales. ``busy`` is
    the share of SMs that have a block.
    """

    block: tuple[int, int]
    num_blocks: int
    waves: int
    beyond: int
    ragged_waves: int
    uneven: bool
    busy: float

    def waves_us(self, gpu: Gpu, dtype: DType, k: int) -> float:
        """Time of all waves: a step of a ragged block is longer by what its rows beyond M take."""
        model, form, inner = gpu.gemm.of(dtype), TileForm.of(gpu, dtype), split_k(k, 1)
        longer = 1 + float(model.uneven) if self.uneven else 1.0
        plain_us = form.step_us((self.block, 1), inner, longer)
        ragged_us = inner / 64 * self.beyond * self.busy * (model.ragged_ticks or 0) / TICKS_PER_US
        ragged = self.ragged_waves * p_norm(plain_us, ragged_us, form.exponent)
        return (self.waves - self.ragged_waves) * plain_us + ragged + self.waves * form.overhead_us


@lru_cache(maxsize=8192)
def block_of_fewest_waves(m: int, n: int, sms: int) -> WaveBlock:
    """The block that DeepGEMM picks on ``sms`` SMs: fewest waves, then the fullest last one, then fewest columns.

    One side is 64 where that holds all rows, else 128, the other 16 to 128 in steps of 8. Of few rows A and B change
    places (deepseek-ai/DeepGEMM, ``get_best_configs``, as TensorRT-LLM has it).
    """
    swapped = m < SWAPPED_BELOW
    long, short = (n, m) if swapped else (m, n)
    side = SIDES[0] if long <= SIDES[0] else SIDES[1]
    num_long = math.ceil(long / side)

    def rank(other: int) -> tuple[int, int, int]:
        blocks = num_long * math.ceil(short / other)
        return math.ceil(blocks / sms), -((blocks - 1) % sms), other

    other = min(OTHER_SIDES, key=rank)
    across, waves = math.ceil(short / other), rank(other)[0]
    beyond = 0 if swapped else num_long * side - m
    ragged_waves = min(waves, math.ceil(across / sms)) if beyond else 0
    uneven = not swapped and SIDES[1] % other > 0
    block, busy = (other, side) if swapped else (side, other), min(1.0, num_long * across / sms)
    return WaveBlock(block, num_long * across, waves, beyond, ragged_waves, uneven, busy)


@lru_cache(maxsize=1024)
def tile_times(gpu: Gpu, dtype: DType, k: int, splits: tuple[int, ...] = SPLITS[:1]) -> TileTimes:
    """All tiles for the inner dimension ``k``, each in those ``splits`` whose parts are not too short."""
    parts = [(split, split_k(k, split)) for split in splits]
    parts = [(split, k_part) for split, k_part in parts if split == 1 or k_part >= MIN_SPLIT_K]
    form = TileForm.of(gpu, dtype)
    return tuple(
        (tile, tuple((split, form.us(tile, k_part)) for split, k_part in parts)) for tile in gpu.tiles_of(dtype)
    )


def slowdown(gpu: Gpu, dtype: DType, flops: int) -> float:
    """How many times as long a GEMM of ``flops`` takes as at full clock, see ``Sustained``; 1 of few.

    By the clock of the GPU or that of its type, whichever is lower.
    """
    longer = 1.0
    for held in (gpu.sustained, gpu.gemm.of(dtype).sustained):
        if held is not None and flops * TICKS_PER_SECOND > held.after_ticks * gpu.peak(dtype):
            late = 1 - held.after_ticks * gpu.peak(dtype) / (flops * TICKS_PER_SECOND)
            longer = max(longer, 1 + late * float(1 / held.clock - 1))
    return longer


def split_us(model: GemmModel, shape: GemmShape, split: int) -> float:
    """Time in which the parts of a split inner dimension are summed, 0 for one part."""
    if split == 1:
        return 0.0
    return model.split_ticks / TICKS_PER_US + 8 * split * shape.m * shape.n / model.split_bytes_per_s * 1e6


def operand_bytes(left: int, right: int, tile_rows: int, tile_cols: int, share: int) -> int:
    """Bytes that the tiles read from L2: A, of ``left`` bytes, for each column of tiles, B for each row of them.

    ``share`` tiles side by side in a cluster receive the operand that they have in common by one read that is multicast
    (NVIDIA CUTLASS, TMA multicast): A if they lie along N, B if they lie along M, whichever leaves less to read. A tile
    of a pair of SMs is one tile: that the pair shares an operand is in its size.
    """
    along_n = left * math.ceil(tile_cols / max(1, share)) + right * tile_rows
    along_m = left * tile_cols + right * math.ceil(tile_rows / max(1, share))
    return min(along_n, along_m)


def min_sm_ticks(gpu: Gpu, shape: GemmShape) -> int:
    """A lower bound on SM-ticks (SMs times time) that any decomposition of ``shape`` along M, N or K takes.

    Every unit of every kernel takes at least t_tile; per operation t_tile is smallest for the whole inner dimension,
    where the overhead of a tile is spread widest, and the best tile bounds all tiles.
    """
    form, whole_k = TileForm.of(gpu, shape.dtype), split_k(shape.k, 1)
    tiles = {*gpu.tiles_of(shape.dtype), *library_tiles(gpu, shape.dtype)}
    per_element = [tile[1] * form.us(tile, whole_k) / (tile[0][0] * tile[0][1]) for tile in tiles]
    us = min(per_element) * shape.m * shape.n
    return math.floor(us * TICKS_PER_US * (1 - 1e-6))
