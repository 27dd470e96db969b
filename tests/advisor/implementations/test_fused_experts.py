"""One kernel for the experts of a layer: which ops it takes the place of, its time, and where it is offered."""

from dataclasses import replace

import pytest

from magus.advisor import AdviceOptions, recommend_workload
from magus.advisor.answer.answer import BoundCheck
from magus.advisor.implementations.fused_experts import chains_of, fused_us
from magus.advisor.implementations.offers import Offers, offers_of
from magus.compiler import compile_text
from magus.compiler.ir import TICKS_PER_US, FusedExperts, Scenario
from magus.compiler.resolve.expect.expectation import Verdict
from magus.compiler.resolve.schedules.implementation import shipped_implementations
from magus.tui.text.render import verdict_sentence

LAYER = """
use "nvidia/b300" as own
use "nvidia/gb200" as nvl
system pod { gpus 8 x own.B300; fabric switch(nvl.nvswitch, link=nvl.nvlink) }
workload w on pod {
  x = tensor bf16[8 * 1024, 1024] shard rows
  w1 = tensor fp8[32 * 1024, 1024] shard rows
  w2 = tensor fp8[32 * 512, 1024] shard rows
  h = grouped_gemm(dispatch(x, experts=32, top=4, type=fp8), w1)
  y = combine(grouped_gemm(swiglu(h), w2), type=bf16)
}
"""
ASKED = "explore w { implementations mega_moe }"


def layer(*changes: tuple[str, str]) -> Scenario:
    text = LAYER
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return compile_text(text).scenario("w")


def kernel_on(scenario: Scenario) -> FusedExperts:
    (found,) = [each.experts for each in shipped_implementations(scenario.system) if each.name == "mega_moe"]
    assert found is not None
    return found


def offers(scenario: Scenario) -> Offers:
    found = offers_of(scenario)
    assert found is not None
    return found


def test_ops_from_the_dispatch_to_the_merge_are_one_kernel() -> None:
    (chain,) = chains_of(layer().workload)

    names = [op.name for op in chain.ops]
    assert names == ["h", "h_expand", "h_grouped_gemm", "y_swiglu", "y_grouped_gemm", "y_collapse", "y", "y_merge"]
    assert chain.tokens == 1024 and chain.row_bytes == 1024 * 3


TWO = """t = dispatch(x, experts=32, top=4)
  w3 = tensor fp8[32 * 1024, 1024] shard rows
  h = add(grouped_gemm(t, w1), grouped_gemm(t, w3))"""


@pytest.mark.parametrize(
    "changes",
    [
        [("  y = ", "  kept = norm(h)\n  y = ")],
        [("1024, 1024] shard rows\n  w2", "1024, 512] shard rows\n  w2"), ("swiglu", "norm")],
        [("h = grouped_gemm(dispatch(x, experts=32, top=4, type=fp8), w1)", TWO), ("bf16[8", "fp8[8")],
    ],
    ids=["kept", "without gates", "two branches"],
)
def test_other_ops_are_no_such_kernel(changes: list[tuple[str, str]]) -> None:
    assert not list(chains_of(layer(*changes).workload))


def test_its_time_by_hand() -> None:
    scenario = layer()
    kernel = replace(kernel_on(scenario), start_ticks=50 * TICKS_PER_US, rank_ticks=TICKS_PER_US)
    kernel = replace(kernel, flops_per_s=10**15, hbm_bytes_per_s=10**12, block_rows=768)
    (chain,) = chains_of(scenario.workload)
    # 4 experts of a rank with 1024 rows each, padded to 1536, and 1024 x 1024 and 512 x 1024 weights
    weights = 1024 * 1536
    products, memory = 2 * 4 * 1536 * weights / 1e9, 4 * weights * 17 / 32 / 1e6
    moved = 4 * 1024 * 3072 * 7 / 8 / 770e3
    power = float(kernel.exponent)
    together = (products**power + memory**power + moved**power) ** (1 / power)

    assert fused_us(kernel, scenario.system, chain) == pytest.approx(58 + together, rel=1e-9)


def test_it_is_offered_first_with_its_error() -> None:
    scenario = layer(("8 * 1024,", "8 * 16384,"))
    first, kernel = offers(scenario).offers[0], kernel_on(scenario)
    (chain,) = chains_of(scenario.workload)

    assert first.name == "mega_moe" and set(first.ops) == {op.name for op in chain.ops}
    assert first.us > fused_us(kernel, scenario.system, chain) and "17/32 bytes a weight" in first.about
    assert first.promise.error and kernel.error and first.promise.error < kernel.error  # the cast is no part of it


def test_weights_of_fewer_bits_take_less_than_the_bound_of_the_file() -> None:
    first = offers(scenario := layer()).offers[0]
    spared = 4 * 1024 * 1536 * (1 - 17 / 32)  # of 4 experts, of a byte each in the file
    limit = BoundCheck(round((first.us + 0.5 * first.saved_us) * TICKS_PER_US))

    assert first.saved_us == pytest.approx(1e6 * spared / scenario.gpu.hbm.achieved_bytes_per_s)
    assert first.us + first.saved_us > limit.ticks / TICKS_PER_US > first.us
    kept, notes = limit.offers(offers(scenario))
    assert kept is not None and kept.named("mega_moe") and not notes
    assert offers(layer(("fp8[32", "mxfp4[32"))).offers[0].saved_us == 0


def test_no_error_is_known_on_gpus_that_were_not_compared() -> None:
    (found,) = [each for each in offers(layer(("own.B300", "nvl.GB200"))).offers if "mega" in each.name]

    assert found.name == "mega_moe_gb200" and found.promise.error is None
    assert found.promise.verdict is not Verdict.OVERLAP


def test_the_answer_names_it_before_slower_schedules() -> None:
    few = ("system pod", "explore w { engine sm(16); batches 1; groups 1 }\nsystem pod")
    changes = [("own.B300", "nvl.GB200"), few]
    advice = recommend_workload(layer(*changes, ("fp8[32", "mxfp4[32")), AdviceOptions(verify=False))
    offer = advice.faster_offer

    assert offer is not None and offer.name == "mega_moe_gb200" and offer.us < advice.recommended.best_us
    said = verdict_sentence(advice)
    assert said.startswith("WORTH TRYING: mega_moe_gb200. ") and "; its error was not measured. Else SERIAL: " in said
    assert replace(advice, offers=None).faster_offer is None
    other = recommend_workload(layer(*changes), AdviceOptions(verify=False))  # weights of 8 bits: another model's
    assert other.faster_offer is None and other.offers is not None and other.offers.named("mega_moe_gb200")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("own.B300", "nvl.GB200"), "known for B300"),
        (("gpus 8", "gpus 2"), "4 to 32 GPUs"),
        (("8 * 1024,", "8 * 65536,"), "32,768 rows"),
        (("  y = ", "  kept = norm(h)\n  y = "), "nothing between kept"),
    ],
)
def test_asked_for_where_it_is_not_known_it_says_why(change: tuple[str, str], reason: str) -> None:
    asked = ("system pod", f'use "implementations/mega_moe"\n{ASKED}\nsystem pod')
    found = offers(layer(change, asked))

    assert not found.offers and [each.name for each in found.unknown] == ["mega_moe"]
    assert reason in found.unknown[0].reason
