"""Spans of a timeline: exposed communication against counting tick by tick, and against the figures of a Result."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.ir import Pattern
from magus.compiler.planning.build import build_op_plan
from magus.simcore import Timeline, simulate_op
from magus.simcore.figures.load_buckets import exposed_spans, overlap_ticks, total_ticks, union_of, union_ticks
from magus.simcore.figures.result import Interval, IntervalKind
from tests.helpers.scenarios.drawn import draw_choices, draw_scenario
from tests.helpers.some import some

INTERVALS = st.lists(
    st.builds(
        lambda kind, start, length: Interval(0, "lane", "name", kind, start, start + length),
        st.sampled_from(IntervalKind),
        st.integers(0, 40),
        st.integers(0, 12),
    ),
    max_size=12,
)


def covered(intervals: list[Interval]) -> set[int]:
    return {tick for each in intervals for tick in range(each.start_ticks, each.end_ticks)}


@given(INTERVALS)
def test_exposed_is_communication_without_a_kernel(intervals: list[Interval]) -> None:
    spans = exposed_spans(Timeline(1, 60, tuple(intervals), 1), 0)

    moved = covered([each for each in intervals if each.kind is IntervalKind.COMM])
    computed = covered([each for each in intervals if each.kind is not IntervalKind.COMM])
    assert {tick for start, end in spans for tick in range(start, end)} == moved - computed
    assert total_ticks(spans) == len(moved - computed)
    assert list(spans) == sorted(spans)


@given(INTERVALS)
def test_a_union_is_as_long_as_it_is_counted(intervals: list[Interval]) -> None:
    assert total_ticks(union_of(intervals)) == union_ticks(intervals) == len(covered(intervals))


@given(INTERVALS, INTERVALS)
def test_what_overlaps_lies_in_both(some_of_them: list[Interval], others: list[Interval]) -> None:
    spans = union_of(some_of_them), union_of(others)

    assert overlap_ticks(*spans) == overlap_ticks(*reversed(spans)) == len(covered(some_of_them) & covered(others))


@pytest.mark.parametrize("pattern", [Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.ALL_TO_ALL])
def test_the_sum_is_that_of_the_result(pattern: Pattern) -> None:
    rng = random.Random(pattern.value)
    scenario = draw_scenario(rng, pattern)
    for choice in some(draw_choices(rng, scenario, 4)):
        result = simulate_op(scenario, build_op_plan(scenario, choice))
        exposed = [total_ticks(exposed_spans(result.timeline, rank)) for rank in range(result.timeline.period)]

        assert result.union_ticks - result.compute_ticks in exposed, choice
