"""No time of an answer is below the bound, on machines whose links are not those that constants were fitted on."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from magus.advisor.answer.answer import BoundCheck
from magus.advisor.answer.export import advice_document
from magus.advisor.answer.stages import AdviceOptions
from magus.advisor.bounds.lower_bound import lower_bound, quick_bound_ticks, workload_bound
from magus.advisor.candidates.advice import Advice
from magus.advisor.candidates.predicted import library_time, library_unfit
from magus.advisor.layers.recommend import recommend_workload
from magus.advisor.oracle.times import COLLECTIVES, collective_us
from magus.advisor.questions.advisor import Advisor
from magus.compiler import compile_text
from magus.compiler.ir import TICKS_PER_US, OpCase, Scenario
from magus.compiler.planning.knobs.library import library_scaling
from magus.compiler.planning.parts import collective_alone
from magus.simcore.kernels.nccl import NcclProtocol

QUICK = AdviceOptions(verify=False, bespoke=0)
SHORT = AdviceOptions(top=1, bespoke=0, workers=1)

MACHINE = """
use "nvidia/{gpu}"
gpu Mine extends {gpu_name} {{ {changes} }}
link wire extends nvlink {{ bandwidth {share} * base.bandwidth; achieved {share} * base.achieved; {link} }}
switch box extends nvswitch {{ ports 64; bandwidth {port} * base.bandwidth; {switch} }}
system node {{ gpus {ranks} x Mine; fabric switch(box, link=wire) }}
"""
WORKLOADS = (
    "x = tensor bf16[{m}, 1024] shard rows\n y = all_gather(x)",
    "x = tensor bf16[{m}, 1024]\n y = all_reduce(x)",
    "x = tensor bf16[{m}, 1024]\n y = reduce_scatter(x)",
    "x = tensor bf16[{m}, 1024]\n y = all_to_all(x)",
    "x = tensor bf16[{m}, 1024] shard rows\n w = tensor bf16[1024, {m}] shard cols\n y = gemm(all_gather(x), w)",
    "x = tensor bf16[{m}, {m}] shard cols\n w = tensor bf16[{m}, 1024] shard rows\n y = reduce_scatter(gemm(x, w))",
)


def machine(rng: random.Random) -> str:
    """A machine that extends one of the library, with links, switch and number of GPUs of its own."""
    gpu = rng.choice(("h100", "a100", "b200", "h800"))
    switch = "" if gpu == "a100" else rng.choice(("", "multicast no; reduces no"))
    return MACHINE.format(
        gpu=gpu,
        gpu_name=gpu.upper(),
        changes=rng.choice(("", "sms 64; cache l2 { per 64 sms }", "hbm { bandwidth 9 TB/s; achieved 8 TB/s }")),
        share=rng.choice((0.05, 0.25, 0.5, 1, 1, 3)),
        link=rng.choice(("", "", "latency 100 ns", "latency 450 ns", "latency 2 us", "protocols simple, ll")),
        port=rng.choice((0.2, 1, 4)),
        switch=switch,
        ranks=rng.choice((2, 4, 6, 8, 8, 16, 32)),
    )


def draw(seed: int, workload: str = "") -> OpCase:
    rng = random.Random(f"above the bound {seed}")
    text = machine(rng)
    body = workload or rng.choice(WORKLOADS)
    most = 8 if workload else 10 if "gemm" in body else 14
    body = body.format(m=96 * 2 ** (3 if workload else rng.randrange(most)))
    explore = (
        f"explore w {{ schedules serial, hetero_fused_1d, direct, ring; chunks {2 * ranks_of(text)}; engine dma }}"
    )
    return compile_text(f"{text}\nworkload w on node {{\n {body}\n}}\n{explore}").scenario().case


def ranks_of(text: str) -> int:
    return int(text.partition("gpus ")[2].partition(" ")[0])


def times_us(advice: Advice) -> Iterator[tuple[str, float]]:
    """Every time that an answer shows."""
    for one in (*advice.candidates, advice.recommended, advice.serial):
        yield one.expression, one.best_us
        yield f"{one.expression}, estimated", one.best_us if one.predicted_us is None else one.predicted_us
    for result in filter(None, (advice.result, advice.serial_result)):
        yield "confirmed", result.makespan_ticks / TICKS_PER_US
    if advice.offers is not None:
        yield from ((offer.name, offer.us) for offer in advice.offers.offers)
        if advice.offers.library_us is not None:
            yield advice.offers.library, advice.offers.library_us


@pytest.mark.quick(6)
@pytest.mark.parametrize("seed", range(24))
def test_no_estimate_is_below_the_bound(seed: int) -> None:
    scenario = draw(seed)
    advice, library = Advisor().recommend(Scenario.of_one(scenario), QUICK), library_time(scenario)
    bound_us = quick_bound_ticks(scenario) / TICKS_PER_US

    assert [one for one in times_us(advice) if one[1] < bound_us * (1 - 1e-9)] == []
    if library is not None:
        alone = replace(scenario, shape=collective_alone(scenario.shape))
        assert library.us >= lower_bound(alone).ticks / TICKS_PER_US
    n, rate = scenario.num_ranks, scenario.system.fabric.link.peak_bytes_per_s
    for name, size in ((name, 1 << power) for name in COLLECTIVES for power in (10, 20, 28)):
        us = collective_us(scenario.system, name, size, n)
        assert us is None or us > size * (n - 1) / n / rate * 1e6


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "workload"), [(0, WORKLOADS[1]), (3, WORKLOADS[4])])
def test_no_simulated_time_is_below_the_bound(seed: int, workload: str) -> None:
    advice = Advisor().recommend(Scenario.of_one(draw(seed, workload)), SHORT)

    assert advice.bound is not None and advice.gap_to_bound is not None and advice.gap_to_bound >= 0
    bound_us = advice.bound.ticks / TICKS_PER_US
    assert [one for one in times_us(advice) if one[1] < bound_us] == []


def text_of(link: str = "", switch: str = "", ranks: int = 8, share: float = 1, changes: str = "") -> str:
    names = {"gpu": "h100", "gpu_name": "H100", "port": 1}
    return MACHINE.format(**names, link=link, switch=switch, ranks=ranks, share=share, changes=changes)


def all_reduce(text: str) -> OpCase:
    work = "workload w on node {\n x = tensor bf16[16384, 4096]\n y = all_reduce(x)\n}"
    return (
        compile_text(f"{text}\n{work}\nexplore w {{ schedules serial, direct; chunks 8; engine dma }}").scenario().case
    )


@pytest.mark.parametrize(
    ("text", "protocol", "scaled"),
    [
        (text_of(), NcclProtocol.NVLS, ""),
        (text_of(switch="reduces no"), NcclProtocol.SIMPLE, ""),
        (text_of(share=0.5), NcclProtocol.NVLS, "from links of 375 GB/s to 187.5 GB/s"),
        (text_of("latency 350 ns"), NcclProtocol.NVLS, "from a latency of 0.8 us to 0.9 us"),
        (text_of(ranks=32), NcclProtocol.NVLS, "from 8 GPUs to 32"),
    ],
    ids=["as fitted", "a switch that does not sum", "half the rate", "more latency", "more GPUs"],
)
def test_the_library_is_scaled_to_the_links_that_there_are(text: str, protocol: NcclProtocol, scaled: str) -> None:
    scenario = all_reduce(text)
    library = library_time(scenario)

    assert library is not None and (library.time.protocol, library.scaled) == (protocol, scaled)
    assert library.us * TICKS_PER_US >= lower_bound(scenario).ticks
    assert ("was not measured" in library.sentence) == bool(scaled) and library_scaling(scenario.system) == scaled
    assert (collective_us(scenario.system, "all_reduce", 1 << 27, 8) is None) == (
        "links" in scaled or "latency" in scaled
    )


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("protocols simple, ll", "measured over links that carry LL128, and wire does not"),
        ("latency 1.5 us", "known over links that take 0.8 us from GPU to GPU; over wire it takes 3.2 us"),
    ],
)
def test_the_library_is_not_reported_over_another_kind_of_link(link: str, reason: str) -> None:
    scenario = all_reduce(text_of(link))
    unfit = library_unfit(scenario)

    assert unfit is not None and reason in unfit.message and library_time(scenario) is None
    assert collective_us(scenario.system, "all_reduce", 1 << 27, 8) is None


def test_what_is_below_the_bound_is_left_out_with_a_note() -> None:
    """Constants that are wrong, as a user may write them: the library is faster than its links."""
    text = text_of(changes="collectives { nvls { bandwidth 9 TB/s; start 1 us } }")
    advice = Advisor().recommend(Scenario.of_one(all_reduce(text)), replace(SHORT, verify=False))
    document = advice_document(advice)

    assert document["library"] is None and not any(one.is_library for one in advice.candidates)
    assert any("its closed form gives" in reason and "below the bound" in reason for reason in advice.reasons)

    library = replace(advice.serial, simulated_ticks=100, expression="a plan of mine")
    limit = BoundCheck(1000)
    assert list(limit.below([library, advice.serial])) == ["a plan of mine"]
    assert "is left out: its time" in limit.below([library])["a plan of mine"]
    assert limit.raised(replace(advice.serial, predicted_us=1e-9)).predicted_us == 1000 / TICKS_PER_US


def test_no_time_of_a_layer_is_below_the_bound() -> None:
    text = f"""{text_of(share=0.25, ranks=4)}
workload w on node {{
  x = tensor bf16[4096, 1024] shard rows
  w = tensor bf16[1024, 4096] shard cols
  v = tensor bf16[2048, 1024] shard rows
  y = reduce_scatter(gemm(swiglu(gemm(all_gather(norm(x)), w)), v))
}}
"""
    (found,) = compile_text(text).workloads
    advice = recommend_workload(found, QUICK)
    least = workload_bound(found).ticks

    assert advice.candidates and all(one.ticks >= least for one in advice.candidates)
    offers = () if advice.offers is None else advice.offers.offers
    assert all(offer.us * TICKS_PER_US >= least for offer in offers)

    best = next(one for one in advice.candidates if one.result is not None)
    assert best.result is not None and best.predicted_us is not None
    taken = best.with_result(replace(best.result, makespan_ticks=least // 2, is_estimate=True))
    assert BoundCheck(least).raised(taken).ticks >= least  # a few layers that say less stand for no other


def test_rates_of_its_own_hold_for_the_links_of_a_gpu() -> None:
    own = "collectives { simple_bandwidth 200 GB/s; ll128_bandwidth 150 GB/s }"
    scenario = all_reduce(text_of(share=0.6, changes=own))

    assert library_scaling(scenario.system) == ""
    assert library_scaling(all_reduce(text_of(share=0.6)).system) == "from links of 375 GB/s to 225 GB/s"
