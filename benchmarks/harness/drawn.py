"""Scenarios drawn from a seed: sizes log-uniform, every overlapped pattern on every symmetric fabric in turn."""

import math
from random import Random
from typing import NamedTuple

from magus.compiler import compile_text
from magus.compiler.ir import OpCase

# Workloads as the language writes them; {m} are all rows, {k} and {n} the sizes of the GEMM, {split} the rows by peer.
PATTERNS = {
    "AG+GEMM": (
        "x = tensor bf16[{m}, {k}] shard rows; w = tensor bf16[{k}, {n}] shard cols; y = gemm(all_gather(x), w)"
    ),
    "GEMM+RS": (
        "h = tensor bf16[{m}, {n}] shard cols; w = tensor bf16[{n}, {k}] shard rows; y = reduce_scatter(gemm(h, w))"
    ),
    "GEMM+AR": (
        "h = tensor bf16[{m}, {n}] shard cols; w = tensor bf16[{n}, {k}] shard rows; y = all_reduce(gemm(h, w))"
    ),
    "A2A+GEMM": "x = tensor bf16[{m}, {k}]; w = tensor bf16[{k}, {n}]; y = gemm(all_to_all(x), w)",
    "A2A+GEMM, uneven": (
        "x = tensor bf16[{m}, {k}]; w = tensor bf16[{k}, {n}]; y = gemm(all_to_all(x, rows={split}), w)"
    ),
}
SYSTEMS = {
    "full mesh": (("amd/mi300x", "MI300X", "full_mesh(xgmi)"), ("amd/mi355x", "MI355X", "full_mesh(xgmi)")),
    "switch": (
        ("nvidia/h100", "H100", "switch(nvswitch, link=nvlink)"),
        ("nvidia/b200", "B200", "switch(nvswitch, link=nvlink)"),
    ),
    "ring": (("amd/mi300x", "MI300X", "ring(xgmi)"), ("nvidia/h100", "H100", "ring(nvlink)")),
}
RANKS = (4, 8, 8)
SHARD_ROWS, HIDDEN, INNER = (128, 4096), (1024, 16384), (1024, 32768)
GRAIN = 64  # rows of a shard and sizes are multiples of this, so that chunk counts divide
SMALLEST_SHARE = 1 / 8  # of the weights with which an uneven all_to_all is drawn, the largest is 1
SHARE_GRAIN = 16


class Drawn(NamedTuple):
    """A scenario with the words it goes by."""

    seed: int
    pattern: str
    fabric: str
    gpu: str
    scenario: OpCase


def draw(seed: int) -> Drawn:
    """OpCase ``seed``: 15 in a row have every pattern on every fabric once."""
    random = Random(f"schedules {seed}")
    pattern, fabric = list(PATTERNS)[seed % len(PATTERNS)], list(SYSTEMS)[seed // len(PATTERNS) % len(SYSTEMS)]
    library, gpu, where = random.choice(SYSTEMS[fabric])
    ranks = random.choice(RANKS)
    rows, hidden, inner = (_log_uniform(random, *limits) for limits in (SHARD_ROWS, HIDDEN, INNER))
    split = _split(random, ranks, rows) if "split" in PATTERNS[pattern] else []
    text = PATTERNS[pattern].format(m=ranks * rows, k=hidden, n=_divisible(inner, ranks), split=split)
    source = (
        f'use "{library}"\nsystem node {{ gpus {ranks} x {gpu}; fabric {where} }}\nworkload drawn on node {{ {text} }}'
    )
    return Drawn(seed, pattern, fabric, gpu, compile_text(f"{source}\n").scenario().case)


def _log_uniform(random: Random, low: int, high: int) -> int:
    """Between ``low`` and ``high``, a multiple of ``GRAIN``."""
    return round(math.exp(random.uniform(math.log(low), math.log(high))) / GRAIN) * GRAIN


def _divisible(size: int, ranks: int) -> int:
    """``size``, so that every rank has a multiple of ``GRAIN`` of it."""
    return max(1, round(size / (ranks * GRAIN))) * ranks * GRAIN


def _split(random: Random, ranks: int, rows: int) -> list[int]:
    """Rows for every peer in proportion to log-uniform weights; together ``ranks`` times ``rows``."""
    weights = [math.exp(random.uniform(math.log(SMALLEST_SHARE), 0)) for _ in range(ranks)]
    total, grains = ranks * rows, ranks * rows // SHARE_GRAIN
    edges = [round(grains * sum(weights[:place]) / sum(weights)) * SHARE_GRAIN for place in range(ranks)]
    return [high - low for low, high in zip(edges, [*edges[1:], total], strict=True)]
