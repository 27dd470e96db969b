"""The library's kernels and its collective as the baseline, where the profile knows the time of the collective."""

from dataclasses import replace

import pytest

from magus.advisor import AdviceOptions, Advisor
from magus.advisor.answer.export import advice_document
from magus.advisor.bounds.lower_bound import quick_bound_ticks
from magus.advisor.candidates.advice import Advice
from magus.advisor.candidates.candidate import baseline_of
from magus.advisor.candidates.predicted import library_time, predicted_candidates
from magus.advisor.expect.simulations import serial_baseline
from magus.compiler import compile_text
from magus.compiler.ir import OpCase, Scenario
from magus.compiler.planning.build import expression_of
from magus.compiler.planning.knobs.library import library_serial
from magus.compiler.resolve.expect.expectation import Verdict
from magus.simcore.kernels.dispatch import whole_works
from magus.simcore.kernels.nccl import NcclCollective, collective_time
from magus.tui.app.session.view import Mark, SortKey, figures_of, rows_of, verdict_of
from magus.tui.text.render import advice_text, verdict_sentence
from tests.helpers.scenarios.scenarios import ag_gemm, h100, lone_gather

SWITCH = 'use "nvidia/{use}"\nsystem node {{ gpus {gpus} x {gpu}; fabric switch(nvswitch, link=nvlink) }}\n'
SPACE = "explore w {{\n schedules direct, ring, serial\n engine sm(32)\n chunks 8\n}}\n"
LIBRARY = "serial(engine=sm(16, library))"


def lone(operation: str, rows: int, gpu: str = "H100", gpus: int = 8) -> OpCase:
    shard = " shard rows" if operation == "all_gather" else ""
    text = (
        "mgs 1\n"
        + SWITCH
        + "workload w on node {{\n x = tensor bf16[{rows}, 1024]{shard}\n y = {operation}(x)\n}}\n"
        + SPACE
    )
    use = gpu.lower()
    return (
        compile_text(text.format(use=use, gpu=gpu, gpus=gpus, rows=rows, shard=shard, operation=operation))
        .scenario()
        .case
    )


def gathered(rows: int) -> OpCase:
    """AG+GEMM on 8 H100."""
    body = (
        f"workload w on node {{\n x = tensor bf16[{rows}, 4096] shard rows\n w = tensor bf16[4096, 8192] shard cols\n"
        " xg = all_gather(x)\n y = gemm(xg, w)\n}\nexplore w { schedules serial, shard_p2p; engine dma(7) }\n"
    )
    return (
        compile_text(SWITCH.format(use="nvidia/h100".removeprefix("nvidia/"), gpu="H100", gpus=8) + body)
        .scenario()
        .case
    )


@pytest.mark.parametrize("operation", NcclCollective)
def test_its_bytes_are_those_of_nccl_tests(operation: NcclCollective) -> None:
    scenario = lone(operation.value, 4096)
    found = library_time(scenario)

    assert found is not None
    assert found.time == collective_time(scenario.gpu, operation, 4096 * 1024 * 2, 8)
    assert f"{operation.value} is a closed form" in found.sentence


def test_where_the_profile_or_the_form_says_nothing_there_is_none() -> None:
    known = lone("all_gather", 4096)
    without = replace(known.gpu, collectives=None)

    assert library_time(known) is not None
    assert library_time(replace(known, system=replace(known.system, gpu=without))) is None
    assert library_time(lone_gather(512, 512)) is None
    assert library_time(ag_gemm(512, 512, 512, gpu=h100())) is None
    assert library_time(lone("broadcast", 4096)) is None


def test_it_is_always_among_the_candidates_with_its_closed_form() -> None:
    scenario = gathered(4096)
    assert expression_of(library_serial(scenario)) == LIBRARY
    candidates = predicted_candidates(scenario, ())
    library = baseline_of(candidates)
    gemm = sum(work.alone_ticks for work in whole_works(scenario)) / 1e8
    found = library_time(scenario)

    assert library.expression == LIBRARY and library.is_library and library.is_serial and len(candidates) == 2
    assert found is not None and library.predicted_us == pytest.approx(gemm + found.us)
    assert serial_baseline(scenario).expression == LIBRARY


@pytest.mark.slow
def test_without_it_the_fastest_serial_schedule_is_the_baseline() -> None:
    scenario = ag_gemm(1024, 512, 512)
    candidates = predicted_candidates(scenario, ())

    assert not baseline_of(candidates).is_library
    assert not serial_baseline(scenario).engine.by_library


def test_the_direct_exchange_is_a_schedule_of_its_own() -> None:
    advice = Advisor.load().recommend(Scenario.of_one(gathered(512)), AdviceOptions(bespoke=0))
    rows = {candidate.expression: candidate for candidate in advice.candidates}
    direct = rows["serial(engine=dma(7))"]
    persistent = rows["serial(engine=dma(7), kernel=persistent)"]

    assert advice.serial.expression == LIBRARY and advice.baseline_text == "the library"
    assert (
        persistent.is_serial
        and direct.is_serial
        and not direct.is_library
        and persistent.best_us < direct.best_us < advice.serial.best_us
    )
    assert advice.verdict is Verdict.SERIAL and advice.recommended == persistent  # beyond the error, and no overlap
    assert advice.speedup == advice.serial.best_us / persistent.best_us
    assert "by the library" in verdict_sentence(advice) and "over the library" in verdict_of(advice, 200)
    assert advice_document(advice)["library"]["collective"] == "all_gather"


@pytest.fixture(scope="module")
def small() -> Advice:
    """All_reduce of 32 KiB on 8 B200: libraries written for small messages take a fraction of the usual one's time."""
    return Advisor.load().recommend(Scenario.of_one(lone("all_reduce", 16, gpu="B200")))


def test_a_small_all_reduce_is_compared_with_the_library(small: Advice) -> None:
    assert small.serial.expression == LIBRARY != small.recommended.expression

    assert 20 < small.serial.best_us < 30  # nccl-tests: 26 to 29 us
    assert 5 < small.recommended.best_us < 12  # packets in one kernel; 3.8 us where nothing waited for anything
    assert small.speedup == small.serial.best_us / small.recommended.best_us
    assert small.verdict is Verdict.USE
    sentence = verdict_sentence(small)
    assert "faster than the library" in sentence
    assert "serial" not in sentence.partition("faster than")[2]
    assert "over the library" in small.reasons[-1]
    assert any("closed form" in reason for reason in small.reasons)


def test_the_library_is_a_row_like_others(small: Advice) -> None:
    (line,) = (line for line in advice_text(small, 8).splitlines() if line.lstrip("* ").startswith(LIBRARY))
    assert line.split()[-1] == "1.00x"

    document = advice_document(small)
    assert document["recommended"] == small.recommended.expression and document["serial"] == LIBRARY
    assert document["baseline"] == {"name": "the library", "us": small.serial.best_us}
    assert document["library"]["from"] == "closed form" and document["library"]["protocol"] == "LL128"
    assert document["library"]["us"] == pytest.approx(small.serial.best_us, rel=0.02)
    fastest = document["candidates"][0]
    assert fastest["speedup_vs_serial"] == small.serial.best_us / fastest["simulated_us"]


def test_the_screen_has_the_row_in_its_place(small: Advice) -> None:
    rows = rows_of(small, {}, SortKey.RANK)
    (row,) = (row for row in rows if row.expression == LIBRARY)
    simulated = [each for each in rows if each.simulated_us is not None]

    assert row.mark is Mark.NONE and row.simulated_us == small.serial.simulated_us
    assert all((each.best_us < row.best_us) == (each.rank < row.rank) for each in simulated if each is not row)
    assert "faster than the library" in verdict_of(small, 200)
    assert "us by the library" in figures_of(small)


@pytest.mark.slow
def test_a_library_that_is_as_fast_is_the_answer() -> None:
    """A profile whose library starts as early as the bound allows."""
    scenario = lone("all_gather", 16, gpu="B200")
    gpu = scenario.gpu
    assert gpu.collectives is not None
    step = replace(gpu.collectives.ll128, start_ticks=0, step_ticks=1)
    start = quick_bound_ticks(scenario)
    quick = replace(gpu, collectives=replace(gpu.collectives, start_ticks=start, ll128=step))
    scenario = replace(scenario, system=replace(scenario.system, gpu=quick))
    advice = Advisor.load().recommend(Scenario.of_one(scenario))

    assert advice.recommended.expression == LIBRARY and advice.speedup == 1
    assert advice.verdict is Verdict.LIBRARY
    assert verdict_sentence(advice).startswith("LIBRARY: keep its choice") and "no other" in verdict_sentence(advice)
    assert verdict_of(advice, 200) == f"LIBRARY: no other schedule is clearly faster: {LIBRARY}"
