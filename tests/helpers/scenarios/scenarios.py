"""Scenarios built in Python: two GPUs with their fabrics, and the workloads of the tests.

Sizes are of the whole, unsharded problem. The hardware has the figures of the shipped library, written out here so that
the tests of the simulator and the adviser do not depend on the language.
"""

from dataclasses import replace
from fractions import Fraction
from functools import cache

from magus.compiler.ir import (
    TICKS_PER_US,
    Cache,
    Dma,
    DType,
    Explore,
    Fabric,
    GemmModel,
    GemmShape,
    Gpu,
    Hbm,
    LaunchCost,
    Link,
    OpCase,
    OpShape,
    Pattern,
    Shard,
    SmCopy,
    Switch,
    System,
    Tensor,
    topologies,
)

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
G, T = 10**9, 10**12
TICKS_PER_NS = TICKS_PER_US // 1000
TILES = (
    *((16, 64), (32, 64), (64, 64), (64, 128), (128, 64)),
    *((128, 128), (64, 256), (256, 64), (128, 256), (256, 128), (256, 256)),
)
DT = DType.BF16


def ticks(us: float) -> int:
    """Time in us as ticks."""
    return round(us * TICKS_PER_US)


@cache
def mi300x() -> Gpu:
    """An MI300X."""
    return Gpu(
        name="MI300X",
        sms=304,
        clock_hz=2_100_000_000,
        line_bytes=128,
        peak_flops=((DT, 1307 * T),),
        l2=Cache(4 * MIB, 8, 1_930 * G, 137 * TICKS_PER_NS),
        hbm=Hbm(192 * GIB, 5_300 * G, 4_200 * G, 290 * TICKS_PER_NS),
        gemm=GemmModel(
            start_ticks=ticks(0.74),
            mma_fraction=Fraction("0.51"),
            hbm_fraction=Fraction("0.54"),
            tile_ticks=ticks(1.83),
            k_step_ticks=ticks(0.139),
            split_ticks=ticks(0.67),
            split_bytes_per_s=610 * G,
            exponent=Fraction("1.24"),
            quantisation=Fraction("0.30"),
            tiles=TILES,
            error=Fraction("0.25"),
            resolution=Fraction("0.08"),
            validated=False,
        ),
        dma=Dma(14, ticks(4), 52_700_000_000),
        sm_copy=SmCopy(11_400_000_000, ticks(0.5)),
        launch=LaunchCost(ticks(3), ticks(1)),
    )


@cache
def h100() -> Gpu:
    """An H100 SXM."""
    return Gpu(
        name="H100",
        sms=132,
        clock_hz=1_980_000_000,
        line_bytes=128,
        peak_flops=((DT, 989 * T),),
        l2=Cache(50 * MIB, 1, 12 * T, 111 * TICKS_PER_NS),
        hbm=Hbm(80 * GIB, 3_350 * G, 3_000 * G, 310 * TICKS_PER_NS),
        gemm=GemmModel(
            start_ticks=ticks(1.951),
            mma_fraction=Fraction("0.801"),
            hbm_fraction=Fraction("0.821"),
            tile_ticks=ticks(0.879),
            k_step_ticks=ticks(0.092),
            split_ticks=ticks(2.457),
            split_bytes_per_s=9_580 * G,
            exponent=Fraction("2.97"),
            quantisation=Fraction("0.034"),
            tiles=TILES,
            error=Fraction("0.06"),
            resolution=Fraction("0.02"),
            validated=True,
        ),
        dma=Dma(8, ticks(3), 397 * G),
        sm_copy=SmCopy(17_500_000_000, ticks(0.5)),
        launch=LaunchCost(ticks(2), ticks(1)),
    )


@cache
def by_waves() -> Gpu:
    """The same H100 with kernels that have the block of fewest waves."""
    return replace(h100(), gemm=replace(h100().gemm, cluster=2, ragged_ticks=ticks(0.001374), uneven=Fraction("0.177")))


@cache
def xgmi() -> Link:
    """One direction of a link between two MI300X."""
    return Link("xgmi", 64 * G, 46_500_000_000, 700 * TICKS_PER_NS)


@cache
def nvlink() -> Link:
    """One direction of all NVLinks of an H100 to its switches."""
    return Link("nvlink", 450 * G, 375 * G, 250 * TICKS_PER_NS)


def full_mesh(link: Link | None = None) -> Fabric:
    """A link between every two GPUs."""
    return Fabric(topologies.levels.FULL_MESH, link or xgmi())


def ring(link: Link | None = None, *, both_ways: bool = True) -> Fabric:
    """Links to the two neighbours, or to the right one alone."""
    return Fabric(topologies.levels.RING, link or xgmi(), both_ways=both_ways)


def switch(link: Link | None = None) -> Fabric:
    """All GPUs behind one crossbar."""
    return Fabric(topologies.levels.CROSSBAR, link or nvlink(), Switch("nvswitch", 8, 450 * G, 250 * TICKS_PER_NS))


def ag_gemm(m: int, n: int, k: int, *, ranks: int = 8, gpu: Gpu | None = None, fabric: Fabric | None = None) -> OpCase:
    """x[m, k] sharded by rows is gathered and multiplied by w[k, n] sharded by columns."""
    x, w = Tensor("x", DT, m, k, Shard.ROWS), Tensor("w", DT, k, n, Shard.COLS)
    workload = OpShape("up", "", Pattern.AG_GEMM, (x, w), x, GemmShape(m, n // ranks, k, DT), "y")
    return _scenario(workload, ranks, gpu, fabric)


def gemm_rs(m: int, n: int, k: int, *, ranks: int = 8, gpu: Gpu | None = None, fabric: Fabric | None = None) -> OpCase:
    """h[m, k] sharded by columns times w[k, n] sharded by rows; the partial sums are reduced and scattered by rows."""
    h, w = Tensor("h", DT, m, k, Shard.COLS), Tensor("w", DT, k, n, Shard.ROWS)
    partial = Tensor("y", DT, m, n, Shard.ROWS)
    workload = OpShape("down", "", Pattern.GEMM_RS, (h, w), partial, GemmShape(m, n, k // ranks, DT), "z")
    return _scenario(workload, ranks, gpu, fabric)


def lone_gather(m: int, k: int, *, ranks: int = 8, gpu: Gpu | None = None, fabric: Fabric | None = None) -> OpCase:
    """x[m, k] sharded by rows is gathered."""
    x = Tensor("x", DT, m, k, Shard.ROWS)
    return _scenario(OpShape("gather", "", Pattern.ALL_GATHER, (x,), x, None, "xg"), ranks, gpu, fabric)


def lone_scatter(m: int, n: int, *, ranks: int = 8, gpu: Gpu | None = None, fabric: Fabric | None = None) -> OpCase:
    """Each rank holds y[m, n]; the sum is scattered by rows."""
    y = Tensor("y", DT, m, n, Shard.NONE)
    return _scenario(OpShape("scatter", "", Pattern.REDUCE_SCATTER, (y,), y, None, "z"), ranks, gpu, fabric)


def lone_gemm(m: int, n: int, k: int, *, gpu: Gpu | None = None) -> OpCase:
    """x[m, k] times w[k, n] on one GPU."""
    x, w = Tensor("x", DT, m, k, Shard.NONE), Tensor("w", DT, k, n, Shard.NONE)
    workload = OpShape("one", "", Pattern.GEMM, (x, w), None, GemmShape(m, n, k, DT), "y")
    return _scenario(workload, 1, gpu, None)


def exploring(scenario: OpCase, explore: Explore) -> OpCase:
    """The same scenario with another space to search."""
    return replace(scenario, explore=explore)


def _scenario(workload: OpShape, ranks: int, gpu: Gpu | None, fabric: Fabric | None) -> OpCase:
    """MI300X joined by a mesh where nothing else is said, other GPUs behind a switch."""
    chosen = gpu or mi300x()
    joined = fabric or (full_mesh() if chosen.name == "MI300X" else switch())
    return OpCase(workload.name, System("node", ranks, chosen, joined), workload)
