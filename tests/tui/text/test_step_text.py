"""The answer about a step in text: what a framework has, where it has not the fastest schedule."""

from magus.advisor.steps.layer_times import LayerTimes
from magus.advisor.steps.outcome import outcome_of
from magus.advisor.steps.search import Searched
from magus.compiler.ir.step import Pipeline, PipelineKind, StepSchedule
from magus.tui.text.step import searched_text
from tests.helpers.steps import small_step


def test_a_framework_is_told_the_fastest_that_it_has() -> None:
    """Megatron-LM has no zero-bubble pipeline: it is told of the other one, with its flags; DeepSpeed has neither."""
    step, times = small_step(), LayerTimes()
    kinds = PipelineKind.ZERO_BUBBLE, PipelineKind.ONE_F_ONE_B
    fast, plain = (outcome_of(step, StepSchedule(kind.value, Pipeline(kind)), times) for kind in kinds)
    assert fast.seconds < plain.seconds / 1.02, "they are no tie"
    found = Searched((fast, plain), (), 2, 0, 0)
    text = searched_text(step, found, framework="Megatron-LM")
    slower = f"({plain.seconds / fast.seconds - 1:+.1%})"
    assert "Megatron-LM has not this schedule" in text and slower in text.replace("\n", " ")
    assert "--pipeline-model-parallel-size 2" in text
    assert "DeepSpeed has none of these schedules." in searched_text(step, found, framework="DeepSpeed")
