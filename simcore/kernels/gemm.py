"""GEMM: the fastest tile and split of the form in ``gemm_form.py``, then equal work units on SM slots.

The smallest T over tiles and splits is the kernel. The quantisation q is near 0 where the library balances its last
wave, so a kernel of more than one wave is simulated as ceil(W) full waves of equal units, which take ceil(W) * unit
time = T - start when alone.

The form contains the L2 with which it was fitted. On a GPU with another one (``GemmModel.fitted_l2``) a kernel also
reads what that misses more (``working_set.py``), from the cache in front of memory if there is one and it has it; T is
as before, and the kernel takes longer where memory is then what it waits for.

Groups of tiles compute smaller GEMMs, or for one column a matrix-vector product.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from ...compiler.ir import (
    SPLITS,
    TICKS_PER_SECOND,
    TICKS_PER_US,
    Adds,
    GemmModel,
    GemmShape,
    GemvShape,
    Gpu,
    KernelShape,
    OpCase,
    TileGroup,
    cutting_of,
    split_k,
)
from .gemm_form import (
    BodyForm,
    TileTimes,
    Tiling,
    block_of_fewest_waves,
    found,
    min_sm_ticks,
    operand_bytes,
    slowdown,
    split_us,
    tile_times,
)
from .work import KernelWork, WorkModel, hbm_bytes
from .working_set import extra_hbm_bytes

# Kernel times are rounded to this, so that the last bit of a power function never shows in a result.
ROUNDING_TICKS = 10_000
# Covers rounding errors of powers where a bound is compared with a time.
ROUNDING_MARGIN = 1 - 1e-9


@lru_cache(maxsize=8192)
def gemm_work(
    gpu: Gpu,
    shape: GemmShape,
    sms: int,
    accumulate: bool = False,
    static_order: bool = False,
    shared: bool = False,
    tile: tuple[int, ...] = (),
    split: int = 1,
) -> KernelWork:
    """The kernel a library would pick for ``shape`` when ``sms`` SMs are free for it.

    Parameters
    ----------
    sms
        SMs available to the kernel, a static property of the schedule.
    accumulate
        Whether the output is read and added to.
    static_order
        Whether SM j runs the tiles j, j + SMs and so on, as in a persistent kernel whose tiles wait for chunks: then
        nothing balances the last wave, and the inner dimension of a tile is in ``split`` parts.
    shared
        Whether ``sms`` are its share, beside other kernels that take what its last wave leaves: a unit is then a tile,
        and runs on whatever SM is free.
    tile
        Rows and columns of the tile of a kernel in static order; if empty it has the fastest of the profile.

    Raises
    ------
    ValueError
        If a dimension or ``sms`` is not positive, or the GPU has no peak for the element type or no tile for ``sms``.
    """
    if min(shape.m, shape.n, shape.k, sms) < 1:
        raise ValueError(f"a GEMM needs positive m, n, k and SMs, got {shape.m}, {shape.n}, {shape.k} on {sms}")
    if gpu.peak(shape.dtype) <= 0:
        raise ValueError(f"{gpu.name} has no peak rate for {shape.dtype.value}")
    read, written = hbm_bytes(shape, accumulate)
    model = gpu.gemm.of(shape.dtype)
    quantisation = 1.0 if static_order else 0.0 if shared else float(model.quantisation)
    form = BodyForm.of(gpu, model, read + written, quantisation)
    if model.ragged_ticks is None or static_order:
        splits = (split,) if static_order else SPLITS if model.splits_k else SPLITS[:1]
        tiles = tile_times(gpu, shape.dtype, shape.k, splits)
        tiles = tuple(each for each in tiles if tile in ((), each[0][0]))
        best = _fastest(gpu, shape, sms, tiles, form)
    else:
        best = _of_fewest_waves(gpu, shape, sms, form)
    hits = max(0, best.l2_read_bytes - read)
    missed, from_mall = _missed_bytes(gpu, shape, sms, best, hits)
    longer = slowdown(gpu, shape.dtype, shape.flops if shape.whole_flops is None else shape.whole_flops)
    work = tiled_work(gpu, model, best, sms, read, written, longer, shared=shared)
    if not missed:
        return work
    return replace(
        work,
        l2_hit_bytes=hits - missed,
        hbm_read_bytes=read + missed - from_mall,
        mall_read_bytes=from_mall,
        missed_bytes=missed,
    )


def _fastest(gpu: Gpu, shape: GemmShape, sms: int, tiles: TileTimes, form: BodyForm) -> Tiling:
    """The tiling with the shortest body, of equal ones the first.

    Raises
    ------
    ValueError
        If none of ``tiles`` fits ``sms``.
    """
    left, right, other_bytes = shape.left_bytes, shape.right_bytes, form.num_bytes - shape.operand_bytes
    model = gpu.gemm.of(shape.dtype)
    summed_us = {split: split_us(model, shape, split) for split in SPLITS}
    memory_us, quantisation = form.memory_us, form.quantisation
    overhead_us, inner = model.tile_ticks / TICKS_PER_US, shape.k / split_k(shape.k, 1)
    best: Tiling | None = None
    best_us = math.inf
    for (block, units), splits in tiles:
        if units > sms or not splits:  # a pair needs two SMs
            continue
        tile_rows, tile_cols = math.ceil(shape.m / block[0]), math.ceil(shape.n / block[1])
        slots, l2_read_bytes = tile_rows * tile_cols * units, -1
        whole_us, per_sm = (splits[0][1] - overhead_us) * inner, slots / sms
        for split, tile_us in splits:
            # All parts together compute the whole inner dimension, each with its overhead: more parts take no less.
            if (whole_us + split * overhead_us) * per_sm * ROUNDING_MARGIN + summed_us[split] >= best_us:
                break
            waves = slots * split / sms
            # ``form.waves_us``, without a call for each of a hundred tilings: no p-norm is below one of its terms.
            waves_us = tile_us if waves <= 1 else (waves + quantisation * (math.ceil(waves) - waves)) * tile_us
            # Of equal kernels the first stays.
            if (waves_us if waves_us > memory_us else memory_us) + summed_us[split] >= best_us:
                continue
            body_us = form.body_us(waves_us) + summed_us[split]
            if body_us >= best_us:
                continue
            if l2_read_bytes < 0:
                l2_read_bytes = operand_bytes(left, right, tile_rows, tile_cols, gpu.gemm.cluster // units)
            body_us = max(body_us, form.least_us(waves, l2_read_bytes + other_bytes))
            if body_us < best_us:
                best = Tiling(body_us, block, units == 2, slots * split, l2_read_bytes, split)
                best_us = body_us
    return found(best, gpu, sms)


def _of_fewest_waves(gpu: Gpu, shape: GemmShape, sms: int, form: BodyForm) -> Tiling:
    """The tiling that DeepGEMM picks, see ``block_of_fewest_waves``."""
    picked = block_of_fewest_waves(shape.m, shape.n, sms)
    tile_rows, tile_cols = math.ceil(shape.m / picked.block[0]), math.ceil(shape.n / picked.block[1])
    l2_read_bytes = operand_bytes(shape.left_bytes, shape.right_bytes, tile_rows, tile_cols, gpu.gemm.cluster)
    other_bytes = form.num_bytes - shape.operand_bytes
    body_us = form.body_us(picked.waves_us(gpu, shape.dtype, shape.k))
    body_us = max(body_us, form.least_us(picked.waves, l2_read_bytes + other_bytes))
    return Tiling(body_us, picked.block, False, picked.num_blocks, l2_read_bytes)


def tiled_work(
    gpu: Gpu,
    model: GemmModel,
    tiling: Tiling,
    sms: int,
    read: int,
    written: int,
    longer: float = 1.0,
    *,
    shared: bool = False,
) -> KernelWork:
    """The kernel of ``model`` with ``tiling``, which reads and writes so many bytes, ``longer`` times as long.

    A tile at a lower clock takes as much of the network on chip, only over a longer time. The units of a ``shared`` one
    are its tiles.
    """
    waves = max(1.0, tiling.num_slots / sms) if shared else max(1, math.ceil(tiling.num_slots / sms))
    unit_ticks = max(ROUNDING_TICKS, rounded_ticks(tiling.body_us / waves))
    rows, cols = tiling.block
    split = f" split {tiling.split}" if tiling.split > 1 else ""
    return KernelWork(
        num_units=tiling.num_slots if shared or waves == 1 else math.ceil(waves) * sms,
        unit_ticks=max(unit_ticks, rounded_ticks(tiling.body_us * longer / waves)),
        start_ticks=model.start_ticks,
        waves=math.ceil(waves),
        l2_hit_bytes=max(0, tiling.l2_read_bytes - read),
        hbm_read_bytes=read,
        hbm_write_bytes=written,
        label=f"{rows}x{cols}{' pair' if tiling.pair else ''}{split}",
        block_rows=rows,
        block_cols=cols,
        noc_ticks=0 if gpu.noc is None else math.floor(unit_ticks * gpu.noc.gemm_share / gpu.sms),
    )


def _missed_bytes(gpu: Gpu, shape: GemmShape, sms: int, tiling: Tiling, hits: int) -> tuple[int, int]:
    """Bytes that L2 misses and the L2 of the fit did not, of at most ``hits``, and those that the cache below has."""
    if gpu.gemm.fitted_l2 is None:
        return 0, 0
    slots = max(1, sms // 2) if tiling.pair else sms
    part = replace(shape, k=min(shape.k, split_k(shape.k, tiling.split)))

    def extra(size: int, instances: int) -> int:
        return tiling.split * extra_hbm_bytes(part, tiling.block, slots, size, min(slots, instances))

    now = extra(gpu.l2.size_bytes, gpu.l2.instances)
    missed = min(hits, max(0, now - extra(*gpu.gemm.fitted_l2)))
    if not missed or gpu.mall is None:
        return missed, 0
    return missed, missed - min(missed, extra(gpu.mall.size_bytes, 1))


def rounded_ticks(us: float) -> int:
    """``us`` in ticks, up to the next multiple of ``ROUNDING_TICKS``."""
    return math.ceil(us * TICKS_PER_US / ROUNDING_TICKS) * ROUNDING_TICKS


def ticks_for(num_bytes: int, bytes_per_s: int) -> int:
    """Time of ``num_bytes`` at ``bytes_per_s`` in ticks, rounded half up."""
    return (2 * num_bytes * TICKS_PER_SECOND + bytes_per_s) // (2 * bytes_per_s)


def _least_sm_ticks(scenario: OpCase, shape: GemmShape, share: Fraction) -> int:
    """0 for one column, which has no tiles."""
    if shape.n == 1:
        return 0
    longer = slowdown(scenario.gpu, shape.dtype, shape.whole_flops or shape.flops)
    least = min_sm_ticks(scenario.gpu, replace(shape, m=max(1, int(shape.m * share))))
    return math.floor(least * longer * ROUNDING_MARGIN) if longer > 1 else least


def _whole_flops(scenario: OpCase, gemm: GemmShape) -> int | None:
    """Operations of ``gemm`` where the clock depends on them, else None: then parts of many GEMMs are the same."""
    flops = gemm.whole_flops or gemm.flops
    return flops if slowdown(scenario.gpu, gemm.dtype, flops) > 1 else None


def group_shape(scenario: OpCase, group: TileGroup) -> GemmShape:
    """The GEMM that ``group`` computes: rows of all its regions stacked, the columns of the first.

    Where blocks lie side by side, these are its inner dimension instead. Rows of a transposed output are columns.
    """
    workload, regions = scenario.shape.stage(group.kernel), group.regions
    gemm = workload.gemm
    assert gemm is not None, "a checked plan computes only where the workload has a GEMM"
    cols = regions[0].cols
    assert all(each.cols is cols or each.cols == cols for each in regions), "a checked plan keeps columns together"
    types = gemm.dtype, gemm.weights, gemm.out, _whole_flops(scenario, gemm)
    if cutting_of(workload).adds is Adds.BLOCKS:
        return GemmShape(regions[0].rows.size, cols.size, len(regions) * group.k.size, *types)
    rows = sum([region.rows.size for region in regions])
    if workload.by_columns:
        return GemmShape(cols.size, rows, group.k.size, *types)
    return GemmShape(rows, cols.size, group.inner, *types)


def stream_shape(scenario: OpCase, groups: Sequence[TileGroup]) -> GemmShape:
    """The GEMM of a persistent kernel that goes through ``groups``: as many rows as take all their operations.

    Of a transposed output as many columns.
    """
    gemm = scenario.shape.gemm
    assert gemm is not None, "only groups of a GEMM are persistent"
    flops = sum(group_shape(scenario, group).flops for group in groups)
    if scenario.shape.by_columns:
        return replace(gemm, n=-(-flops // (2 * gemm.m * gemm.k)), whole_flops=_whole_flops(scenario, gemm))
    return replace(gemm, m=-(-flops // (2 * gemm.n * gemm.k)), whole_flops=_whole_flops(scenario, gemm))


def gemm_part(scenario: OpCase, whole: GemmShape, group: TileGroup) -> KernelShape:
    """The kernel of ``group``: a GEMV where the output has one column and nothing is added to it."""
    shape = group_shape(scenario, group)
    if shape.n == 1 and not group.accumulate and not scenario.shape.by_columns:
        return GemvShape(shape.m, shape.k, shape.dtype)
    return shape


MODEL = WorkModel(GemmShape, gemm_work, gemm_part, _least_sm_ticks)
