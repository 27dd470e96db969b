"""A step as it is composed against one program of all its ranks, which follow each other as the schedule says."""

import pytest

from benchmarks.harness.joint_step import joint_ticks, step_of
from magus.advisor.steps.layer_times import LayerTimes
from magus.advisor.steps.outcome import outcome_of
from magus.compiler.ir.step import Overlapped, PassKind, Pipeline, PipelineKind, StepSchedule
from tests.helpers.marks import first
from tests.helpers.some import some

UNIT = 1 << 17
ZERO_BUBBLE = Pipeline(PipelineKind.ZERO_BUBBLE)
pytestmark = pytest.mark.usefixtures("compiled_core")


@pytest.mark.slow
@pytest.mark.parametrize("overlapped", first([tuple(Overlapped), ()], 1), ids=["beside", "behind"])
def test_a_step_takes_as_long_as_one_program_of_all_ranks(overlapped: tuple[Overlapped, ...]) -> None:
    step = step_of(2, 2, 2, layers=2, microbatches=2)
    composed, joint = joint_ticks(step, StepSchedule("s", overlapped=overlapped), LayerTimes(), UNIT)
    assert composed == pytest.approx(joint, rel=0.01)


def test_a_dual_pipeline_takes_as_long_as_one_program_of_all_ranks() -> None:
    """Each layer forward beside one backward: sooner than one behind the other, and as one program says."""
    step, times = step_of(4, 1, 2, layers=2, microbatches=4), LayerTimes()
    dual = StepSchedule("s", Pipeline(PipelineKind.DUAL))
    composed, joint = joint_ticks(step, dual, times, UNIT)
    assert composed == pytest.approx(joint, rel=0.01)
    run = outcome_of(step, dual, times).run
    both = [each for each in run.pipeline.intervals if len(each.slot) == 2]
    singles = [each for each in run.pipeline.intervals if len(each.slot) == 1]
    forward, backward = (
        next(each.end_ticks - each.begin_ticks for each in singles if each.slot[0].work is work)
        for work in (PassKind.FORWARD, PassKind.BACKWARD)
    )
    assert all(each.end_ticks - each.begin_ticks < forward + backward for each in some(both))


@pytest.mark.slow
def test_sends_that_wait_behind_kernels_are_in_the_time_of_a_step() -> None:
    """Of four stages each goes on with gradients of weights as it sends: a send gets SMs behind a product.

    What gives gradients of inputs is by itself shorter than as the rest of a whole pass, which is 0.7 % of the step.
    """
    step, times = step_of(2, 1, 4, layers=4, microbatches=4), LayerTimes()
    schedule = StepSchedule("s", ZERO_BUBBLE)
    composed, joint = joint_ticks(step, schedule, times, UNIT)
    assert composed == pytest.approx(joint, rel=0.003)
    apart = outcome_of(step, schedule, LayerTimes(contended=False)).run.makespan_ticks
    assert apart < 0.98 * joint, "as long as if sends met nothing"


@pytest.mark.slow
def test_a_zero_bubble_moves_weights_in_parts_once_forward_and_once_backward() -> None:
    """Gradients of inputs take weights; those of weights take none, and leave behind them."""
    step, schedule = step_of(2, 2, 2, layers=4, microbatches=4), StepSchedule("s", ZERO_BUBBLE, zero=3)
    composed, joint = joint_ticks(step, schedule, LayerTimes(), UNIT)
    assert composed == pytest.approx(joint, rel=0.003)


@pytest.mark.slow
def test_one_rank_of_each_stage_stands_for_all() -> None:
    """All eight ranks take as long as the one of each stage that is written for those that are alike."""
    step, times = step_of(2, 2, 2, layers=2, microbatches=2), LayerTimes()
    schedule = StepSchedule("s", overlapped=tuple(Overlapped))
    folded, whole = (joint_ticks(step, schedule, times, UNIT, fold=fold) for fold in (True, False))
    assert folded == whole
