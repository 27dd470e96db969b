"""Layers of models: the golden files, shapes that a rank has, what divides, and configurations that are none."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magus.advisor.measured.tables.gemm import profile_of
from magus.compiler import CompileError, compile_text
from magus.compiler.from_model.config import ModelConfig, read_config
from magus.compiler.from_model.frameworks import Parallelism, framework_named, parallelism_for
from magus.compiler.from_model.layer import layer_text
from magus.compiler.ir import (
    AttentionBackShape,
    AttentionShape,
    BatchedGemmShape,
    DType,
    GemmShape,
    GroupedGemmShape,
    KernelShape,
    Pattern,
)
from magus.compiler.request.request import RequestError
from magus.compiler.text.fmt import format_text
from magus.compiler.text.names import shipped_libraries
from tests.helpers.commands import magus
from tests.helpers.paths import ROOT
from tests.helpers.scenarios.compiled import cases_in, several_in

GOLDEN = ROOT / "tests" / "golden" / "models"
H100 = Parallelism("h100", 8)
LLAMA_70B = read_config(GOLDEN / "llama_70b.json")
LLAMA: dict[str, Any] = json.loads((GOLDEN / "llama_70b.json").read_text())


def read(path: Path, **changed: Any) -> ModelConfig:
    """Read Llama's configuration with some keys changed; None leaves a key out."""
    document = {key: value for key, value in {**LLAMA, **changed}.items() if value is not ...}
    path.write_text(json.dumps(document))
    return read_config(path)


@pytest.mark.parametrize(
    ("name", "options", "golden"),
    [
        ("llama_70b", (), "llama_70b_layer"),
        ("llama_70b", ("--pairs",), "llama_70b"),
        ("deepseek_v3", (), "deepseek_v3_layer"),
        ("deepseek_v3", ("--pairs",), "deepseek_v3"),
        ("qwen3_moe", (), "qwen3_moe_layer"),
        ("qwen3_moe", ("--pairs",), "qwen3_moe"),
    ],
)
def test_the_golden_files(name: str, options: tuple[str, ...], golden: str) -> None:
    written = magus("from-model", GOLDEN / f"{name}.json", "--gpu", "h100", *options)

    assert (written.exit_code, written.stderr) == (0, "")
    assert written.stdout == (GOLDEN / f"{golden}.mgs").read_text()
    assert format_text(written.stdout) == written.stdout
    compiled = compile_text(written.stdout)
    assert bool(several_in(compiled)) is golden.endswith("_layer") is not bool(cases_in(compiled))


def test_a_layer_has_the_shapes_of_one_rank() -> None:
    text = layer_text(LLAMA_70B, H100, whole=False)
    shapes = {each.name: each.shape for each in cases_in(compile_text(text))}

    assert {name: (one.pattern, one.gemm and (one.gemm.n, one.gemm.k)) for name, one in shapes.items()} == {
        "qkv": (Pattern.AG_GEMM, (1280, 8192)),
        "attention_out": (Pattern.GEMM_RS, (8192, 1024)),
        "mlp_up": (Pattern.AG_GEMM, (7168, 8192)),
        "mlp_down": (Pattern.GEMM_RS, (8192, 3584)),
    }


def test_a_dense_layer_is_there_as_a_whole() -> None:
    graphs = {each.name: each.workload for each in compile_text(layer_text(LLAMA_70B, H100)).workloads}
    forward, back = graphs["layer"], graphs["layer_back"]

    assert {op.name: op.label for op in forward.ops if op.is_pair} == {
        "qkv": "AG+GEMM",
        "r": "GEMM+RS",
        "u": "AG+GEMM",
        "y": "GEMM+RS",
    }
    assert {op.name for op in back.ops if op.name.startswith("d_w")} == {"d_wqkv", "d_wo", "d_wup", "d_wdn"}
    assert forward.repeat is not None and back.repeat is not None
    assert forward.repeat.count == back.repeat.count == 80


def test_the_pairs_of_a_layer_are_those_of_the_whole() -> None:
    whole, pairs = (compile_text(layer_text(LLAMA_70B, H100, whole=whole)) for whole in (True, False))
    in_graph = [op.shape.gemm for op in whole.workloads[0].workload.ops if op.is_pair]

    assert [each.shape.gemm for each in cases_in(pairs)] == in_graph


def test_a_layer_with_experts_is_there_with_its_backward_pass() -> None:
    model = read_config(GOLDEN / "qwen3_moe.json")
    layer, back = compile_text(layer_text(model, H100)).workloads

    kernel = layer.workload.op("u").shape.kernel
    assert kernel is not None and len(kernel.rows) == 16 and sum(kernel.rows) == 8192  # type: ignore[attr-defined]
    assert {"t", "y"} <= {op.name for op in layer.workload.ops if op.label == "all_to_all"}
    gradients = [op.shape.kernel for op in back.workload.ops if op.name in ("d_wup", "d_wdn")]
    assert [(kernel.rows, kernel.k) for kernel in gradients] == [  # type: ignore[union-attr]
        ((1536,) * 16, 512),
        ((4096,) * 16, 512),
    ]


def test_compressed_rows_are_gathered_for_the_heads_of_each_rank() -> None:
    """DeepSeek-V2, section 2.1: queries by 1536 columns, keys and values by 512; heads of 128 + 64 and of 128."""
    model = read_config(GOLDEN / "deepseek_v3.json")
    layer, back, dense, _ = compile_text(layer_text(model, H100)).workloads
    shapes = {op.name: op.shape.kernel or op.shape.gemm for op in layer.workload.ops}

    assert shapes["a"] == AttentionShape(1, 16, 16, 8192, 8192, 192, DType.BF16, causal=True, values=128)
    assert shapes["q"] == GemmShape(8192, 24576 // 8, 1536, DType.BF16)
    assert shapes["ckv"] == GemmShape(1024, 512 + 64, 7168, DType.BF16)
    assert shapes["kv"] == GemmShape(8192, 40960 // 8, 512, DType.BF16)
    assert shapes["s"] == GemmShape(1024, 7168, 2048, DType.BF16)
    assert {"t", "z"} <= {op.name for op in layer.workload.ops if op.label == "all_to_all"}
    made_again = AttentionBackShape(1, 16, 16, 8192, 8192, 192, DType.BF16, causal=True, values=128)
    assert back.workload.op("a_back").shape.kernel == made_again
    assert {op.name: op.shape.gemm for op in back.workload.ops if op.name in ("q", "d_q_norm", "d_wkv", "d_wdkv")} == {
        "q": GemmShape(8192, 3072, 1536, DType.BF16),
        "d_q_norm": GemmShape(8192, 1536, 3072, DType.BF16),
        "d_wkv": GemmShape(512, 5120, 8192, DType.BF16),
        "d_wdkv": GemmShape(7168, 576, 1024, DType.BF16),
    }
    labels = [op.label for op in dense.workload.ops if op.is_pair]
    assert labels == ["AG+GEMM", "AG+GEMM", "GEMM+RS", "AG+GEMM", "GEMM+RS"]


@pytest.mark.slow
def test_gpus_of_several_nodes_are_on_rails(tmp_path: Path) -> None:
    """A token of DeepSeek-V3 goes to experts in 4 of 8 groups: with 64 GPUs a group is a node."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads((GOLDEN / "deepseek_v3.json").read_text()), "topk_group": 4}))
    texts = [layer_text(read_config(path), Parallelism("h100", ranks)) for ranks in (8, 16, 64)]
    routing = [re.findall(r"top=8(, nodes=\d)?", text)[0] for text in texts]
    fabrics = [compile_text(text).workloads[0].system.fabric for text in texts]

    assert routing == ["", ", nodes=2", ", nodes=4"]
    assert [fabric.topology.name for fabric in fabrics] == ["switch", "rails", "rails"]
    assert [fabric.node_size for fabric in fabrics[1:]] == [8, 8]
    assert "node=4" in layer_text(LLAMA_70B, Parallelism("h100", 8, node=4))


def test_compressed_attention_without_experts_and_with_whole_queries(tmp_path: Path) -> None:
    model = read(tmp_path / "config.json", kv_lora_rank=256, q_lora_rank=None, v_head_dim=64)
    layer, back = compile_text(layer_text(model, H100)).workloads

    assert back.workload.op("d_q_norm").shape.gemm == GemmShape(8192, 8192, 64 * 192 // 8, DType.BF16)
    assert layer.workload.op("q").shape.gemm == GemmShape(8192, 64 * 192 // 8, 8192, DType.BF16)
    labels = [op.label for op in layer.workload.ops if op.is_pair]
    assert labels == ["AG+GEMM", "AG+GEMM", "GEMM+RS", "AG+GEMM", "GEMM+RS"]


def test_a_window_of_all_layers_is_written(tmp_path: Path) -> None:
    model = read(tmp_path / "config.json", model_type="mistral", sliding_window=4096)
    layer = compile_text(layer_text(model, Parallelism("h100", 8))).workloads[0]
    kernel = layer.workload.op("a").shape.kernel

    assert isinstance(kernel, AttentionShape) and kernel.window == 4096 and not model.left_out


def test_a_step_of_decode_reads_a_cache_and_has_no_backward_pass() -> None:
    text = layer_text(LLAMA_70B, Parallelism("h100", 8, sequence=False, keys=4096))
    (layer,) = compile_text(text).workloads

    assert layer.workload.op("a").shape.kernel == AttentionShape(64, 8, 1, 1, 4096, 128, DType.BF16, causal=True)
    assert [op.label for op in layer.workload.ops if op.is_pair] == ["GEMM+AR", "GEMM+AR"]


def test_sequences_of_each_rank_have_caches_of_their_own() -> None:
    parallel = replace(parallelism_for("sglang", "h200", 1, 8, 8, 8), keys=2048)
    (layer,) = compile_text(layer_text(read_config(GOLDEN / "qwen3_moe.json"), parallel)).workloads
    kernel = layer.workload.op("a").shape.kernel

    assert isinstance(kernel, AttentionShape) and (kernel.batch, kernel.heads, kernel.kv_len) == (8, 64, 2048)


def decoded(framework: str, tp: int, dp: int, ep: int) -> dict[str, KernelShape | None]:
    """The kernels of DeepSeek-V3's layer, that decodes 64 sequences of 2048 keys on 8 B300."""
    parallel = replace(parallelism_for(framework, "b300", tp, dp, ep, 8), keys=2048)
    layer, _ = compile_text(layer_text(read_config(GOLDEN / "deepseek_v3.json"), parallel)).workloads
    return {op.name: op.shape.compute for op in layer.workload.ops}


def test_compressed_attention_decodes_from_a_compressed_cache() -> None:
    """DeepSeek-V2, section 2.1.2: heads of 512 + 64 meet one head of keys, whose first 512 columns are the values."""
    by_heads, by_rows = decoded("vllm", 8, 1, 8), decoded("sglang", 1, 8, 8)

    for kernels, rows, heads in ((by_heads, 64, 16), (by_rows, 8, 128)):
        assert kernels["qk"] == BatchedGemmShape(heads, rows, 512, 128, DType.BF16)
        assert kernels["c"] == AttentionShape(
            rows, heads, 1, 1, 2048, 576, DType.BF16, causal=True, values=512, in_keys=True
        )
        assert kernels["a"] == BatchedGemmShape(heads, rows, 128, 512, DType.BF16)
    assert by_rows["ckv"] == GemmShape(8, 576, 7168, DType.BF16)


def test_experts_of_whole_activations_need_no_exchange() -> None:
    model, whole = read_config(GOLDEN / "qwen3_moe.json"), Parallelism("h100", 8, sequence=False)
    (layer,) = compile_text(layer_text(model, whole)).workloads

    assert layer.workload.op("y").shape.pattern is Pattern.ALL_REDUCE
    assert "form no pair" in (pairs := layer_text(model, whole, whole=False)) and "all_to_all" not in pairs


GATHERED, SUMMED = (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER), (Pattern.GEMM_AR, Pattern.ALL_REDUCE)
MEGATRON = (Pattern.AG_GEMM, Pattern.GEMM_RS)
SENT = (Pattern.ALL_TO_ALL, Pattern.ALL_TO_ALL)


@pytest.mark.parametrize(
    ("framework", "gpu", "shared", "moving", "sliced"),
    [
        ("vllm", "h200", (8, 1, 8), SUMMED, False),
        ("vllm", "h200", (8, 1, 1), SUMMED, True),
        ("vllm", "h200", (1, 8, 8), GATHERED, False),
        ("vllm", "h200", (1, 8, 1), GATHERED, True),
        ("sglang", "h200", (8, 1, 8), SUMMED, False),
        ("sglang", "h200", (8, 1, 1), SUMMED, True),
        ("sglang", "h200", (1, 8, 8), GATHERED, False),
        ("sglang", "h200", (1, 8, 1), GATHERED, True),
        ("megatron", "h200", (8, 1, 8), (*MEGATRON, *SENT), False),
        ("megatron", "h200", (8, 1, 1), (*MEGATRON, *GATHERED), True),
        ("megatron", "h200", (1, 8, 8), SENT, False),
        ("megatron", "h200", (1, 8, 1), GATHERED, True),
        ("trtllm", "h200", (8, 1, 8), SUMMED, False),
        ("trtllm", "h200", (8, 1, 1), SUMMED, True),
        ("trtllm", "h200", (1, 8, 8), GATHERED, False),
        ("trtllm", "h200", (1, 8, 1), GATHERED, True),
        ("trtllm", "gb200", (1, 8, 8), SENT, False),
    ],
)
@pytest.mark.parametrize("keys", [None, 2048], ids=["prefill", "decode"])
def test_collectives_are_where_a_framework_has_them(
    framework: str, gpu: str, shared: tuple[int, int, int], moving: tuple[Pattern, ...], sliced: bool, keys: int | None
) -> None:
    parallel = replace(parallelism_for(framework, gpu, *shared, 8), keys=keys)
    first, *others = compile_text(layer_text(read_config(GOLDEN / "qwen3_moe.json"), parallel)).workloads
    kernels = [op.shape.kernel for op in first.workload.ops if isinstance(op.shape.kernel, GroupedGemmShape)]

    assert tuple(op.shape.pattern for op in first.workload.ops if op.shape.moved is not None) == moving
    assert [len(each.rows) for each in kernels] == ([128] * 2 if sliced else [16] * 2)
    backward = framework == "megatron" and moving[-1] is Pattern.ALL_TO_ALL and keys is None
    assert bool(others) is backward


def test_trtllm_runs_its_own_attention_where_profiles_have_it() -> None:
    gpus = [name.partition("/")[2].upper() for name in shipped_libraries() if name.startswith(("amd/", "nvidia/"))]
    profiles = map(profile_of, gpus)
    known = {gpu.name: gpu.trtllm for gpu in profiles if gpu is not None}
    own, other = (
        layer_text(read_config(GOLDEN / "llama_70b.json"), parallelism_for(name, "b200", 8, 1, 1, 8))
        for name in ("trtllm", "vllm")
    )

    assert {name for name, model in known.items() if model is not None} == set(framework_named("trtllm").attention)
    assert ", by=trtllm)" in own and "by=" not in other
    kernels = [op.shape.kernel for op in compile_text(own).workloads[0].workload.ops]
    assert [each.by for each in kernels if isinstance(each, AttentionShape)] == ["trtllm"]


def test_shared_experts_and_compressed_heads_are_sharded_where_activations_are_whole() -> None:
    parallel = parallelism_for("vllm", "h200", 8, 1, 8, 8)
    layer, dense = compile_text(layer_text(read_config(GOLDEN / "deepseek_v3.json"), parallel)).workloads

    assert [op.shape.pattern for op in layer.workload.ops if op.shape.moved is not None] == list(SUMMED)
    assert layer.workload.op("su").shape.gemm == GemmShape(8192, 2 * 2048 // 8, 7168, DType.BF16)
    assert [op.label for op in dense.workload.ops if op.is_pair] == ["GEMM+AR", "GEMM+AR"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--for", "tgi"), "'tgi' is no framework that is known"),
        (("--for", "TensorRT-LLM"), "did you mean trtllm?"),
        (("--for", "transformer_engine"), "did you mean transformer-engine?"),
        (("--for", "async-tp"), "it is switched on in vllm and torchtitan"),
        (("--for", "trtllm", "--tp", "4", "--dp", "2"), "dp: with TensorRT-LLM 2 groups of 4 GPUs"),
        (("--for", "vllm", "--tp", "4", "--dp", "2"), "ep: experts that 2 groups of 4 GPUs share by columns"),
        (("--for", "vllm", "--tp", "4", "--dp", "2", "--ep", "8"), "dp: llama_70b has no experts"),
        (("--for", "vllm", "--ep", "4"), "ep: experts in groups of 4 of 8 GPUs"),
        (("--for", "vllm", "--tp", "1"), "tp: one GPU shares nothing"),
        (("--tp", "1"), "tp: one GPU shares nothing"),
        (("--ep", "8"), "for: --dp and --ep are of a framework"),
        (("--for", "vllm", "--no-sequence-parallel"), "vllm decides how activations"),
        (("--for", "vllm", "--tp", "1", "--dp", "8"), "dp: llama_70b has no experts"),
    ],
)
def test_what_no_framework_does_is_explained(options: tuple[str, ...], message: str) -> None:
    done = magus("from-model", GOLDEN / "llama_70b.json", "--gpu", "h100", *options)

    assert done.exit_code == 1 and message in " ".join(done.stderr.split())


@pytest.mark.parametrize(("framework", "keys"), [("vllm", None), ("sglang", 2048), ("megatron", None)])
def test_groups_share_attention_and_all_ranks_experts(framework: str, keys: int | None) -> None:
    parallel = replace(parallelism_for(framework, "h200", 2, 4, 8, 8), keys=keys)
    found = {
        each.name: each
        for each in compile_text(layer_text(read_config(GOLDEN / "deepseek_v3.json"), parallel)).workloads
    }
    attention, experts = found["attention"], found["experts"]
    tokens = 8192 if keys is None else 64

    assert (attention.num_ranks, experts.num_ranks, found["dense"].num_ranks) == (2, 8, 2)
    heads = attention.workload.op("a" if keys is None else "c").shape.compute
    products = experts.workload.op("u").shape.compute
    assert isinstance(heads, AttentionShape) and heads.heads == 128 // 2
    assert [op.shape.moved.rows for op in attention.workload.ops if op.shape.moved][-1] == tokens // 4
    assert isinstance(products, GroupedGemmShape) and products.rows == (tokens * 8 // 256,) * 32
    assert [op.label for op in experts.workload.ops if op.shape.moved] == (
        ["all_to_all"] * 2 if framework == "megatron" else ["all_gather", "reduce_scatter"]
    )
    assert ("attention_back" in found, "experts_back" in found) == (framework == "megatron",) * 2


def test_groups_have_no_pairs_and_no_question_of_training() -> None:
    options = ("--gpu", "h100", "--for", "sglang", "--tp", "2", "--dp", "4", "--ep", "8")
    done = magus("from-model", GOLDEN / "qwen3_moe.json", *options, "--pairs")
    training = ("--gpu", "h100", "--for", "megatron", "--tp", "2", "--dp", "4", "--ep", "8", "--train")
    asked = magus("ask", "--model", "qwen3-235b", *training)

    assert done.exit_code == 1 and "pairs: groups that share attention" in " ".join(done.stderr.split())
    assert asked.exit_code == 1 and "dp: a layer of 4 groups of 2 GPUs" in " ".join(asked.stderr.split())


def test_experts_alone_form_no_pair() -> None:
    done = magus(
        *("from-model", GOLDEN / "qwen3_moe.json", "--gpu", "h100", "--for", "sglang", "--tp", "1", "--dp", "8"),
        "--pairs",
    )
    assert done.exit_code == 1 and "pairs: no GEMM" in done.stderr


def test_a_whole_layer_without_gate_and_with_whole_activations(tmp_path: Path) -> None:
    model = read(tmp_path / "config.json", model_type="gpt_neox", num_key_value_heads=4)
    graphs = {
        each.name: each.workload for each in compile_text(layer_text(model, Parallelism("h100", 8, False))).workloads
    }

    assert [op.label for op in graphs["layer"].ops if op.is_pair] == ["GEMM+AR", "GEMM+AR"]
    assert graphs["layer_back"].op("d_qkv").label == "attention_back"


def test_without_sequence_parallelism_results_are_summed_for_all() -> None:
    text = layer_text(LLAMA_70B, Parallelism("mi300x", 4, sequence=False), whole=False)
    scenarios = cases_in(compile_text(text))

    assert [each.name for each in scenarios] == ["attention_out", "mlp_down"]
    assert {each.shape.pattern for each in scenarios} == {Pattern.GEMM_AR}


def test_experts_are_dealt_to_the_ranks() -> None:
    text = layer_text(read_config(GOLDEN / "qwen3_moe.json"), H100, whole=False)
    by_name = {each.name: each.shape for each in cases_in(compile_text(text))}
    kernel = by_name["dispatch"].compute

    assert by_name["dispatch"].label == "A2A+grouped_gemm" and by_name["combine"].label == "grouped_gemm+A2A"
    assert kernel is not None and len(kernel.rows) == 16 and sum(kernel.rows) == 8192  # type: ignore[attr-defined]


def test_heads_of_keys_are_held_by_several_ranks_where_they_are_few(tmp_path: Path) -> None:
    model = read(tmp_path / "config.json", num_key_value_heads=4)
    qkv = compile_text(layer_text(model, H100, whole=False)).scenario("qkv").case.shape.gemm
    assert qkv is not None and qkv.n == (64 // 8 + 2) * 128


def test_names_and_types(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    assert read(folder / "config.json").name == "my-model"
    assert read(folder / "other.json").name == "other"
    assert read(folder / "config.json", _name_or_path="meta/Llama-3.1").name == "Llama-3.1"
    assert read(folder / "config.json", torch_dtype="float16").dtype is DType.FP16
    assert read(folder / "config.json", torch_dtype=None).dtype is DType.BF16
    nested = {"text_config": LLAMA, "vision_config": {}}
    (folder / "config.json").write_text(json.dumps(nested))
    assert read_config(folder / "config.json").hidden == 8192


def test_a_name_cannot_leave_its_comment(tmp_path: Path) -> None:
    model = read(tmp_path / "config.json", _name_or_path="x\nsystem bad { }\x1b[31m")
    text = layer_text(model, H100)
    assert "\x1b" not in text and compile_text(text).workloads


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"hidden_size": ..., "model_type": ...}, "'hidden_size' is missing, also called n_embd"),
        ({"hidden_size": "8192"}, "hidden_size: a whole number is expected here, got a text"),
        ({"hidden_size": 0}, "hidden_size: a number from 1"),
        ({"hidden_size": 10**15}, "hidden_size: a number from 1"),
        ({"torch_dtype": "bf17"}, "torch_dtype: unknown word 'bf17'"),
        ({"n_routed_experts": 8, "num_experts_per_tok": ...}, "'num_experts_per_tok' is missing"),
    ],
)
def test_a_bad_configuration_is_explained(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(tmp_path / "config.json", **changed)
    assert message in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\0", b"\xff", b'{"a": NaN}', b"[" * 50_000])
def test_a_file_that_is_none_is_explained(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    done = magus("from-model", path, "--gpu", "h100")
    assert done.exit_code == 1 and "MGS1" in done.stderr and "Traceback" not in done.output


@pytest.mark.parametrize(
    ("parallel", "message"),
    [
        (Parallelism("h10", 8), "unknown GPU 'h10'; did you mean 'H100'?"),
        (Parallelism("h100", 12), "node: 12 GPUs do not fill nodes of 8"),
        (Parallelism("mi300x", 16), "nodes of MI300X have no switch"),
        (Parallelism("h100", 3), "num_attention_heads: 64 do not divide among 3 ranks"),
    ],
)
def test_what_does_not_fit_is_said(parallel: Parallelism, message: str) -> None:
    with pytest.raises(RequestError, match=message.replace("?", r"\?")):
        layer_text(read_config(GOLDEN / "llama_70b.json"), parallel)


@given(st.dictionaries(st.sampled_from([*LLAMA, "head_dim", "num_experts", "kv_lora_rank"]), st.integers(0, 1 << 26)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sizes_give_a_file_that_compiles_or_an_error(tmp_path: Path, changed: dict[str, Any]) -> None:
    try:
        text = layer_text(read(tmp_path / "config.json", **changed), H100)
    except (CompileError, RequestError) as error:
        assert "MGS" in str(error)
        return
    assert text.startswith("mgs 1\n") and "system node" in text


def test_one_rank_goes_back_where_it_went_forward() -> None:
    compiled = compile_text(layer_text(LLAMA_70B, Parallelism("h100", 1)))

    assert [compiled.scenario(name).system.num_ranks for name in ("layer", "layer_back")] == [1, 1]
