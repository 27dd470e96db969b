"""What can be switched on today: which implementations are offered, with which verdict, and how advice tells it."""

from dataclasses import replace
from fractions import Fraction

import pytest

from magus.advisor import AdviceOptions, Advisor
from magus.advisor.answer.explain import headline_of
from magus.advisor.answer.export import advice_document
from magus.advisor.answer.rule import KERNELS_LOSE, promise_of
from magus.advisor.candidates.advice import Advice
from magus.advisor.candidates.candidate import Candidate, ScheduleOrigin, joint_candidate
from magus.advisor.how.words import library_text
from magus.advisor.implementations.offers import Offer, Offers, Unknown, offers_of
from magus.advisor.implementations.predict import (
    CALL_US,
    LARGE_COST,
    LARGE_FLOPS,
    SMALL_COST,
    CallTimes,
    Promise,
    call_times,
    kernel_promise,
    kernel_us,
    library_us,
    predict_us,
)
from magus.compiler import compile_text
from magus.compiler.ir import TICKS_PER_US, EngineChoice, EngineKind, OpCase, OpChoice, Pattern, Scenario
from magus.compiler.planning.build import build_op_plan
from magus.compiler.planning.knobs.library import library_serial
from magus.compiler.planning.plan import build_plan
from magus.compiler.resolve.expect.expectation import Verdict
from magus.compiler.resolve.schedules.from_text import SERIAL
from magus.compiler.resolve.schedules.implementation import shipped_implementations
from magus.tui.text.render import advice_text, implementation_lines, why_tried
from tests.helpers.some import some

TEXT = """use "nvidia/{library}"
use "implementations/mkernel"
use "implementations/flux"
system s {{ gpus 8 x {gpu}; fabric switch(nvswitch, link=nvlink) }}
workload w on s {{
  x = tensor {dtype}[{m}, 4096] shard rows
  w = tensor {dtype}[4096, 16384] shard cols
  y = gemm(all_gather(x), w)
}}
{explore}
"""


def gather(gpu: str = "H100", m: int = 4096, dtype: str = "bf16", explore: str = "") -> OpCase:
    return compile_text(TEXT.format(library=gpu.lower(), gpu=gpu, m=m, dtype=dtype, explore=explore)).scenario("w").case


@pytest.fixture(scope="module")
def advice() -> Advice:
    return Advisor.load().recommend(Scenario.of_one(gather()), AdviceOptions(top=1, bespoke=0))


def found_for(scenario: OpCase) -> Offers:
    found = offers_of(Scenario.of_one(scenario))
    assert found is not None
    return found


def test_implementations_known_here_are_offered_the_fastest_first() -> None:
    found = found_for(gather())

    assert {offer.name for offer in found.offers} == {"flux", "kraken", "torch_async_tp"}
    times = [offer.us for offer in found.offers]
    assert times == sorted(times) and not found.unknown
    assert found.library_us is not None
    for offer in some(found.offers):
        assert offer.promise.speedup == pytest.approx(found.library_us / offer.us) and not offer.requested


def test_a_type_or_a_gpu_that_is_not_known_offers_less() -> None:
    assert {offer.name for offer in found_for(gather(dtype="fp8")).offers} == {"torch_async_tp"}
    assert {offer.name for offer in found_for(gather("A100")).offers} == {"flux_ampere"}


def test_where_no_known_kernel_gains_a_kernel_for_a_plan_is_no_promise() -> None:
    text = TEXT.replace("8 x {gpu}", "8 x H800").replace("y = gemm(all_gather(x), w)", "y = reduce_scatter(gemm(x, w))")
    text = text.replace("[{m}, 4096] shard rows", "[16384, 16384] shard cols")
    text = text.replace("[4096, 16384] shard cols", "[16384, 2048] shard rows")

    def found(explore: str) -> tuple[OpCase, Offers]:
        case = compile_text(text.format(library="h800", gpu="H800", dtype="bf16", explore=explore)).scenario("w").case
        return case, found_for(case)

    case, known = found("")
    pair = [
        Candidate(one.template, one, build_op_plan(case, one), ScheduleOrigin.TEMPLATE, predicted_us=us)
        for one, us in (
            (library_serial(case), 600.0),
            (OpChoice("shard_p2p", 8, EngineChoice(EngineKind.DMA, 7)), 300.0),
        )
    ]

    def promised(offers: Offers | None) -> Promise:
        promise = promise_of(Scenario.of_one(case), pair, pair[0], pair[1], offers)
        assert promise is not None
        return promise

    assert [offer.name for offer in known.offers if offer.is_kernel] == ["flux"]
    (flux,) = (each.promise for each in known.offers if each.is_kernel)
    least = min(flux.speedup, flux.in_graph or 9, flux.on_host or 9) / (1 + (flux.error or 0))
    interval = promised(known).interval
    assert promised(None).verdict is promised(replace(known, offers=())).verdict is Verdict.OVERLAP
    assert promised(known) == replace(promised(None), outside=KERNELS_LOSE.format("this"), known=least)
    assert interval is not None and interval[0] == min(least, (promised(None).interval or (0.0, 0.0))[0])
    assert promised(known).verdict is Verdict.WORTH_TRYING
    here = tuple(replace(each, promise=replace(each.promise, outside="")) for each in known.offers)
    assert flux.outside and promised(replace(known, offers=here)).outside == KERNELS_LOSE.format("such sizes")
    _, asked = found("explore w { implementations flux }")
    assert asked.offers[0].requested and promised(asked) == promised(known)  # to ask makes it no surer
    _, of_another = found("explore w { implementations mkernel }")
    assert of_another.named("flux") is None and promised(of_another) == promised(known)


def test_a_norm_behind_an_op_changes_no_promise_of_kernels() -> None:
    text = TEXT.format(
        library="h100", gpu="H100", m=8192, dtype="bf16", explore="schedule own for w { handoff whole; y = {choice} }"
    )
    text = text.replace("y = gemm(all_gather(x), w)", "y = gemm(all_gather(x), w)\n  z = norm(y)")
    scenario = compile_text(text.replace("{choice}", "shard_p2p(chunks=8, engine=dma(7))")).scenario("w")
    own = joint_candidate(scenario.schedules[0], ScheduleOrigin.DECLARED, ticks=300 * TICKS_PER_US)
    serial = joint_candidate(SERIAL, ScheduleOrigin.LIBRARY, ticks=600 * TICKS_PER_US)
    lost = Offers("torch_nccl", 600.0, (Offer("flux", 660.0, Promise(0.9, 0.1), is_kernel=True),))

    for offers, outside in ((None, ""), (lost, KERNELS_LOSE.format("such sizes"))):
        promise = promise_of(scenario, (own, serial), serial, own, offers)
        assert promise is not None and promise.outside == outside


def test_kernels_that_are_asked_for_or_gain_take_no_promise_away() -> None:
    slow, fast = (Offer(name, 100.0, Promise(gain, 0.1), is_kernel=True) for name, gain in (("a", 0.9), ("b", 1.2)))
    call = Offer("two calls", 100.0, Promise(0.8, 0.1))

    def least(*offers: Offer) -> float | None:
        best = Offers("torch_nccl", 100.0, offers).best_if_none_gains
        return None if best is None else best.least

    assert least(replace(slow, promise=Promise(0.9, 0.1, in_graph=0.8))) == pytest.approx(0.8 / 1.1), "by any call"
    slower = replace(slow, promise=Promise(0.85, None))
    assert least(slow, call) == pytest.approx(0.9 / 1.1) and least(slow, slower) == 0.85
    assert least(slow, fast) is least(call) is least(replace(slow, requested=True)) is None
    beyond = replace(fast, promise=replace(fast.promise, outside="measured from 673 us on"))
    assert least(slow, beyond) == pytest.approx(0.9 / 1.1) and least(beyond) is None


def test_an_interval_reaches_down_to_what_is_known_to_lose() -> None:
    promise = Promise(1.2, 0.2)

    assert promise.interval == pytest.approx((1.0, 1.5))
    assert replace(promise, known=0.8).interval == pytest.approx((0.8, 1.5))
    assert replace(promise, known=1.1).interval == promise.interval
    assert replace(promise, known=0.8).over(0.5).interval == pytest.approx((0.4, 0.75))


@pytest.mark.slow
def test_more_gpus_than_were_measured_offer_nothing_unasked() -> None:
    asking = TEXT.replace("8 x {gpu}", "{ranks} x {gpu}")

    def found(ranks: int, explore: str = "") -> Offers:
        text = asking.format(library="h100", gpu="H100", m=4096, dtype="bf16", ranks=ranks, explore=explore)
        return found_for(compile_text(text).scenario("w").case)

    assert "mkernel_hopper" in {offer.name for offer in found(4).offers}
    assert not found(8).named("mkernel_hopper") and not found(8).unknown
    why = "AG+GEMM is not known here: it was measured on up to 4 GPUs"
    assert found(8, "explore w { implementations mkernel_hopper }").unknown == (Unknown("mkernel_hopper", why),)


def test_what_the_file_asks_about_is_all_there_is() -> None:
    (offer,) = found_for(gather("B200", explore="explore w { implementations flux }")).offers

    assert (offer.name, offer.requested, offer.promise.outside) == ("flux", True, "known for H100, H800")
    assert offer.promise.verdict is not Verdict.OVERLAP


DOWN = """use "nvidia/{library}"
use "implementations/vllm_all_reduce"
system s {{ gpus {ranks} x {gpu}; fabric switch(nvswitch, link=nvlink) }}
workload w on s {{
  h = tensor bf16[{m}, 28672] shard cols
  w = tensor bf16[28672, 8192] shard rows
  y = all_reduce(gemm(h, w))
}}
{explore}
"""
MORE = """
  v = tensor bf16[8192, 28672] shard cols
  u = gemm(y, v)
  z = all_reduce(gemm(u, w))
}}
"""
ASKED = "explore w {{ implementations {} }}"


def summed(m: int, gpu: str = "H100", ranks: int = 8, explore: str = "") -> OpCase:
    text = DOWN.format(library=gpu.lower(), gpu=gpu, ranks=ranks, m=m, explore=explore)
    return compile_text(text).scenario("w").case


def test_small_all_reduces_of_frameworks_are_offered_with_what_they_take() -> None:
    found = {offer.name: offer for offer in found_for(summed(16)).offers}

    assert set(found) == {"vllm_all_reduce", "sglang_all_reduce", "trtllm_all_reduce"}
    assert all(offer.promise.verdict is Verdict.OVERLAP for offer in found.values())
    assert "256 KiB" in found["vllm_all_reduce"].about and "from 64 MiB on" in found["vllm_all_reduce"].about
    assert "from 1 MiB on" in found["trtllm_all_reduce"].about
    lines = " ".join("\n".join(implementation_lines(found_for(summed(16)))).split())
    assert found["vllm_all_reduce"].about in lines


EXPERTS = """use "nvidia/{library}"
system s {{ gpus {ranks} x {gpu}; fabric switch(nvswitch, link=nvlink) }}
workload w on s {{
  x = tensor bf16[{rows}, 7168] shard rows
  w1 = tensor fp8[{k1}, 4096] shard rows
  w2 = tensor fp8[{k2}, 7168] shard rows
  h = grouped_gemm(dispatch(x, experts=256, top=8, type=fp8{by}), w1)
  y = combine(grouped_gemm(swiglu(h), w2), type=bf16)
}}
"""


def with_experts(rows: int, gpu: str = "H100", ranks: int = 8, by: str = "", top: int = 8) -> Scenario:
    text = EXPERTS.replace("top=8", f"top={top}").format(
        library=gpu.lower(),
        gpu=gpu,
        ranks=ranks,
        rows=rows,
        k1=256 * 7168,
        k2=256 * 2048,
        by=f", by={by}" if by else "",
    )
    return compile_text(text).scenario("w")


def of_experts(rows: int, gpu: str = "H100", ranks: int = 8, by: str = "torch_nccl", top: int = 8) -> Offers:
    found = offers_of(with_experts(rows, gpu, ranks, by, top))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("gpu", "ranks", "names"),
    [
        ("H100", 8, {"deepep", "deepep_low_latency"}),
        ("B200", 8, {"deepep_blackwell", "deepep_low_latency_blackwell"}),
        ("GB200", 64, {"trtllm_alltoall"}),
    ],
)
def test_dispatch_and_combine_of_a_layer_are_offered(gpu: str, ranks: int, names: set[str]) -> None:
    offers = of_experts(1024 * ranks, gpu, ranks).offers
    found = {offer.name: offer for offer in offers if not offer.name.startswith("mega_moe")}

    assert set(found) == names
    assert all(len(offer.ops) == 2 and offer.promise.error for offer in found.values())
    assert len({offer.us for offer in found.values()}) == len(found)


@pytest.mark.slow
def test_exchanges_are_known_of_their_ranks_and_rows() -> None:
    assert not of_experts(512, "H100", 4).offers
    assert [offer.name for offer in of_experts(1024, top=2).offers] == ["deepep"]
    large = of_experts(8192 * 8)
    assert [offer.name for offer in large.offers] == ["deepep"]
    assert [each.name for each in large.unknown] == ["deepep_low_latency"] and "1,024 rows" in large.unknown[0].reason


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("rows", "gpu", "ranks", "by", "taken"),
    [
        (17, "H100", 8, "", "deepep_low_latency"),
        (1024 * 8, "H100", 8, "", "deepep"),
        (17, "H100", 8, "deepep", "deepep"),
        (17, "H100", 8, "torch_nccl", ""),
        (512, "H100", 4, "", ""),
        (1024, "B200", 8, "", "deepep_low_latency_blackwell"),
        (1024, "GB200", 64, "", "trtllm_alltoall"),
    ],
)
def test_the_baseline_sends_rows_to_experts_as_frameworks_do(
    rows: int, gpu: str, ranks: int, by: str, taken: str
) -> None:
    """The exchange that the file names, else the fastest that is known; offers are compared with a layer with it."""
    scenario, plain = with_experts(rows, gpu, ranks, by), with_experts(rows, gpu, ranks, "torch_nccl")
    plan = build_plan(scenario.system, scenario.workload, SERIAL)
    engines = [part.schedule.engine for part in plan.parts if part.shape.moved is not None]
    found, of_plain = offers_of(scenario), offers_of(plain)

    there, back = (library_text(case) for case in scenario.moving)

    assert scenario.exchange == taken
    if taken:
        assert there.startswith("call dispatch") and back.startswith("call combine") and there.endswith(f"by {taken}")
    assert [engine.by_library for engine in engines] == [bool(taken)] * 2
    if taken and found is not None and of_plain is not None:
        (offer,) = (each for each in of_plain.offers if each.name == taken)
        assert found.library == f"torch_nccl with {taken}" and found.named(taken) is None
        assert found.library_us == pytest.approx(offer.us)


def test_an_implementation_of_the_file_sends_rows_to_experts() -> None:
    text = EXPERTS.format(library="h100", gpu="H100", ranks=8, rows=8192, k1=256 * 7168, k2=256 * 2048, by=", by=mine")
    own = (
        'use "implementations/deepep"\ngpu G extends H100 { source assumed "x" }\n'
        "implementation mine extends deepep { gpus G }\n"
    )
    scenario = compile_text(own + text.replace("8 x H100", "8 x G")).scenario("w")

    assert scenario.exchange == "mine"


def test_from_its_size_on_an_all_reduce_is_the_library_s() -> None:
    found = {offer.name: offer for offer in found_for(summed(64)).offers}

    trtllm = found["trtllm_all_reduce"]
    assert trtllm.promise.speedup == 1 and trtllm.promise.verdict is Verdict.SERIAL
    assert trtllm.about.startswith("from 1 MiB on") and "takes" in found["vllm_all_reduce"].about


def test_kernels_are_offered_for_their_gpu_and_number_of_ranks() -> None:
    names = {offer.name for offer in found_for(summed(16, "B200")).offers}
    assert {"vllm_all_reduce_blackwell", "sglang_all_reduce_blackwell", "trtllm_all_reduce_blackwell"} <= names
    asked = found_for(summed(14, ranks=7, explore=ASKED.format("vllm_all_reduce")))
    assert not asked.offers and [each.reason for each in asked.unknown] == [
        "its all_reduce was measured on 2, 4, 8 GPUs"
    ]


def test_no_kernel_sums_in_a_switch_that_does_not() -> None:
    (offer,) = found_for(summed(64, "A100", explore=ASKED.format("vllm_all_reduce"))).offers

    assert offer.promise.outside == "known for H100, H200" and offer.promise.speedup == 1
    assert "from 256 KiB on its all_reduce is the library's" in offer.about


def test_layers_take_the_all_reduces_of_frameworks_one_op_after_the_other() -> None:
    layer = DOWN.replace("}}\n{explore}", MORE)
    scenario = compile_text(layer.format(library="h100", gpu="H100", ranks=8, m=16)).scenario("w")
    found = offers_of(scenario)
    assert found is not None

    vllm = found.named("vllm_all_reduce")
    assert vllm is not None and vllm.ops == ("y", "z") and vllm.promise.verdict is Verdict.OVERLAP
    assert vllm.about.count("256 KiB") == 1


def test_the_sum_of_what_experts_made_is_by_the_kernel_of_a_framework_too() -> None:
    """An all_reduce alone has no call, as the library's has none: it takes that much less than the library's."""
    experts = "w1 = tensor bf16[16 * 8192, 512] shard rows; w2 = tensor bf16[16 * 256, 8192] shard rows\n"
    summed = "z = all_reduce(combine(grouped_gemm(swiglu(grouped_gemm(t, w1)), w2)))\n}}"
    layer = DOWN.replace("}}\n{explore}", f"{experts}t = dispatch(y, experts=16, top=2)\n{summed}")
    scenario = compile_text(layer.format(library="h100", gpu="H100", ranks=8, m=16)).scenario("w")
    found, case = offers_of(scenario), next(each for each in scenario.cases if each.name == "z")
    assert found is not None and case.shape.pattern is Pattern.ALL_REDUCE

    vllm = found.named("vllm_all_reduce")
    assert vllm is not None and vllm.ops == ("y", "z")
    (kernels,) = [each for each in shipped_implementations(case.system) if each.name == "vllm_all_reduce"]
    own = predict_us(case, kernels)
    assert isinstance(own, float) and own < library_us(case) < own + CALL_US


def test_what_is_shorter_than_anything_measured_is_no_promise() -> None:
    (flux,) = [offer for offer in found_for(gather(m=1024)).offers if offer.name == "flux"]

    assert flux.promise.outside == "measured from 673.0 us on" and flux.promise.verdict is not Verdict.OVERLAP


def test_what_does_not_fit_the_sizes_is_reported_if_it_was_requested_for() -> None:
    requested = found_for(gather(m=8, explore="explore w { implementations flux }"))

    assert not requested.offers and requested.unknown[0].name == "flux" and requested.unknown[0].reason
    assert "flux" not in {offer.name for offer in found_for(gather(m=8)).offers}


def test_without_a_library_there_is_nothing_to_compare_with() -> None:
    scenario, requested = (
        replace(each, system=replace(each.system, gpu=replace(each.gpu, collectives=None)))
        for each in (gather(), gather(explore="explore w { implementations flux }"))
    )
    found, why = found_for(requested), "the profile of H100 has no collectives"

    assert offers_of(Scenario.of_one(scenario)) is None
    assert (found.library_us, found.offers, found.unknown) == (None, (), (Unknown("flux", why),))
    lines = list(implementation_lines(found))
    assert lines == ["What you can switch on today:", f"  ! flux: {why}"]


@pytest.mark.parametrize(
    ("speedup", "error", "outside", "verdict"),
    [
        (0.7, 0.1, "", Verdict.SERIAL),
        (1.01, 0.0, "", Verdict.SERIAL),
        (1.08, 0.1, "", Verdict.WORTH_TRYING),
        (1.12, 0.1, "", Verdict.OVERLAP),
        (1.5, None, "", Verdict.WORTH_TRYING),
        (1.5, 0.1, "elsewhere", Verdict.WORTH_TRYING),
    ],
)
def test_overlap_is_only_what_lies_beyond_the_error(
    speedup: float, error: float | None, outside: str, verdict: Verdict
) -> None:
    promise = Promise(speedup, error, outside)

    assert promise.verdict is verdict
    assert promise.interval == (None if error is None else (speedup / (1 + error), speedup / (1 - error)))
    if verdict is Verdict.OVERLAP:
        assert promise.interval is not None and promise.interval[0] > 1


def test_copies_that_nobody_measured_widen_it_downwards_alone() -> None:
    measured, unknown = Promise(1.3, 0.2), Promise(1.3, 0.2, slower=0.1)

    assert (measured.verdict, unknown.verdict) == (Verdict.OVERLAP, Verdict.WORTH_TRYING)
    assert unknown.interval == pytest.approx((1.3 / 1.2 / 1.1, 1.3 / 0.8))
    assert "copies slow its GEMMs by up to 10%" in why_tried(unknown)
    assert "copies" not in why_tried(Promise(1.1, 0.2, slower=0.1))


@pytest.mark.slow
def test_advice_has_three_levels_in_text_and_json(advice: Advice) -> None:
    text, document = advice_text(advice, 1), advice_document(advice)

    assert "What you can switch on today, over torch_nccl" in text
    assert f"Over the library: {headline_of(advice)}." in text.replace("\n", " ")
    assert document["headline"] == headline_of(advice)
    assert document["interval"] == (None if advice.promise is None else advice.promise.interval)
    levels = headline_of(advice).split("; ")
    assert levels[-1].startswith("bound ") and levels[-2].startswith("a kernel for ") and len(levels) == 5
    listed = document["implementations"]
    assert listed["library"] == "torch_nccl" and {each["name"] for each in listed["offers"]} >= {"flux", "kraken"}
    assert {each["verdict"] for each in listed["offers"]} <= {verdict.value for verdict in Verdict}


def test_each_verdict_and_what_is_unknown_has_a_line() -> None:
    offers = (
        Offer("fast", 50.0, Promise(2.0, 0.1)),
        Offer("even", 95.0, Promise(1.05, None)),
        Offer("slow", 200.0, Promise(0.5, 0.1, "known for H20"), requested=True),
    )

    lines = list(implementation_lines(Offers("torch_nccl", 100.0, offers, (Unknown("other", "no rate"),))))

    assert lines[0] == "What you can switch on today, over torch_nccl, 100.0 us:"
    assert lines[1] == "  + fast 2.00x (+-10%), 50.0 us: yes"
    assert lines[2].startswith("  ? even 1.05x (error not measured), 95.0 us: worth trying")
    assert "  - slow 0.50x (+-10%, known for H20), 200.0 us: no" in lines
    assert "  ! other: no rate" in lines


def test_a_kernel_is_called_as_the_library_is_and_its_product_costs_what_was_measured() -> None:
    library = next(each for each in shipped_implementations(gather().system) if each.name == "torch_nccl")

    assert {method.call_ticks / TICKS_PER_US for method in some(library.methods)} == {CALL_US}
    assert kernel_us(100.0, round(LARGE_FLOPS)) == pytest.approx(100 * LARGE_COST + CALL_US)
    assert kernel_us(100.0, round(LARGE_FLOPS) - 1) == pytest.approx(100 * SMALL_COST + CALL_US)
    assert kernel_us(100.0, 1, num_calls=3, alike_us=40.0) == pytest.approx(40 + 60 * SMALL_COST + 3 * CALL_US)


@pytest.mark.slow
def test_without_the_time_of_a_library_no_overlap_is_promised() -> None:
    known = gather()
    gpu = replace(known.gpu, collectives=None)
    advice = Advisor.load().recommend(
        Scenario.of_one(replace(known, system=replace(known.system, gpu=gpu))), AdviceOptions(bespoke=0)
    )

    assert not advice.serial.is_library and advice.speedup > 1
    assert advice.promise is not None and "what the library takes on H100 was not measured" in advice.promise.outside
    assert advice.verdict is Verdict.WORTH_TRYING


@pytest.mark.slow
def test_a_profile_that_is_not_validated_widens_the_interval() -> None:
    known = Scenario.of_one(gather())
    gemm = replace(known.gpu.gemm, validated=False, error=Fraction(1, 4))
    unsure = replace(known, system=replace(known.system, gpu=replace(known.gpu, gemm=gemm)))
    errors = [some_error(Advisor.load().recommend(each, AdviceOptions(bespoke=0))) for each in (known, unsure)]

    assert errors[1] == pytest.approx((1 + errors[0]) * 1.25 - 1)


def some_error(advice: Advice) -> float:
    assert advice.promise is not None and advice.promise.error is not None
    return advice.promise.error


@pytest.mark.slow
def test_a_promise_is_of_both_times_with_their_calls() -> None:
    advice = Advisor.load().recommend(Scenario.of_one(gather()), AdviceOptions(bespoke=0))
    gemm = gather().shape.gemm
    assert gemm is not None and advice.promise is not None
    kernel = kernel_us(advice.recommended.best_us, gemm.flops)

    assert advice.gain == advice.promise.speedup == pytest.approx((advice.serial.best_us + CALL_US) / kernel)
    assert advice.gain < advice.speedup


@pytest.mark.parametrize(
    ("speedup", "us", "resolution", "verdict"),
    [
        (1.3, 100.0, 0.08, Verdict.OVERLAP),
        (1.2, 100.0, 0.08, Verdict.WORTH_TRYING),
        (1.3, 100.0, 0.35, Verdict.WORTH_TRYING),
        (1.9, 35.0, 0.08, Verdict.WORTH_TRYING),
        (0.9, 50.0, 0.08, Verdict.SERIAL),
    ],
)
def test_what_a_kernel_promises(speedup: float, us: float, resolution: float, verdict: Verdict) -> None:
    assert kernel_promise(speedup, us, resolution).verdict is verdict


@pytest.mark.slow
def test_without_simulations_nothing_is_offered() -> None:
    advice = Advisor.load().recommend(Scenario.of_one(gather()), AdviceOptions(top=1, bespoke=0, verify=False))

    assert advice.offers is None and advice_document(advice)["implementations"] is None


@pytest.mark.parametrize(
    ("in_graph", "on_host", "verdict"),
    [
        (1.4, 1.2, Verdict.OVERLAP),
        (1.4, 1.05, Verdict.WORTH_TRYING),
        (1.1, 1.3, Verdict.WORTH_TRYING),
        (1.4, 0.9, Verdict.SERIAL),
        (0.9, 1.4, Verdict.SERIAL),
    ],
)
def test_a_gain_is_one_by_any_call(in_graph: float, on_host: float, verdict: Verdict) -> None:
    promise = Promise(1.3, 0.1, "", in_graph, on_host)

    assert promise.verdict is verdict
    assert promise.interval == pytest.approx((min(in_graph, on_host) / 1.1, max(1.3, in_graph, on_host) / 0.9))


@pytest.mark.parametrize("m", [256, 8192])
def test_calls_from_the_host_bound_small_ops_and_cost_nothing_in_a_graph(m: int) -> None:
    case = gather(m=m)
    timed = [(each, call_times(case, each)) for each in shipped_implementations(case.system)]
    for each, times in some((each, times) for each, times in timed if isinstance(times, CallTimes)):
        method = each.method(case.shape.pattern)
        assert method is not None and times.graph_us <= times.us <= times.host_us
        assert times.host_us == max(times.us, method.host_ticks / TICKS_PER_US)
        if method.step_ticks == 0 and method.graph_call_ticks is not None:
            shorter = (method.call_ticks - method.graph_call_ticks) / TICKS_PER_US
            assert times.us - times.graph_us == pytest.approx(shorter)


@pytest.mark.slow
def test_what_was_measured_elsewhere_alone_is_not_known() -> None:
    text = TEXT.replace("gemm(all_gather(x), w)", "reduce_scatter(gemm(x, w))").replace(
        "shard rows\n  w", "shard cols\n  w"
    )
    text = text.replace("16384] shard cols", "16384] shard rows")
    asked = "explore w { implementations torch_async_tp }"
    text = 'use "implementations/torch_async_tp"\n' + text
    small, large, bf16, other = (
        compile_text(text.format(library=gpu.lower(), gpu=gpu, m=m, dtype=dtype, explore=asked)).scenario("w").case
        for gpu, m, dtype in (("B300", 320, "fp8"), ("B300", 640, "fp8"), ("B300", 320, "bf16"), ("H100", 320, "fp8"))
    )

    assert [each.name for each in found_for(small).offers] == ["torch_async_tp"]
    why = "GEMM+RS is not known here: it was measured on B300, fp8, up to 320 rows"
    for case in some((large, bf16, other)):
        assert (found_for(case).offers, found_for(case).unknown[0].reason) == ((), why)
