"""Rewritten kernels carried out with numpy by the tables that are written: every tile once, after what it waits for."""

import numpy as np
import pytest

from magus.compiler.ir import Pattern, Scenario
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.targets.kernel_rewrite import rewrite_kernel
from magus.compiler.targets.triton import triton_text
from magus.compiler.text.source import Source
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.targets.numpy_triton import NumpyWorld
from tests.helpers.targets.rewritten import FOLDER, KERNELS

SCHEDULE = "hetero_fused_1d(chunks=8, engine=dma(3))"


def scenario(pattern: Pattern) -> Scenario:
    """Columns and the inner dimension end inside a block, rows of pieces do not."""
    return scenario_of(pattern, SYSTEMS[1], 4, 128, 40 if pattern.produces else 104, 80)


def world(kernel: str, pattern: Pattern) -> NumpyWorld:
    made = rewrite_kernel(Source(f"{kernel}.py", (FOLDER / f"{kernel}.py").read_text()))
    text = triton_text(scenario(pattern), resolve_schedule(scenario(pattern), SCHEDULE), kernel=made)
    found = NumpyWorld(text, scenario(pattern), 3, kernel)
    found.fill()
    return found


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("pattern", [Pattern.AG_GEMM, Pattern.GEMM_RS], ids=lambda pattern: pattern.value)
def test_every_tile_is_written_once_after_what_it_waits_for(kernel: str, pattern: Pattern) -> None:
    found = world(kernel, pattern)

    found.run_kernels()

    assert found.exact
    assert all((counts == 1).all() for counts in found.counts)


@pytest.mark.parametrize("kernel", KERNELS)
def test_without_waits_it_reads_what_has_not_landed(kernel: str) -> None:
    found = world(kernel, Pattern.AG_GEMM)
    for tables in found.tables:
        for at in range(0, len(tables.tiles), found.plan.TILE):
            tables.tiles[at + 7] = tables.tiles[at + 6]

    found.run_kernels()

    assert np.isnan(found.found(0)).any()
