"""Plans that are wrong on purpose are found out, whatever the order in which threads happen to run."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from magus.compiler.codes import Code
from magus.compiler.ir import IndexRange, OpCase, OpPlan, Pattern, Transfer
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.verify.check import check_plan
from magus.runtime import Outcome, carry_out
from magus.runtime.run import job_of_op
from tests.helpers.marks import thinned
from tests.helpers.plans.wrong_plans import changed
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of

QUICK = (
    (Pattern.AG_GEMM, 2, "hetero_fused_1d(chunks=4, engine=sm(8))"),
    (Pattern.AG_GEMM, 3, "pipelined(chunks=3, engine=dma(2))"),
    (Pattern.GEMM_RS, 2, "hetero_fused_1d(chunks=4, engine=dma(1))"),
    (Pattern.GEMM_RS, 3, "pipelined(chunks=3, engine=dma(2))"),
    (Pattern.GEMM_AR, 2, "uniform_fused_1d(chunks=4, engine=sm(8))"),
    (Pattern.A2A_GEMM, 2, "uniform_fused_2d(chunks=4, engine=sm(8))"),
    (Pattern.ALL_REDUCE, 3, "ring(chunks=3, engine=sm(8))"),
    (Pattern.ALL_REDUCE, 3, "direct(chunks=3, engine=dma(2))"),
    (Pattern.ALL_GATHER, 3, "ring(chunks=3, engine=sm(8))"),
    (Pattern.ALL_TO_ALL, 3, "direct(chunks=3, engine=sm(8))"),
)
SLOW = (
    (Pattern.AG_GEMM, 4, "uniform_fused_2d(chunks=8, engine=sm(8), transfer=get)"),
    (Pattern.AG_GEMM, 4, "pipelined(chunks=8, engine=sm(8), algorithm=halving_doubling)"),
    (Pattern.GEMM_RS, 4, "hetero_unfused_1d(chunks=8, engine=dma(3))"),
    (Pattern.GEMM_AR, 4, "pipelined(chunks=4, engine=sm(8), algorithm=one_shot)"),
    (Pattern.GEMM_AR, 4, "shard_p2p(engine=sm(8))"),
    (Pattern.GEMM_A2A_GEMM, 4, "hetero_fused_1d(chunks=8, engine=dma(3))"),
    (Pattern.ALL_REDUCE, 4, "halving_doubling(chunks=8, engine=sm(8))"),
    (Pattern.ALL_REDUCE, 4, "one_shot(chunks=4, engine=dma(3))"),
    (Pattern.REDUCE_SCATTER, 4, "ring(chunks=8, engine=sm(8))"),
    (Pattern.GEMM_BESIDE_AG, 4, "bulk(chunks=8, engine=sm(8))"),
)


def scheduled(pattern: Pattern, ranks: int, expression: str) -> tuple[OpCase, OpPlan]:
    scenario = scenario_of(pattern, SYSTEMS[0], ranks, ranks * 64, ranks * 64, ranks * 128)
    return scenario, resolve_schedule(scenario, expression)


def harms(scenario: OpCase, schedule: OpPlan) -> bool | None:
    """Whether the check of plans finds what makes results wrong; None where it may or may not.

    What comes a second time may be what another rank lacks. Copies beside kernels against the word of the plan harm no
    result.
    """
    faults = [fault for fault in check_plan(scenario, schedule) if fault.code is not Code.MGS513]
    if faults and all(fault.code is Code.MGS501 and "a second time" in fault.message for fault in faults):
        return None
    return bool(faults)


def changes(pattern: Pattern, ranks: int, expression: str) -> Iterator[tuple[str, OpCase, OpPlan]]:
    scenario, schedule = scheduled(pattern, ranks, expression)
    yield from ((what, scenario, other) for what, other in changed(schedule, ranks))


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("pattern", "ranks", "expression"), [*QUICK, *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW)]
)
def test_every_harmful_change_is_found_and_no_other(pattern: Pattern, ranks: int, expression: str) -> None:
    found = [
        (what, harms(scenario, schedule), carry_out(*job_of_op(scenario, schedule)).runs[-1])
        for what, scenario, schedule in changes(pattern, ranks, expression)
    ]

    assert [(what, run) for what, harmful, run in found if harmful is (run.outcome is Outcome.EXACT)] == []
    assert sum(harmful is True for _, harmful, _ in found) > 10


@pytest.mark.parametrize("seed", thinned(range(8), 4))
def test_a_wait_left_out_is_found_in_any_run(seed: int) -> None:
    scenario, schedule = scheduled(Pattern.AG_GEMM, 2, "serial(engine=dma(1))")
    (kernel,) = [step for step in schedule.steps if step.after]
    early = replace(
        schedule, steps=tuple(replace(step, after=()) if step is kernel else step for step in schedule.steps)
    )
    (run,) = carry_out(*job_of_op(scenario, early), [seed]).runs

    assert run.outcome is Outcome.FAULT
    assert run.sentences[0].startswith(
        ("rank 0: g0 reads rows 0:64, columns 0:256 of block 1 of x_gathered, ", "rank 1: g0 reads")
    )
    assert run.sentences[0].endswith(
        (
            "which nothing has written yet",
            "and x1 of rank 1 writes them, in no order",
            "of rank 0 writes them, in no order",
        )
    )


def test_two_puts_that_race_are_named() -> None:
    scenario, schedule = scheduled(Pattern.ALL_GATHER, 2, "direct(chunks=2, engine=dma(1))")
    (put,) = schedule.steps
    assert isinstance(put, Transfer)
    again = replace(put, name="again", signal="s_again")
    (run,) = carry_out(*job_of_op(scenario, replace(schedule, steps=(put, again)))).runs

    assert run.outcome is Outcome.FAULT
    assert "rows 0:64, columns 0:256 of block" in run.sentences[0]
    assert run.sentences[0].endswith("in no order")


def test_a_wrong_result_names_rank_region_and_who_writes_it() -> None:
    scenario, schedule = scheduled(Pattern.ALL_GATHER, 3, "direct(chunks=3, engine=dma(2))")
    first, second = schedule.steps
    assert isinstance(first, Transfer)
    short = replace(first, region=replace(first.region, rows=IndexRange(0, 32)))
    (run,) = carry_out(*job_of_op(scenario, replace(schedule, steps=(short, second)))).runs

    assert run.outcome is Outcome.WRONG
    assert run.sentences == (
        "rank 0 has nothing in rows 32:64, columns 0:384 of block 2 of y, which no step writes",
        "rank 1 has nothing in rows 32:64, columns 0:384 of block 0 of y, which no step writes",
        "rank 2 has nothing in rows 32:64, columns 0:384 of block 1 of y, which no step writes",
    )


def test_a_wrong_step_is_named_with_what_it_wrote() -> None:
    scenario, schedule = scheduled(Pattern.ALL_TO_ALL, 2, "direct(chunks=2, engine=dma(1))")
    (put,) = schedule.steps
    assert isinstance(put, Transfer)
    own = replace(put, region=replace(put.region, owner=0))
    (run,) = carry_out(*job_of_op(scenario, replace(schedule, steps=(own,)))).runs

    assert run.outcome is Outcome.WRONG
    assert run.sentences[0].startswith("rank 0 has ")
    assert run.sentences[0].endswith(" in rows 0:64, columns 0:256 of block 1 of x, written by rank 1: x1")


def test_parts_that_nobody_sums_are_named() -> None:
    scenario, schedule = scheduled(Pattern.REDUCE_SCATTER, 2, "direct(chunks=2, engine=dma(1))")
    put = schedule.steps[0]
    assert isinstance(put, Transfer)
    twice = replace(schedule, steps=(*schedule.steps, replace(put, name="again", signal="s_again")))
    (run,) = carry_out(*job_of_op(scenario, twice)).runs

    assert run.outcome is Outcome.WRONG
    assert run.sentences[0] == "rank 1: again brings rows 0:64, columns 0:256 of block 0 of x, which rank 0 never sums"


def test_steps_that_wait_for_ever_are_named_with_what_they_wait_for() -> None:
    scenario, schedule = scheduled(Pattern.AG_GEMM, 2, "shard_p2p(engine=dma(1))")
    steps = {step.name: step for step in schedule.steps}
    lost = replace(steps["g1"], after=("nowhere",))
    knot = replace(steps["x1"], after=("g1",))
    wrong = replace(schedule, steps=tuple({"g1": lost, "x1": knot}.get(step.name, step) for step in schedule.steps))
    (run,) = carry_out(*job_of_op(scenario, wrong)).runs

    assert run.outcome is Outcome.DEADLOCK
    assert run.sentences == (
        "rank 0: x1 waits for g1",
        "rank 0: g1 waits for nowhere, which nothing sets",
        "rank 1: x1 waits for g1",
        "rank 1: g1 waits for nowhere, which nothing sets",
    )


def test_a_step_behind_another_in_its_queue_says_so() -> None:
    scenario, schedule = scheduled(Pattern.AG_GEMM, 2, "shard_p2p(engine=dma(1))")
    steps = tuple(replace(step, after=("nowhere",)) if step.name == "g0" else step for step in schedule.steps)
    (run,) = carry_out(*job_of_op(scenario, replace(schedule, steps=steps))).runs

    assert run.sentences[1] == "rank 0: g1 waits for g0, before it in stream 0"


def test_many_steps_that_wait_are_counted() -> None:
    scenario, schedule = scheduled(Pattern.AG_GEMM, 4, "hetero_unfused_1d(chunks=8, engine=dma(3))")
    steps = tuple(replace(step, after=("nowhere",)) for step in schedule.steps)
    (run,) = carry_out(*job_of_op(scenario, replace(schedule, steps=steps))).runs

    assert len(run.sentences) == 9
    assert run.sentences[-1] == f"{4 * len(steps) - 8} more steps wait"
