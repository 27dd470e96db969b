"""An error that a profile states as measured is that of the constants which ship with it.

The measured times are no part of the package. So a row of ``STATED`` keeps, beside the error, a digest of times by the
profile, of fixed GEMMs or collectives. If a constant or the form changes, the error is that of another fit: measure it
again, say in the profile what was measured, and write both figures here.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from magus.advisor.measured.calibrate.fitting import Constant
from magus.advisor.measured.calibrate.parts import CONSTANTS
from magus.advisor.measured.tables.gemm import profile_of
from magus.advisor.measured.tables.gemm_times import gemm_ticks
from magus.compiler.ir import Gpu
from magus.compiler.text.names import shipped_libraries
from magus.simcore.kernels.nccl import NcclCollective, collective_time

M, N_AND_K = (16, 512, 1024, 4096, 16384), (512, 1536, 4096, 8192, 28672)
RANKS, SIZES = (2, 4, 8), tuple(1 << power for power in range(10, 30))
VENDORS = ("amd", "nvidia")
GPUS = tuple(
    name.upper() for vendor, _, name in (each.partition("/") for each in shipped_libraries()) if vendor in VENDORS
)

STATED = {
    ("MI300X", "collectives"): (Fraction("5.3"), "73847985acce"),
    ("MI355X", "gemm"): (Fraction("6.8"), "b3748eab0a10"),
    ("A100", "gemm"): (Fraction("5.1"), "3f942bb3f78c"),
    ("A100", "collectives"): (Fraction("6.6"), "843e3dc0a1c7"),
    ("B200", "gemm"): (Fraction("6"), "c1c84bb83d61"),
    ("B200", "collectives"): (Fraction("5.1"), "80bb796dc502"),
    ("B300", "gemm"): (Fraction("7.1"), "c350cf4aa4d9"),
    ("B300", "collectives"): (Fraction("5.4"), "80bb796dc502"),
    ("GB200", "gemm"): (Fraction("6.2"), "3f6f408d6069"),
    ("GB300", "gemm"): (Fraction("5"), "e3adfc651f0e"),
    ("GB200", "collectives"): (Fraction("5.6"), "80bb796dc502"),
    ("H100", "gemm"): (Fraction("5.3"), "adccc9dc3eeb"),
    ("H100", "collectives"): (Fraction("6.2"), "89077b5d90a9"),
    ("H200", "gemm"): (Fraction("5.5"), "124710ee1e12"),
    ("H200", "collectives"): (Fraction("6.6"), "89077b5d90a9"),
}


def shipped(name: str) -> Gpu:
    gpu = profile_of(name)
    assert gpu is not None
    return gpu


def digest(times: Iterable[float]) -> str:
    """A hash of five digits of each time, which is coarser than what numpy may round in another way elsewhere."""
    return hashlib.sha256(" ".join(f"{time:.5g}" for time in times).encode()).hexdigest()[:12]


def gemm_digest(gpu: Gpu) -> str:
    """The times of GEMMs from those of one wave to those of many, with and without a split inner dimension."""
    shapes = np.array(list(product(M, N_AND_K, N_AND_K)), dtype=np.int64)
    return digest(gemm_ticks(gpu, shapes).tolist())


def collectives_digest(gpu: Gpu) -> str:
    """The times of all collectives over the sizes at which they switch protocols."""
    points = product(NcclCollective, SIZES, RANKS)
    return digest(collective_time(gpu, operation, size, ranks).us for operation, size, ranks in points)


def found(gpu: Gpu) -> dict[tuple[str, str], tuple[Fraction, str]]:
    """The errors in percent that a profile states as measured, each with the digest of its constants."""
    stated = {}
    if gpu.gemm.validated:
        stated[gpu.name, "gemm"] = (100 * gpu.gemm.error, gemm_digest(gpu))
    if gpu.collectives is not None and gpu.collectives.validated:
        stated[gpu.name, "collectives"] = (100 * gpu.collectives.error, collectives_digest(gpu))
    return stated


@pytest.mark.parametrize("name", GPUS)
def test_a_stated_error_is_that_of_the_constants_that_ship(name: str) -> None:
    assert found(shipped(name)) == {key: row for key, row in STATED.items() if key[0] == name}


@pytest.mark.parametrize("constant", CONSTANTS, ids=lambda constant: constant.path)
def test_another_constant_is_another_fit(constant: Constant) -> None:
    gpu = shipped("H100")
    other = constant.put(gpu, Fraction(constant.of(gpu)) * Fraction("1.01"))
    assert gemm_digest(other) != gemm_digest(gpu)


def test_a_data_sheet_belongs_to_the_fit() -> None:
    gpu = shipped("H100")
    assert gemm_digest(replace(gpu, sms=gpu.sms - 2)) != gemm_digest(gpu)
    hbm = replace(gpu.hbm, peak_bytes_per_s=gpu.hbm.peak_bytes_per_s * 99 // 100)
    assert gemm_digest(replace(gpu, hbm=hbm)) != gemm_digest(gpu)
