"""Scenarios with other rows are those that the text with other rows describes; choices fit them."""

import pytest

from magus.advisor.bespoke.batches import batches_of
from magus.advisor.sensitivity.threshold import num_rows, resized_choices, with_rows
from magus.compiler.ir import EngineChoice, EngineKind, OpChoice, Pattern
from magus.compiler.planning.build import reject_choice
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.some import some

RESIZED = (Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.A2A_GEMM)
DMA = EngineChoice(EngineKind.DMA, 3)


@pytest.mark.parametrize("pattern", RESIZED)
def test_it_is_the_scenario_of_the_text_with_other_rows(pattern: Pattern) -> None:
    square = scenario_of(pattern, SYSTEMS[0], 4, 256, 256, 256)

    assert num_rows(square.shape) == 256
    assert with_rows(square, 64) == scenario_of(pattern, SYSTEMS[0], 4, 64, 256, 256)


@pytest.mark.parametrize("pattern", [each for each in Pattern if each not in RESIZED])
def test_other_patterns_have_no_rows_to_change(pattern: Pattern) -> None:
    assert num_rows(scenario_of(pattern, SYSTEMS[0], 4, 256, 256, 256).shape) is None


def test_a_template_has_few_chunks_as_many_or_of_the_same_size() -> None:
    scenario = scenario_of(Pattern.AG_GEMM, SYSTEMS[0], 4, 1024, 256, 256)
    resized = with_rows(scenario, 8192)

    forms = list(resized_choices(scenario, resized, OpChoice("hetero_fused_1d", 4, DMA)))

    assert {form.chunks for form in forms} == {4, 8, 16, 32}
    assert all(reject_choice(resized, form) is None for form in some(forms))


def test_a_bespoke_choice_keeps_the_shares_of_its_parts() -> None:
    scenario = scenario_of(Pattern.AG_GEMM, SYSTEMS[0], 4, 1024, 256, 256)
    choice = OpChoice("bespoke", 4, DMA, parts=((256, 0), (0, 64), (0, 192)))
    resized = with_rows(scenario, 2048)

    (form,) = resized_choices(scenario, resized, choice)

    assert reject_choice(resized, form) is None
    assert [batch.rows for batch in batches_of(form)] == [(512, 0, 0, 0), (0, 128, 128, 128), (0, 384, 384, 384)]
