"""Settings of layers: Transformer Engine under Megatron, and the passes of vLLM."""

import inspect
import json

import pytest

from magus.advisor.policy.table import PolicyTable
from magus.advisor.targets import Refused
from magus.advisor.targets.megatron import LAYERS, MEGATRON
from magus.advisor.targets.vllm import VLLM
from tests.helpers.policy_rules import assert_golden, gemm_rule, table_of
from tests.helpers.some import some

RING = gemm_rule("shard_p2p(engine=sm(2))", 4096, 8192, copy_sms=2)
PIPELINE = gemm_rule(
    "uniform_fused_1d(chunks=32, engine=sm(16))", 4096, 8192, pattern="GEMM+RS", chunks=32, copy_sms=16
)
SERIAL = gemm_rule("serial(engine=sm(16, library))", 512, 4095)


def add_ub(  # the keys that Transformer Engine 2 takes; any other one is a TypeError
    method: str = "",
    num_sm: int = 16,
    cga_size: int = 2,
    set_sm_margin: bool = False,
    num_splits: int = 0,
    aggregate: bool = False,
    atomic_gemm: bool = False,
    use_ce: bool = True,
    fp8_buf: bool = False,
) -> None:
    assert method in ("ring_exchange", "pipeline", "bulk")


def read_yaml(text: str) -> dict[str, dict[str, str]]:
    """Blocks of ``key: value`` under names, which is all that these files have."""
    blocks: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(": ")
        if line.startswith("  "):
            list(blocks.values())[-1][name.strip()] = value
        elif not line.startswith("#"):
            blocks[line.removesuffix(":")] = {}
    return blocks


@pytest.mark.parametrize(
    ("table", "options", "name"),
    [
        (table_of(RING), {"layer": "fc1_fprop"}, "ring"),
        (table_of(RING), {"layer": "fc1_fprop", "te": "1"}, "ring_te1"),
        (table_of(gemm_rule("shard_p2p(engine=dma(1))", 4096, 8192)), {"layer": "qkv_fprop"}, "ring_by_engines"),
        (table_of(PIPELINE), {"layer": "fc2_fprop"}, "pipeline"),
    ],
)
def test_a_layer_has_a_method_and_what_moves_its_data(table: PolicyTable, options: dict[str, str], name: str) -> None:
    text = MEGATRON.text(table, options)

    assert_golden(text, f"megatron_{name}.yaml")
    ((layer, settings),) = read_yaml(text).items()
    assert layer == options["layer"]
    inspect.signature(add_ub).bind(**settings)


def test_files_of_several_layers_may_be_joined() -> None:
    texts = [MEGATRON.text(table_of(RING), {"layer": layer}) for layer in ("qkv_fprop", "fc1_fprop")]

    assert list(read_yaml("".join(texts))) == ["qkv_fprop", "fc1_fprop"]


def test_every_layer_is_of_one_pattern() -> None:
    names = [name for layers in LAYERS.values() for name in layers]

    assert len(names) == len(set(names))
    for name in some(names):
        assert name.split("_")[0] in ("qkv", "proj", "fc1", "fc2")


@pytest.mark.parametrize(
    ("table", "options", "reason"),
    [
        (table_of(RING), {"layer": "fc2_fprop"}, "fc2_fprop is no AG\\+GEMM"),
        (table_of(SERIAL), {"layer": "fc1_fprop"}, "no overlap pays"),
        (table_of(SERIAL, RING), {"layer": "fc1_fprop"}, "no overlap pays"),
        (
            table_of(gemm_rule("shard_p2p(engine=sm(1))", 512, 4095, copy_sms=1), RING),
            {"layer": "fc1_fprop"},
            "several",
        ),
        (table_of(gemm_rule("hetero_fused_1d(engine=sm(4))", 64, 128)), {"layer": "fc1_fprop"}, "is no method"),
        (
            table_of(gemm_rule("uniform_fused_1d(chunks=16, engine=sm(4))", 64, 128, copy_sms=4)),
            {"layer": "fc1_fprop"},
            "is no method",
        ),
        (
            table_of(gemm_rule("uniform_fused_1d(engine=dma(7))", 64, 128, pattern="GEMM+RS")),
            {"layer": "proj_fprop"},
            "'pipeline' moves data by SMs",
        ),
        (
            table_of(gemm_rule("shard_p2p(engine=dma(1))", 64, 128)),
            {"layer": "fc1_fprop", "te": "1"},
            "Transformer Engine 1 moves data by SMs",
        ),
        (
            table_of(gemm_rule("shard_p2p(engine=sm(1))", 64, 128, copy_sms=1, ranks=16, nodes=2)),
            {"layer": "fc1_fprop"},
            "within one node",
        ),
    ],
)
def test_what_transformer_engine_has_no_setting_for_is_refused(
    table: PolicyTable, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(Refused, match=reason) as error:
        MEGATRON.text(table, options)

    assert error.value.rejection.code.name == "MGS550"
    assert error.value.rejection.hint


@pytest.mark.parametrize(
    ("options", "code"), [({}, "MGS209"), ({"layer": "fc3_fprop"}, "MGS311"), ({"layr": "fc1_fprop"}, "MGS203")]
)
def test_the_layer_is_named_and_known(options: dict[str, str], code: str) -> None:
    with pytest.raises(Refused) as error:
        MEGATRON.text(table_of(RING), options)

    assert error.value.rejection.code.name == code


def passes(text: str) -> dict[str, object]:
    """The pass configuration in a file for ``vllm serve --config``."""
    line = text.splitlines()[-1]
    key, _, quoted = line.partition(": ")
    assert key == "compilation-config"
    found: dict[str, object] = json.loads(quoted.strip("'"))["pass_config"]
    return found


def test_vllm_fuses_from_the_tokens_on_where_overlap_pays() -> None:
    text = VLLM.text(table_of(SERIAL, RING), {})

    assert_golden(text, "vllm.yaml")
    assert passes(text) == {"enable_sp": True, "fuse_gemm_comms": True, "sp_min_token_num": 4096}


def test_vllm_fuses_nothing_where_overlap_may_not_pay() -> None:
    unsure = gemm_rule("shard_p2p(engine=sm(2))", 4096, 8192, copy_sms=2, verdict="worth_trying")

    assert passes(VLLM.text(table_of(SERIAL, unsure), {})) == {"enable_sp": False, "fuse_gemm_comms": False}


def test_another_schedule_than_that_of_vllm_is_marked() -> None:
    assert "vLLM cuts by rank" in VLLM.text(table_of(gemm_rule("hetero_fused_1d(engine=dma(7))", 64, 128)), {})
    assert "vLLM cuts by rank" not in VLLM.text(table_of(RING), {})


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (table_of(gemm_rule("hetero_fused_1d(engine=dma(7))", 64, 511), SERIAL), "no longer at M 512..4095"),
        (table_of(gemm_rule("hetero_fused_1d(engine=dma(7))", 64, 511, pattern="A2A+GEMM")), "no pass for A2A"),
    ],
)
def test_what_vllm_has_no_setting_for_is_refused(table: PolicyTable, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        VLLM.text(table, {})
