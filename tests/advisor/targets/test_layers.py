"""Settings of layers: Transformer Engine under Megatron, and the passes of vLLM."""

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from magus.advisor.candidates.advice import Advice
from magus.advisor.implementations.offers import Offer, Offers, offers_of
from magus.advisor.implementations.predict import Promise
from magus.advisor.policy.table import PolicyTable, SweepPoint
from magus.advisor.targets import Refused
from magus.advisor.targets.megatron import LAYERS, MEGATRON
from magus.advisor.targets.settings import VLLM
from magus.compiler import compile_text
from magus.compiler.resolve.schedules.from_text import SERIAL as SERIAL_CHOICE
from tests.helpers.layer_advice import advice_by_hand
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


UP = """
use "nvidia/h100"
system node {{ gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }}
workload up on node {{
  x = tensor bf16[{m}, 8192] shard rows
  w = tensor bf16[8192, 3584] shard cols
  y = gemm(all_gather(x), w)
  {behind}
}}
"""
OFFERS = {512: 0.8, 2048: 1.1, 4096: 1.3}


def advised(m: int, gain: float, error: float | None = 0.12, behind: str = "") -> Advice:
    """The answer for M rows, where async-TP gains that over the library."""
    compiled = compile_text(UP.format(m=m, behind=behind))
    offers = Offers("torch_nccl", 1000.0, (Offer("torch_async_tp", 1000 / gain, Promise(gain, error)),))
    scenario = compiled.workloads[0]
    return replace(advice_by_hand(scenario, SERIAL_CHOICE, 1000, 1000), offers=offers)


def at(m: int, advice: Advice) -> SweepPoint:
    return SweepPoint((("M", str(m)),), advice)


def answered(gains: Mapping[int, float], error: float | None = 0.12) -> PolicyTable:
    points = tuple(at(m, advised(m, gain, error)) for m, gain in gains.items())
    return replace(table_of(SERIAL, RING), points=points)


def test_vllm_fuses_from_the_tokens_on_where_async_tp_pays() -> None:
    text = VLLM.text(answered(OFFERS), {})

    assert_golden(text, "vllm.yaml")
    assert passes(text) == {"enable_sp": True, "fuse_gemm_comms": True, "sp_min_token_num": 4096}


def test_vllm_fuses_nothing_where_that_may_not_pay() -> None:
    unsure = answered({512: 0.8, 4096: 1.1})

    assert passes(VLLM.text(unsure, {})) == {"enable_sp": False, "fuse_gemm_comms": False}


@pytest.mark.slow
def test_a_kernel_behind_a_pair_changes_no_threshold_of_vllm() -> None:
    """What is added to both times moves the gain, and by the same share its error."""
    sizes = (1024, 4096, 16384, 65536)
    files = [VLLM.text(content, {}) for content in (swept_pair(sizes), swept_layer(sizes))]

    pair, layer = map(passes, files)
    assert pair == layer and pair["sp_min_token_num"] in sizes


def with_offers(m: int, behind: str = "") -> Advice:
    """An answer with what implementations are predicted to take."""
    advice = advised(m, 1.0, behind=behind)
    return replace(advice, offers=offers_of(advice.scenario))


def swept_pair(sizes: Sequence[int]) -> PolicyTable:
    return replace(table_of(RING), points=tuple(at(m, with_offers(m)) for m in sizes))


def swept_layer(sizes: Sequence[int]) -> PolicyTable:
    points = [replace(at(m, with_offers(m, "n = norm(y)")), choice=SERIAL_CHOICE) for m in sizes]
    return replace(table_of(), points=tuple(points))


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (answered({64: 1.3, 512: 1.0}), "no longer at M = 512"),
        (replace(answered({64: 1.3}), points=(at(64, replace(advised(64, 1.3), offers=None)),)), "is not known"),
    ],
)
def test_what_vllm_has_no_setting_for_is_refused(table: PolicyTable, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        VLLM.text(table, {})
