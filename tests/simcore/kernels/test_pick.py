"""Which kernel model a group of tiles gets."""

from dataclasses import replace

import pytest

from magus.compiler.ir import (
    AttentionShape,
    BatchedGemmShape,
    DType,
    ElementwiseShape,
    ExecutionOptions,
    GemmShape,
    GemvShape,
    GroupedGemmShape,
    IndexRange,
    KernelShape,
    LaunchMode,
    OpCase,
    Pattern,
    Region,
    Sync,
    TileGroup,
)
from magus.simcore.kernels.attention import attention_work
from magus.simcore.kernels.dispatch import compute_work, elementwise_work, gemv_work
from magus.simcore.kernels.gemm import gemm_work
from magus.simcore.kernels.grouped_gemm import batched_gemm_work, grouped_gemm_work
from tests.helpers.oracle.lowering import lowered_run, makespan, on_gpu, plan
from tests.helpers.scenarios.scenarios import ag_gemm, lone_gemm

DT = DType.BF16
SHAPES: tuple[KernelShape, ...] = (
    GroupedGemmShape((512, 0, 100, 700), 512, 1024, DT),
    BatchedGemmShape(16, 64, 512, 128, DT),
    GemvShape(4096, 4096, DT, 2),
    AttentionShape(2, 16, 4, 512, 512, 128, DT, True),
    ElementwiseShape(1 << 20, 2, DT),
)
MODELS = (grouped_gemm_work, batched_gemm_work, gemv_work, attention_work, elementwise_work)


def whole(rows: int, cols: int, k: int) -> TileGroup:
    return TileGroup("g0", (Region(0, IndexRange(0, rows), IndexRange(0, cols)),), IndexRange(0, k))


def lone_kernel(shape: KernelShape) -> OpCase:
    scenario = lone_gemm(64, 64, 64)
    workload = replace(scenario.shape, pattern=Pattern.KERNEL, gemm=None, kernel=shape)
    return replace(scenario, shape=workload)


def test_a_group_of_a_gemm_is_the_rows_of_its_regions() -> None:
    scenario = ag_gemm(1024, 4096, 2048, ranks=4)
    blocks = tuple(Region(owner, IndexRange(0, 128), IndexRange(0, 1024)) for owner in range(3))
    group = TileGroup("g", blocks, IndexRange(0, 512), accumulate=True)

    expected = gemm_work(scenario.gpu, GemmShape(384, 1024, 512, DT), 200, accumulate=True)
    assert compute_work(scenario, group, 200) == expected


def test_a_gemm_of_one_column_is_a_matrix_times_a_vector() -> None:
    scenario = lone_gemm(4096, 1, 2048)
    found = compute_work(scenario, whole(4096, 1, 2048), 304)

    assert found == gemv_work(scenario.gpu, GemvShape(4096, 2048, DT), 304)
    sums = replace(whole(4096, 1, 2048), accumulate=True)
    assert compute_work(scenario, sums, 304).label != found.label


NAMES = [type(shape).__name__ for shape in SHAPES]


@pytest.mark.parametrize(("shape", "model"), list(zip(SHAPES, MODELS, strict=True)), ids=NAMES)
def test_a_lone_kernel_has_the_model_of_its_shape_and_runs_as_long(shape, model) -> None:  # type: ignore[no-untyped-def]
    scenario = lone_kernel(shape)
    work = compute_work(scenario, whole(1, 1, 1), 304)
    _, finished = lowered_run(scenario, plan(whole(1, 1, 1)))

    assert work == model(scenario.gpu, shape, 304)
    assert finished.makespan_ticks == pytest.approx(work.alone_ticks, rel=0.05)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_graph_replaces_the_launch_of_kernels_without_a_start_of_their_own(shape: KernelShape) -> None:
    scenario = lone_kernel(shape)
    cost = scenario.gpu.launch.kernel_ticks // 3
    quick = on_gpu(scenario, replace(scenario.gpu, sync=Sync(graph_launch_ticks=cost)))
    graph = plan(whole(1, 1, 1), tactics=ExecutionOptions(launch=LaunchMode.GRAPH))
    streams = isinstance(shape, GemvShape | ElementwiseShape)

    saved = makespan(quick, plan(whole(1, 1, 1))) - makespan(quick, graph)

    assert saved == (scenario.gpu.launch.kernel_ticks - cost if streams else 0)
