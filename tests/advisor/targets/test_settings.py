"""Settings of frameworks and compilers: what pays is written with its gain, else the nearest is named."""

import json
from dataclasses import replace

import pytest

from magus.advisor.answer.switches import weights_gathered
from magus.advisor.implementations.offers import Offer, Offers
from magus.advisor.implementations.predict import Promise
from magus.advisor.policy.table import PolicyTable, SweepPoint, implementation_at_all
from magus.advisor.targets import Refused
from magus.advisor.targets.settings import nearest_of, switched_at
from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import TICKS_PER_US, OpChoice, OpMode, Scenario, Schedule
from magus.compiler.resolve.schedules.from_text import SERIAL
from tests.advisor.targets.test_graph_targets import DMA, WHOLE, sweep_of, table_with, text_of
from tests.helpers.layer_advice import advice_by_hand
from tests.helpers.scenarios.mlp_backward import backward

LAYER = """
use "nvidia/h100"
system s {{ gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }}
workload layer on s {{
  {lines}
  repeat 4 y as x
}}
"""
SHARED = """
  x = tensor bf16[4096, 1024] shard rows
  w = tensor bf16[1024, 1024] shard flat
  v = tensor bf16[1024, 512] shard flat
  wa = all_gather(w)
  va = all_gather(v)
  y = add(x, gemm(gemm(x, wa), wa))
  z = gemm(x, va)
"""
BY_TP = """
  x = tensor bf16[{tokens}, 1024] shard rows
  wu = tensor bf16[1024, 8192] shard cols
  wd = tensor bf16[8192, 1024] shard rows
  y = add(x, reduce_scatter(gemm(gelu(gemm(all_gather(x), wu)), wd)))
"""
EXPERTS = """
  x = tensor bf16[4096, 1024] shard rows
  wu = tensor bf16[8 * 1024, 2 * 512] shard rows
  wd = tensor bf16[8 * 512, 1024] shard rows
  t = dispatch(norm(x), experts=8, top=2)
  u = grouped_gemm(t, wu)
  y = add(x, combine(grouped_gemm(swiglu(u), wd)))
"""


def layer_of(lines: str) -> Scenario:
    (scenario,) = compile_text(LAYER.format(lines=lines)).workloads
    return scenario


def table_of(*points: tuple[Scenario, dict[str, float]]) -> PolicyTable:
    """A table of points at which implementations take so many us, and the library 1000."""
    made = []
    for number, (scenario, times) in enumerate(points):
        offers = tuple(Offer(name, us, Promise(1000 / us, None, "costs")) for name, us in times.items())
        advice = replace(
            advice_by_hand(scenario, SERIAL, 1000 * TICKS_PER_US, 1000 * TICKS_PER_US),
            offers=Offers("torch_nccl", 1000.0, offers),
        )
        made.append(SweepPoint((("P", str(number)),), advice, SERIAL, {SERIAL.name: 1000}))
    return table_with(*made)


def settings_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


AHEAD = {"weights_ahead": 900.0, "weights_ahead_by_engines": 800.0}


def test_torchtitan_gains_over_what_it_gathers_ahead_today() -> None:
    text = text_of("torchtitan", table_of((layer_of(SHARED), AHEAD)))

    assert settings_of(text) == ["NCCL_CTA_POLICY=2, --parallelism.enable_fsdp_symm_mem"]
    assert "# gathers of weights by copy engines: P = 0: 1.12x over today, error not measured, costs" in text


def test_deepspeed_and_xla_have_the_weights_of_a_layer_as_threshold() -> None:
    table = table_of((layer_of(SHARED.replace("1024", "8192")), AHEAD))
    elements = 8192 * 8192 + 8192 * 512

    assert json.loads(settings_of(text_of("deepspeed", table))[0])["zero_optimization"] == {
        "stage": 3,
        "overlap_comm": True,
        "stage3_prefetch_bucket_size": elements,
    }
    assert text_of("xla", table).splitlines()[0].endswith("magus export --to xla")
    (flags,) = settings_of(text_of("xla", table))
    assert flags.startswith("XLA_FLAGS='--xla_gpu_enable_latency_hiding_scheduler=true ")
    assert f"--xla_gpu_all_gather_combine_threshold_bytes={2 * elements} " in flags
    assert "parallel_collective_overlap_limit=1'" in flags and "einsum" not in flags


def test_what_is_on_by_default_up_to_a_size_gains_nothing_there() -> None:
    with pytest.raises(Refused, match="nothing that DeepSpeed") as caught:
        text_of("deepspeed", table_of((layer_of(SHARED), AHEAD)))
    assert "1.00x, which does not pay" in caught.value.rejection.hint


def test_xla_has_rings_of_products_from_the_size_on_from_which_they_gain() -> None:
    table = table_of((layer_of(BY_TP.format(tokens=4096)), {"xla": 800.0}))

    (flags,) = settings_of(text_of("xla", table))
    threshold = int(flags.rstrip("'").rpartition("windowed_einsum_mib=")[2])
    assert "--xla_gpu_multi_streamed_windowed_einsum=true" in flags and 0 <= threshold <= 4096 * 2048 * 2 >> 20


def test_inductor_has_the_scheduler_with_the_times_of_the_machine() -> None:
    lines = settings_of(text_of("inductor", table_of((layer_of(SHARED), AHEAD))))

    assert "options.collective_bucketing = True" in lines and "options.max_compute_pre_fetch = 3" in lines
    assert "options.custom_runtime_estimation = Oracle(gpu='H100', ranks=4).inductor()" in lines
    compile("\n".join(lines), "inductor", "exec")
    async_tp = settings_of(
        text_of("inductor", table_of((layer_of(BY_TP.format(tokens=4096)), {"torch_async_tp": 500.0})))
    )
    assert async_tp[-1] == "config._micro_pipeline_tp = True"


def test_two_batches_are_for_experts_that_are_sent_rows() -> None:
    times = {"two_batch_overlap": 800.0}

    assert settings_of(text_of("sglang", table_of((layer_of(EXPERTS), times)))) == [
        "--moe-a2a-backend deepep --enable-two-batch-overlap --tbo-token-distribution-threshold 0.48"
    ]
    with pytest.raises(Refused, match="nothing that SGLang can switch on pays here"):
        text_of("sglang", table_of((layer_of(BY_TP.format(tokens=4096)), times)))


def test_a_switch_without_a_threshold_says_from_how_many_tokens_it_pays() -> None:
    small = layer_of(EXPERTS.replace("4096", "512"))
    table = table_of((small, {"two_batch_overlap": 1100.0}), (layer_of(EXPERTS), {"two_batch_overlap": 800.0}))

    text = text_of("sglang", table)
    assert "pays from 4096 tokens of a step on, 1024 of each GPU, and not at P = 0" in text.replace("\n# ", " ")
    assert settings_of(text) == settings_of(
        text_of("sglang", table_of((layer_of(EXPERTS), {"two_batch_overlap": 800.0})))
    )
    lost = table_of((small, {"two_batch_overlap": 800.0}), (layer_of(EXPERTS), {"two_batch_overlap": 1100.0}))
    with pytest.raises(Refused, match="pays at P = 0, and not at P = 1"):
        text_of("sglang", lost)


@pytest.mark.parametrize(("speedup", "error", "outside"), [(1.3, None, ""), (1.3, 0.1, "elsewhere"), (1.3, 0.4, "")])
def test_tables_questions_and_files_decide_by_one_rule(speedup: float, error: float | None, outside: str) -> None:
    layer, promise = layer_of(BY_TP.format(tokens=4096)), Promise(speedup, error, outside)
    (point,) = table_of((layer, {})).points
    offers = Offers("torch_nccl", 1000.0, (Offer("torch_async_tp", 1000 / speedup, promise),))
    point = replace(point, advice=replace(point.advice, offers=offers))
    pays = speedup > 1 + (error or 0)

    (asked,) = switched_at("torchtitan", point)
    assert asked.pays is pays and (point.offer is not None) is pays
    assert implementation_at_all([point.advice]) == ("torch_async_tp" if pays else "")
    if pays:
        assert settings_of(text_of("torchtitan", table_with(point))) == [asked.setting]
    else:
        with pytest.raises(Refused, match="nothing that torchtitan"):
            text_of("torchtitan", table_with(point))


def test_what_was_measured_comes_before_what_was_not() -> None:
    offers = (Offer("guessed", 500.0, Promise(2.0, None)), Offer("measured", 700.0, Promise(1.4, 0.1)))

    assert [each.name for each in Offers("torch_nccl", 1000.0, offers).paying] == ["measured", "guessed"]


@pytest.mark.parametrize("name", ["megatron", "vllm"])
def test_what_a_format_cannot_say_is_refused_with_the_nearest_that_pays(name: str) -> None:
    table = table_of((layer_of(EXPERTS), {"two_batch_overlap": 800.0}))

    with pytest.raises(Refused) as caught:
        text_of(name, table)
    assert caught.value.rejection.code is Code.MGS550
    assert caught.value.rejection.hint == nearest_of(name, table.points[0])
    assert "1.25x, which pays" in caught.value.rejection.hint


def test_what_pays_nowhere_or_at_some_points_alone_is_refused() -> None:
    slow, fast = (
        (layer_of(SHARED), {"weights_ahead": 990.0, "weights_ahead_by_engines": 985.0}),
        (layer_of(SHARED), AHEAD),
    )

    with pytest.raises(Refused, match="nothing that torchtitan") as caught:
        text_of("torchtitan", table_of(slow))
    assert "1.01x, which does not pay" in caught.value.rejection.hint
    with pytest.raises(Refused, match="pays at P = 1, and not at P = 0"):
        text_of("torchtitan", table_of(slow, fast))


def test_calls_of_nccl_are_configured_each_for_itself() -> None:
    found = json.loads(text_of("nccl-config", sweep_of(backward(), WHOLE)))
    assert found["environment"] == {"NCCL_MIN_CTAS": "16", "NCCL_MAX_CTAS": "16"}
    assert [call["config"] for call in found["ncclCollConfig_t"]] == [
        {"minCTAs": 16, "maxCTAs": 16, "algSelection": "RING_SIMPLE"}
    ] * 2

    by_engines = Schedule("joint", (OpMode("xg", OpChoice("serial", 4, DMA)),))
    found = json.loads(text_of("nccl-config", sweep_of(backward(), by_engines)))
    assert found["environment"] == {"NCCL_CTA_POLICY": "2"}
    assert found["ncclCollConfig_t"][0]["config"] == {"CTAPolicy": "NCCL_CTA_POLICY_ZERO"}
    with pytest.raises(Refused, match="moves data by copy engines"):
        text_of(
            "nccl-config", sweep_of(backward(), Schedule("joint", (OpMode("dx", separate=OpChoice("serial", 4, DMA)),)))
        )


def test_weights_that_are_gathered_are_those_that_are_declared() -> None:
    assert weights_gathered(layer_of(SHARED)) == {"wa", "va"}
    assert not weights_gathered(backward())  # gathers activations again
    assert not weights_gathered(layer_of(BY_TP.format(tokens=4096)))
