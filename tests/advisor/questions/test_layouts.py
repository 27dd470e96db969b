"""Which layout serves a model: the same times as one question, memory on both sides, what cannot be, one answer."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from magus.advisor import Advisor, RequestError, ask, layout_question
from magus.advisor.questions.ask import LayoutAnswer
from magus.advisor.questions.layouts import ServingLayout, compare_layouts, serving_memory
from magus.compiler.codes import Code
from magus.compiler.from_model.frameworks import framework_named
from magus.compiler.from_model.request import stated_parameters
from magus.tui.text.ask import layouts_text
from tests.helpers.commands import document
from tests.helpers.some import some

pytestmark = pytest.mark.usefixtures("compiled_core", "one_model", "kept_answers")

MOE = ("qwen3-30b-a3b", "h100", "vllm", 4)
DENSE = ("llama-3.2-1b", "h100", "vllm", 2)
WORDS = ("ask", "--model", DENSE[0], "--gpu", DENSE[1], "--for", DENSE[2], "--gpus", "2", "--prefill", "512")


@pytest.fixture(scope="module")
def answer() -> LayoutAnswer:
    """The answer in Python."""
    return ask(layout_question(*DENSE, prefill=512))


@pytest.mark.slow
def test_each_layout_takes_as_long_as_the_question_about_it_says(answer: LayoutAnswer) -> None:
    assert {each.layout.words for each in answer.compared.outcomes} == {"TP2", "2 x 1 GPU"}
    for each in some(answer.compared.outcomes):
        assert ask(each.question).graph_us == pytest.approx(each.model_us)
        assert each.layer_us == pytest.approx(each.model_us / 16)


@pytest.mark.slow
def test_layouts_with_experts_take_as_long_as_questions_about_them_say() -> None:
    compared = compare_layouts(layout_question(*MOE, prefill=1024))
    by_words = {each.layout.words: each for each in compared.outcomes}
    for each in some([by_words[words] for words in ("TP4 EP4", "TP2 DP2 EP4", "2 x TP2", "4 x 1 GPU")]):
        of = each.question
        assert of.tokens * each.layout.servers == 1024 and of.tp * of.dp * each.layout.servers == 4
        assert ask(of).graph_us == pytest.approx(each.model_us)  # of one kind of layers
        assert each.layer_us == pytest.approx(each.model_us / 48)
        assert each.tokens_per_gpu_s == pytest.approx(1024 / 4 / each.model_us * 1e6)


def test_the_fastest_comes_first_and_sequences_are_the_same() -> None:
    compared = compare_layouts(layout_question(*MOE, prefill=1024))
    outcomes = compared.outcomes
    assert len({each.layout for each in outcomes}) == len(outcomes) > 8
    assert [each.model_us for each in outcomes] == sorted(each.model_us for each in outcomes)
    lengths = {each.question.tokens // (each.question.sequences or 0) for each in some(outcomes)}
    assert lengths == {256}
    assert all(each.exposed_us is not None and 0 <= each.exposed_us < each.model_us for each in some(outcomes))


def test_one_answer_by_every_way(answer: LayoutAnswer) -> None:
    pytest.importorskip("starlette", reason="the extra serve is not installed")
    from magus.tui.service.app import Limits, application
    from magus.tui.service.openapi import ASK_PATH, openapi_document
    from tests.helpers.service import call

    python = json.loads(json.dumps(answer.document()))
    body = json.dumps({"model": DENSE[0], "gpu": DENSE[1], "for": DENSE[2], "gpus": 2, "prefill": 512}).encode()
    status, served, _ = asyncio.run(call(application(Advisor.load(), Limits(600.0)), body, path=ASK_PATH))

    assert status == 200 and served == python == document(*WORDS)
    assert answer.answer.question == answer.compared.outcomes[0].question
    assert set(openapi_document()["components"]["schemas"]["LayoutsAnswer"]["required"]) == set(served)


def test_what_a_layout_says_is_not_asked_beside_the_number_of_gpus() -> None:
    pytest.importorskip("starlette", reason="the extra serve is not installed")
    from magus.tui.service.questions import model_question_of

    for key, value in some([("tp", 4), ("dp", 2), ("train", True)]):
        body = json.dumps({"model": DENSE[0], "gpu": DENSE[1], "for": DENSE[2], "gpus": 8, key: value}).encode()
        with pytest.raises(RequestError) as caught:
            model_question_of(body)
        assert (caught.value.code, caught.value.field, caught.value.hint) == (Code.MGS206, key, f"leave out {key}")


def test_the_text_is_a_dozen_lines(answer: LayoutAnswer) -> None:
    lines = layouts_text(answer).splitlines()
    assert len(lines) <= 13 and lines[0].startswith("llama-3.2-1b (16 layers) on 2 x H100, vLLM 0.11")
    assert any(line.startswith(f"> {answer.compared.outcomes[0].layout.words} ") for line in lines)
    assert len(layouts_text(answer, full=True).splitlines()) > len(lines) + 4


def test_a_layout_for_another_version_is_marked(answer: LayoutAnswer) -> None:
    question = replace(answer.answer.question, framework="vllm@0.12")
    newer = replace(answer, answer=replace(answer.answer, question=question))

    (more,) = set(layouts_text(newer).splitlines()) - set(layouts_text(answer).splitlines())
    assert more == "  ! this is known of 0.11: options and defaults of vLLM 0.12 may differ"
    assert more[4:] == newer.document()["answer"]["version_doubt"]


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "llama-3.2-1b", "mixtral-8x7b"])
def test_one_gpu_holds_all_weights(name: str) -> None:
    question = layout_question(name, "h200", "vllm", 2, prefill=512)
    of = question.of(ServingLayout(2, 1, 1, 1))
    held = serving_memory(of, [of.scenario()]).weights / 2
    tied = of.model.vocabulary * of.model.hidden if name == "llama-3.2-1b" else 0  # counted twice
    assert held - tied == pytest.approx(stated_parameters(name), rel=0.02)


def test_keys_and_values_are_those_of_the_cache_that_decode_reads() -> None:
    for tp, dp, ep in some([(1, 4, 4), (2, 2, 4), (4, 1, 4), (4, 1, 1)]):
        of = layout_question(*MOE, decode=64, keys=2048).of(ServingLayout(1, tp, dp, ep))
        scenario = of.scenario(of.workloads[0])
        cache = next(each for each in scenario.workload.tensors if each.name == "cache")
        one = cache.dtype.bytes_of(cache.rows * cache.cols) // scenario.num_ranks
        assert serving_memory(of, [scenario]).cache == one * 48


def test_a_layout_fits_up_to_the_memory_of_a_gpu_and_no_further() -> None:
    def fits(keys: int) -> bool:
        compared = compare_layouts(layout_question("llama-3.2-1b", "h100", "vllm", 1, decode=16, keys=keys))
        return bool(compared.outcomes) and compared.outcomes[0].memory.total <= compared.limit

    of = layout_question("llama-3.2-1b", "h100", "vllm", 1, decode=16, keys=1)
    limit, low, high = 80 << 30, 1, 1 << 20
    while high - low > 1:
        middle = (low + high) // 2
        one = replace(of, keys=middle).of(ServingLayout(1, 1, 1, 1))
        low, high = (middle, high) if serving_memory(one, [one.scenario()]).total <= limit else (low, middle)
    assert fits(low)
    with pytest.raises(RequestError) as caught:
        fits(high)
    assert caught.value.code is Code.MGS510 and "nearest are 2 GPUs" in caught.value.hint


@pytest.mark.parametrize(
    ("asked", "code", "field"),
    [
        ({"gpus": 0}, Code.MGS307, "gpus"),
        ({"gpus": 12, "prefill": 1200}, Code.MGS304, "gpus"),
        ({"gpus": 3}, Code.MGS304, "prefill"),
        ({"framework": "torchtitan"}, Code.MGS520, "for"),
        ({"prefill": 1023}, Code.MGS304, "prefill"),
        ({"decode": 8, "prefill": 8}, Code.MGS206, "decode"),
        ({"gpus": 7, "prefill": 7}, Code.MGS510, "gpus"),
    ],
)
def test_what_cannot_be_is_told(asked: dict[str, Any], code: Code, field: str) -> None:
    usual: dict[str, Any] = {"model": "llama-3.1-70b", "gpu": "h100", "framework": "vllm", "gpus": 4}
    with pytest.raises(RequestError) as caught:
        compare_layouts(layout_question(**(usual | asked)))
    assert (caught.value.code, caught.value.field) == (code, field) and caught.value.hint


def test_flags_are_those_of_the_framework() -> None:
    layout = ServingLayout(1, 2, 4, 8)
    flags = {name: layout.flags(framework_named(name)) for name in ("vllm", "sglang")}
    assert flags["vllm"] == "--tensor-parallel-size 2 --data-parallel-size 4 --enable-expert-parallel"
    assert flags["sglang"] == "--tp-size 8 --dp-size 4 --enable-dp-attention --ep-size 8"
    assert ServingLayout(1, 8, 1, 1).flags(framework_named("trtllm")) == "--tp_size 8"
