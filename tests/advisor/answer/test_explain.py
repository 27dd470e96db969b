"""How far to trust an answer about a GPU that takes its numbers from another one."""

from magus.advisor import AdviceOptions, Advisor
from magus.advisor.answer.explain import confidence_of, marks_of
from magus.advisor.candidates.advice import Advice, Confidence
from magus.compiler import Scenario, compile_text

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


def scenario(gpu: str = "", link: str = "") -> Scenario:
    return compile_text(SOURCE.format(gpu=gpu, link=link)).scenario()


def confidence(gpu: str) -> tuple[Confidence, str]:
    return confidence_of(scenario(gpu), True, 1.5, verified=True)


def test_the_error_of_another_gpu_is_no_error_of_this_one() -> None:
    level, why = confidence(GUESSED)

    assert level is Confidence.LOW
    assert "+-5% was found for H100, whose numbers NEXT changes" in why
    assert any(mark.endswith("+-5% is H100's") for mark in marks_of(scenario(GUESSED)))


def test_what_changes_nothing_for_kernels_or_is_measured_again_keeps_its_error() -> None:
    assert confidence("launch { kernel 3 us }")[0] is Confidence.HIGH
    assert confidence(OWN_ERROR)[0] is Confidence.HIGH


def test_a_faster_link_behind_the_engines_of_another_gpu_is_marked() -> None:
    fast = "bandwidth 900 GB/s; achieved 800 GB/s"
    slow = "a copy engine of NEXT copies 397 GB/s, as that of H100, and is slower than link fast with 800 GB/s"

    assert slow in marks_of(scenario(link=fast))
    assert slow not in marks_of(scenario("dma { bandwidth 397 GB/s }", fast))
    assert not any("copy engine" in mark for mark in marks_of(scenario()))


def test_a_link_with_the_rate_that_another_achieves_is_marked() -> None:
    assert any("link fast carries 375 GB/s of 900" in mark for mark in marks_of(scenario(link="bandwidth 900 GB/s")))
    assert not any("link fast" in mark for mark in marks_of(scenario()))


def test_outside_of_the_fit_and_without_a_promise_confidence_is_at_most_medium() -> None:
    inside = confidence_of(scenario(), True, 1.5, verified=True)
    outside = confidence_of(scenario(), True, 1.5, verified=True, outside=True)
    unpromised = confidence_of(scenario(), True, 1.5, verified=True, promised=False)

    assert inside[0] is Confidence.HIGH
    assert outside == (Confidence.MEDIUM, f"{inside[1]}; but this lies outside what the profile was fitted to")
    assert unpromised == (Confidence.MEDIUM, f"{inside[1]}; but measured kernels do not promise it")


def test_the_answer_says_so() -> None:
    advice: Advice = Advisor.load().recommend(scenario(GUESSED), AdviceOptions(top=1, bespoke=0))

    assert advice.confidence is Confidence.LOW and "H100" in advice.confidence_reason
