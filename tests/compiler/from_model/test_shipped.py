"""Models and frameworks that ship: shapes whose parameters are those that are published, and what is not known."""

import tomllib

import pytest

from magus.compiler.codes import Code
from magus.compiler.from_model.frameworks import (
    FactsError,
    Framework,
    Need,
    framework_named,
    frameworks,
    parallelism_for,
    read_facts,
)
from magus.compiler.from_model.layer import layer_text
from magus.compiler.from_model.request import model_names, shipped_model, stated_parameters
from magus.compiler.request.request import RequestError
from tests.helpers.paths import ROOT


@pytest.mark.parametrize("name", model_names())
def test_a_shape_has_the_parameters_that_its_card_states(name: str) -> None:
    model = shipped_model(name)

    assert model.parameters == pytest.approx(stated_parameters(name), rel=0.01)
    assert model.name == name


def test_forty_models_ship() -> None:
    assert len(model_names()) >= 40 and len(set(model_names())) == len(model_names())


@pytest.mark.parametrize(
    ("published", "name"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.1-70b"),
        ("Meta-Llama-3-8B", "llama-3.1-8b"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"),
        ("moonshotai/Kimi-K2-Thinking", "kimi-k2"),
    ],
)
def test_a_model_has_the_name_of_its_publisher_too(published: str, name: str) -> None:
    assert shipped_model(published) == shipped_model(name)


def test_other_names_are_of_models_that_ship() -> None:
    tables = tomllib.loads((ROOT / "compiler" / "from_model" / "models.toml").read_text())

    assert tables["same"] and set(tables["same"].values()) <= set(model_names())
    assert not set(tables["same"]) & set(model_names())


@pytest.mark.parametrize("name", ["", "/", "-instruct", "a" * 999 + "-it" * 99, "../llama"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="no model that ships"):
        shipped_model(name)


def test_an_unknown_model_is_told_its_neighbours() -> None:
    with pytest.raises(RequestError) as caught:
        shipped_model("qwen-235b")
    assert caught.value.code is Code.MGS203 and "qwen3-235b" in caught.value.hint


def test_the_file_of_frameworks_has_known_keys_alone() -> None:
    found = frameworks()

    train = {"megatron", "transformer-engine", "torchtitan", "deepspeed", "maxtext"}
    assert {"vllm", "sglang", "trtllm", *train} == set(found)
    assert all(each.version and each.source and (each.serves or each.trains) for each in found.values())
    needs = {need for each in found.values() for switch in each.switches for need in switch.needs}
    assert needs == set(Need)


def test_layers_without_experts_are_of_models_without_them() -> None:
    own, megatron = (parallelism_for(name, "h200", 8, 1, 1, 8) for name in ("transformer-engine", "megatron"))
    with pytest.raises(RequestError, match="layers of Transformer Engine have no experts") as caught:
        layer_text(shipped_model("mixtral-8x7b"), own)

    assert "megatron" in caught.value.hint and "transformer-engine" not in caught.value.hint
    assert "grouped_gemm" in layer_text(shipped_model("mixtral-8x7b"), megatron)
    assert "all_gather" in layer_text(shipped_model("llama-3.1-8b"), own)


FACTS = {
    "name": "own",
    "title": "Own",
    "version": "1",
    "source": "here",
    "today": "all_reduce",
    "today_with_dp": "all_reduce",
    "all_reduce": "",
}
SWITCH = {"offer": "domino", "what": "Domino", "setting": "--domino", "costs": "nothing", "needs": ["tp"]}


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"switches": []}, ""),
        ({"switches": [SWITCH]}, ""),
        ({}, "own lacks switches"),
        ({"switches": [], "tooday": "x"}, "own.tooday is unknown; known are name, "),
        ({"switches": [], "title": 3}, "own.title: 3 is no str"),
        ({"switches": [], "serves": "yes"}, "own.serves: 'yes' is no bool"),
        ({"switches": [SWITCH | {"need": []}]}, "own.switches[0].need is unknown"),
        ({"switches": [SWITCH | {"needs": ["tq"]}]}, "own.switches[0].needs[0]: 'tq' is none of tp, dp, ep"),
        ({"switches": [{"offer": "domino"}]}, "own.switches[0] lacks what, setting, costs, needs"),
        ({"switches": SWITCH}, "is no list"),
    ],
)
def test_a_key_too_many_or_too_few_is_an_error_with_its_place(facts: dict[str, object], said: str) -> None:
    try:
        found = read_facts(Framework, FACTS | facts, "own")
    except FactsError as error:
        assert said and said in str(error)
    else:
        assert not said and found.title == "Own"


def test_an_unknown_framework_is_told_those_that_are_known() -> None:
    with pytest.raises(RequestError) as caught:
        framework_named("vlm")
    assert caught.value.hint == "did you mean vllm?"
