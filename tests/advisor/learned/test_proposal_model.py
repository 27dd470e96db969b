"""Proposals: legal, different, the fastest by the estimate first, and the same on every call."""

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from magus.advisor.estimate.makespan import estimate_ticks
from magus.advisor.learned.boosted_trees import ModelError
from magus.advisor.learned.pipeline import names_of_features, pair_features, pipeline_times
from magus.advisor.learned.proposal_model import LEAST, ProposalModel, polished, proposed_candidates
from magus.advisor.learned.situation import Situation
from magus.advisor.learned.structure import BatchShape, Structure, fitted
from magus.advisor.training.families import draw
from magus.advisor.training.table import LabelTable
from magus.compiler.ir import EngineChoice, EngineKind, Explore, OpCase, OpChoice, ShouldStop
from magus.compiler.planning.build import reject_choice
from tests.helpers.scenarios.scenarios import ag_gemm, exploring, gemm_rs, ring

SM16 = EngineChoice(EngineKind.SM, 16)


def test_situations_have_the_same_finite_numbers_everywhere() -> None:
    situations = [Situation.of(draw(5, idx).scenario) for idx in range(40)]

    assert len({situation.names for situation in situations}) == 1
    assert len(set(situations[0].names)) == len(situations[0].values)
    assert all(np.isfinite(situation.values).all() for situation in situations)


def test_passing_on_is_quicker_than_direct_copies_on_a_ring_alone() -> None:
    mesh, closed = Situation.of(ag_gemm(4096, 8192, 8192)), Situation.of(ag_gemm(4096, 8192, 8192, fabric=ring()))

    assert closed["log_passing_over_comm"] < mesh["log_passing_over_comm"]
    assert closed["mean_hops"] > mesh["mean_hops"] == 1


def test_the_closed_form_orders_schedules_roughly_as_the_estimate_does(table: LabelTable, model: ProposalModel) -> None:
    correlations = []
    for labels in table.labels:
        library = model.after if labels.consumes else model.before
        places = [library.structures.index(table.winners[number].structure) for number in labels.winners]
        fits = np.isfinite(labels.ticks)
        times = pipeline_times(labels.situation, library.shapes(labels.situation.num_ranks))[places]
        correlations.append(np.corrcoef(times[fits], np.log(labels.ticks[fits]))[0, 1])

    assert len(correlations) == len(table.labels) and np.median(correlations) > 0.8


def test_features_are_named_and_finite(table: LabelTable, model: ProposalModel) -> None:
    situation, library = table.labels[0].situation, model.before

    features = pair_features(situation, library.shapes(situation.num_ranks), library.origins, model.scale)

    assert features.shape == (len(library.structures), len(names_of_features(model.names)))
    assert np.isfinite(features).all()


@pytest.mark.parametrize("scenario", [ag_gemm(4096, 8192, 8192), gemm_rs(512, 4096, 4096, ranks=4)])
def test_proposals_are_legal_and_the_fastest_by_estimate_is_first(model: ProposalModel, scenario: OpCase) -> None:
    found = model.propose(scenario, 8)

    ticks = [proposal.estimate_ticks for proposal in found]
    assert len({proposal.choice for proposal in found}) == 8 and ticks == sorted(ticks)
    for proposal in found:
        assert reject_choice(scenario, proposal.choice) is None
        assert proposal.estimate_ticks == estimate_ticks(scenario, proposal.schedule)
    assert model.propose(scenario, 8) == found


def test_trees_choose_better_than_chance(table: LabelTable, model: ProposalModel) -> None:
    gains = []
    for labels in table.labels:
        scenario = draw(table.seed, labels.idx).scenario
        fits = labels.ticks[np.isfinite(labels.ticks)]
        gains.append(model.propose(scenario, 4)[0].estimate_ticks / np.median(fits))

    assert len(gains) == len(table.labels) and np.median(gains) < 0.9


def test_what_the_file_does_not_explore_is_not_proposed(model: ProposalModel) -> None:
    scenario = exploring(ag_gemm(4096, 8192, 8192), Explore.of(engine=(SM16,)))

    found = model.propose(scenario, 8)

    assert found and {proposal.choice.engine for proposal in found} == {SM16}


def test_without_trees_the_closed_form_chooses(model: ProposalModel) -> None:
    scenario = ag_gemm(4096, 8192, 8192)
    plain = replace(model, trees=None)

    first = next(plain.choices(scenario))

    times = pipeline_times(Situation.of(scenario), plain.after.shapes(scenario.num_ranks))
    best = plain.after.structures[int(times.argmin())]
    assert first.template == best.knobs.template and first.engine.kind is best.knobs.engine.kind


def test_small_changes_never_make_a_proposal_slower(model: ProposalModel) -> None:
    scenario = ag_gemm(4096, 8192, 8192)
    start = model.propose(scenario, 2)[-1]

    better = polished(scenario, start, 20)

    assert better.estimate_ticks < start.estimate_ticks
    assert better == polished(scenario, start, 20)
    assert reject_choice(scenario, better.choice) is None


def test_once_it_is_late_a_few_proposals_are_estimated(model: ProposalModel) -> None:
    scenario = ag_gemm(4096, 8192, 8192)
    some = [set(model.propose(scenario, 24, ended_after(calls))) for calls in (0, 5)]
    everything = model.propose(scenario, 24)
    few = proposed_candidates(scenario, model, time_up=ended_after(0))

    assert [len(each) for each in some] == [LEAST, LEAST + 5]
    assert some[0] < some[1] < set(everything)
    assert {each.schedule for each in few} == {each.schedule for each in some[0]}
    assert polished(scenario, everything[0], time_up=lambda: True) == everything[0]


def ended_after(calls: int) -> ShouldStop:
    """Whether it was asked more often than so many times."""
    requested = count(1)
    return lambda: next(requested) > calls


def test_all_structures_are_ranked_once_and_trees_say_which_are_first(model: ProposalModel) -> None:
    scenario = ag_gemm(4096, 8192, 8192)
    situation, library = Situation.of(scenario), model.library(scenario)
    features = pair_features(situation, library.shapes(situation.num_ranks), library.origins, model.scale)
    assert model.trees is not None
    corrected = pipeline_times(situation, library.shapes(situation.num_ranks)) + model.trees.predict(features)

    ranked = list(model.ranking(situation, library))

    assert sorted(ranked) == list(range(len(library.structures)))
    assert ranked[0] == corrected.argmin()


def test_templates_that_the_file_does_not_name_are_not_proposed(model: ProposalModel) -> None:
    scenario = exploring(ag_gemm(4096, 8192, 8192), Explore.of(schedules=("serial", "bespoke")))

    assert {proposal.choice.template for proposal in model.propose(scenario, 8)} <= {"serial", "bespoke"}


def test_one_whole_batch_is_no_proposal() -> None:
    whole = Structure(OpChoice("bespoke", 1, SM16), 1, 0.0, 0.0, (BatchShape(1.0, (1.0,)),))

    assert fitted(whole, ag_gemm(4096, 8192, 8192)) is None


def test_a_model_of_other_numbers_is_refused(model: ProposalModel) -> None:
    other = replace(model, names=("another", *model.names[1:]))

    with pytest.raises(ModelError, match="other numbers"):
        other.propose(ag_gemm(4096, 8192, 8192))
