"""The least SM time of a GEMM against that of kernels of any shape, at random and of all shapes of a small problem."""

import math
import random
from itertools import product

import pytest

from magus.advisor.bounds_area import least_area
from magus.compiler import compile_text
from magus.compiler.scenario import DType, GemmShape, Gpu
from magus.simcore.kernels.gemm import gemm_work, min_sm_ticks
from tests.scenarios import h100, mi300x

DT = DType.BF16


def shipped(library: str, name: str) -> Gpu:
    """A GPU of the library; those of Blackwell have tiles that two SMs compute."""
    system = f'use "{library}"\nsystem s {{ gpus 1 x {name}; fabric switch(nvswitch, link=nvlink) }}\n'
    text = "x = tensor bf16[64, 64]; w = tensor bf16[64, 64]; y = gemm(x, w)"
    return compile_text(f"{system}workload one on s {{ {text} }}\n").scenario().gpu


GPUS = {"MI300X": mi300x(), "H100": h100(), "B200": shipped("nvidia/b200", "B200")}


def area(gpu: Gpu, shape: GemmShape, sms: int, *, persistent: bool = False) -> int:
    """SM ticks of the kernel that is picked for ``shape``."""
    work = gemm_work(gpu, shape, sms, static_order=persistent)
    return work.num_units * work.unit_ticks


def log_uniform(rng: random.Random, high: int) -> int:
    return max(1, round(math.exp(rng.uniform(0, math.log(high)))))


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
def test_no_kernel_takes_less_for_its_share(gpu: Gpu, persistent: bool) -> None:
    rng = random.Random(7)
    for _ in range(2):
        m, n, k = (64 * log_uniform(rng, 128) for _ in range(3))
        fewest = rng.randint(gpu.sms // 2, gpu.sms)
        least = least_area(gpu, GemmShape(m, n, k, DT), fewest, gpu.sms, persistent) / (m * n * k)
        for _ in range(25):
            cols, inner = (n, k) if persistent else (log_uniform(rng, n), log_uniform(rng, k))
            part = GemmShape(rng.choice((log_uniform(rng, m), m)), rng.choice((cols, n)), rng.choice((inner, k)), DT)
            taken = area(gpu, part, rng.randint(fewest, gpu.sms), persistent=persistent)
            assert taken >= least * part.m * part.n * part.k, part


def test_no_shape_of_a_small_problem_takes_less() -> None:
    """All shapes in steps of a quarter of the smallest tile: what divides it and what does not."""
    gpu, whole = h100(), GemmShape(512, 512, 256, DT)
    least = least_area(gpu, whole, gpu.sms, gpu.sms) / (512 * 512 * 256)
    sizes = [*range(16, 512, 48), 512]
    ratios = [
        area(gpu, GemmShape(m, n, k, DT), gpu.sms) / (m * n * k) / least
        for m, n, k in product(sizes, sizes, (64, 128, 192, 256))
    ]

    assert 1 <= min(ratios) < 1.05


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
def test_is_no_less_than_full_tiles_without_loss(gpu: Gpu) -> None:
    for m, n, k in ((8192, 8192, 8192), (1024, 4096, 512), (640, 2304, 1280)):
        shape = GemmShape(m, n, k, DT)
        assert min_sm_ticks(gpu, shape) * (1 - 1e-5) <= least_area(gpu, shape, gpu.sms, gpu.sms)
        assert least_area(gpu, shape, gpu.sms, gpu.sms) <= area(gpu, shape, gpu.sms)


def test_losses_that_no_cut_avoids_are_found() -> None:
    """A form that adds memory time and the latency of steps to the math makes every kernel of an MI300X slower."""
    gpu, shape = mi300x(), GemmShape(6656, 2560, 1024, DT)

    assert least_area(gpu, shape, gpu.sms, gpu.sms) > 1.1 * min_sm_ticks(gpu, shape)
