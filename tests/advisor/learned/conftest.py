"""A small table of drawn scenarios, and the model that is fitted to it."""

import numpy as np
import pytest

from magus.advisor.learned.pipeline import Found
from magus.advisor.learned.proposal_model import ProposalModel
from magus.advisor.learned.situation import Situation
from magus.advisor.learned.structure import BatchShape, Structure, catalogue
from magus.advisor.training.families import draw
from magus.advisor.training.table import ANYWHERE, LabelTable, Winner
from magus.advisor.training.train import Labeller, fit_model
from magus.compiler.ir import EngineChoice, EngineKind, OpChoice

SEED, COUNT = 3, 16
SM16 = EngineChoice(EngineKind.SM, 16)
BATCHES = (BatchShape(0.75, (0.25,)), BatchShape(0.25, (0.75,)))


@pytest.fixture(scope="session")
def table() -> LabelTable:
    """Labels of a part of the catalogue and of a bespoke structure for each direction, in ``COUNT`` scenarios."""
    knobs = OpChoice("bespoke", 1, SM16, streams=2)
    found = [Winner(Structure(knobs, 1, 0.0, 0.0, BATCHES), idx, consumes) for idx, consumes in ((0, False), (1, True))]
    usual = [Winner(each, ANYWHERE, kind) for kind in (False, True) for each in catalogue(consumes=kind)[::48]]
    winners = (*found, *usual)
    situations = [Situation.of(draw(SEED, idx).scenario).values for idx in range(COUNT)]
    anywhere = np.mean(situations, axis=0)
    origins = np.array([situations[winner.idx] if winner.idx >= 0 else anywhere for winner in winners])
    labeller = Labeller(SEED, winners, origins, {2: Found(2e8, 2.1e8, 2e8, 3e8, 3e8)})
    return LabelTable("of nothing", SEED, winners, tuple(labeller.labels(range(COUNT))))


@pytest.fixture(scope="session")
def model(table: LabelTable) -> ProposalModel:
    """The model fitted to the whole table."""
    return fit_model(table, frozenset(range(COUNT)))
