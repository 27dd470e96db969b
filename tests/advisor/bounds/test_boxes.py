"""The fastest kernels in boxes: those left out take longer."""

import numpy as np
import pytest

from magus.advisor.bounds.boxes import GemmForm, TiledKernels
from magus.compiler.ir import SPLITS, DType, GemmShape, Gpu
from tests.helpers.scenarios.scenarios import h100, mi300x

LOW = np.array([[1, 64, 512, 4096, 100], [16, 512, 512, 8192, 3000], [64, 64, 4096, 8192, 700]], float)


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("gpu", [mi300x(), h100()], ids=lambda gpu: gpu.name)
def test_the_fastest_of_likely_kernels_is_that_of_all(gpu: Gpu, adds: bool) -> None:
    form = GemmForm(gpu, GemmShape(1, 1, 1, DType.BF16), gpu.sms - 16, gpu.sms, fixed=False)
    kernels = TiledKernels.of(form, [(*tile, split) for tile in gpu.tiles_of(DType.BF16) for split in SPLITS])

    of_each = [TiledKernels.of(form, [(*tile, split)]) for tile in gpu.tiles_of(DType.BF16) for split in SPLITS]
    fastest = np.min([each.fastest_us(LOW, 2 * LOW)[adds] for each in of_each], axis=0)

    assert (kernels.fastest_us(LOW, 2 * LOW)[adds] == fastest).all()
    assert np.isfinite(fastest).all()
