"""Fitting a proposal model to a table: how far structures are from the best one in which situations."""

import numpy as np
import numpy.typing as npt

from .boosted_trees import ModelError
from .errors import EstimateErrors
from .learner import boosted_trees, regressor
from .pairs import FeatureScale, pair_features
from .proposal_model import Library, ProposalModel
from .shapes import Shapes
from .table import ANYWHERE, Labels, LabelTable

FloatArray = npt.NDArray[np.float64]

# Pairs are many, and a loss depends on several numbers together.
TREES = {"loss": "squared_error", "max_iter": 80, "learning_rate": 0.17, "max_leaf_nodes": 31, "min_samples_leaf": 30}


def fit_model(table: LabelTable, known: frozenset[int], seed: int = 0) -> ProposalModel:
    """Fit to the labels of the scenarios ``known``; the library has their winners and the catalogue alone.

    Raises
    ------
    ModelError
        If no label is left.
    """
    kept = np.array([winner.idx in known or winner.idx == ANYWHERE for winner in table.winners])
    rows = [labels.among(kept) for labels in table.labels if labels.idx in known]
    rows = [labels for labels in rows if len(labels.winners)]
    if not rows:
        raise ModelError("no structure of the table fits any of its scenarios: make it of more records")
    scale, origins = FeatureScale.of(np.array([labels.situation.values for labels in rows])), table.origins()
    features = np.concatenate([_features(labels, table, origins, scale) for labels in rows])
    losses = np.concatenate([labels.losses for labels in rows])
    trees = boosted_trees(regressor(features, losses, seed, TREES))
    before, after = (_library(table, origins, kept, consumes=consumes) for consumes in (False, True))
    return ProposalModel(table.names, before, after, scale, trees, EstimateErrors.of([row.found for row in rows]))


def _features(labels: Labels, table: LabelTable, origins: FloatArray, scale: FeatureScale) -> FloatArray:
    structures = [table.winners[number].structure for number in labels.winners]
    shapes = Shapes.of(structures, [labels.consumes] * len(structures))
    return pair_features(labels.situation, shapes, origins[labels.winners], scale)


def _library(table: LabelTable, origins: FloatArray, kept: npt.NDArray[np.bool_], *, consumes: bool) -> Library:
    some = [number for number, winner in enumerate(table.winners) if kept[number] and winner.consumes is consumes]
    structures = tuple(table.winners[number].structure for number in some)
    return Library(structures, origins[some], consumes)
