"""The least SM time of kernels against that of any shape: at random, with little time, and all of a small problem."""

import math
import random
from itertools import pairwise, product

import numpy as np
import pytest

from magus.advisor.bounds.kernels import KernelClass, least_ratios
from magus.compiler import compile_text
from magus.compiler.ir import TICKS_PER_US, DType, GemmShape, Gpu
from magus.simcore.kernels.gemm import gemm_work
from magus.simcore.kernels.gemm_form import min_sm_ticks
from tests.helpers.marks import thinned
from tests.helpers.scenarios.scenarios import by_waves, h100, mi300x
from tests.helpers.some import some

DT = DType.BF16


def shipped(library: str, name: str) -> Gpu:
    """A GPU of the library; those of Blackwell have tiles that two SMs compute."""
    system = f'use "{library}"\nsystem s {{ gpus 1 x {name}; fabric switch(nvswitch, link=nvlink) }}\n'
    text = "x = tensor bf16[64, 64]; w = tensor bf16[64, 64]; y = gemm(x, w)"
    return compile_text(f"{system}workload one on s {{ {text} }}\n").scenario().case.gpu


GPUS = {"MI300X": mi300x(), "H100": h100(), "B200": shipped("nvidia/b200", "B200"), "fewest waves": by_waves()}


def area_us(gpu: Gpu, shape: GemmShape, sms: int, *, persistent: bool = False, accumulate: bool = False) -> float:
    """SM time of the kernel that is picked for ``shape``."""
    work = gemm_work(gpu, shape, sms, accumulate, static_order=persistent)
    return work.num_units * work.unit_ticks / TICKS_PER_US


def least_us(gpu: Gpu, shape: GemmShape, kind: KernelClass) -> float:
    """The least SM time of all of ``shape``."""
    return least_ratios(gpu, shape, kind).least * shape.m * shape.n * shape.k


def log_uniform(rng: random.Random, high: int) -> int:
    return max(1, round(math.exp(rng.uniform(0, math.log(high)))))


@pytest.mark.quick(2)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
def test_no_kernel_takes_less_for_its_share(gpu: Gpu, persistent: bool) -> None:
    """Nor for its time, which is that of a unit where the kernel is persistent, nor for its size."""
    rng = random.Random(7)
    for _ in range(2):
        m, n, k = (64 * log_uniform(rng, 128) for _ in range(3))
        fewest = rng.randint(gpu.sms // 2, gpu.sms)
        least = least_ratios(gpu, GemmShape(m, n, k, DT), KernelClass(fewest, gpu.sms, persistent))
        for _ in range(60):
            cols, inner = (n, k) if persistent else (log_uniform(rng, n), log_uniform(rng, k))
            part = GemmShape(rng.choice((log_uniform(rng, m), m)), rng.choice((cols, n)), rng.choice((inner, k)), DT)
            adds = rng.random() < 0.3 and not persistent
            tile = rng.choice(gpu.tiles_of(DT))[0] if persistent and rng.random() < 0.5 else ()
            work = gemm_work(gpu, part, rng.randint(fewest, gpu.sms), adds, static_order=persistent, tile=tile)
            size, lasts = part.m * part.n * part.k, (1 if persistent else work.waves) * work.unit_ticks / TICKS_PER_US
            taken = work.num_units * work.unit_ticks / TICKS_PER_US / size
            assert taken >= least.least, part
            assert taken >= least.within(np.array([lasts]))[0], part
            assert persistent or taken >= least.up_to(np.array([float(size)]))[0], part


@pytest.mark.slow
@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
def test_no_kernel_that_may_share_the_sms_takes_less(gpu: Gpu) -> None:
    """Whether it does or not, and where it finds all SMs free."""
    rng = random.Random(8)
    for _ in range(2):
        m, n, k = (64 * log_uniform(rng, 128) for _ in range(3))
        least = least_ratios(gpu, GemmShape(m, n, k, DT), KernelClass(8, gpu.sms, shared=True))
        for _ in range(60):
            part = GemmShape(log_uniform(rng, m), log_uniform(rng, n), log_uniform(rng, k), DT)
            shares, adds = rng.random() < 0.7, rng.random() < 0.3
            work = gemm_work(gpu, part, rng.randint(8, gpu.sms) if shares else gpu.sms, adds, shared=shares)
            lasts = -(-work.num_units // gpu.sms) * work.unit_ticks / TICKS_PER_US
            size = part.m * part.n * part.k
            taken = work.num_units * work.unit_ticks / TICKS_PER_US / size
            assert taken >= least.within(np.array([lasts]))[0] >= least.least, part
            assert taken >= least.up_to(np.array([float(size)]))[0], part


@pytest.mark.slow
@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
def test_slices_that_are_finished_in_time_take_no_less(gpu: Gpu) -> None:
    rng = random.Random(9)
    whole = GemmShape(1024, 1536, 2048, DT)
    least = least_ratios(gpu, whole, KernelClass(gpu.sms, gpu.sms, finished=True))
    start = max(0, gpu.gemm.start_ticks - gpu.l2.latency_ticks)
    for _ in range(60):
        m, n = log_uniform(rng, whole.m), log_uniform(rng, whole.n)
        edges = sorted({0, whole.k, *(64 * rng.randrange(1, 32) for _ in range(rng.randrange(5)))})
        parts = [GemmShape(m, n, high - low, DT) for low, high in pairwise(edges)]
        works = [gemm_work(gpu, part, gpu.sms, number > 0) for number, part in enumerate(parts)]
        ticks = sum(work.waves * work.unit_ticks for work in works) + (len(works) - 1) * start
        ratio = least.within(np.array([ticks / TICKS_PER_US]))[0]
        for part, work in some(zip(parts, works, strict=True)):
            assert work.num_units * work.unit_ticks / TICKS_PER_US >= ratio * part.m * part.n * part.k


@pytest.mark.parametrize("persistent", [False, True])
def test_less_time_and_less_to_work_on_never_cost_less(persistent: bool) -> None:
    least = least_ratios(mi300x(), GemmShape(4096, 1536, 1024, DT), KernelClass(300, 304, persistent))

    for ratios in (least.of_times, least.of_sizes):
        assert list(ratios) == sorted(ratios, reverse=True)
        assert ratios[-1] == least.least
    assert least.of_times[0] > 1.5 * least.least


def test_no_shape_of_a_small_problem_takes_less() -> None:
    """All shapes in steps of a quarter of the smallest tile: what divides it and what does not."""
    gpu, whole = h100(), GemmShape(512, 512, 256, DT)
    least = least_us(gpu, whole, KernelClass(gpu.sms, gpu.sms)) / (512 * 512 * 256)
    sizes = [*range(16, 512, 48), 512]
    ratios = [
        area_us(gpu, GemmShape(m, n, k, DT), gpu.sms) / (m * n * k) / least
        for m, n, k in product(sizes, sizes, (64, 128, 192, 256))
    ]

    assert 1 <= min(ratios) < 1.05


@pytest.mark.slow
def test_is_near_the_best_shape_of_a_large_problem() -> None:
    """Shapes of whole tiles of 256 rows or columns, and of half and of all of the inner dimension."""
    gpu, whole = mi300x(), GemmShape(3328, 2560, 6912, DT)
    least = least_us(gpu, whole, KernelClass(gpu.sms, gpu.sms)) / (whole.m * whole.n * whole.k)
    shapes = (GemmShape(m, n, k, DT) for m, n, k in product(range(256, 3329, 256), range(256, 2561, 256), (3456, 6912)))
    ratios = [area_us(gpu, each, gpu.sms) / (each.m * each.n * each.k) / least for each in shapes]

    assert 1 <= min(ratios) < 1.03


SIZES = ((8192, 8192, 8192), (1024, 4096, 512), (640, 2304, 1280))


@pytest.mark.quick(2)
@pytest.mark.parametrize("case", thinned(product(GPUS, SIZES), 2))
def test_is_no_less_than_full_tiles_without_loss(case: tuple[str, tuple[int, int, int]]) -> None:
    name, (m, n, k) = case
    gpu, shape = GPUS[name], GemmShape(m, n, k, DT)
    least = least_us(gpu, shape, KernelClass(gpu.sms, gpu.sms))

    assert min_sm_ticks(gpu, shape) / TICKS_PER_US * (1 - 1e-5) <= least <= area_us(gpu, shape, gpu.sms)


def test_losses_that_no_cut_avoids_are_found() -> None:
    """A form that adds memory time and the latency of steps to the math makes every kernel of an MI300X slower."""
    gpu, shape = mi300x(), GemmShape(6656, 2560, 1024, DT)

    assert least_us(gpu, shape, KernelClass(gpu.sms, gpu.sms)) > 1.15 * min_sm_ticks(gpu, shape) / TICKS_PER_US
