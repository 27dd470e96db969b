"""Structures: a choice without sizes, and a legal choice again in any scenario."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.advisor.bespoke.batches import batches_of, whole_rows
from magus.advisor.learned.structure import BatchShape, Structure, catalogue, fitted, structure_of
from magus.advisor.training.families import draw
from magus.compiler.ir import EngineChoice, EngineKind, OpChoice
from magus.compiler.planning.build import reject_choice
from tests.helpers.marks import examples
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs, h100

DMA7, SM16 = EngineChoice(EngineKind.DMA, 7), EngineChoice(EngineKind.SM, 16)
BESPOKE = (
    OpChoice("bespoke", 8, DMA7, 2, parts=((512, 128), (0, 384)), slices=((4096, 4096), ())),
    OpChoice("bespoke", 8, SM16, 3, parts=((0, 128, 0, 64, 64, 64, 64, 64), (512, 384, 512, 448, 448, 448, 448, 448))),
)
TEMPLATES = (
    OpChoice("uniform_fused_1d", 32, SM16),
    OpChoice("hetero_unfused_1d", 16, DMA7, streams=4),
    OpChoice("serial", 8, DMA7),
)


@pytest.mark.parametrize("choice", [*BESPOKE, *TEMPLATES])
def test_a_structure_is_the_same_choice_again_in_its_own_scenario(choice: OpChoice) -> None:
    scenario = ag_gemm(4096, 8192, 8192)

    assert reject_choice(scenario, choice) is None
    assert fitted(structure_of(scenario, choice), scenario) == choice


def test_shares_carry_over_to_other_sizes_and_ranks() -> None:
    structure = structure_of(ag_gemm(4096, 8192, 8192), BESPOKE[0])
    other = ag_gemm(2048, 4096, 4096, ranks=4)

    found = fitted(structure, other)

    assert found is not None
    assert found.engine == replace(DMA7, count=3)
    first, second = batches_of(found)
    assert (first.rows, second.rows) == ((512, 128, 128, 128), (0, 384, 384, 384))
    assert first.slices == (2048, 2048)


def test_unequal_peers_become_equal_among_others() -> None:
    structure = structure_of(ag_gemm(4096, 8192, 8192), BESPOKE[1])

    found = fitted(structure, ag_gemm(4096, 8192, 8192, ranks=4))

    assert found is not None and all(len(part) == 2 for part in found.parts)


SHARE = st.floats(0.0, 1.0, allow_nan=False)


@examples(60)
@given(
    own=st.lists(SHARE, min_size=1, max_size=6),
    remote=st.lists(SHARE, min_size=6, max_size=6),
    cuts=st.lists(st.floats(0.01, 1.0), max_size=5),
    idx=st.integers(0, 400),
)
def test_every_structure_that_fits_is_a_legal_choice_of_all_rows(
    own: list[float], remote: list[float], cuts: list[float], idx: int
) -> None:
    scenario = draw(7, idx).scenario
    produces = scenario.shape.pattern.produces
    sizes = tuple(cut / sum(cuts) for cut in cuts)
    shapes = [BatchShape(a, (b,)) for a, b in zip(own, remote, strict=False)]
    shapes[0] = replace(shapes[0], columns=sizes) if produces else replace(shapes[0], slices=sizes)
    structure = Structure(OpChoice("bespoke", 1, SM16), 1, 0.0, 0.0, tuple(shapes))

    found = fitted(structure, scenario)

    if found is not None:
        assert reject_choice(scenario, found) is None
        rows = zip(*(batch.rows for batch in batches_of(found)), strict=True)
        assert tuple(map(sum, rows)) == whole_rows(scenario)


def test_the_catalogue_fits_most_scenarios() -> None:
    for scenario in (ag_gemm(4096, 8192, 8192), gemm_rs(2048, 4096, 4096, gpu=h100())):
        structures = catalogue(consumes=scenario.shape.pattern.consumes)
        legal = [choice for choice in (fitted(one, scenario) for one in structures) if choice is not None]
        assert len(legal) > 0.8 * len(structures)
        assert {choice.template for choice in legal} >= {"serial", "hetero_fused_1d", "pipelined", "uniform_fused_2d"}
