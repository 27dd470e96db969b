"""No measured kernel is faster than the bound, less the stated error of the rates: tables of MAGUS_MEASURED_DATA."""

import csv
import gzip
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from magus.advisor.bounds.lower_bound import lower_bound, workload_bound
from magus.advisor.measured.tables.collectives import MeasuredPoint, shipped_points
from magus.advisor.measured.tables.csv_rows import read_rows, tables_of, whole_number
from magus.advisor.measured.tables.fused import COLUMNS, MAX_RANKS, NUMBERS, PATTERNS, parts_of, scenario_on
from magus.advisor.measured.tables.gemm import gpu_named
from magus.advisor.measured.tables.implementations import GPU_OF_SOURCE, semantics_of
from magus.advisor.measured.tables.samples import collective_on
from magus.compiler import CompileError, compile_text
from magus.compiler.ir import TICKS_PER_US, AttentionShape, DType, GemmShape, OpCase
from magus.simcore.kernels.attention import least_sm_ticks
from magus.simcore.kernels.dispatch import least_sm_ticks as min_work
from magus.simcore.kernels.gemm_form import min_sm_ticks
from tests.helpers.marks import first
from tests.helpers.scenarios.scenarios import lone_gemm

DATA = os.environ.get("MAGUS_MEASURED_DATA", "")
pytestmark = pytest.mark.skipif(not DATA, reason="MAGUS_MEASURED_DATA names no folder")

MIB = 1 << 20

LARGE = 512
"""The stated errors are of shapes with m, n and k of at least this size."""

ERROR = 0.071
"""Of the GEMM form on B300: ``gemm { error }``."""

FP4_WITH_SCALES = 1 / 2 + 1 / 32
"""Bytes of an element of mxfp4, whose blocks of 32 share a scale of a byte, for one of fp8."""

MOE = """
use "nvidia/b300"
use "nvidia/gb200" as nvl
system pod {{ gpus {ep} x B300; fabric switch(nvl.nvswitch, link=nvl.nvlink) }}
workload moe on pod {{
  x  = tensor bf16[{ep} * {tokens_per_rank}, {hidden}] shard rows
  w1 = tensor fp8[{experts} * {hidden}, 2 * {inter}] shard rows
  w2 = tensor fp8[{experts} * {inter}, {hidden}] shard rows
  t = dispatch(x, experts={experts}, top={topk}, type=fp8)
  y = combine(grouped_gemm(swiglu(grouped_gemm(t, w1)), w2), type=bf16)
}}
"""


def pairs_of(path: Path) -> Iterator[tuple[OpCase, float]]:
    """Every pair of a table with its time; of a layer of two pairs, which may overlap, either with the time of both."""
    for row in read_rows(path, COLUMNS, NUMBERS).rows:
        name, gpu = gpu_named(GPU_OF_SOURCE.get(row.get("source", ""), row["gpu"]))
        ranks, dtype = whole_number(row, "n_gpus", MAX_RANKS), row.get("dtype", "").partition(" ")[0]
        if gpu is None or ranks is None or ranks < 2 or dtype not in [each.value for each in DType]:
            continue
        parts = parts_of({**row, "shape_semantics": semantics_of(row)}, ranks)
        for part in parts:
            with suppress(CompileError):  # a shape that does not divide
                yield scenario_on(name, ranks, DType(dtype), part), float(row["time_us"])


@cache
def fastest_pairs() -> tuple[tuple[OpCase, float], ...]:
    """The least time of each pair; those that come nearest to what the SMs need at least are first."""
    fastest: dict[OpCase, float] = {}
    for path in tables_of(Path(DATA), PATTERNS):
        for scenario, us in pairs_of(path):
            fastest[scenario] = min(us, fastest.get(scenario, us))
    return tuple(sorted(fastest.items(), key=lambda found: found[1] * found[0].gpu.sms / min_work(found[0])))


@pytest.mark.parametrize("pairs", [slice(6), pytest.param(slice(6, None), marks=pytest.mark.slow)], ids=["near", "far"])
def test_no_fused_pair_is_faster(pairs: slice) -> None:
    found = fastest_pairs()[pairs]
    for scenario, us in found:
        bound = lower_bound(scenario).ticks / TICKS_PER_US
        assert us > bound * (1 - float(scenario.gpu.gemm.error)), (scenario.gpu.name, scenario.shape.gemm)

    assert len(found) >= 6


@cache
def moe_terms(**sizes: str) -> Mapping[str, float] | None:
    """The terms of the bound of a layer in us, None where Magus has no even share of so few tokens."""
    try:
        (found,) = compile_text(MOE.format(**sizes)).workloads
    except CompileError:
        return None
    return {term.name: term.ticks / TICKS_PER_US for term in workload_bound(found).terms}


@pytest.mark.slow
def test_no_fused_layer_of_experts_is_faster() -> None:
    """Under skew fewer experts have rows, which are not recorded, so that the weights that are read are not known."""
    compared, faster, ratios = 0, [], []
    for row in csv.DictReader((Path(DATA) / "moe_layer_fused.csv").open()):
        sizes = {name: row[name] for name in ("ep", "tokens_per_rank", "hidden", "inter", "topk", "experts")}
        terms = moe_terms(**sizes)
        if terms is None or row["gpu"] != "GB300":
            continue
        weights = terms["hbm"] * FP4_WITH_SCALES if row["distribution"] == "balanced" else 0.0
        compared += 1
        bound = max(weights, *(us for name, us in terms.items() if name != "hbm"))
        if float(row["latency_us"]) < bound * (1 - ERROR):
            faster.append((sizes, row["distribution"], row["latency_us"], bound))
        if weights and int(row["tokens_per_rank"]) >= 1024:
            ratios.append(float(row["latency_us"]) / bound)

    assert compared > 350 and faster == []
    # Where the start of the kernel does not count. The bound takes the clock of a short run: 1.71 at the median.
    assert len(ratios) == 54 and median(ratios) < 1.75


@pytest.mark.parametrize("part", first((slice(0, None, 6), slice(None)), 1), ids=["some", "all"])
def test_no_collective_is_faster(part: slice) -> None:
    points = [one for one in shipped_points(Path(DATA)) if isinstance(one, MeasuredPoint)]
    whole = [one for one in points if one.num_bytes >= MIB and one.num_bytes % (2 * one.ranks) == 0]
    faster = [
        point
        for point in whole[part]
        if point.time_us < us_of(collective_on(point.gpu, point.ranks, point.operation, point.num_bytes))
    ]

    assert len(whole) > 200 and faster == []


def us_of(scenario: OpCase) -> float:
    return lower_bound(scenario).ticks / TICKS_PER_US


@pytest.mark.quick(1)
@pytest.mark.parametrize("table", ["a100", "b200", "h100"])
def test_no_product_is_faster_by_more_than_twice_the_mean_error(table: str) -> None:
    """A pair or a layer is bound by the rate of its products; measured ones scatter around the form."""
    gpu, fastest = gpu_named(table.upper())[1], 10.0
    assert gpu is not None
    with gzip.open(Path(DATA) / f"gemm_{table}_sxm.csv.gz", "rt") as lines:
        rows = [row for row in csv.DictReader(lines) if row["dtype"] == "bf16"]
    for row in rows:
        m, n, k = (int(row[name]) for name in "mnk")
        if min(m, n, k) >= LARGE:
            least = min_sm_ticks(gpu, GemmShape(m, n, k, DType.BF16)) / gpu.sms / TICKS_PER_US
            fastest = min(fastest, float(row["time_us"]) / least)

    assert 10 > fastest > 1 - 2 * float(gpu.gemm.error)


@pytest.mark.slow
def test_no_attention_is_faster() -> None:
    """Softmax hides behind the products in kernels that are written for it."""
    compared, fastest = 0, 10.0
    profiles = {name: gpu_named(name)[1] for name in ("H100-SXM", "B200-SXM")}
    with gzip.open(Path(DATA) / "attention.csv.gz", "rt") as table:
        rows = list(csv.DictReader(table))
    for row in rows:
        gpu = profiles.get(row["gpu"])
        if gpu is None or row["op"] != "gqa" or row["phase"] != "context" or row["window"] != "0":
            continue
        batch, heads, kv, queries, keys, width = (
            int(row[name]) for name in ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim")
        )
        shape = AttentionShape(batch, heads, kv, queries, keys, width, DType.BF16, causal=True)
        least = least_sm_ticks(lone_gemm(128, 128, 128, gpu=gpu), shape, Fraction(1)) / gpu.sms / TICKS_PER_US
        compared, fastest = compared + 1, min(fastest, float(row["latency_us"]) / least)

    assert compared > 10_000 and fastest > 1
