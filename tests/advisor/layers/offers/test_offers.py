"""What can be switched on for a whole layer: simulated like any schedule, and never better than the advice."""

from functools import cache

import pytest

from magus.advisor import Advice, AdviceOptions, recommend_graph
from magus.advisor.implementations.layer_offer import promised
from magus.advisor.layers.export import graph_advice_document
from magus.advisor.layers.offers.find import DOMINO
from magus.compiler import CompileError, compile_text
from magus.compiler.ir import OF_LAYERS
from magus.compiler.resolve.expect.expectation import Verdict
from magus.tui.text.graph_advice import graph_advice_text
from tests.helpers.scenarios.mlp_backward import TEXT

pytestmark = pytest.mark.usefixtures("compiled_core")

SIZES = {"m": 1024, "width": 2048, "inner": 8192, "both": 16384, "ranks": 4, "layers": 2}
BACK = TEXT.format(**SIZES).partition("schedule pairs")[0]
QUICK = AdviceOptions(verify=False)
AT_ENGINES = "explore back { engine dma(3) }"
BATCHES = """
use "nvidia/h100"
system hgx { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload two on hgx {
  x  = tensor bf16[2048, 1024] shard rows
  wu = tensor bf16[1024, 4096] shard cols
  wd = tensor bf16[4096, 1024] shard rows
  y = reduce_scatter(gemm(gelu(gemm(all_gather(x), wu)), wd))
  repeat 2 y as x
  batch x by 512
}
explore two { engine dma(3) }
"""


@cache
def advice_on(text: str) -> Advice:
    return recommend_graph(compile_text(text).workloads[0], QUICK)


def test_each_implementation_has_its_best_table_with_gain_and_loss() -> None:
    advice = advice_on(BACK + AT_ENGINES)

    assert {offer.implementation for offer in advice.offers} == set(OF_LAYERS)
    for offer in advice.offers:
        candidate = advice.named(offer.schedule)
        assert candidate is not None and candidate.predicted_ticks == offer.ticks <= offer.all_ticks
        taken = candidate.ticks + offer.extra_ticks  # as exact as what it is compared with
        assert advice.loss_of(offer) == pytest.approx(taken / advice.recommended.ticks - 1)
        assert advice.gain_of(offer) == pytest.approx(advice.serial.ticks / taken)
    assert [each.all_ticks for each in advice.offers] == sorted(each.all_ticks for each in advice.offers)


def test_what_the_file_does_not_explore_is_compared_and_never_recommended() -> None:
    advice = advice_on(BACK + "explore back { engine sm(16) }")
    engine = advice.named("transformer_engine")

    assert engine is not None and engine.is_outside and engine.ticks < advice.recommended.ticks
    assert advice.recommended is not engine and engine.result is not None  # it is near, and simulated like the others


def test_without_limits_what_people_have_may_be_the_answer() -> None:
    advice = advice_on(BATCHES.partition("explore")[0])

    assert {one.is_outside for one in advice.candidates} == {False}


def test_what_is_not_known_of_an_implementation_is_said() -> None:
    advice = advice_on(BACK + AT_ENGINES)
    engine, fused = (advice.offer(name) for name in OF_LAYERS)

    assert engine is not None and "calls" in engine.unknown
    assert fused is not None and not fused.unknown and fused.extra_ticks > 0
    text = graph_advice_text(advice, ["back.mgs"])
    assert "transformer_engine: not known, and left out: the costs of its calls" in " ".join(text.split())


def test_all_pairs_are_fused_or_none() -> None:
    fused = advice_on(BACK + AT_ENGINES).offer("torch_async_tp")

    assert fused is not None
    assert {each.op for each in fused.table.settings} == {"dh", "dx"}


def test_the_file_says_which_implementations_count() -> None:
    asked = 'use "implementations/torch_async_tp"\n' + BACK
    advice = advice_on(asked + "explore back { engine dma(3); implementations torch_async_tp }")

    assert [offer.implementation for offer in advice.offers] == ["torch_async_tp"]


def test_an_implementation_of_pairs_alone_is_refused() -> None:
    text = 'use "implementations/flux"\n' + BACK + "explore back { implementations flux }"

    with pytest.raises(CompileError, match="what flux does with them is not known"):
        compile_text(text).workloads[0]


def test_gpus_that_it_is_not_known_for_have_no_offer() -> None:
    text = BACK.replace("nvidia/h100", "amd/mi300x").replace("H100", "MI300X")
    text = text.replace("switch(nvswitch, link=nvlink)", "full_mesh(xgmi)") + "explore back { engine dma(3); chunks 8 }"

    assert advice_on(text).offers == ()


def test_batches_are_offered_as_domino_does_them() -> None:
    offer = advice_on(BATCHES).offer(DOMINO)

    assert offer is not None and offer.table.choice.batches == 2


@pytest.mark.parametrize(
    ("gain", "unknown", "verdict"),
    [
        (1.01, "", Verdict.SERIAL),
        (1.04, "", Verdict.WORTH_TRYING),
        (1.2, "calls", Verdict.WORTH_TRYING),
        (1.2, "", Verdict.OVERLAP),
    ],
)
def test_a_gain_counts_beyond_the_error_if_all_costs_are_known(gain: float, unknown: str, verdict: Verdict) -> None:
    assert promised(gain, 0.05, unknown) is verdict


def test_the_document_has_the_settings() -> None:
    found = graph_advice_document(advice_on(BACK + AT_ENGINES))["implementations"]
    engine = next(each for each in found if each["name"] == "transformer_engine")

    assert {"layer", "op", "method", "num_sm", "num_splits", "copy_engine"} == set(engine["settings"][0])
    assert engine["flags"][0] == "--tp-comm-overlap" and engine["unknown"]
