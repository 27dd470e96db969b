"""Files of ``magus plan --format triton`` run by Triton's interpreter on the CPU, while a thread arrives the chunks."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from magus.compiler.ir import Pattern
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.targets.kernel_rewrite import rewrite_kernel
from magus.compiler.targets.triton import triton_text
from magus.compiler.text.diagnostics import Source
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.targets.rewritten import BLOCK, FOLDER, KERNELS
from tests.helpers.targets.triton_runs import RewrittenWorld, TritonWorld, module_of

EXPRESSIONS = {
    Pattern.AG_GEMM: [
        "serial(engine=dma(3))",
        "hetero_fused_1d(chunks=8, engine=dma(3))",
        "hetero_unfused_1d(chunks=16, engine=dma(3))",
        "uniform_fused_2d(chunks=16, engine=dma(3))",
        "pipelined(chunks=8, engine=dma(3))",
        "bespoke(parts=[[10, 10], [10, 10]], slices=[[128, 128], [64, 192]], engine=dma(3), streams=2)",
    ],
    Pattern.GEMM_RS: [
        "serial(engine=dma(3))",
        "uniform_fused_1d(chunks=8, engine=dma(3))",
        "pipelined(chunks=8, engine=dma(3), streams=2)",
        "uniform_fused_2d(chunks=8, engine=dma(3))",
    ],
    Pattern.GEMM_AR: ["pipelined(chunks=8, engine=dma(3))"],
    Pattern.A2A_GEMM: ["hetero_fused_1d(chunks=8, engine=dma(3))"],
    Pattern.GEMM_A2A: ["hetero_fused_1d(chunks=8, engine=dma(3))"],
}
EACH = [(pattern, expression) for pattern, expressions in EXPRESSIONS.items() for expression in expressions]


def world_of(pattern: Pattern, expression: str, folder: Path, programs: int = 3) -> TritonWorld:
    """Blocks of 32 beside rows in pieces of 10 and 20: every tile has an edge."""
    scenario = scenario_of(
        pattern, SYSTEMS[1], 4, 80, 128 if pattern.produces else 96, 256 if pattern.consumes else 128
    )
    text = triton_text(scenario, resolve_schedule(scenario, expression))
    world = TritonWorld(module_of(text, folder), scenario, 32, programs)
    world.fill()
    return world


@pytest.mark.parametrize(("pattern", "expression"), EACH)
def test_every_rank_ends_with_the_serial_result(pattern: Pattern, expression: str, tmp_path: Path) -> None:
    world = world_of(pattern, expression, tmp_path)
    for epoch in (1, 2):
        world.run_triton(epoch)
        assert world.exact
        world.fill()


def test_copies_that_wait_for_kernels(tmp_path: Path) -> None:
    """Programs of the interpreter run one after the other, so that one alone may wait for what others compute."""
    world = world_of(Pattern.AG_GEMM, "uniform_fused_1d(chunks=16, engine=dma(3), transfer=get, depth=2)", tmp_path, 1)

    world.run_triton()

    assert world.exact


def test_flags_wrap_around(tmp_path: Path) -> None:
    world = world_of(Pattern.AG_GEMM, "hetero_fused_1d(chunks=8, engine=dma(3))", tmp_path)
    for flags in world.flags:
        flags.fill(2**31 - 2)
    for epoch in (2**31 - 1, -(2**31)):
        world.run_triton(epoch)
        assert world.exact
        world.fill()


def drop_waits(world: TritonWorld) -> None:
    for tables in world.tables:
        for at in range(0, len(tables.tiles), world.plan.TILE):
            tables.tiles[at + 7] = tables.tiles[at + 6]


def test_without_waits_a_kernel_reads_what_has_not_arrived(tmp_path: Path) -> None:
    world = world_of(Pattern.AG_GEMM, "hetero_fused_1d(chunks=8, engine=dma(3))", tmp_path)
    drop_waits(world)

    for rank in world.ranks:
        world.run_kernel(rank, 1)

    assert [bool(np.isnan(world.found(rank)).any()) for rank in world.ranks] == [True] * 4


def test_without_flags_copies_take_what_is_not_computed(tmp_path: Path) -> None:
    world = world_of(Pattern.GEMM_RS, "uniform_fused_1d(chunks=8, engine=dma(3))", tmp_path)
    for flags in world.flags:
        flags.fill(1 << 20)  # as if all were there

    world.run_hosts(1)

    assert [bool(np.isnan(world.found(rank)).any()) for rank in world.ranks] == [True] * 4


def rewritten_world(kernel: str, pattern: Pattern, expression: str, folder: Path) -> RewrittenWorld:
    """Columns and the inner dimension end inside a block, rows of pieces do not."""
    scenario = scenario_of(pattern, SYSTEMS[1], 4, 128, 40 if pattern.produces else 160, 80)
    made = rewrite_kernel(Source(f"{kernel}.py", (FOLDER / f"{kernel}.py").read_text()))
    text = triton_text(scenario, resolve_schedule(scenario, expression), kernel=made)
    world = RewrittenWorld(module_of(text, folder), scenario, BLOCK, 3)
    world.kernel = kernel
    world.fill()
    return world


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("pattern", [Pattern.AG_GEMM, Pattern.GEMM_RS], ids=lambda pattern: pattern.value)
def test_rewritten_kernels_end_with_the_serial_result(kernel: str, pattern: Pattern, tmp_path: Path) -> None:
    world = rewritten_world(kernel, pattern, "hetero_fused_1d(chunks=8, engine=dma(3))", tmp_path)

    world.run_triton()

    assert world.exact


@pytest.mark.parametrize("kernel", KERNELS)
def test_rewritten_kernels_without_waits_read_what_has_not_arrived(kernel: str, tmp_path: Path) -> None:
    world = rewritten_world(kernel, Pattern.AG_GEMM, "hetero_fused_1d(chunks=8, engine=dma(3))", tmp_path)
    drop_waits(world)

    world.run_kernel(0, 1)

    assert np.isnan(world.found(0)).any()
