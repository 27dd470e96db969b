"""Simple ways to choose: legal, the same on every call, and what they are said to be."""

import math
from dataclasses import replace

import numpy as np
import pytest

from magus.advisor.learned.proposal_model import Library, ProposalModel
from magus.advisor.learned.situation import Situation
from magus.advisor.learned.structure import BatchShape, Structure, fitted
from magus.advisor.training import ways as module
from magus.advisor.training.families import draw
from magus.advisor.training.table import LabelTable
from magus.advisor.training.ways import (
    best_static,
    closed_form,
    drawn,
    first_legal,
    models_of,
    nearest,
    or_serial,
    predicted_ticks,
    roofline,
)
from magus.compiler.ir import EngineChoice, EngineKind, OpChoice
from magus.compiler.planning.build import reject_choice
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs

SM16 = EngineChoice(EngineKind.SM, 16)
PLAIN = Structure(OpChoice("uniform_fused_1d", 1, SM16), 4, 0.0, 0.0, ())
BESPOKE = Structure(OpChoice("bespoke", 1, SM16), 1, 0.0, 0.0, (BatchShape(0.75, (0.25,)), BatchShape(0.25, (0.75,))))
SMALL, LARGE = ag_gemm(128, 4096, 4096), ag_gemm(65536, 8192, 8192)


@pytest.mark.slow
def test_the_winner_of_the_nearest_situation_is_chosen(model: ProposalModel) -> None:
    origins = np.array([Situation.of(scenario).values for scenario in (SMALL, LARGE)])
    winners = replace(model, after=Library((PLAIN, BESPOKE), origins, consumes=True))

    chosen = [nearest(winners, scenario) for scenario in (SMALL, LARGE, ag_gemm(32768, 8192, 8192))]

    assert [choice and choice.template for choice in chosen] == ["uniform_fused_1d", "bespoke", "bespoke"]


@pytest.mark.slow
def test_a_winner_that_does_not_fit_gives_way_to_the_next(model: ProposalModel) -> None:
    columns = Structure(OpChoice("uniform_fused_2d", 1, SM16), 1, 0.0, 0.0, ())
    origins = np.array([Situation.of(scenario).values for scenario in (SMALL, LARGE)])
    winners = replace(model, after=Library((columns, PLAIN), origins, consumes=True))

    choice = nearest(winners, SMALL)

    assert fitted(columns, SMALL) is None and choice == fitted(PLAIN, SMALL)
    assert nearest(replace(model, after=Library((), origins[:0], consumes=True)), SMALL) is None


@pytest.mark.slow
def test_a_random_structure_is_legal_and_depends_on_the_seed_alone(model: ProposalModel) -> None:
    scenario = gemm_rs(512, 4096, 4096, ranks=4)

    chosen = [drawn(model, scenario, seed) for seed in range(12)]

    assert len(set(chosen)) > 6 and chosen == [drawn(model, scenario, seed) for seed in range(12)]
    assert all(choice is not None and reject_choice(scenario, choice) is None for choice in chosen)


@pytest.mark.slow
def test_the_closed_form_alone_takes_its_best_structure(model: ProposalModel) -> None:
    plain = replace(model, trees=None)

    assert closed_form(plain, LARGE) == next(plain.choices(LARGE))


def test_the_roofline_cuts_what_is_long_and_leaves_whole_what_is_short() -> None:
    short, long = roofline(ag_gemm(16, 4096, 4096)), roofline(LARGE)

    assert short.template == "serial"
    assert long.template == "uniform_fused_1d" and long.chunks >= 4 * LARGE.num_ranks
    assert reject_choice(LARGE, long) is None


def test_the_best_static_structure_has_the_least_mean_of_logarithms(
    table: LabelTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_usual_structures", lambda consumes: (PLAIN, BESPOKE))
    known = frozenset(range(0, len(table.labels), 3))

    best = best_static(table, known, 0)

    for consumes in (False, True):
        scenarios = [draw(table.seed, each.idx).scenario for each in table.labels if each.consumes is consumes]
        known_ones = [scenario for scenario in scenarios if int(scenario.name.split("/")[1]) in known]
        plain, bespoke = (
            sum(
                math.log(predicted_ticks(scenario, or_serial(scenario, first_legal([each], scenario))))
                for scenario in known_ones
            )
            for each in (PLAIN, BESPOKE)
        )
        assert len(known_ones) > 1 and best[consumes] == (PLAIN if plain < bespoke else BESPOKE)


def test_the_parts_of_a_model_are_its_winners_and_the_others(table: LabelTable, model: ProposalModel) -> None:
    models = models_of(model, table, {}, 0)

    for name in ("before", "after"):
        whole, without, alone = (
            len(getattr(each, name).structures) for each in (models.whole, models.without_winners, models.winners_alone)
        )
        assert (whole, alone) == (without + 1, 1)
    assert models.without_trees.trees is None and models.without_winners.trees is model.trees
    assert math.isfinite(predicted_ticks(SMALL, roofline(SMALL)))
