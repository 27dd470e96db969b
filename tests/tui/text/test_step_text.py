"""The answer about a step in text: what a framework has, where it has not the fastest schedule."""

from dataclasses import replace
from typing import Any

import pytest

from magus.advisor.steps.answer import StepAdvice, advise_step
from magus.advisor.steps.layer_times import LayerTimes
from magus.advisor.steps.outcome import outcome_of
from magus.advisor.steps.plans import flags_of
from magus.advisor.steps.search import Searched
from magus.advisor.steps.times import marks_of
from magus.compiler.ir.step import Pipeline, PipelineKind, StepSchedule
from magus.compiler.request.request import RequestError
from magus.tui.text.step import searched_text
from tests.helpers.steps import small_step


def test_a_framework_is_told_the_fastest_that_it_has() -> None:
    """Megatron-LM has no zero-bubble pipeline: the other one is recommended to it, as text and as JSON.

    DeepSpeed has neither.
    """
    step, times = small_step(), LayerTimes()
    kinds = PipelineKind.ZERO_BUBBLE, PipelineKind.ONE_F_ONE_B
    fast, plain = (outcome_of(step, StepSchedule(kind.value, Pipeline(kind)), times) for kind in kinds)
    assert fast.seconds < plain.seconds / 1.02, "they are no tie"

    def answer(framework: str) -> tuple[str, Any]:
        found = Searched((fast, plain), (), 2, 0, 0, framework=framework)
        return searched_text(step, found).replace("\n", " "), StepAdvice(step, found).document()

    text, document = answer("Megatron-LM")
    assert "Megatron-LM has not tp2" in text and f"at most {plain.seconds / fast.seconds - 1:.1%} faster" in text
    assert "--pipeline-model-parallel-size 2" in text
    assert document["recommended"]["pipeline"] == "one_f_one_b" and document["framework"] == "Megatron-LM"
    assert "--pipeline-model-parallel-size 2" in document["recommended"]["flags"]["Megatron-LM"]
    text, document = answer("DeepSpeed")
    assert "DeepSpeed has no layout of those that fit" in text and document["recommended"] is None
    text, document = answer("")
    assert "at most" not in text and document["recommended"]["pipeline"] == "zero_bubble"


def test_layers_that_are_not_even_are_told_to_megatron() -> None:
    """Stages of 5 and 3 layers are a layout of their own; even ones are none."""
    step, times = small_step(), LayerTimes()
    flags = [dict(flags_of(outcome_of(step, StepSchedule("s", stages=stages), times))) for stages in ((5, 3), ())]
    layouts = ["--pipeline-model-parallel-layout 'Et*5|t*3L'" in each["Megatron-LM"] for each in flags]
    assert layouts == [True, False]


def test_deepspeed_shares_states_among_ranks_of_data_alone() -> None:
    """Its stage is that of the step; ranks that share a layer it has not."""
    times = LayerTimes()
    found = [
        dict(flags_of(outcome_of(small_step(TP=tp, PP=1), StepSchedule("s", zero=zero), times))).get("DeepSpeed", "")
        for tp, zero in ((1, 1), (1, 3), (2, 3))
    ]
    assert ['"stage": 1' in found[0], '"stage": 3' in found[1], found[2]] == [True, True, ""]


def test_a_framework_that_is_not_known_is_refused() -> None:
    with pytest.raises(RequestError, match="did you mean 'torchtitan'"):
        advise_step("", framework="torchtian")


def test_columns_of_the_head_that_do_not_divide_are_told() -> None:
    """Of 8191 columns two ranks have 4096 each; of 8192 there is nothing to tell."""
    step = small_step(TP=2)
    odd = replace(step, step=replace(step.step, vocabulary=8191))
    said = [[each for each in marks_of(one, StepSchedule("s")) if "head" in each] for one in (step, odd)]
    assert not said[0] and "8191 columns of head are computed as 8192, 4096 on each of 2 ranks" in said[1][0]
