"""A step as it is composed against one program of all its ranks, which follow each other as the schedule says."""

import pytest

from benchmarks.harness.joint_step import joint_ticks, step_of
from magus.advisor.steps.layer_times import LayerTimes
from magus.compiler.ir.step import Overlapped, StepSchedule

UNIT = 1 << 17
pytestmark = pytest.mark.usefixtures("compiled_core")


@pytest.mark.parametrize("overlapped", [(), tuple(Overlapped)], ids=["behind", "beside"])
def test_a_step_takes_as_long_as_one_program_of_all_ranks(overlapped: tuple[Overlapped, ...]) -> None:
    step = step_of(2, 2, 2, layers=2, microbatches=2)
    composed, joint = joint_ticks(step, StepSchedule("s", overlapped=overlapped), LayerTimes(), UNIT)
    assert composed == pytest.approx(joint, rel=0.01)


@pytest.mark.slow
def test_one_rank_of_each_stage_stands_for_all() -> None:
    """All eight ranks take as long as the one of each stage that is written for those that are alike."""
    step, times = step_of(2, 2, 2, layers=2, microbatches=2), LayerTimes()
    schedule = StepSchedule("s", overlapped=tuple(Overlapped))
    folded, whole = (joint_ticks(step, schedule, times, UNIT, fold=fold) for fold in (True, False))
    assert folded == whole
