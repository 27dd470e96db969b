"""Kernels that keep up with links: against all ways to batch a small problem, and in closed form."""

import random
from collections.abc import Iterator
from itertools import accumulate

import numpy as np
import pytest

from magus.advisor.bounds.boxes import Floats
from magus.advisor.bounds.kernels import Ratios
from magus.advisor.bounds.terms import CELLS, FedKernels

ENDS = np.arange(1, CELLS + 1) / CELLS
SMS, GRAINS = 10, 11


def kernels_of(launch: float, each: float) -> Ratios:
    """Kernels that hold all SMs for ``launch`` and then ``each`` for an operation, of 1000 operations."""
    sizes = np.linspace(10, 1000, 200)
    costs = SMS * (launch + each * sizes) / sizes
    times = launch + each * sizes
    # Under a limit are the sizes up to the one before it; beyond the last limit all are.
    return Ratios(np.append(times, np.inf), np.append(costs, costs[-1]), sizes, costs)


def pipeline(ratios: Ratios, begins: Floats, *, dealt: bool = False) -> FedKernels:
    return FedKernels(ratios, 1000.0, ENDS, begins, SMS, SMS, dealt=dealt)


def arriving(own: float, busy: float) -> Floats:
    """When each share can have arrived, of which ``own`` is there from the start."""
    first = np.append(0.0, ENDS[:-1])
    return np.where(first < own, 0.0, busy * (first - own) / (1 - own))


def batches(grains: int) -> Iterator[tuple[int, ...]]:
    if not grains:
        yield ()
    for size in range(1, grains + 1):
        for rest in batches(grains - size):
            yield (size, *rest)


def fastest(launch: float, each: float, own: float, busy: float) -> float:
    """The fastest of all ways to batch the operations in whole grains, in the order of arrival."""
    times = list[float]()
    for parts in batches(GRAINS):
        now = 0.0
        for size, end in zip(parts, accumulate(parts), strict=True):
            come = max(0.0, (end / GRAINS - own) / (1 - own)) * busy
            now = max(now, come) + launch + each * size * 1000 / GRAINS
        times.append(now)
    return min(times)


@pytest.mark.parametrize("seed", range(12))
def test_no_batches_are_faster_and_the_best_are_near(seed: int) -> None:
    rng = random.Random(seed)
    launch, each, own = rng.choice((1.0, 5.0, 20.0)), 0.1, rng.choice((0.1, 0.25, 0.5))
    busy = rng.choice((20.0, 60.0, 90.0, 110.0, 200.0))
    least = pipeline(kernels_of(launch, each), arriving(own, busy)).least_us()

    assert 0.75 < least / fastest(launch, each, own, busy) <= 1


def test_what_is_there_at_once_takes_what_all_takes() -> None:
    ratios = kernels_of(5.0, 0.1)

    assert pipeline(ratios, np.full(CELLS, 2.0)).least_us() == pytest.approx(2 + 5 + 100, rel=1e-4)


def test_slow_links_and_free_launches_leave_the_last_operations_alone() -> None:
    least = pipeline(kernels_of(0.0, 0.1), arriving(0.1, 1000.0)).least_us()

    assert 985 < least < 1001


def test_links_as_fast_as_kernels_make_small_kernels_dear() -> None:
    """All that is there when a kernel begins limits its size where neither links nor kernels may ever wait."""
    balanced = pipeline(kernels_of(5.0, 0.1), arriving(0.1, 90.0)).least_us()
    at_once = pipeline(kernels_of(5.0, 0.1), np.zeros(CELLS)).least_us()

    assert balanced > 1.1 * at_once


def test_units_that_are_dealt_anywhere_are_bounded_by_their_sum() -> None:
    ratios, begins = kernels_of(5.0, 0.1), arriving(0.1, 90.0)

    assert pipeline(ratios, begins, dealt=True).least_us() < pipeline(ratios, begins).least_us()


def test_sums_come_on_top() -> None:
    ratios = kernels_of(0.0, 0.1)
    beside = FedKernels(ratios, 1000.0, ENDS, np.full(CELLS, 2.0), SMS, SMS, first=2.0, others=200.0)

    assert beside.least_us() == pytest.approx(2 + 100 + 20, rel=1e-3)


def test_copies_take_their_share_of_the_sms() -> None:
    """250 SM us of copies in a time T leave 10 - 250 / T SMs: 1000 of kernels end at T = 125."""
    ratios = kernels_of(0.0, 0.1)
    beside = FedKernels(ratios, 1000.0, ENDS, np.zeros(CELLS), SMS, SMS, copies=250.0)

    assert beside.least_us() == pytest.approx(125, rel=1e-3)
