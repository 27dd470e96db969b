"""What no way of cutting a kernel takes less than: SM time, memory traffic, and its first unit. For lower bounds."""

import math
from dataclasses import replace
from fractions import Fraction

from ...compiler.ir import TICKS_PER_US, AttentionShape, GemmShape, Gpu, GroupedGemmShape, Scenario
from .attention import KV_ROWS, Q_ROWS, SMALL_Q_ROWS, block_us
from .dispatch import whole_shape
from .gemm import hbm_bytes, min_sm_ticks
from .grouped_gemm import hbm_bytes_of_experts

_NONE, _WHOLE = Fraction(0), Fraction(1)


def least_sm_ticks(scenario: Scenario, share: Fraction = _WHOLE) -> int:
    """SM-ticks (SMs times time) that kernels take, however they are cut; or ``share`` of their rows.

    0 where there is no kernel before or after a collective, or a GEMM of one column, which has no tiles.
    """
    if scenario.workload.then is not None:
        return sum(least_sm_ticks(stage, share) for stage in scenario.stages)
    gpu, shape = scenario.gpu, whole_shape(scenario)
    match shape:
        case GemmShape(n=n) if n > 1:
            return min_sm_ticks(gpu, replace(shape, m=max(1, int(shape.m * share))))
        case GroupedGemmShape(rows=rows, n=n, k=k, dtype=dtype):
            return min_sm_ticks(gpu, GemmShape(max(1, int(sum(rows) * share)), n, k, dtype))
        case AttentionShape():
            return _of_attention(gpu, shape, share, cuts_queries=scenario.workload.pattern.produces)
        case _:
            return 0


def _of_attention(gpu: Gpu, shape: AttentionShape, share: Fraction, *, cuts_queries: bool) -> int:
    """Pairs of blocks at the rate of the better block of queries, and the overhead of a unit for each block of queries.

    Units that are cut in part cost as much as whole ones, so that more of them never take less.
    """
    per_pair = min(
        block_us(gpu, replace(shape, q_len=q_rows)) / (q_rows * KV_ROWS) for q_rows in (SMALL_Q_ROWS, Q_ROWS)
    )
    heads, queries = shape.batch * shape.heads, int(shape.q_len * share) if cuts_queries else shape.q_len
    # A share of keys that a mask hides in part is rounded by less than one key.
    rounded = 0 if cuts_queries or share == _WHOLE else queries
    us = float(max(_NONE, shape.pairs * share - rounded)) * heads * per_pair
    return math.floor((us * TICKS_PER_US + heads * (queries // Q_ROWS) * gpu.gemm.tile_ticks) * (1 - 1e-6))


def least_bytes(scenario: Scenario) -> int:
    """Bytes that kernels read from memory and write, however they are cut."""
    if scenario.workload.then is not None:
        return sum(map(least_bytes, scenario.stages))
    shape = whole_shape(scenario)
    match shape:
        case GemmShape():
            return sum(hbm_bytes(shape, accumulate=False))
        case GroupedGemmShape():
            return sum(hbm_bytes_of_experts(shape, accumulate=False))
        case AttentionShape(batch=batch, heads=heads, kv_heads=kv_heads, q_len=queries, kv_len=keys, head_dim=size):
            return 2 * batch * size * shape.dtype.num_bytes * (heads * queries + kv_heads * keys)
        case _:
            return 0
