"""The answer about a step in text: what a framework has, where it has not the fastest schedule."""

from dataclasses import replace
from typing import Any

import pytest

from magus.advisor.steps.answer import StepAdvice, advise_step, marks_of
from magus.advisor.steps.layer_times import LayerTimes
from magus.advisor.steps.outcome import outcome_of
from magus.advisor.steps.plans import flags_of
from magus.advisor.steps.space import Searched
from magus.compiler import compile_text
from magus.compiler.ir import TICKS_PER_SECOND, TICKS_PER_US
from magus.compiler.ir.step import Pipeline, PipelineKind, StepSchedule
from magus.compiler.request.request import RequestError
from magus.compiler.text.units import axis_unit, lasting_text, seconds_text, span_text
from magus.tui.text.step import figures_of, searched_text
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


KEEPS = """use "nvidia/h100"
system node { gpus 8 x H100; fabric switch(nvswitch, link=nvlink); mesh tp 2, dp 4 }
workload layer on node.tp {
  x = tensor bf16[4096, 2048] shard rows
  wqkv = tensor bf16[2048, 3072] shard cols
  wo = tensor bf16[2048, 2048] shard rows
  wup = tensor bf16[2048, 16384] shard cols
  wdn = tensor bf16[8192, 2048] shard rows
  qkv = gemm(all_gather(norm(x)), wqkv)
  a = attention(qkv, heads=16, kv_heads=4, causal=yes)
  r = add(x, reduce_scatter(gemm(a, wo)))
  u = gemm(all_gather(norm(r)), wup)
  y = add(r, reduce_scatter(gemm(swiglu(u), wdn)))
  repeat 8 y as x
}
workload train on node { step layer; sequences 16 x 4096 }
schedule core for train { keep qkv, r, u; zero 3 }
schedule both for train { keep qkv, r; zero 3 }
schedule half for train { keep qkv, a, u; zero 3 }
schedule few for train { keep a; zero 3 }
schedule every for train { zero 3 }
"""


def test_what_is_kept_is_told_to_frameworks_that_can_keep_it() -> None:
    """Megatron-LM makes modules again, torchtitan every second product; what neither can is offered to neither."""
    step, times = compile_text(KEEPS).step(), LayerTimes()
    assert step is not None
    flags = {each.name: dict(flags_of(outcome_of(step, each, times))) for each in step.schedules}
    modules = {name: each.get("Megatron-LM", "").partition("--recompute-modules ")[2] for name, each in flags.items()}
    assert modules == {"core": "core_attn", "both": "core_attn mlp", "half": "", "few": "", "every": ""}
    assert "activation_checkpoint.selective_ac_option=op" in flags["half"]["torchtitan"]
    assert {name: sorted(each) for name, each in flags.items()} == {
        "core": ["Megatron-LM"],
        "both": ["Megatron-LM"],
        "half": ["torchtitan"],
        "few": [],
        "every": ["MaxText", "Megatron-LM", "torchtitan"],
    }


def test_a_framework_that_is_not_known_is_refused() -> None:
    with pytest.raises(RequestError, match="did you mean 'torchtitan'"):
        advise_step("", framework="torchtian")


def test_columns_of_the_head_that_do_not_divide_are_told() -> None:
    """Of 8191 columns two ranks have 4096 each; of 8192 there is nothing to tell."""
    step = small_step(TP=2)
    odd = replace(step, step=replace(step.step, vocabulary=8191))
    said = [[each for each in marks_of(one, StepSchedule("s")) if "head" in each] for one in (step, odd)]
    assert not said[0] and "8191 columns of head are computed as 8192, 4096 on each of 2 ranks" in said[1][0]
    alone = small_step(TP=1)
    whole = replace(alone, step=replace(alone.step, vocabulary=8191))
    found = Searched((outcome_of(whole, StepSchedule("s"), LayerTimes()),), (), 1, 0, 0)
    assert not [each for each in StepAdvice(odd, found).marks if "head" in each], "one rank has all columns"


def test_times_of_a_small_step_are_in_us() -> None:
    """All parts have the unit of the step that they are parts of."""
    assert seconds_text(TICKS_PER_SECOND * 7) == "7.000 s" and seconds_text(87 * TICKS_PER_US) == "87.0 us"
    assert seconds_text(12 * TICKS_PER_US, TICKS_PER_SECOND) == "0.000 s"


def test_all_times_of_a_step_have_its_unit() -> None:
    short, long = 3346 * TICKS_PER_US, 7 * TICKS_PER_SECOND
    start, end = 12 * TICKS_PER_US, 633 * TICKS_PER_US

    assert axis_unit(short) == ("us", TICKS_PER_US) and axis_unit(long) == ("s", TICKS_PER_SECOND)
    assert span_text(start, end, short) == "12.0 to 633.0 us" and lasting_text(end - start, short) == "621.0 us"
    assert span_text(start, end, long) == "0.0000 to 0.0006 s" and lasting_text(end - start, long) == "0.0006 s"
    times = {name: time for name, time, _ in figures_of(outcome_of(small_step(), StepSchedule("usual"), LayerTimes()))}
    assert all(time.endswith(" us") for time in times.values()) is times["step"].endswith(" us")
