"""The file of an answer about a model: the setting that it names, with its gain, or why there is none."""

from dataclasses import replace

import pytest

from magus.advisor import model_question
from magus.advisor.answer.switches import LayerSizes, Switched
from magus.advisor.implementations.offers import Offers
from magus.advisor.implementations.predict import Promise
from magus.advisor.layers.transformer_engine import TeMethods
from magus.advisor.questions.ask import ModelAnswer
from magus.advisor.targets import Refused
from magus.compiler.codes import Code
from magus.compiler.resolve.schedules.from_text import SERIAL
from tests.advisor.layers.offers.test_te_layers import graph_of
from tests.advisor.targets.test_graph_targets import blocks, offered, python_of, te_offer
from tests.helpers.layer_advice import advice_by_hand

GAIN = Promise(1.25, None)


def answer_for(framework: str, back: TeMethods | None = None, gain: Promise = GAIN) -> ModelAnswer:
    """An answer whose first switch gains so much; the backward pass by these methods."""
    scenarios = (graph_of("layer"), graph_of("back"))
    offers = (te_offer(scenarios[0]), te_offer(scenarios[1], back))
    advice = tuple(
        replace(
            advice_by_hand(scenario, SERIAL, 1000, 1000), offers=Offers("torch_nccl", 1000.0, (offered(each, 800),))
        )
        for scenario, each in zip(scenarios, offers, strict=True)
    )
    serves = framework == "vllm"
    question = model_question("llama-3.2-1b", "h100", framework, tp=4, train=not serves)
    switch = Switched(question.facts.switches[0], gain, LayerSizes(4096, 1024, 0, 0))
    return ModelAnswer(question, 2000.0, 2000.0, (switch,), (), advice)


def test_both_passes_are_one_file() -> None:
    layers, arguments = python_of(answer_for("transformer-engine").file)
    yaml = answer_for("megatron").file

    assert {"qkv_fprop", "fc2_fprop", "fc2_dgrad", "qkv_wgrad"} <= set(layers)
    assert arguments == {"ub_tp_comm_overlap": True}
    assert set(blocks(yaml)) == set(layers)
    assert "# flags: --tp-comm-overlap --tp-comm-overlap-cfg FILE" in yaml
    for text in (yaml, answer_for("transformer-engine").file):
        assert "1.25x over today (error not measured)" in text


def test_passes_that_want_different_flags_are_refused() -> None:
    with pytest.raises(Refused, match="one flag is for both") as caught:
        _ = answer_for("transformer-engine", TeMethods(gathers=False)).file
    assert caught.value.rejection.code is Code.MGS550 and "magus export" in caught.value.rejection.hint


def test_the_file_of_a_framework_without_tables_is_its_setting() -> None:
    answer = answer_for("vllm", gain=Promise(1.25, 0.1))
    assert answer.first is not None
    text = answer.file

    assert answer.document()["file"] == text and answer.document()["no_file"] is None
    assert text.endswith(f"\n{answer.first.setting}\n") and '"sp_min_token_num": 4096' in text
    assert "1.25x over today (1.14x to" in text


def test_a_file_for_another_version_says_of_which_it_is_known() -> None:
    answer = answer_for("megatron")
    newer = replace(answer, question=replace(answer.question, framework="megatron@0.15"))

    more = set(newer.file.splitlines()) - set(answer.file.splitlines())
    assert "# this is known of core 0.14: options and defaults of Megatron-LM 0.15 may differ" in more
    assert blocks(newer.file) == blocks(answer.file)


def test_where_nothing_pays_there_is_no_file() -> None:
    with pytest.raises(Refused, match="nothing that vLLM can switch on pays here") as caught:
        _ = answer_for("vllm", gain=Promise(0.9, None)).file
    assert caught.value.rejection.code is Code.MGS550
