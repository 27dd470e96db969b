"""Rewritten kernels carried out with numpy by the tables that are written: every tile once, after what it waits for."""

import numpy as np
import pytest

from magus.compiler.ir import Pattern
from tests.helpers.targets.numpy_triton import NumpyWorld
from tests.helpers.targets.rewritten import KERNELS


@pytest.mark.quick(9)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("pattern", [Pattern.AG_GEMM, Pattern.GEMM_RS], ids=lambda pattern: pattern.value)
def test_every_tile_is_written_once_after_what_it_waits_for(kernel: str, pattern: Pattern) -> None:
    found = NumpyWorld(kernel, pattern)

    found.run_kernels()

    assert found.exact and found.once


@pytest.mark.quick(2)
@pytest.mark.parametrize("kernel", KERNELS)
def test_without_waits_it_reads_what_has_not_arrived(kernel: str) -> None:
    found = NumpyWorld(kernel, Pattern.AG_GEMM)
    for tables in found.tables:
        for at in range(0, len(tables.tiles), found.plan.TILE):
            tables.tiles[at + 7] = tables.tiles[at + 6]

    found.run_kernels()

    assert np.isnan(found.found(0)).any()
