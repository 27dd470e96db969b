"""Work models of kernels and groups of tiles, those bound by memory too. A new one is a file and a line.

Also the least that a kernel takes however it is cut, for lower bounds; and the persistent kernel of a stream, and how
its units are dealt to the groups that it goes through.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

from ...compiler.ir import (
    TICKS_PER_SECOND,
    ElementwiseShape,
    GemmShape,
    GemvShape,
    Gpu,
    IndexRange,
    Kernels,
    KernelShape,
    OpCase,
    OpPlan,
    Region,
    RowWiseShape,
    Step,
    TileGroup,
    inner_size,
    tile_cols,
    tile_rows,
)
from . import attention, attention_back, gemm, grouped_gemm
from . import work as timed
from .gemm import gemm_work, group_shape, stream_shape, ticks_for
from .work import KernelWork, WorkModel, hbm_bytes

# 2048 resident threads (NVIDIA CUDA Programming Guide, compute capability 8.0 to 10.0; as many on a compute unit of
# CDNA 3, 32 waves of 64), each with one load of 16 bytes, the widest.
BYTES_IN_FLIGHT_PER_SM = 2048 * 16
# NVIDIA/TensorRT-LLM, moe_kernels.cu: one block of threads sorts up to so many tokens, of one of these numbers of
# experts for each; three kernels sort others.
SORTED_AT_ONCE, SORTED_TOPS = 256, (1, 2, 4, 6, 8)


def elementwise_work(gpu: Gpu, shape: ElementwiseShape, sms: int) -> KernelWork:
    """A kernel over ``shape`` on ``sms`` SMs. One unit per SM, but no unit below one line.

    Raises
    ------
    ValueError
        If a size or ``sms`` is not positive.
    """
    if min(shape.num_elements, shape.num_inputs, sms) < 1:
        raise ValueError(f"an elementwise kernel needs positive sizes and SMs, got {shape} on {sms}")
    read, written = shape.operand_bytes, shape.output_bytes
    num_units = max(1, min(sms, written // gpu.line_bytes))
    return KernelWork(
        num_units=num_units,
        unit_ticks=streaming_ticks(gpu, read + written, num_units),
        start_ticks=gpu.launch.kernel_ticks,
        waves=1,
        l2_hit_bytes=0,
        hbm_read_bytes=read,
        hbm_write_bytes=written,
        label=f"elementwise of {shape.num_inputs}",
    )


def streaming_ticks(gpu: Gpu, num_bytes: int, num_units: int) -> int:
    """Time in which ``num_units`` SMs together move ``num_bytes`` from or to memory, each an even share."""
    latency = gpu.l2.latency_ticks + gpu.hbm.latency_ticks
    waiting = math.ceil(latency * Fraction(num_bytes, num_units * BYTES_IN_FLIGHT_PER_SM))
    return latency + max(ticks_for(num_bytes, gpu.hbm.achieved_bytes_per_s), waiting)


def row_wise_work(gpu: Gpu, shape: RowWiseShape, sms: int) -> KernelWork:
    """A kernel over ``shape``, which first looks at choices of experts by the constants of their GEMMs, if it does.

    Up to ``SORTED_AT_ONCE`` tokens with one of ``SORTED_TOPS`` are sorted as they are looked at, others by two kernels
    besides.

    Raises
    ------
    ValueError
        As ``elementwise_work`` does.
    """
    work, model = elementwise_work(gpu, shape, sms), gpu.grouped_of(shape.dtype)
    if model is None:
        return work
    tokens, top = shape.chosen
    sorted_at_once = tokens <= SORTED_AT_ONCE and top in SORTED_TOPS
    sorting = model.sort_ticks if tokens and not sorted_at_once else 0
    return replace(work, start_ticks=work.start_ticks + tokens * top * model.choice_ticks + sorting)


ROW_WISE_MODEL = WorkModel(RowWiseShape, row_wise_work)
ELEMENTWISE_MODEL = WorkModel(ElementwiseShape, elementwise_work)


def gemv_work(gpu: Gpu, shape: GemvShape, sms: int) -> KernelWork:
    """A kernel over ``shape`` on ``sms`` SMs. One unit per SM, but no unit below one line of weights.

    Raises
    ------
    ValueError
        If a size or ``sms`` is not positive, or the GPU has no peak for the element type.
    """
    if min(shape.n, shape.k, shape.batch, sms) < 1:
        raise ValueError(f"a GEMV needs positive sizes and SMs, got {shape} on {sms}")
    if gpu.peak(shape.dtype) <= 0:
        raise ValueError(f"{gpu.name} has no peak rate for {shape.dtype.value}")
    weights = shape.dtype.bytes_of(shape.n * shape.k)
    read, written = shape.operand_bytes, shape.output_bytes
    num_units = max(1, min(sms, weights // gpu.line_bytes))
    stream_ticks = streaming_ticks(gpu, read + written, num_units)
    rate = gpu.peak(shape.dtype) * gpu.gemm.mma_fraction * num_units / gpu.sms
    unit_ticks = gpu.gemm.tile_ticks + max(stream_ticks, math.ceil(shape.flops * TICKS_PER_SECOND / rate))
    return KernelWork(
        num_units=num_units,
        unit_ticks=unit_ticks,
        start_ticks=gpu.launch.kernel_ticks,
        waves=1,
        l2_hit_bytes=(num_units - 1) * (read - weights),
        hbm_read_bytes=read,
        hbm_write_bytes=written,
        label="gemv" if shape.batch == 1 else f"gemv of {shape.batch}",
    )


GEMV_MODEL = WorkModel(GemvShape, gemv_work)


def reduce_work(gpu: Gpu, num_bytes: int, num_parts: int, sms: int, hit_bytes: int = 0) -> KernelWork:
    """A kernel over ``num_bytes`` of result and ``num_parts`` operands of that size, on ``sms`` SMs.

    It reads ``hit_bytes`` from the last cache in front of memory, the rest from memory. Alone it takes as long as its
    traffic takes at the achieved HBM rate, or the hits at that of the cache. One unit per SM, but no unit below one
    line.
    """
    cache, traffic = gpu.last_cache, num_bytes * (num_parts + 1) - hit_bytes
    cached = 0 if cache is None else ticks_for(hit_bytes, cache.bytes_per_s)
    num_units = max(1, min(sms, num_bytes // gpu.line_bytes))
    return KernelWork(
        num_units=num_units,
        unit_ticks=max(cached, ticks_for(traffic, gpu.hbm.achieved_bytes_per_s)),
        start_ticks=gpu.launch.kernel_ticks,
        waves=1,
        l2_hit_bytes=hit_bytes if gpu.mall is None else 0,
        hbm_read_bytes=num_bytes * num_parts - hit_bytes,
        hbm_write_bytes=num_bytes,
        label=f"sum of {num_parts}",
        mall_read_bytes=0 if gpu.mall is None else hit_bytes,
    )


MODELS: tuple[WorkModel[Any], ...] = (
    gemm.MODEL,
    GEMV_MODEL,
    grouped_gemm.MODEL,
    grouped_gemm.BATCHED_MODEL,
    attention_back.BACK,  # before attention, from whose shape its own derives
    attention.MODEL,
    ROW_WISE_MODEL,  # before elementwise kernels, from whose shape its own derives
    ELEMENTWISE_MODEL,
    timed.MODEL,
)


def model_of(shape: KernelShape) -> WorkModel[Any]:
    """The work model of the class of ``shape``, or of one that it derives from."""
    return next(model for model in MODELS if isinstance(shape, model.shape))


def compute_shape(scenario: OpCase, group: TileGroup) -> KernelShape:
    """Return the shape of ``group``: its part of the kernel, or all of a lone kernel that is no GEMM."""
    scenario = scenario.stage(group.kernel)
    compute = scenario.shape.compute
    assert compute is not None, "a checked plan computes only where the workload has a kernel"
    if scenario.shape.gemm is None and not scenario.shape.pattern.overlaps:
        return compute
    return model_of(compute).part(scenario, compute, group)


def whole_shape(scenario: OpCase, kernel: int = 0) -> KernelShape | None:
    """The undivided kernel that groups of tiles are parts of; None where there is none or it stands alone."""
    workload, n = scenario.shape.stage(kernel), scenario.num_ranks
    if workload.kernel is None or not workload.pattern.overlaps:
        return workload.gemm
    cols, inner = IndexRange(0, tile_cols(workload)), IndexRange(0, inner_size(workload))
    blocks = (Region(owner, IndexRange(0, tile_rows(workload, n, owner)), cols) for owner in range(n))
    whole = tuple(block for block in blocks if block.rows.size)
    return compute_shape(scenario, TileGroup("", whole, inner, kernel=kernel))


def whole_works(scenario: OpCase) -> tuple[KernelWork, ...]:
    """Each undivided kernel before or after a collective, or the lone GEMM, on all SMs."""
    shapes = (whole_shape(scenario, kernel) for kernel in range(scenario.shape.num_kernels))
    return tuple(work_of(scenario.gpu, shape, scenario.gpu.sms) for shape in shapes if shape is not None)


def compute_work(scenario: OpCase, group: TileGroup, sms: int) -> KernelWork:
    """The kernel that a library would launch for ``group`` when ``sms`` SMs are free for it.

    Raises
    ------
    ValueError
        As the work models do: a size that is not positive, or an element type the GPU has no peak for.
    """
    return work_of(scenario.gpu, compute_shape(scenario, group), sms, group.accumulate)


def shared_works(scenario: OpCase, schedule: OpPlan, steps: Iterable[Step]) -> dict[str, KernelWork]:
    """The kernels of the GEMM groups of ``steps`` that have the tile for their share of the SMs, by name.

    Kernels of other streams run beside a group: its share is that of its operations among those of itself and of the
    least group of each other stream, and no less than a kernel can be had for. Empty where tiles are for all SMs.
    """
    gpu, sms = scenario.gpu, schedule.compute_sms
    if schedule.tactics.kernel is not Kernels.SHARING or not gpu.gemm.fewest_sms:
        return {}
    groups = [step for step in steps if isinstance(step, TileGroup)]
    shapes = {group.name: compute_shape(scenario, group) for group in groups}
    least: dict[int, int] = {}
    for group in groups:
        flops = shapes[group.name].flops
        least[group.stream] = min(flops, least.get(group.stream, flops))
    works = {}
    for group in groups:
        shape = shapes[group.name]
        others = sum(least.values()) - least[group.stream]
        share = max(gpu.gemm.fewest_sms, sms * shape.flops // (shape.flops + others))
        if isinstance(shape, GemmShape):
            works[group.name] = gemm_work(gpu, shape, min(sms, share), group.accumulate, shared=True)
    return works


def work_of(gpu: Gpu, shape: KernelShape, sms: int, accumulate: bool = False) -> KernelWork:
    """The kernel for ``shape``; ``accumulate`` adds to what another left of the output. Raises as ``compute_work``."""
    work = model_of(shape).work
    return work(gpu, shape, sms, accumulate) if accumulate else work(gpu, shape, sms)


_ALL = Fraction(1)


def least_sm_ticks(scenario: OpCase, share: Fraction = _ALL) -> int:
    """SM-ticks (SMs times time) that kernels take, however they are cut; or ``share`` of their rows.

    0 where there is no kernel before or after a collective, or a GEMM of one column, which has no tiles.
    """
    if scenario.shape.then is not None:
        return sum(least_sm_ticks(stage, share) for stage in scenario.stages)
    shape = _shape(scenario)
    return 0 if shape is None else model_of(shape).min_sm_ticks(scenario, shape, share)


def least_bytes(scenario: OpCase) -> int:
    """Bytes that kernels read from memory and write, however they are cut."""
    if scenario.shape.then is not None:
        return sum(map(least_bytes, scenario.stages))
    shape = _shape(scenario)
    return 0 if shape is None else sum(hbm_bytes(shape, accumulate=False))


def _shape(scenario: OpCase) -> KernelShape | None:
    return whole_shape(scenario) or scenario.shape.compute


def by_stream(steps: Iterable[Step]) -> dict[int, list[TileGroup]]:
    """The groups of tiles among ``steps``, by stream."""
    streams: dict[int, list[TileGroup]] = {}
    for step in steps:
        if isinstance(step, TileGroup):
            streams.setdefault(step.stream, []).append(step)
    return streams


def stream_work(scenario: OpCase, schedule: OpPlan, groups: Sequence[TileGroup]) -> KernelWork:
    """The persistent kernel of ``schedule`` that goes through ``groups``; for one column a matrix-vector product.

    Raises
    ------
    ValueError
        As the work models do.
    """
    shape, sms = stream_shape(scenario, groups), schedule.compute_sms
    if shape.n == 1 and not any(group.accumulate for group in groups) and not scenario.shape.by_columns:
        return gemv_work(scenario.gpu, GemvShape(shape.m, shape.k, shape.dtype), sms)
    tactics = schedule.tactics
    return gemm_work(scenario.gpu, shape, sms, static_order=True, tile=tactics.tile, split=tactics.split_k)


def stream_parts(
    scenario: OpCase, whole: KernelWork, groups: Sequence[TileGroup], sms: int, away: Mapping[str, int]
) -> dict[str, KernelWork]:
    """Each group's share of the kernel on ``sms`` SMs, by name.

    One that accumulates reads its part of the output, and all write theirs but for the bytes stored ``away``.
    """
    shapes = [group_shape(scenario, group) for group in groups]
    flops = [shape.flops for shape in shapes]
    totals = (whole.l2_hit_bytes, whole.hbm_read_bytes, whole.mall_read_bytes, whole.missed_bytes)
    shares = zip(*(split_by_weight(total, flops) for total in totals), strict=True)
    parts = {}
    for group, shape, (units, ticks), share in zip(groups, shapes, dealt_units(whole, flops), shares, strict=True):
        hit, read, from_mall, missed = share
        output = shape.output_bytes
        parts[group.name] = replace(
            whole,
            num_units=units,
            unit_ticks=ticks,
            waves=-(-units // sms),
            l2_hit_bytes=hit,
            hbm_read_bytes=read + (output if group.accumulate else 0),
            hbm_write_bytes=output - away.get(group.name, 0),
            mall_read_bytes=from_mall,
            missed_bytes=missed,
        )
    return parts


def dealt_units(whole: KernelWork, flops: Sequence[int]) -> list[tuple[int, int]]:
    """The units of each group of a persistent kernel, and the ticks of each.

    Tiles are dealt by the operations of the groups. Units that are no tiles are work-groups, each of which has a part
    of every group: a persistent GEMV loops over the rows of each destination (arXiv 2305.06942, section 3).
    """
    if whole.block_rows:
        return [(units, whole.unit_ticks) for units in split_units(whole.num_units, flops)]
    return [(whole.num_units, max(1, ticks)) for ticks in split_by_weight(whole.unit_ticks, flops)]


def split_units(num_units: int, weights: Sequence[int]) -> list[int]:
    """Units in proportion to ``weights``, at least one for each; together ``num_units``, or as many as weights."""
    return [1 + units for units in split_by_weight(max(0, num_units - len(weights)), weights)]


def split_by_weight(total: int, weights: Sequence[int]) -> list[int]:
    """``total`` in proportion to ``weights``, in whole numbers that sum to it."""
    edges = [0, *accumulate(weights)]
    return [total * high // edges[-1] - total * low // edges[-1] for low, high in pairwise(edges)]
