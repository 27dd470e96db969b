"""Questions about whole layers: a model or a text, the answers of the API, and nothing of the service's machine."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from magus.advisor import AdviceOptions, Advisor, LayerRequest, advise_step, model_of
from magus.advisor.answer.export import advice_document
from magus.compiler import compile_text
from magus.compiler.ir import Cancelled
from magus.tui.service.app import Limits, application
from magus.tui.service.openapi import LAYER_PATH, openapi_document
from magus.tui.service.questions import LAYER_KEYS
from tests.helpers.plans.json_schema import is_valid
from tests.helpers.scenarios.mlp_backward import TEXT
from tests.helpers.service import call
from tests.helpers.steps import TEXT as STEP
from tests.tui.service.test_service import without_texts

pytestmark = pytest.mark.usefixtures("compiled_core")

MODEL = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "torch_dtype": "bfloat16",
}
FIELDS = {"gpu": "H100", "tp": 4, "tokens": 1024, "engines": ["dma(3)"]}
QUESTION = {"model": MODEL, "name": "small", **FIELDS, "simulate": False}
SIZES = {"width": 256, "inner": 1024, "both": 2048, "ranks": 4, "layers": 2}
BACK = "param M = 256 in 64..4096 x2\n" + TEXT.format(m="M", **SIZES)
LARGE = TEXT.format(m=4096, width=4096, inner=8192, both=16384, ranks=2048, layers=2).partition("schedule")[0]
LARGE = LARGE.replace("switch(nvswitch, link=nvlink)", "ring(nvlink)")
TEXT_QUESTION = {"text": BACK + "explore back { engine dma(3) }", "settings": {"M": 512}, "simulate": False}


@pytest.fixture(scope="module")
def advisor() -> Advisor:
    return Advisor.load()


def ask(advisor: Advisor, question: object, limits: Limits | None = None) -> tuple[int, dict[str, Any]]:
    body = question if isinstance(question, bytes) else json.dumps(question).encode()
    status, document, _ = asyncio.run(call(application(advisor, limits), body, path=LAYER_PATH))
    return status, document


def timeless(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(document))
    found.pop("timing")
    return found


@pytest.mark.slow
def test_the_answer_about_a_model_is_that_of_the_api(advisor: Advisor) -> None:
    status, answer = ask(advisor, QUESTION)
    request = LayerRequest(model_of(MODEL, "small"), gpu="H100", tp=4, tokens=1024, engines=("dma(3)",))
    advice = Advisor(advisor.proposals).recommend(request, AdviceOptions(verify=False))

    assert status == 200 and answer["schema"] == "magus-advice/1" and answer["layers"] == 4
    assert timeless(answer) == timeless(advice_document(advice))
    assert ask(advisor, QUESTION)[1] == answer  # from memory, the times of its stages as well


@pytest.mark.slow
def test_the_answer_about_a_text_is_that_of_the_api(advisor: Advisor) -> None:
    status, answer = ask(advisor, TEXT_QUESTION)
    (graph,) = compile_text(str(TEXT_QUESTION["text"]), "back.mgs", (("M", "512"),)).workloads

    assert status == 200
    assert timeless(answer) == timeless(advice_document(advisor.recommend(graph, AdviceOptions(verify=False))))


def test_questions_and_answers_are_as_described(advisor: Advisor) -> None:
    schemas = openapi_document()["components"]["schemas"]

    assert set(schemas["LayerQuestion"]["properties"]) == set(LAYER_KEYS)
    for question in (QUESTION, TEXT_QUESTION):
        assert is_valid(question, without_texts(schemas["LayerQuestion"]))
    assert is_valid(ask(advisor, QUESTION)[1], without_texts(schemas["Advice"]))
    assert openapi_document()["paths"][LAYER_PATH]["post"]["operationId"] == "recommendLayer"


@pytest.mark.parametrize(
    ("question", "code", "field"),
    [
        (b"", "MGS107", "body"),
        ({}, "MGS209", "model"),
        ({**QUESTION, "modle": 1}, "MGS201", "modle"),
        ({**QUESTION, "model": "config.json"}, "MGS310", "model"),
        ({**QUESTION, "model": {}}, "MGS138", "model"),
        ({**QUESTION, "tp": 3}, "MGS304", "num_attention_heads"),
        ({**QUESTION, "tp": 1 << 20}, "MGS307", "tp"),
        ({**QUESTION, "tokens": "many"}, "MGS309", "tokens"),
        ({**QUESTION, "gpu": "H10"}, "MGS203", "gpu"),
        ({**QUESTION, "gpu": 1}, "MGS310", "gpu"),
        ({key: value for key, value in QUESTION.items() if key != "tokens"}, "MGS209", "tokens"),
        ({**QUESTION, "text": BACK}, "MGS206", "model"),
        ({**QUESTION, "settings": {}}, "MGS209", "text"),
        ({**QUESTION, "within_s": -1}, "MGS307", "within_s"),
        ({"text": 1}, "MGS310", "text"),
        ({"text": BACK, "settings": {"M": 1.5}}, "MGS310", "settings"),
        ({"text": BACK, "settings": {"M": 8192}}, "MGS311", "text"),
        ({"text": BACK, "workload": "forth"}, "MGS203", "text"),
        ({"text": "workload w on nothing { }"}, "MGS203", "text"),
        ({"text": LARGE}, "MGS307", "text"),
    ],
)
def test_a_bad_question_is_explained(advisor: Advisor, question: Any, code: str, field: str) -> None:
    status, document = ask(advisor, question)

    assert status == 400, document
    assert (document["error"]["code"], document["error"]["field"]) == (code, field)
    assert document["error"]["message"]


@pytest.mark.parametrize(
    "text",
    [
        'include "secret.mgs"\n' + BACK,
        'include "../etc/passwd"\n' + BACK,
        BACK + 'schedule mine for back = import "secret.json"\n',
    ],
)
def test_files_are_not_for_clients(
    advisor: Advisor, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("secret.mgs", "secret.json"):
        (tmp_path / name).write_text("workload stolen on earth { }")
    status, document = ask(advisor, {"text": text})

    assert status == 400 and "stolen" not in str(document) and "earth" not in str(document)


def test_a_text_may_have_one_op(advisor: Advisor) -> None:
    pair = """
    use "nvidia/h100"
    system s { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
    workload w on s {
      x = tensor bf16[1024, 1024] shard rows
      v = tensor bf16[1024, 1024] shard cols
      y = gemm(all_gather(x), v)
    }
    """
    status, answer = ask(advisor, {"text": pair, "simulate": False})

    assert status == 200 and answer["pattern"] == "AG+GEMM" and "layers" not in answer


def test_when_time_is_short_the_best_so_far_is_the_answer(advisor: Advisor) -> None:
    status, answer = ask(advisor, {**QUESTION, "tokens": 2048, "simulate": True, "within_s": 0.0})

    assert status == 200 and answer["interrupted"] and answer["recommended"]


def test_what_cannot_be_simulated_in_time_has_no_answer(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refusing(self: Advisor, *_: object, **__: object) -> Any:
        raise Cancelled

    monkeypatch.setattr(Advisor, "recommend_async", refusing)
    status, document = ask(Advisor(advisor.proposals), QUESTION)

    assert status == 422 and "the time was over" in document["error"]["message"]


def test_a_text_with_a_training_step_is_answered_with_a_layout(advisor: Advisor) -> None:
    text = STEP.format(more="explore train { TP 2 }")
    status, document = ask(advisor, {"text": text, "settings": {"ROWS": 1024}})

    assert status == 200
    expected = advise_step(text, settings=(("ROWS", "1024"),)).document()
    assert document == json.loads(json.dumps(expected))
    schemas = openapi_document()["components"]["schemas"]
    assert is_valid(document, without_texts(schemas["StepAdvice"]))
    assert document["recommended"]["step_s"] > 0
    assert ask(advisor, {"text": text, "workload": "layer", "simulate": False})[1]["scenario"] == "layer"
    assert ask(advisor, {"text": text, "workload": "lair"})[1]["error"]["code"] == "MGS203"
    assert ask(advisor, {"text": text, "within_s": 0})[1]["interrupted"]
