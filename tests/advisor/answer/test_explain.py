"""How far to trust an answer about a GPU that takes its numbers from another one."""

from dataclasses import replace

import pytest

from magus.advisor import AdviceOptions, Advisor, Request
from magus.advisor.answer.explain import assumed_numbers, confidence_of, marks_of, price_of_simplicity
from magus.advisor.answer.export import advice_document
from magus.advisor.candidates.advice import Advice, Confidence
from magus.advisor.candidates.candidate import Candidate
from magus.compiler import OpCase, compile_text
from magus.compiler.ir import Scenario
from magus.compiler.request.scenario import scenario_of
from tests.helpers.scenarios import scenarios
from tests.helpers.tui import fakes

SOURCE = """use "nvidia/h100"
gpu NEXT extends H100 {{ {gpu} }}
link fast extends nvlink {{ {link} }}
system node {{ gpus 8 x NEXT; fabric switch(nvswitch, link=fast) }}
workload w on node {{
  x = tensor bf16[2048, 2048] shard rows
  w = tensor bf16[2048, 8192] shard cols
  y = gemm(all_gather(x), w)
}}
explore w {{ schedules serial, uniform_fused_1d; chunks 16; engine dma }}
"""
GUESSED = 'sms 264 @assumed "a guess"'
OWN_ERROR = f'{GUESSED}; gemm {{ error 5 % @measured "a table" }}'


def scenario(gpu: str = "", link: str = "") -> OpCase:
    return compile_text(SOURCE.format(gpu=gpu, link=link)).scenario().case


def confidence(gpu: str) -> tuple[Confidence, str]:
    return confidence_of(scenario(gpu), True, 1.5, verified=True)


def test_the_error_of_another_gpu_is_no_error_of_this_one() -> None:
    level, why = confidence(GUESSED)

    assert level is Confidence.LOW
    assert "+-5% was found for H100, whose numbers NEXT changes" in why
    assert any(mark.endswith("+-5% is H100's") for mark in marks_of(Scenario.of_one(scenario(GUESSED))))


def test_what_changes_nothing_for_kernels_or_is_measured_again_keeps_its_error() -> None:
    assert confidence("launch { kernel 3 us }")[0] is Confidence.HIGH
    assert confidence(OWN_ERROR)[0] is Confidence.HIGH


def test_a_faster_link_behind_the_engines_of_another_gpu_is_marked() -> None:
    fast = "bandwidth 900 GB/s; achieved 800 GB/s"
    slow = "a copy engine of NEXT copies 397 GB/s, as that of H100, and is slower than link fast with 800 GB/s"

    assert slow in marks_of(Scenario.of_one(scenario(link=fast)))
    assert slow not in marks_of(Scenario.of_one(scenario("dma { bandwidth 397 GB/s }", fast)))
    assert not any("copy engine" in mark for mark in marks_of(Scenario.of_one(scenario())))


def test_a_link_with_the_rate_that_another_achieves_is_marked() -> None:
    assert any(
        "link fast carries 375 GB/s of 900" in mark
        for mark in marks_of(Scenario.of_one(scenario(link="bandwidth 900 GB/s")))
    )
    assert not any("link fast" in mark for mark in marks_of(Scenario.of_one(scenario())))


@pytest.mark.parametrize(
    ("request_", "groups"),
    [
        (Request("GEMM", m=8192, n=4096, k=4096, gpu="MI300X", ranks=8), {"mall", "gemm"}),
        (
            Request("all_gather", num_bytes=1 << 26, gpu="MI300X", ranks=8),
            {"mall", "dma", "sm_copy", "collectives", "latency"},
        ),
    ],
    ids=["a kernel alone", "a collective alone"],
)
def test_assumed_numbers_that_nothing_reads_are_not_named(request_: Request, groups: set[str]) -> None:
    named = {path.split(".")[1] for path in assumed_numbers(scenario_of(request_))}

    assert named == groups | {"launch"}


def test_outside_of_the_fit_and_without_a_promise_confidence_is_at_most_medium() -> None:
    inside = confidence_of(scenario(), True, 1.5, verified=True)
    outside = confidence_of(scenario(), True, 1.5, verified=True, outside=True)
    unpromised = confidence_of(scenario(), True, 1.5, verified=True, promised=False)

    assert inside[0] is Confidence.HIGH
    assert outside == (Confidence.MEDIUM, f"{inside[1]}; but this lies outside what the profile was fitted to")
    assert unpromised == (Confidence.MEDIUM, f"{inside[1]}; but measured kernels do not promise it")


@pytest.mark.slow
def test_the_answer_says_so() -> None:
    small = compile_text(SOURCE.format(gpu=GUESSED, link="").replace("2048", "512")).scenario()
    advice: Advice = Advisor.load().recommend(small, AdviceOptions(top=1, bespoke=0))

    assert advice.confidence is Confidence.LOW and "H100" in advice.confidence_reason


def test_what_simplicity_costs_is_said_from_one_percent_on() -> None:
    serial, simple = fakes.candidate("serial()", 118.0, 117.0, 128), fakes.candidate(fakes.BEST, 100.0, 100.0, 128)

    def said(requested: OpCase, us: float, recommended: Candidate) -> list[str]:
        fast = fakes.candidate("quick(chunks=8)", 90.0, us, 1024)
        return list(price_of_simplicity(Scenario.of_one(requested), (fast, recommended, serial), recommended, serial))

    (sentence,) = said(scenario(), 97.0, simple)
    assert sentence.startswith("quick(chunks=8) is 3.1% faster than what is recommended, within what the profile can")
    assert sentence.endswith("chosen: the simplest.")
    assert said(scenario(), 99.5, simple) == []
    (alone,) = said(scenarios.lone_gather(512, 512), 115.2, serial)
    assert alone.endswith(
        "1.6% faster than what is recommended; a gain below 2% does not count: the direct exchange stays."
    )
    (slower,) = said(scenario(), 85.0, simple)
    assert "within what the profile can resolve" not in slower, "17.6 % are more than that"
    assert "which a last, finer simulation found slower" in slower


def test_what_is_never_recommended_was_given_up_for_that() -> None:
    serial, simple = fakes.candidate("serial()", 118.0, 117.0, 128), fakes.candidate(fakes.BEST, 100.0, 100.0, 128)
    outside = replace(fakes.candidate("quick(chunks=8)", 85.0, 85.0, 128), is_outside=True)

    (sentence,) = price_of_simplicity(Scenario.of_one(scenario()), (outside, simple, serial), simple, serial)
    assert sentence.endswith("17.6% faster than what is recommended; it is not explored: never recommended.")


def test_the_document_says_what_is_given_up() -> None:
    advice = fakes.advice(scenarios.ag_gemm(512, 512, 512))
    fast = fakes.candidate("quick(chunks=8)", 90.0, 96.0, 1024)

    assert advice_document(advice)["given_up"] is None
    given_up = advice_document(replace(advice, candidates=(fast, *advice.candidates)))["given_up"]
    assert given_up["schedule"] == "quick(chunks=8)" and given_up["us"] == 96.0
    assert given_up["faster_by"] == pytest.approx(100 / 96 - 1)
