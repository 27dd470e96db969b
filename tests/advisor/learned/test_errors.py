"""Intervals that cover nine of ten errors of estimates, and what they do to a promise."""

import math

import pytest

from magus.advisor import AdviceOptions, Advisor
from magus.advisor.implementations.predict import KERNEL_ERROR, MOST_ERROR, kernel_promise
from magus.advisor.learned.pipeline import COVERED, EstimateErrors, Found
from magus.compiler import compile_text
from magus.compiler.ir import Scenario
from magus.compiler.resolve.expect.expectation import Verdict

DECLARED = """
use "nvidia/h100"
system hgx { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }
workload w on hgx {
  h = tensor bf16[8192, 28672] shard cols
  w = tensor bf16[28672, 8192] shard rows
  y = reduce_scatter(gemm(h, w))
}
"""
ERRORS = [1.0 + 0.01 * place for place in range(99)]


def test_nine_of_ten_are_covered() -> None:
    low, high = EstimateErrors.of(Found(1.0, error, error, 2.0, 2.0) for error in ERRORS).time

    covered = sum(low <= math.log(error) <= high for error in ERRORS) / len(ERRORS)
    assert COVERED <= covered <= COVERED + 0.03


def test_a_gain_is_off_by_both_times() -> None:
    alike = EstimateErrors.of(Found(1.0, error, error, 2 * error, 2.0) for error in ERRORS)
    slower = EstimateErrors.of(Found(1.0, error, error, 2.0, 2.0) for error in ERRORS)

    assert alike.gain == pytest.approx((0.0, 0.0)), "both are off by as much"
    assert slower.gain == pytest.approx((-slower.time[1], -slower.time[0]))


def test_without_a_search_nothing_is_known() -> None:
    assert EstimateErrors.of([Found()]) == EstimateErrors.of([]) == EstimateErrors((0.0, 0.0), (0.0, 0.0))


def test_what_was_estimated_promises_less() -> None:
    simulated, estimated = kernel_promise(1.3, 500.0, 0.08), kernel_promise(1.3, 500.0, 0.08, (0.04,))

    assert (simulated.error, simulated.verdict) == (KERNEL_ERROR, Verdict.OVERLAP)
    assert estimated.error == pytest.approx((1 + KERNEL_ERROR) * 1.04 - 1)
    assert estimated.verdict is Verdict.WORTH_TRYING
    worst = kernel_promise(2.0, 500.0, 0.5, (0.65,)).interval
    assert worst == pytest.approx((2.0 / (1 + MOST_ERROR), 2.0 / (1 - MOST_ERROR)))


def test_an_estimate_of_what_the_file_declares_promises_no_more_than_one_of_a_proposal() -> None:
    declared = compile_text(f"{DECLARED}schedule shards for w = shard_p2p()").scenario().case
    advice = Advisor.load().recommend(Scenario.of_one(declared), AdviceOptions(verify=False))

    assert advice.recommended.gain_error is None and advice.promise is not None
    assert advice.promise.error is not None and advice.promise.error > KERNEL_ERROR
