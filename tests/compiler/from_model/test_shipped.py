"""Models and frameworks that ship: shapes whose parameters are those that are published, and what is not known."""

import pytest

from magus.compiler.codes import Code
from magus.compiler.from_model.shipped import framework_named, model_names, shipped_model, stated_parameters
from magus.compiler.from_model.whole_layer import FRAMEWORKS
from magus.compiler.request.request import RequestError


@pytest.mark.parametrize("name", model_names())
def test_a_shape_has_the_parameters_that_its_card_states(name: str) -> None:
    model = shipped_model(name)

    assert model.parameters == pytest.approx(stated_parameters(name), rel=0.01)
    assert model.name == name


def test_forty_models_ship() -> None:
    assert len(model_names()) >= 40 and len(set(model_names())) == len(model_names())


def test_an_unknown_model_is_told_its_neighbours() -> None:
    with pytest.raises(RequestError) as caught:
        shipped_model("qwen-235b")
    assert caught.value.code is Code.MGS203 and "qwen3-235b" in caught.value.hint


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_says_what_it_runs_and_can_switch_on(name: str) -> None:
    framework = framework_named(name)

    assert framework.version and framework.source and framework.today and framework.today_with_dp
    needs = {need for switch in framework.switches for need in switch.needs}
    assert needs <= {"tp", "dp", "ep", "train", "serve"}


def test_an_unknown_framework_is_told_those_that_are_known() -> None:
    with pytest.raises(RequestError) as caught:
        framework_named("vlm")
    assert caught.value.hint == "did you mean vllm?"
