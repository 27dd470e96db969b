"""What can be switched on for a whole layer: simulated like any schedule, and never better than the advice."""

from functools import cache
from typing import TypeVar

import pytest

from magus.advisor import Advice, AdviceOptions, recommend_workload
from magus.advisor.answer.export import advice_document
from magus.advisor.implementations.offers import Unknown, offers_of
from magus.advisor.implementations.predict import library_us, predict_us, simulated_us
from magus.advisor.layers.orders import DOMINO
from magus.compiler import CompileError, compile_text
from magus.compiler.ir import EngineChoice, EngineKind, Implementation, OpCase, OpChoice, Rejection
from magus.compiler.resolve.expect.expectation import Verdict
from magus.compiler.resolve.schedules.implementation import shipped_implementations
from magus.tui.text.render import advice_text
from tests.helpers.scenarios.mlp_backward import TEXT

pytestmark = pytest.mark.usefixtures("compiled_core")

SIZES = {"m": 1024, "width": 2048, "inner": 8192, "both": 16384, "ranks": 4, "layers": 2}
BACK = TEXT.format(**SIZES).partition("schedule pairs")[0]
QUICK = AdviceOptions(verify=False, bespoke=0)
AT_ENGINES = "explore back { engine dma(3); chunks 8, 16 }"
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
explore two { engine dma(3); chunks 8, 16 }
"""
PAIR = """
use "nvidia/h100"
system hgx { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }
workload up on hgx {
  x = tensor bf16[4096, 4096] shard rows
  w = tensor bf16[4096, 8192] shard cols
  y = gemm(all_gather(x), w)
  BEHIND
}
"""


Found = TypeVar("Found")


def known(found: Found | None) -> Found:
    assert found is not None
    return found


def pair_text(behind: str) -> str:
    return PAIR.replace("BEHIND", behind)


@cache
def advice_on(text: str) -> Advice:
    return recommend_workload(compile_text(text).workloads[0], QUICK)


@pytest.mark.slow
def test_each_implementation_has_one_figure_over_the_library() -> None:
    advice = advice_on(BACK + AT_ENGINES)
    offers = known(advice.offers)

    named = {"transformer_engine", "torch_async_tp", "flux", "kraken", "mkernel_hopper", "triton_distributed"}
    assert {offer.name for offer in offers.offers} == named
    assert offers.library == "torch_nccl" and advice.baseline_text == "the library"  # both are named
    for offer in offers.offers:
        assert offer.promise.speedup == pytest.approx(known(offers.library_us) / offer.us)
        assert advice.named(offer.name) is None  # no schedule has the name, and another time
    engine = known(known(advice.offer("transformer_engine")).order)
    candidate = known(advice.named(engine.schedule))
    assert engine.ticks == candidate.ticks < engine.all_ticks  # as exact as what it is compared with
    assert [each.us for each in offers.offers] == sorted(each.us for each in offers.offers)


@pytest.mark.slow
def test_times_of_ops_one_after_the_other_add_up() -> None:
    scenario = compile_text(BACK + AT_ENGINES).workloads[0]
    fused = known(advice_on(BACK + AT_ENGINES).offer("torch_async_tp"))
    shipped = {each.name: each for each in shipped_implementations(scenario.system)}
    done = [case for case in scenario.cases if case.name in fused.ops]
    others = [case for case in scenario.cases if case.name not in fused.ops]

    by_it = sum(us_of(predict_us(case, shipped["torch_async_tp"])) for case in done)
    by_library = sum(library_alone_us(case, shipped["torch_nccl"]) for case in others)

    assert fused.us == pytest.approx((by_it + by_library) * scenario.num_layers)


def us_of(predicted: float | Rejection) -> float:
    assert isinstance(predicted, float)
    return predicted


def library_alone_us(case: OpCase, library: Implementation) -> float:
    """The library's time of an op: with its call where that is known, as of a collective alone it is not."""
    if case.shape.moved is None:
        return simulated_us(case, OpChoice("serial", case.num_ranks, EngineChoice(EngineKind.DMA, 1)))
    return library_us(case) if library.method(case.shape.pattern) is None else us_of(predict_us(case, library))


@pytest.mark.slow
def test_a_pair_has_the_same_offers_with_a_kernel_behind_it() -> None:
    pair = compile_text(pair_text("")).scenario("up")
    layer = compile_text(pair_text("n = norm(y)")).workloads[0]
    alone, behind = known(offers_of(pair)), known(offers_of(layer))

    assert [each.name for each in alone.offers] == [each.name for each in behind.offers]
    added = {round(two.us - one.us, 3) for one, two in zip(alone.offers, behind.offers, strict=True)}
    assert added == {round(known(behind.library_us) - known(alone.library_us), 3)}  # the kernel alone
    assert [each.promise.verdict for each in alone.offers] == [each.promise.verdict for each in behind.offers]


@pytest.mark.slow
def test_what_the_file_does_not_explore_is_compared_and_never_recommended() -> None:
    advice = advice_on(BACK + "explore back { engine sm(4) }")
    engine = advice.named("te_table")

    assert engine is not None and engine.is_outside and engine.ticks < advice.recommended.ticks
    assert advice.recommended is not engine and engine.result is not None  # it is near, and simulated like the others


@pytest.mark.slow
def test_without_limits_what_people_have_may_be_the_answer() -> None:
    advice = advice_on(BATCHES.partition("explore")[0])

    assert {one.is_outside for one in advice.candidates} == {False}


def test_what_is_not_known_of_an_implementation_is_said() -> None:
    advice = advice_on(BACK + AT_ENGINES)
    engine, fused = (known(advice.offer(name)) for name in ("transformer_engine", "torch_async_tp"))

    assert "calls" in engine.promise.outside and engine.promise.verdict is not Verdict.OVERLAP
    assert "calls" not in fused.promise.outside
    text = advice_text(advice, 8)
    assert "the costs of its calls are taken to be the library's" in " ".join(text.split())


def test_an_op_of_which_nothing_was_measured_here_is_left_to_the_library() -> None:
    advice = advice_on(BACK + AT_ENGINES)
    fused, why = (
        advice.offer("torch_async_tp"),
        "GEMM+RS is not known here: it was measured on B300, fp8, up to 320 rows",
    )

    assert fused is not None and set(fused.ops) == {"dh"}
    assert known(advice.offers).unknown == (Unknown("torch_async_tp", why),)
    assert f"! torch_async_tp: {why}" in " ".join(advice_text(advice, top=5).split())


def test_the_file_says_which_implementations_count() -> None:
    requested = 'use "implementations/torch_async_tp"\n' + BACK
    advice = advice_on(requested + "explore back { engine dma(3); chunks 8; implementations torch_async_tp }")

    assert [offer.name for offer in known(advice.offers).offers] == ["torch_async_tp"]


def test_an_implementation_that_does_none_of_the_ops_is_refused() -> None:
    text = 'use "implementations/mori"\n' + BACK + "explore back { implementations mori }"

    with pytest.raises(CompileError, match="mori carries out none of the"):
        compile_text(text).workloads[0]


@pytest.mark.slow
def test_gpus_that_it_is_not_known_for_have_no_offer() -> None:
    text = BACK.replace("nvidia/h100", "amd/mi300x").replace("H100", "MI300X")
    text = text.replace("switch(nvswitch, link=nvlink)", "full_mesh(xgmi)") + "explore back { engine dma(3); chunks 8 }"

    assert advice_on(text).offers is None


def test_batches_are_offered_as_domino_does_them() -> None:
    offer = advice_on(BATCHES).offer(DOMINO)

    assert offer is not None and offer.order is not None and offer.order.table.choice.batches == 2


def test_the_document_has_the_settings() -> None:
    found = advice_document(advice_on(BACK + AT_ENGINES))["implementations"]["offers"]
    engine = next(each for each in found if each["name"] == "transformer_engine")

    assert {"layer", "op", "method", "num_sm", "num_splits", "copy_engine"} == set(engine["settings"][0])
    assert engine["flags"][0] == "--tp-comm-overlap" and engine["outside"]


WEIGHTS = """
use "nvidia/h100"
system s { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload layer on s {
  x = tensor bf16[4096, 1024] shard rows
  w = tensor bf16[1024, 1024] shard flat
  wa = all_gather(w)
  y = add(x, gemm(x, wa))
  repeat 4 y as x
}
explore layer { engine dma(3) }
"""
PRODUCTS = """
use "nvidia/h100"
use "implementations/xla"
system s { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload layer on s {
  x = tensor bf16[2048, 1024] shard rows
  wu = tensor bf16[1024, 1024] shard cols
  wd = tensor bf16[1024, 1024] shard rows
  y = add(x, reduce_scatter(gemm(gelu(gemm(all_gather(x), wu)), wd)))
}
explore layer { implementations xla; engine dma(3); chunks 8 }
"""


def test_weights_are_gathered_ahead_by_the_library_and_by_engines() -> None:
    offers = known(advice_on(WEIGHTS).offers)

    ahead, by_engines = (offers.named(name) for name in ("weights_ahead", "weights_ahead_by_engines"))
    assert ahead is not None and by_engines is not None and by_engines.us < ahead.us
    assert known(ahead.order).table.choice.prefetch == 1 and offers.named("transformer_engine") is None


def test_rings_of_xla_are_simulated_where_a_file_names_them() -> None:
    offer = known(advice_on(PRODUCTS).offer("xla"))

    assert {setting.method for setting in known(offer.order).table.settings} == {"shard_p2p(engine=sm(16))"}
    assert "costs of its calls" in offer.promise.outside and len(offer.ops) == 2
