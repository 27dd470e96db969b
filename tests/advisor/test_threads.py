"""One Advisor in many threads: each gets the answer that it would get alone."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

import numpy as np
import pytest
from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

from magus.advisor import AdviceOptions, Advisor, lower_bound
from magus.advisor.bounds.kernels import KernelClass, least_ratios
from magus.compiler.ir import DType, EngineChoice, EngineKind, Explore, GemmShape, Scenario
from tests.helpers.scenarios.scenarios import ag_gemm, exploring, mi300x

THREADS = 4
DMA = EngineChoice(EngineKind.DMA, 7)

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(work: Callable[[], T]) -> list[T]:
    """What ``work`` gives to threads that begin at the same time."""
    barrier = Barrier(THREADS)

    def begin(_: int) -> T:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


@pytest.mark.slow
def test_the_search_behind_the_bound_is_shared() -> None:
    kind = KernelClass(1, 300)
    alone = least_ratios(mi300x(), GemmShape(500, 1000, 700, DType.BF16), kind)
    # Another shape of the same size, which nobody has asked for yet.
    found = together(lambda: least_ratios(mi300x(), GemmShape(1000, 500, 700, DType.BF16), kind))

    assert all(np.array_equal(each.of_times, found[0].of_times) for each in found)
    again = least_ratios(mi300x(), GemmShape(500, 1000, 700, DType.BF16), kind)
    assert np.array_equal(alone.of_times, again.of_times)


@pytest.mark.slow
def test_bounds_are_the_same() -> None:
    scenario = ag_gemm(1536, 2048, 7168)
    assert len(set(map(str, together(lambda: lower_bound(scenario))))) == 1


def test_proposals_are_the_same_and_leave_the_threads_of_others_alone() -> None:
    model = Advisor.load().proposals
    assert model is not None
    before = [pool["num_threads"] for pool in threadpool_info()]

    found = together(lambda: str(model.propose(ag_gemm(1536, 2048, 7168))))

    assert len(set(found)) == 1 and "Proposal(" in found[0]
    assert [pool["num_threads"] for pool in threadpool_info()] == before


@pytest.mark.slow
def test_one_advisor_answers_many() -> None:
    advisor = Advisor.load()
    scenario = exploring(ag_gemm(1024, 1536, 4096), Explore.of(chunks=(8, 16), engine=(DMA,)))

    answers = together(lambda: advisor.recommend(Scenario.of_one(scenario), AdviceOptions(top=2, bespoke=20)))

    assert all(advice.notes == () for advice in answers)
    assert len({(advice.recommended.expression, str(advice.candidates)) for advice in answers}) == 1
