"""Models of many classes: how many parameters and layers of each kind they have, what is left out, and who is refused.

Configurations have the structure and the numbers of published ones; sizes are those that their authors state.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from magus.advisor.solver.memory import held_bytes
from magus.compiler import CompileError, compile_text
from magus.compiler.codes import Code
from magus.compiler.from_model.config import ModelConfig, config_of
from magus.compiler.from_model.frameworks import Parallelism
from magus.compiler.from_model.layer import layer_text
from magus.compiler.ir import DType, GemmShape, GroupedGemmShape
from magus.compiler.request.request import RequestError
from magus.compiler.text.diagnostics import Report, Source, Span
from magus.compiler.text.json_forms import JsonPlace, read_json
from tests.helpers.commands import magus
from tests.helpers.paths import ROOT
from tests.helpers.some import some

Config = dict[str, Any]


CASES: dict[str, list[dict[str, Any]]] = json.loads((ROOT / "tests" / "golden" / "models" / "classes.json").read_text())
KNOWN, HYBRIDS, REFUSED = ({each["name"]: each for each in CASES[kind]} for kind in ("known", "hybrids", "refused"))
LLAMA, MAVERICK, DEEPSEEK_V3, GLM = (
    KNOWN[name]["config"] for name in ("Llama-3.1-70B", "Llama-4-Maverick", "DeepSeek-V3", "GLM-4.5")
)


def model(config: Config) -> ModelConfig:
    report = Report()
    with report.attempt():
        place = JsonPlace("config.json", Span(Source("config.json", ""), 0, 0), report, Code.MGS138)
        return config_of(read_json(json.dumps(config), place), Path("mine"))
    raise CompileError(report.diagnostics)


@pytest.mark.parametrize("name", KNOWN)
def test_parameters_and_layers_are_those_of_the_model(name: str) -> None:
    case = KNOWN[name]
    found = model(case["config"])

    assert found.parameters / 1e9 == pytest.approx(case["billions"], rel=0.01)
    assert (found.dense_layers, found.expert_layers) == (case["dense"], case["experts"])
    assert len(found.left_out) == len(case["left_out"])
    assert all(says in said for says, said in zip(case["left_out"], found.left_out, strict=True))
    assert not any("not known" in doubt for doubt in found.doubts)


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", HYBRIDS)
def test_layers_without_attention_are_said_to_be_left_out(name: str) -> None:
    case = HYBRIDS[name]
    found = model(case["config"])
    written = case["dense"] + case["experts"]

    assert (found.dense_layers, found.expert_layers) == (case["dense"], case["experts"])
    assert case["left_out"][0] in found.left_out[0]
    text = layer_text(found, Parallelism("h100", 4))
    assert f"without those of {found.layers - written} layers that are left out" in text.replace("\n# ", " ")
    (layer, _) = compile_text(text).workloads
    assert layer.workload.num_layers == written


@pytest.mark.parametrize("name", REFUSED)
def test_who_is_refused_hears_why(name: str) -> None:
    case = REFUSED[name]
    with pytest.raises(CompileError) as caught:
        model(case["config"])
    (found,) = caught.value.diagnostics
    assert found.code.name == case["code"] and case["says"] in found.message


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", KNOWN)
def test_what_is_written_checks_at_both_ends_of_its_tokens(name: str) -> None:
    """Ranks that divide heads and experts; the text is that of a file, so that its range is read from there."""
    found = model(KNOWN[name]["config"])
    divided = found.heads, found.experts, max(found.kv_heads, 8)
    ranks = next(each for each in (8, 4, 2, 5) if not any(number % each for number in divided))
    text = layer_text(found, Parallelism("h200", ranks))
    graphs = compile_text(text).workloads

    assert [each.workload.num_layers for each in graphs[::2]] == [
        count for count in (found.expert_layers, found.dense_layers) if count
    ]
    usual, low, high = (int(number) for number in re.findall(r"param M = (\d+) in (\d+)\.\.(\d+) x2", text)[0])
    for tokens in (low, high):
        assert compile_text(text.replace(f"param M = {usual} in", f"param M = {tokens} in")).workloads


@pytest.mark.parametrize(("name", "tokens"), [("GLM-4.5", "10240 in 40..40960"), ("Kimi-K2", "6144 in 48..49152")])
def test_tokens_divide_among_experts_with_an_odd_factor(name: str, tokens: str) -> None:
    """20 experts of a rank with 8 a token, and 48."""
    text = layer_text(model(KNOWN[name]["config"]), Parallelism("h200", 8))

    assert f"param M = {tokens} x2" in text and f"a multiple of {tokens.split()[2].split('.')[0]}" in text
    assert compile_text(layer_text(model(KNOWN[name]["config"]), Parallelism("h200", 8), whole=False)).workloads


def test_layers_of_two_kinds_are_two_workloads() -> None:
    text = layer_text(model(MAVERICK), Parallelism("h200", 8))
    layer, _, dense, _ = compile_text(text).workloads

    assert (layer.name, dense.name) == ("layer", "dense")
    assert layer.workload.op("s").shape.gemm == GemmShape(1024, 5120, 8192, DType.BF16)  # the shared expert
    assert dense.workload.op("u").shape.gemm == GemmShape(8192, 4096, 5120, DType.BF16)
    pairs = compile_text(layer_text(model(MAVERICK), Parallelism("h200", 8), whole=False))
    assert [each.name for each in pairs.workloads][-4:] == ["mlp_up", "mlp_down", "dispatch", "combine"]


def test_experts_that_are_fp8_in_the_file_fit_where_they_are_deployed() -> None:
    """DeepSeek-V3 runs on 8 x H200 with 141 GB each; its experts as bf16 would take twice as much."""
    scenarios = [
        compile_text(layer_text(model({**DEEPSEEK_V3, **more}), Parallelism("h200", 8))).scenario("layer")
        for more in ({}, {"quantization_config": None})
    ]
    fp8, bf16 = (held_bytes(each.workload, 8) for each in scenarios if each is not None)

    assert fp8 < 141e9 < bf16
    assert scenarios[0] is not None and scenarios[0].workload.op("u").shape.kernel.dtype is DType.FP8  # type: ignore[union-attr]
    with pytest.raises(RequestError, match="A100 has no peak rate for fp8"):
        layer_text(model(DEEPSEEK_V3), Parallelism("a100", 8))


def test_experts_of_four_bits_are_read_as_such_and_multiplied_as_the_rest() -> None:
    config = KNOWN["gpt-oss-120b"]["config"]
    text = layer_text(model(config), Parallelism("h100", 8))
    plain = layer_text(model({**config, "quantization_config": None}), Parallelism("h100", 8))
    found, other = (compile_text(each).scenario("layer").workload for each in (text, plain))

    kernel = found.op("u").shape.kernel
    assert isinstance(kernel, GroupedGemmShape) and (kernel.dtype, kernel.weights) == (DType.BF16, DType.MXFP4)
    assert "wdn = tensor mxfp4[128 * 2880, 2880] shard rows" in text and "type=" not in text
    experts = 36 * 128 // 8 * 3 * 2880 * 2880
    assert held_bytes(other, 8) - held_bytes(found, 8) == experts * 2 - experts * 17 // 32


def test_attention_and_mlp_beside_each_other_take_the_same() -> None:
    text = layer_text(model(KNOWN["Falcon-40B"]["config"]), Parallelism("h100", 8))

    assert "u = gemm(all_gather(norm(x)), wup)" in text and "norm(r)" not in text
    assert "gelu" in text and "swiglu" not in text


@pytest.mark.parametrize(
    ("quantized", "says"),
    [
        ({"quant_method": "gptq", "bits": 4}, "weights of 4 bits (gptq)"),
        ({"quant_method": "awq", "w_bit": 4}, "weights of 4 bits (awq)"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "weights of 8 bits (bitsandbytes)"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "weights of 4 bits (modelopt)"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8: the file has weights of it"),
        ({"config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}}, "fp8: the file has"),
        ({"config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}}}, "weights of 4 bits"),
        ({"quant_method": "new"}, "quantized weights (new)"),
    ],
)
def test_how_a_file_has_its_weights_is_said(quantized: Config, says: str) -> None:
    (said,) = model({**LLAMA, "quantization_config": quantized}).left_out
    assert said.startswith(says)


def test_what_a_file_leaves_out_is_reported() -> None:
    doubts = model({"model_type": "mistral", "hidden_size": 4096}).doubts
    unknown = model({**LLAMA, "model_type": "mine", "hidden_act": "relu2"})

    assert "taken from the class 'mistral' of transformers: num_attention_heads 32" in doubts[0]
    assert not unknown.gated and "the class 'mine' is not known" in unknown.doubts[0]
    assert "no gate" in unknown.doubts[0]


def test_a_file_that_does_not_check_is_not_written(tmp_path: Path) -> None:
    path, out = tmp_path / "config.json", tmp_path / "layer.mgs"
    path.write_text(json.dumps({**LLAMA, "torch_dtype": "float32"}))
    done = magus("from-model", path, "--gpu", "h100", "-o", out)

    assert done.exit_code == 1 and "H100 has no peak rate for fp32" in done.stderr and not out.exists()
    path.write_text(json.dumps(GLM))
    assert "352.8 billion parameters" in magus("from-model", path, "--gpu", "h200", "-o", out).output
    assert magus("check", out).exit_code == 0


def test_a_model_that_ships_goes_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    assert "# One layer of llama-3.1-8b: " in magus("from-model", "llama-3.1-8b", "--gpu", "h100").stdout
    assert "nearest are llama-3.1-8b" in magus("from-model", "lama-3.1-8b", "--gpu", "h100").stderr
    assert "MGS120 error: cannot read 'lama.json'" in magus("from-model", "lama.json", "--gpu", "h100").stderr


def test_heads_that_do_not_divide_say_which_ranks_do() -> None:
    odd = {**KNOWN["Qwen2-57B"]["config"], "num_attention_heads": 28, "head_dim": 128}
    with pytest.raises(RequestError, match="28 do not divide among 8 ranks; take --tp 2, 4, 7, 14, 28"):
        layer_text(model(odd), Parallelism("h100", 8))


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    "value", [None, True, -1, 0, 1, 3.5, 1 << 40, "x", "x" * 200, [], [[1]], [1, 2], {}, {"a": {}}]
)
def test_values_of_every_kind(value: object) -> None:
    configs = [case["config"] for case in (*KNOWN.values(), *HYBRIDS.values())]
    for config, key in some((one, key) for one in configs for key in one):
        try:
            layers = model({**config, key: value}).layers
        except CompileError as error:
            assert "MGS" in str(error)
        else:
            assert layers
