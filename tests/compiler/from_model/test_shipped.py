"""Models and frameworks that ship: shapes whose parameters are those that are published, and what is not known."""

import tomllib
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from magus.compiler.codes import Code
from magus.compiler.from_model.frameworks import (
    Need,
    _framework,
    framework_named,
    frameworks,
    parallelism_for,
    version_doubt,
)
from magus.compiler.from_model.layer import layer_text
from magus.compiler.from_model.request import model_names, shipped_model, stated_parameters
from magus.compiler.request.request import RequestError
from tests.helpers.paths import ROOT
from tests.helpers.some import some


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
    assert all(each.release in each.version for each in found.values())
    assert all(each.release or each.version.startswith("main") for each in found.values())
    needs = {need for each in found.values() for switch in each.switches for need in switch.needs}
    assert needs == set(Need)


def test_layers_without_experts_are_of_models_without_them() -> None:
    own, megatron = (parallelism_for(name, "h200", 8, 1, 1, 8) for name in ("transformer-engine", "megatron"))
    with pytest.raises(RequestError, match="layers of Transformer Engine have no experts") as caught:
        layer_text(shipped_model("mixtral-8x7b"), own)

    assert "megatron" in caught.value.hint and "transformer-engine" not in caught.value.hint
    assert "grouped_gemm" in layer_text(shipped_model("mixtral-8x7b"), megatron)
    assert "all_gather" in layer_text(shipped_model("llama-3.1-8b"), own)


def test_each_fact_has_the_type_of_its_field() -> None:
    found = frameworks().values()
    for part in some((*found, *(switch for each in found for switch in each.switches))):
        for name, kind in some(get_type_hints(type(part)).items()):
            of_list = get_origin(kind) is tuple
            values = getattr(part, name) if of_list else (getattr(part, name),)
            wanted = get_args(kind)[0] if of_list else kind
            assert {type(value) for value in values} <= {wanted}, f"{name} of {part}"


FACTS: dict[str, Any] = dict.fromkeys(("title", "version", "source", "today", "today_with_dp", "all_reduce"), "own")
SWITCH = {"offer": "domino", "what": "Domino", "setting": "--domino", "costs": "nothing", "needs": ["tp"]}


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, "switches"),
        ({"switches": [], "tooday": "x"}, "tooday"),
        ({"switches": [SWITCH | {"need": []}]}, "need"),
        ({"switches": [SWITCH | {"needs": ["tq"]}]}, "tq"),
        ({"switches": [{"offer": "domino", "needs": []}]}, "what"),
    ],
)
def test_a_key_too_many_or_too_few_is_an_error_that_names_it(facts: dict[str, Any], said: str) -> None:
    assert _framework("own", **FACTS, switches=[SWITCH]).switches[0].needs == (Need.TP,)
    with pytest.raises((TypeError, ValueError), match=said):
        _framework("own", **FACTS, **facts)


def test_an_unknown_framework_is_told_those_that_are_known() -> None:
    with pytest.raises(RequestError) as caught:
        framework_named("vlm")
    assert caught.value.hint == "did you mean vllm?"


@pytest.mark.parametrize(
    ("name", "doubted"),
    [
        ("vllm", ""),
        ("vllm@0.11", ""),
        ("vllm@v0.11.2", ""),
        ("vllm@0.11.0rc1", ""),
        ("vllm@0.12", "vLLM 0.12"),
        ("vllm@1", "vLLM 1"),
        ("vllm@main", "vLLM main"),
        ("sglang@0.5.4.post1", ""),
        ("vllm@0.11.2rc1.dev15+cu129", ""),
        ("megatron@core_v0.14.0", ""),
        ("transformer-engine@2.21", "Transformer Engine 2.21"),
        ("torchtitan@main", ""),
        ("torchtitan@0.2", "torchtitan 0.2"),
    ],
)
def test_a_version_that_is_not_the_known_one_is_in_doubt(name: str, doubted: str) -> None:
    facts = framework_named(name)

    assert facts is framework_named(name.partition("@")[0])
    said = version_doubt(name)
    assert said == (
        f"this is known of {facts.version}: options and defaults of {doubted} may differ" if doubted else ""
    )
    layer = layer_text(shipped_model("llama-3.1-8b"), parallelism_for(name, "h100", 8, 1, 1, 8))
    assert ("may differ" in layer) is bool(doubted)


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("vllm@0.6", "nothing is known of vLLM 0.6, which is older than 0.11", "vllm alone says what 0.11 does"),
        ("vllm@0", "nothing is known of vLLM 0, which is older", "vllm alone"),
        ("megatron@0.9.1", "nothing is known of Megatron-LM 0.9.1, which is older than 0.14", "megatron alone"),
        ("vllm@", "'' is no version of vLLM", "for instance vllm@0.11"),
        ("vllm@new", "'new' is no version of vLLM", "for instance vllm@0.11"),
        ("maxtext@1..2", "'1..2' is no version of MaxText", "for instance maxtext@main"),
        ("vllm@0.11@0.12", "'0.11@0.12' is no version of vLLM", "for instance vllm@0.11"),
        ("vlm@0.11", "'vlm' is no framework that is known", "did you mean vllm?"),
    ],
)
def test_versions_of_which_nothing_is_known_are_refused(name: str, message: str, hint: str) -> None:
    with pytest.raises(RequestError) as caught:
        framework_named(name)

    assert (caught.value.code, caught.value.field) == (Code.MGS203, "for")
    assert caught.value.message.startswith(message) and caught.value.hint.startswith(hint)
