"""Grouped GEMM: the tiles of all experts in one launch, by the form of ``gemm_form.py``.

All experts have the same tile, the best for the whole, and no split-K (NVIDIA CUTLASS, grouped GEMM; DeepGEMM):

    W = sum over experts of ceil(rows_e / bm) * ceil(N / bn) * u / sms

A tile that an expert fills in part costs a whole one: that is what uneven and small loads lose. The weights of every
expert that has rows are read once, so that few tokens on many experts are bound by memory. The constants are those of
plain GEMMs; or with ``grouped`` in the profile (``GroupedModel``) its own, with the k_step of plain GEMMs and balanced
last waves. Tables of them show no lower clock after milliseconds, so that only a GPU that holds one from the start
(``Sustained``, as in a training step) slows them. Libraries also move rows beside the products, in sorting, casting and
writing:

    T = start + ((W t_tile)^p + t_hbm^p)^(1/p) + bytes of all rows, in and out, / (rows * peak bandwidth) + M row

A kernel that moves rows takes them one by one, and looks up for each where it goes (NVIDIA TensorRT-LLM,
moe_kernels.cu): ``row`` in the profile is what each of all M takes beside a product, however wide it is.

On Blackwell a tile is written while the next one of its SM is multiplied, since both have accumulators in tensor memory
(NVIDIA CUTLASS, warp-specialized persistent kernels of SM100). With ``epilogue`` in the profile, the time in which an
SM writes 32,768 elements, t_write of a tile stands beside the time t_step of its steps, and only one of them is waited
for but in the first tile:

    W t_tile = W (max(t_step, t_write) + tile) + min(t_step, t_write)

The time in which rows are written is then in t_write, and those beside the products are the rows that are read.

A group of tiles before or after a collective has rows of the moved tensor, by position in the blocks of ranks r, r + 1
and so on. Every block holds rows of all experts, evenly mixed. They are dealt to the rows one by one by the divisor
method of Webster (Sainte-Lague): any run of rows has its share of each expert, to a few rows, and all rows together
have exactly what each expert has.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from ...compiler.ir import (
    TICKS_PER_US,
    TYPES_WITH_CONSTANTS,
    BatchedGemmShape,
    DType,
    GemmShape,
    Gpu,
    GroupedGemmShape,
    OpCase,
    Region,
    TileGroup,
    tile_rows,
)
from .gemm import gemm_work, tiled_work
from .gemm_form import BodyForm, Tiling, found, min_sm_ticks, operand_bytes, slowdown, tile_times
from .work import KernelWork, WorkModel, hbm_bytes

EPILOGUE_ELEMENTS = 128 * 256
"""Elements that an SM writes in the time ``epilogue`` of a profile: its largest tile."""

ANY_FLOPS = 1
"""Operations so few that only a clock held from the start slows them."""


@lru_cache(maxsize=8192)
def grouped_gemm_work(gpu: Gpu, shape: GroupedGemmShape, sms: int, accumulate: bool = False) -> KernelWork:
    """The kernel of all experts on ``sms`` SMs; with one expert that has rows it is that of a plain GEMM
    unless grouped ones have constants of their own.

    Where it is to ``accumulate``, the output is read and added to.

    Raises
    ------
    ValueError
        If a size other than an expert's rows or ``sms`` is not positive, rows are negative or all 0, or the GPU has no
        peak for the element type or no tile for ``sms``.
    """
    if min(shape.n, shape.k, sms) < 1 or min(shape.rows, default=0) < 0 or not any(shape.rows):
        raise ValueError(f"a grouped GEMM needs rows, positive n, k and SMs, got {shape} on {sms}")
    rows = tuple(count for count in shape.rows if count)
    model = gpu.grouped_of(shape.dtype)
    if len(rows) == 1 and model is None:
        only = GemmShape(rows[0], shape.n, shape.k, shape.dtype, shape.weights, shape.out, whole_flops=ANY_FLOPS)
        return gemm_work(gpu, only, sms, accumulate)
    if gpu.peak(shape.dtype) <= 0:
        raise ValueError(f"{gpu.name} has no peak rate for {shape.dtype.value}")
    read, written = hbm_bytes(shape, accumulate)
    longer = slowdown(gpu, shape.dtype, ANY_FLOPS)
    fitted = grouped_gpu(gpu, shape.dtype)
    epilogue_us = 0.0 if model is None else model.epilogue_ticks / TICKS_PER_US
    best = _fastest(fitted, replace(shape, rows=rows), sms, read + written, epilogue_us)
    if model is not None:
        moved = shape.dtype.bytes_of(sum(rows) * shape.k) + (0 if model.epilogue_ticks else shape.output_bytes)
        rows_us = moved / (float(model.rows_fraction) * gpu.hbm.peak_bytes_per_s) * 1e6
        rows_us += sum(rows) * model.row_ticks / TICKS_PER_US
        best = replace(best, body_us=best.body_us + rows_us / longer)  # as long whatever the clock
    work = tiled_work(fitted, fitted.gemm.of(shape.dtype), best, sms, read, written, longer)
    return replace(work, label=f"{work.label} of {len(rows)}")


@lru_cache(maxsize=64)
def grouped_gpu(gpu: Gpu, dtype: DType) -> Gpu:
    """The GPU with the constants of its grouped GEMMs in place of those of plain ones, if it has some."""
    model = gpu.grouped_of(dtype)
    if model is None:
        return gpu
    gemm = replace(
        gpu.gemm.with_types(dict.fromkeys(TYPES_WITH_CONSTANTS)),
        start_ticks=model.start_ticks,
        mma_fraction=model.mma_fraction,
        hbm_fraction=model.hbm_fraction,
        tile_ticks=model.tile_ticks,
        exponent=model.exponent,
        quantisation=Fraction(0),
    )
    return replace(gpu, gemm=gemm)


def _fastest(gpu: Gpu, shape: GroupedGemmShape, sms: int, num_bytes: int, epilogue_us: float) -> Tiling:
    """The tile with the shortest body for all experts of ``shape``, each of which has rows; of equal ones the first.

    An SM writes ``EPILOGUE_ELEMENTS`` in ``epilogue_us``.

    Raises
    ------
    ValueError
        If the GPU has no tile for ``sms``.
    """
    model = gpu.gemm.of(shape.dtype)
    form, written = BodyForm.of(gpu, model, num_bytes, float(model.quantisation)), shape.output_bytes
    tiles, right = tile_times(gpu, shape.dtype, shape.k), shape.right.bytes_of(shape.n * shape.k)
    alike = tuple(Counter(shape.rows).items())  # experts with as many rows
    bodies: list[tuple[float, int, int]] = []  # the least body of a tile, its number, its slots
    for number, ((block, units), ((_, tile_us),)) in enumerate(tiles):
        if units > sms:  # a pair needs two SMs
            continue
        row_blocks = sum(experts * math.ceil(count / block[0]) for count, experts in alike)
        num_slots = row_blocks * math.ceil(shape.n / block[1]) * units
        step_us = tile_us - model.tile_ticks / TICKS_PER_US
        write_us = epilogue_us * block[0] * block[1] / (units * EPILOGUE_ELEMENTS)
        waves_us = form.waves_us(num_slots / sms, tile_us + max(0.0, write_us - step_us)) + min(step_us, write_us)
        bodies.append((form.body_us(waves_us), number, num_slots))
    best: Tiling | None = None
    first = 0
    for body_us, number, num_slots in sorted(bodies):
        if best is not None and body_us > best.body_us:  # before the operands of every expert are counted
            break
        block, units = tiles[number][0]
        tile_cols, share = math.ceil(shape.n / block[1]), gpu.gemm.cluster // units
        l2_read_bytes = 0
        for count, experts in alike:
            left, row_blocks = shape.dtype.bytes_of(count * shape.k), math.ceil(count / block[0])
            l2_read_bytes += experts * operand_bytes(left, right, row_blocks, tile_cols, share)
        body_us = max(body_us, form.least_us(num_slots / sms, l2_read_bytes + written))
        if best is None or (body_us, number) < (best.body_us, first):
            best, first = Tiling(body_us, block, units == 2, num_slots, l2_read_bytes), number
    return found(best, gpu, sms)


def _part(scenario: OpCase, whole: GroupedGemmShape, group: TileGroup) -> GroupedGemmShape:
    """The rows of each expert in ``group``, with its columns and its slice of the inner dimension."""
    counts = [0] * len(whole.rows)
    for start, stop in _positions(scenario, group.regions):
        first, last = first_rows(whole.rows, start), first_rows(whole.rows, stop)
        counts = [count + after - before for count, before, after in zip(counts, first, last, strict=True)]
    return replace(whole, rows=tuple(counts), n=group.regions[0].cols.size, k=group.k.size)


@lru_cache(maxsize=8192)
def first_rows(rows: tuple[int, ...], count: int) -> tuple[int, ...]:
    """How many of the first ``count`` rows belong to each expert, of which expert e has ``rows[e]`` in all.

    Row i of expert e comes at the place (2 i + 1) / (2 rows[e]) of the whole, of equal ones the first expert's first.

    >>> first_rows((4, 2, 2), 4), first_rows((4, 2, 2), 8)
    ((2, 1, 1), (4, 2, 2))
    """
    total = sum(rows)
    found = [(2 * count * each + total) // (2 * total) for each in rows]
    experts = range(len(rows))
    while sum(found) < count:
        one = min((e for e in experts if found[e] < rows[e]), key=lambda e: (Fraction(2 * found[e] + 1, rows[e]), e))
        found[one] += 1
    while sum(found) > count:
        one = max((e for e in experts if found[e]), key=lambda e: (Fraction(2 * found[e] - 1, rows[e]), e))
        found[one] -= 1
    return tuple(found)


def _positions(scenario: OpCase, regions: tuple[Region, ...]) -> Iterator[tuple[int, int]]:
    """Where the rows of each region begin and end among all rows, block after block."""
    workload, n = scenario.shape, scenario.num_ranks
    for region in regions:
        before = sum(tile_rows(workload, n, owner) for owner in range(region.owner % n))
        yield before + region.rows.start, before + region.rows.stop


def _least_sm_ticks(scenario: OpCase, shape: GroupedGemmShape, share: Fraction) -> int:
    """As one GEMM of all rows."""
    rows = max(1, int(sum(shape.rows) * share))
    return min_sm_ticks(grouped_gpu(scenario.gpu, shape.dtype), GemmShape(rows, shape.n, shape.k, shape.dtype))


def batched_gemm_work(gpu: Gpu, shape: BatchedGemmShape, sms: int) -> KernelWork:
    """The kernel of all heads: as experts of as many rows, without what libraries of experts do beside the products.

    Raises
    ------
    ValueError
        As ``grouped_gemm_work`` does.
    """
    experts = GroupedGemmShape((shape.m,) * shape.heads, shape.n, shape.k, shape.dtype, shape.weights, shape.product)
    return grouped_gemm_work(_without_grouped(gpu), experts, sms)


@lru_cache(maxsize=64)
def _without_grouped(gpu: Gpu) -> Gpu:
    return replace(gpu, grouped=None)


BATCHED_MODEL = WorkModel(BatchedGemmShape, batched_gemm_work)
MODEL = WorkModel(GroupedGemmShape, grouped_gemm_work, _part, _least_sm_ticks)
