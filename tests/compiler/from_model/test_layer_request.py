"""Requests about whole layers of a model: what they compile to, and what is wrong with them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from magus.compiler.codes import Code
from magus.compiler.from_model.config import read_config
from magus.compiler.from_model.request import LayerRequest, layer_scenario, model_of
from magus.compiler.ir import AttentionShape
from magus.compiler.request.request import RequestError
from tests.helpers.paths import ROOT

GOLDEN = ROOT / "tests" / "golden" / "models"
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 8,
    "num_hidden_layers": 12,
    "torch_dtype": "bfloat16",
}
REQUEST = LayerRequest(model_of(CONFIG, "small"), gpu="H100", tp=4, tokens=3000)


def test_a_model_is_an_object_or_a_file() -> None:
    path = GOLDEN / "llama_70b.json"

    assert model_of(path) == model_of(str(path)) == read_config(path)
    small = model_of(CONFIG, "small")
    assert (small.name, small.hidden, small.layers) == ("small", 1024, 12)


def test_the_layer_has_the_tokens_that_are_requested_about() -> None:
    forward, back = layer_scenario(REQUEST), layer_scenario(replace(REQUEST, backward=True))

    assert (forward.name, back.name) == ("layer", "layer_back")
    assert forward.num_ranks == 4 and forward.workload.num_layers == 12
    assert next(tensor.rows for tensor in forward.workload.tensors if tensor.name == "x") == 3000
    assert len(back.workload.ops) > len(forward.workload.ops)


def test_compressed_attention_has_a_backward_pass() -> None:
    model = model_of(GOLDEN / "deepseek_v3.json")
    back = layer_scenario(replace(REQUEST, model=model, tp=8, tokens=1024, backward=True)).workload

    assert back.op("a_back").label == "attention_back"
    assert {read.name for op in back.ops for read in op.reads if read.made_by == "a_back"} == {"a_back.q", "a_back.kv"}


def test_without_sequence_parallelism_sums_are_whole() -> None:
    whole = layer_scenario(replace(REQUEST, sequence_parallel=False))

    assert {op.label for op in whole.workload.ops if op.is_pair} == {"GEMM+AR"}


def test_a_step_of_decode_has_a_token_of_each_sequence() -> None:
    scenario = layer_scenario(replace(REQUEST, tokens=16, decode=2048, sequence_parallel=False))
    kernel = scenario.workload.op("a").shape.kernel

    assert isinstance(kernel, AttentionShape) and (kernel.batch, kernel.q_len, kernel.kv_len) == (16, 1, 2048)


def test_more_gpus_than_a_node_has_are_on_several() -> None:
    assert layer_scenario(replace(REQUEST, tp=8)).system.fabric.node_size == 0
    assert layer_scenario(replace(REQUEST, tp=8, node=4)).system.fabric.node_size == 4


def test_limits_of_the_search_are_those_of_the_file() -> None:
    limited = replace(REQUEST, engines=("dma(3)",), staging_bytes=1 << 30, implementations=("transformer_engine",))
    explore = layer_scenario(limited).explore

    assert [str(each) for each in explore.values("engine")] == ["dma(3)"]
    assert explore.staging_limit_bytes == 1 << 30
    assert [each.name for each in explore.implementations] == ["transformer_engine"]


def test_whole_numbers_of_numpy_are_whole() -> None:
    tokens: Any = np.int64(REQUEST.tokens)

    assert replace(REQUEST, tokens=tokens) == REQUEST


@pytest.mark.parametrize(
    ("changed", "code", "field"),
    [
        ({"tokens": 0}, Code.MGS307, "tokens"),
        ({"decode": 0}, Code.MGS307, "decode"),
        ({"decode": 64, "backward": True}, Code.MGS206, "decode"),
        ({"tokens": 2.5}, Code.MGS309, "tokens"),
        ({"tokens": True}, Code.MGS309, "tokens"),
        ({"tokens": 1 << 60}, Code.MGS307, "tokens"),
        ({"tp": 1}, Code.MGS307, "tp"),
        ({"node": 0}, Code.MGS307, "node"),
        ({"gpu": ""}, Code.MGS209, "gpu"),
        ({"backward": 1}, Code.MGS310, "backward"),
        ({"model": CONFIG}, Code.MGS310, "model"),
        ({"engines": "dma(3)"}, Code.MGS310, "engines"),
        ({"engines": ("dma(3) }",)}, Code.MGS203, "engines"),
        ({"implementations": ("../flux",)}, Code.MGS203, "implementations"),
        ({"staging_bytes": -1}, Code.MGS307, "staging_bytes"),
    ],
)
def test_a_request_is_checked_when_it_is_made(changed: dict[str, Any], code: Code, field: str) -> None:
    with pytest.raises(RequestError) as caught:
        replace(REQUEST, **changed)
    assert (caught.value.code, caught.value.field) == (code, field)


@pytest.mark.parametrize(
    ("changed", "code", "field"),
    [
        ({"gpu": "H10"}, Code.MGS203, "gpu"),
        ({"tp": 3}, Code.MGS304, "num_attention_heads"),
        ({"tokens": 3001}, Code.MGS304, "tokens"),
        ({"engines": ("dma(99)",)}, Code.MGS401, "engines"),
        ({"implementations": ("flashinfer",)}, Code.MGS520, "implementations"),
        ({"implementations": ("fluxx",)}, Code.MGS208, "implementations"),
        (
            {"model": model_of(GOLDEN / "qwen3_moe.json"), "sequence_parallel": False, "backward": True},
            Code.MGS520,
            "backward",
        ),
    ],
)
def test_what_does_not_fit_is_reported_when_it_is_requested(changed: dict[str, Any], code: Code, field: str) -> None:
    request = replace(REQUEST, **changed)

    with pytest.raises(RequestError) as caught:
        layer_scenario(request)
    assert (caught.value.code, caught.value.field) == (code, field)


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (lambda path: {}, Code.MGS138),
        (lambda path: {**CONFIG, "hidden_size": float("nan")}, Code.MGS138),
        (lambda path: {**CONFIG, "hidden_size": -1}, Code.MGS138),
        (lambda path: {**CONFIG, "hidden_size": object()}, Code.MGS138),
        (lambda path: path / "none.json", Code.MGS138),
        (lambda path: [1], Code.MGS310),
    ],
)
def test_what_is_no_configuration_is_reported(config: Callable[[Path], Any], code: Code, tmp_path: Path) -> None:
    with pytest.raises(RequestError) as caught:
        model_of(config(tmp_path))
    assert (caught.value.code, caught.value.field) == (code, "model")
