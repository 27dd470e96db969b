"""Fitting a proposal model to a table: how far structures are from the best one in which situations."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .learner import boosted_trees, regressor
from .pairs import Scale, pair_features
from .proposal_model import Library, ProposalModel
from .shapes import Shapes
from .table import ANYWHERE, Labels, LabelTable

FloatArray = npt.NDArray[np.float64]

# Share of errors that an interval covers.
COVERED = 0.9
# Larger trees than those that correct an estimate: pairs are many, and a loss depends on several numbers together.
TREES = {"loss": "squared_error", "max_iter": 80, "learning_rate": 0.17, "max_leaf_nodes": 31, "min_samples_leaf": 30}


def fit_model(table: LabelTable, known: frozenset[int], seed: int = 0) -> ProposalModel:
    """Fit to the labels of the scenarios ``known``; the library has their winners and the catalogue alone."""
    kept = np.array([winner.idx in known or winner.idx == ANYWHERE for winner in table.winners])
    rows = [labels.among(kept) for labels in table.labels if labels.idx in known]
    rows = [labels for labels in rows if len(labels.winners)]
    scale, origins = Scale.of(np.array([labels.situation.values for labels in rows])), table.origins()
    features = np.concatenate([_features(labels, table, origins, scale) for labels in rows])
    losses = np.concatenate([labels.losses for labels in rows])
    trees = boosted_trees(regressor(features, losses, seed, TREES))
    before, after = (_library(table, origins, kept, consumes=consumes) for consumes in (False, True))
    return ProposalModel(table.names, before, after, scale, trees, error_of(rows))


def error_of(rows: Sequence[Labels]) -> tuple[float, float]:
    """Return the logarithms of simulated over estimated time between which ``COVERED`` of the rows with a search are.

    They are of the plan that has the least estimate, as a proposal has: its error is that of a choice by estimates. The
    ranks are those of a conformal prediction: what is drawn alike is between them with at least this probability.
    """
    errors = sorted(
        math.log(row.found.picked_ticks / row.found.estimate_ticks) for row in rows if row.found.picked_ticks < math.inf
    )
    if not errors:
        return (0.0, 0.0)
    outside = math.floor((1 - COVERED) / 2 * (len(errors) + 1) + 1e-9)
    low, high = max(0, outside - 1), min(len(errors) - 1, len(errors) - outside)
    return errors[low], errors[high]


def _features(labels: Labels, table: LabelTable, origins: FloatArray, scale: Scale) -> FloatArray:
    structures = [table.winners[number].structure for number in labels.winners]
    shapes = Shapes.of(structures, [labels.consumes] * len(structures))
    return pair_features(labels.situation, shapes, origins[labels.winners], scale)


def _library(table: LabelTable, origins: FloatArray, kept: npt.NDArray[np.bool_], *, consumes: bool) -> Library:
    some = [number for number, winner in enumerate(table.winners) if kept[number] and winner.consumes is consumes]
    structures = tuple(table.winners[number].structure for number in some)
    return Library.of(structures, origins[some], consumes=consumes)
