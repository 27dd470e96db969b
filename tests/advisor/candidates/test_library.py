"""The library's own time as a row and as the baseline of a lone collective, where the profile knows it."""

from dataclasses import replace
from fractions import Fraction

import pytest

from magus.advisor import Advisor
from magus.advisor.candidates.advice import Advice
from magus.advisor.candidates.library import library_time, speedup_of
from magus.advisor.export import advice_document
from magus.compiler import compile_text
from magus.compiler.ir import Late, Scenario, Variability
from magus.simcore.kernels.nccl import NcclCollective, collective_time
from magus.tui.app.view import Mark, SortKey, figures_of, rows_of, verdict_of
from magus.tui.text.render import advice_text, verdict_sentence
from tests.helpers.scenarios.scenarios import ag_gemm, h100, lone_gather

SWITCH = 'use "nvidia/{use}"\nsystem node {{ gpus {gpus} x {gpu}; fabric switch(nvswitch, link=nvlink) }}\n'
SPACE = "explore w {{\n schedules direct, ring, serial\n engine sm(32)\n chunks 8\n}}\n"


def lone(operation: str, rows: int, gpu: str = "H100", gpus: int = 8) -> Scenario:
    shard = " shard rows" if operation == "all_gather" else ""
    text = (
        "mgs 1\n"
        + SWITCH
        + "workload w on node {{\n x = tensor bf16[{rows}, 1024]{shard}\n y = {operation}(x)\n}}\n"
        + SPACE
    )
    use = gpu.lower()
    return compile_text(
        text.format(use=use, gpu=gpu, gpus=gpus, rows=rows, shard=shard, operation=operation)
    ).scenario()


@pytest.mark.parametrize("operation", NcclCollective)
def test_its_bytes_are_those_of_nccl_tests(operation: NcclCollective) -> None:
    scenario = lone(operation.value, 4096)
    found = library_time(scenario)

    assert found is not None
    assert found.time == collective_time(scenario.gpu, operation, 4096 * 1024 * 2, 8)


def test_where_the_profile_or_the_form_says_nothing_there_is_none() -> None:
    known = lone("all_gather", 4096)
    late = replace(known, system=replace(known.system, variability=Variability(late=(Late(1, 1000),))))
    without = replace(known.gpu, collectives=None)

    assert library_time(known) is not None
    assert library_time(late) is None
    assert library_time(replace(known, system=replace(known.system, gpu=without))) is None
    assert library_time(lone_gather(512, 512)) is None
    assert library_time(ag_gemm(512, 512, 512, gpu=h100())) is None
    assert library_time(lone("broadcast", 4096)) is None


def test_a_gain_is_over_the_library_and_none_within_what_its_form_can_tell() -> None:
    scenario = lone("all_reduce", 16)
    library = library_time(scenario)
    assert library is not None

    assert speedup_of(scenario, 1e6, library.us / 2) == pytest.approx(2)
    assert speedup_of(scenario, 1e6, library.us / (1 + library.error / 2)) == 1
    assert speedup_of(scenario, 1e6, 2 * library.us) == 1
    assert speedup_of(lone_gather(512, 512), 30.0, 10.0) == 3


@pytest.fixture(scope="module")
def small() -> Advice:
    """All_reduce of 32 KiB on 8 B200: libraries written for small messages take a fraction of the usual one's time."""
    return Advisor.load().recommend(lone("all_reduce", 16, gpu="B200"))


def test_a_small_all_reduce_is_compared_with_the_library(small: Advice) -> None:
    library = small.library
    assert library is not None and not small.uses_library

    assert 20 < library.us < 30  # nccl-tests: 26 to 29 us
    assert 5 < small.recommended.best_us < 12  # packets in one kernel; 3.8 us where nothing waited for anything
    assert small.speedup == library.us / small.recommended.best_us
    sentence = verdict_sentence(small)
    assert "faster than the library (NCCL form" in sentence
    assert "serial" not in sentence.partition("faster than")[2]
    assert "over the library" in small.reasons[-1]
    assert any("closed form" in reason for reason in small.reasons)


def test_the_library_is_a_row_that_is_not_simulated(small: Advice) -> None:
    library = small.library
    assert library is not None
    (line,) = (line for line in advice_text(small, 8).splitlines() if line.lstrip("* ").startswith(f"{library.name} "))
    assert line.split()[-3:] == [f"{library.us:.1f}", "-", "1.00x"]

    document = advice_document(small)
    assert document["recommended"] == small.recommended.expression
    assert document["baseline"] == {"name": "the library", "us": library.us}
    assert document["library"]["us"] == library.us and document["library"]["from"] == "closed form"
    fastest = document["candidates"][0]
    assert fastest["speedup_vs_serial"] == library.us / fastest["simulated_us"]


def test_the_screen_has_the_row_in_its_place(small: Advice) -> None:
    library = small.library
    assert library is not None
    rows = rows_of(small, {}, SortKey.RANK)
    (row,) = (row for row in rows if row.expression == library.name)
    simulated = [each for each in rows if each.simulated_us is not None]

    assert len(rows) == len(small.candidates) + 1
    assert [each.rank for each in rows] == list(range(1, len(rows) + 1))
    assert row.mark is Mark.NONE and row.simulated_us is None
    assert all((each.best_us < library.us) == (each.rank < row.rank) for each in simulated)
    assert "faster than the library" in verdict_of(small, 200)
    assert f"{library.us:.1f} us of the library" in figures_of(small)


def test_a_library_that_is_as_fast_is_the_answer(small: Advice) -> None:
    """The same advice on a profile whose library starts at once."""
    gpu = small.scenario.gpu
    assert gpu.collectives is not None
    step = replace(gpu.collectives.ll128, start_ticks=0, step_ticks=1)
    quick = replace(gpu, collectives=replace(gpu.collectives, start_ticks=1, ll128=step, error=Fraction(1, 20)))
    scenario = replace(small.scenario, system=replace(small.scenario.system, gpu=quick))
    advice = replace(small, scenario=scenario)
    library = advice.library

    assert library is not None and advice.uses_library and advice.answer == library.name
    assert verdict_sentence(advice).startswith("Use the library (NCCL form, LL128)")
    assert verdict_of(advice, 200) == f"No schedule is clearly faster: {library.name}"
    assert advice_document(advice)["recommended"] == library.name
    assert [row.expression for row in rows_of(advice, {}, SortKey.RANK) if row.mark is Mark.RECOMMENDED] == [
        library.name
    ]
