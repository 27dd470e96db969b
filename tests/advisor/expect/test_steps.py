"""Expectations about a training step: figures of its schedules, and of the layout that advice recommends."""

import pytest

from magus.advisor import Advisor
from magus.advisor.expect.run import CheckResult, ExpectationRunner
from magus.advisor.steps.layer_times import LayerTimes
from magus.advisor.steps.outcome import outcome_of
from magus.compiler import CompileError, compile_text
from tests.helpers.steps import TEXT, small_step

MORE = """
schedule turns for train {{ pipeline one_f_one_b; zero 1; overlap gradients, weights }}
explore train {{ TP 1, 2; PP 1, 2; pipeline one_f_one_b, zero_bubble }}
expect train {with_} {{ {statements} }}
"""


def results(statements: str, with_: str = "") -> list[CheckResult]:
    text = TEXT.format(more=MORE.format(statements=statements, with_=with_))
    return list(ExpectationRunner(lambda settings: compile_text(text, settings=settings), Advisor.load).run())


def test_figures_are_those_of_the_simulated_step() -> None:
    step = small_step("schedule turns for train { pipeline one_f_one_b; zero 1; overlap gradients, weights }")
    outcome = outcome_of(step, step.schedules[0], LayerTimes())
    found = results("show turns.makespan; show turns.memory; show turns.bubble; show turns.exposed;"
                    "show turns.tokens_per_s")  # fmt: skip

    values = [each.values[0].number for each in found]
    run = outcome.run
    expected = [outcome.seconds * 1e6, outcome.memory_bytes, run.bubble, run.exposed, outcome.tokens_per_gpu_s]
    assert values == pytest.approx(expected)
    assert all(value > 0 for value in values if not isinstance(value, str))


def test_best_is_no_slower_and_what_is_set_is_not_explored() -> None:
    free = results("best.makespan <= turns.makespan; show best.makespan")
    fixed = results("best.makespan <= turns.makespan; show best.makespan", "with TP = 4")

    assert all(each.passed for each in (*free, *fixed))
    assert free[1].values != fixed[1].values
    assert fixed[0].values[0].number == pytest.approx(fixed[0].values[1].number, rel=0.2), "both have groups of four"


def test_a_statement_that_does_not_hold_fails_with_the_value_and_the_published_one() -> None:
    wrong, large = results('turns.memory <= 1 GiB published "2 GiB"; turns.tokens_per_s > 1000')

    assert (wrong.passed, large.passed) == (False, True)
    assert "GiB" in wrong.found
    assert wrong.check.published == "2 GiB"


@pytest.mark.slow
def test_a_sweep_compiles_the_layout_again() -> None:
    (swept,) = results("sweep TP in 1, 2, 4 { turns.makespan > 1 us }")

    assert swept.passed
    assert len({point.values[0].number for point in swept.points}) == 3


@pytest.mark.parametrize(
    ("statement", "code", "message"),
    [
        ("turns.dil < 2", "MGS201", "the schedule of a step has no metric 'dil'"),
        ("serial.makespan < 1 s", "MGS203", "unknown schedule 'serial'"),
        ("verdict == overlap", "MGS573", "a step has no verdict"),
        ("seeds 4; turns.bubble < 1", "MGS573", "a step has no seeds"),
        ("granularity packet; turns.bubble < 1", "MGS573", "a step has no granularity"),
        ("turns.layer.makespan < 1 s", "MGS203", "figures of single ops"),
        ("turns.memory < 1 s", "MGS303", "memory"),
    ],
)
def test_what_no_step_has(statement: str, code: str, message: str) -> None:
    with pytest.raises(CompileError, match=message) as caught:
        results(statement)
    assert code in {each.code.name for each in caught.value.diagnostics}


def test_a_layer_has_no_figures_of_steps() -> None:
    text = TEXT.format(more="expect layer { best.bubble < 1 }")
    with pytest.raises(CompileError, match="a schedule has no metric 'bubble'"):
        compile_text(text)
