"""The persistent kernel of a stream, and how its units are dealt to the groups that it goes through."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from ...compiler.ir import GemvShape, Scenario, TileGroup
from .gemm import gemm_work
from .gemm_parts import group_shape, stream_shape
from .gemv import gemv_work
from .work import KernelWork


def stream_work(scenario: Scenario, groups: Sequence[TileGroup], sms: int) -> KernelWork:
    """The persistent kernel that goes through ``groups`` on ``sms`` SMs; for one column a matrix-vector product.

    Raises
    ------
    ValueError
        As the work models do.
    """
    shape = stream_shape(scenario, groups)
    if shape.n == 1 and not any(group.accumulate for group in groups) and not scenario.workload.by_columns:
        return gemv_work(scenario.gpu, GemvShape(shape.m, shape.k, shape.dtype), sms)
    return gemm_work(scenario.gpu, shape, sms, static_order=True)


def stream_parts(
    scenario: Scenario, whole: KernelWork, groups: Sequence[TileGroup], sms: int, away: Mapping[str, int]
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
        output = shape.m * shape.n * shape.dtype.num_bytes
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
    spare = split_by_weight(max(0, num_units - len(weights)), weights)
    return [1 + units for units in spare]


def split_by_weight(total: int, weights: Sequence[int]) -> list[int]:
    """``total`` in proportion to ``weights``, in whole numbers that sum to it."""
    edges = [0, *accumulate(weights)]
    return [total * high // edges[-1] - total * low // edges[-1] for low, high in pairwise(edges)]
