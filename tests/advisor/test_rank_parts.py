"""Bounds, estimates and advice where rows do not divide among the ranks."""

from itertools import product

import pytest

from magus.advisor import AdviceOptions, Advisor, lower_bound
from magus.advisor.sensitivity.threshold import num_rows, with_rows
from magus.compiler import compile_text
from magus.compiler.ir import EngineChoice, EngineKind, ExecutionOptions, Kernels, OpCase, OpChoice, Scenario, Wait
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.planning.knobs.library import library_serial
from magus.compiler.templates import ALL_TEMPLATES
from magus.simcore import simulate_op
from tests.helpers.scenarios.compiled import cases_in
from tests.helpers.scenarios.rank_parts import KINDS, scenario_of, text_of
from tests.helpers.some import some

ENGINES = (EngineChoice(EngineKind.DMA, 3), EngineChoice(EngineKind.SM, 8))
OPTIONS = (ExecutionOptions(), ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL))
pytestmark = pytest.mark.usefixtures("compiled_core")


def choices_of(scenario: OpCase) -> list[OpChoice]:
    choices = (
        OpChoice(each.name, scenario.num_ranks * (2 if each.cuts_shards else 1), engine, each.default_streams, options)
        for each, engine, options in product(ALL_TEMPLATES, ENGINES, OPTIONS)
    )
    return [choice for choice in choices if reject_choice(scenario, choice) is None]


def us(scenario: OpCase, choice: OpChoice) -> float:
    return simulate_op(scenario, build_op_plan(scenario, choice), unit_bytes=1024).makespan_us


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "cols", "ranks"), [(4, 4096, 4), (40, 1000, 3)])
def test_no_schedule_beats_the_bound(kind: str, rows: int, cols: int, ranks: int) -> None:
    scenario = scenario_of(kind, rows, cols, ranks, inner=512)
    bound = lower_bound(scenario).ticks

    for choice in some(choices_of(scenario)):
        found = simulate_op(scenario, build_op_plan(scenario, choice), unit_bytes=1024).makespan_ticks
        assert bound <= found, choice


@pytest.mark.parametrize("kind", ["GEMM+AR", "all_reduce"])
@pytest.mark.parametrize("ranks", [8, 6])
def test_a_row_more_or_less_changes_little(kind: str, ranks: int) -> None:
    """Parts of columns, of rows and uneven ones take as long as their bytes."""
    engine = ENGINES[1]
    times = [us(scenario_of(kind, rows, 4096, ranks), OpChoice("serial", ranks, engine)) for rows in (47, 48, 49)]

    assert max(times) == pytest.approx(min(times), rel=0.05)


def test_the_library_does_not_mind_rows() -> None:
    times = [us(s, library_serial(s)) for s in (scenario_of("all_reduce", rows, 8192, 8) for rows in (4, 7, 8))]

    assert times == sorted(times)
    assert times[-1] == pytest.approx(times[0], rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "ranks"), [(4, 8), (5, 3)])
def test_a_step_of_decode_is_advised_on(rows: int, ranks: int) -> None:
    advice = Advisor().recommend(
        Scenario.of_one(scenario_of("GEMM+AR", rows, 2048, ranks, inner=128)), AdviceOptions(workers=1)
    )
    simulated = [each.simulated_ticks for each in advice.candidates if each.simulated_ticks is not None]

    assert advice.recommended.simulated_ticks is not None
    assert not [note for note in advice.notes if "failed" in note]
    assert advice.bound is not None and advice.bound.ticks <= min(simulated)


@pytest.mark.parametrize("rows", [4, 6, 16, 4096, 1001])
@pytest.mark.parametrize("ranks", [8, 6])
def test_a_scenario_with_other_rows_is_that_of_its_text(rows: int, ranks: int) -> None:
    scenario = scenario_of("GEMM+AR", 12, 4096, ranks)
    assert num_rows(scenario.shape) == 12

    assert with_rows(scenario, rows).shape == scenario_of("GEMM+AR", rows, 4096, ranks).shape


def test_an_expectation_may_set_any_number_of_rows() -> None:
    text = (
        text_of("all_reduce", 12, 4096, 8)
        .replace("bf16[12,", "bf16[M,")
        .replace("system", "param M = 4 in 1..64\n\nsystem")
    )
    found = compile_text(text + "expect w with M = 3 { serial.makespan < 1 ms }\n")

    assert [each.shape.moved.rows for each in cases_in(found) if each.shape.moved is not None] == [4096]
