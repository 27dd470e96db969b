"""The ranker: gradient-boosted trees that correct the step-level estimate towards what the simulator finds.

It learns log(simulated / estimate), so that where it knows nothing it says what the estimate says. A model is two
files, the trees and a card that describes them. The trees are called by their hash, which the card gives: writing the
card switches from one model to the next at once, and no reader meets the card of one with the trees of the other.
Neither is trusted: the trees are numbers in a file of bounded size and known hash, and are checked to be trees.
"""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...compiler.ir import TICKS_PER_US, Scenario, Schedule
from ...compiler.text.writing import write_whole
from .boosted_trees import BoostedTrees, ModelError
from .features import LOG_ESTIMATE_US, NAMES, FloatArray, matrix
from .learner import boosted_trees, regressor

CARD_FILE = "ranker.json"
SCHEMA = "magus-ranker/2"
MAX_MODEL_BYTES = 8 << 20
MAX_CARD_BYTES = 1 << 20
# A correction beyond this factor is no correction; trees never give one unless they have been tampered with.
MAX_LOG_RATIO = 3.0
_SHA256 = re.compile(r"[0-9a-f]{64}")

__all__ = ["ModelCard", "ModelError", "Ranker"]


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Description of the trees in the file beside them: training data, fingerprint of the code, held-out scores."""

    fingerprint: str
    seed: int
    scenarios: int
    runs: int
    metrics: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Ranker:
    """Predicts makespans; ``trees`` is None for one that trusts the estimate alone."""

    trees: BoostedTrees | None
    card: ModelCard | None = None

    @classmethod
    def fit(cls, features: FloatArray, simulated_ticks: npt.NDArray[np.int64], seed: int = 0) -> "Ranker":
        """Fit to simulated runs: [N, F] features as ``features.matrix`` gives them, and [N] makespans in ticks."""
        ratio = np.log(simulated_ticks / TICKS_PER_US) - features[:, LOG_ESTIMATE_US]
        return cls(boosted_trees(regressor(features, ratio, seed)))

    @property
    def typical_error(self) -> float | None:
        """Relative error that nine of ten predictions on unseen scenarios stay under; None without a card."""
        return None if self.card is None else dict(self.card.metrics).get("error_p90")

    def predict_us(self, scenario: Scenario, schedules: Sequence[Schedule]) -> tuple[float, ...]:
        """Predicted makespan of each schedule in us."""
        return tuple(float(us) for us in self.predict_matrix(matrix(scenario, schedules)))

    def predict_matrix(self, features: FloatArray) -> FloatArray:
        """Predicted makespans in us, [N], for [N, F] features."""
        log_us = features[:, LOG_ESTIMATE_US]
        if self.trees is None or not len(features):
            return np.exp(log_us)
        ratio = self.trees.predict(features)
        return np.exp(log_us + np.clip(ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO))

    def save(self, folder: Path) -> None:
        """Write the two files into ``folder``, which is made where it is missing."""
        if self.trees is None or self.card is None:
            raise ValueError("only a fitted ranker with its card can be saved")
        data = self.trees.to_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        document = {
            "schema": SCHEMA,
            "sha256": sha256,
            "fingerprint": self.card.fingerprint,
            "sklearn": version("scikit-learn"),
            "features": list(NAMES),
            "training": {"seed": self.card.seed, "scenarios": self.card.scenarios, "runs": self.card.runs},
            "held_out": dict(self.card.metrics),
        }
        folder.mkdir(parents=True, exist_ok=True)
        before = _described(folder)
        write_whole(folder / model_file(sha256), data)
        write_whole(folder / CARD_FILE, json.dumps(document, indent=2) + "\n")
        if before is not None and before != sha256:
            with suppress(OSError):  # what is left over harms nobody
                (folder / model_file(before)).unlink()

    @classmethod
    def load(cls, folder: Path | None = None) -> "Ranker":
        """The ranker in ``folder``, the shipped one if None.

        Raises
        ------
        ModelError
            If a file is missing, damaged, of other features or of another version.
        """
        place = files(f"{__package__}.model") if folder is None else folder
        card, sha256 = _card_of(read_bounded(place, CARD_FILE, MAX_CARD_BYTES))
        try:
            data = read_bounded(place, model_file(sha256), MAX_MODEL_BYTES)
        except ModelError:
            if _described(place) in (sha256, None):
                raise
            return cls.load(folder)  # another model took its place between the two reads
        if hashlib.sha256(data).hexdigest() != sha256:
            raise ModelError(f"{model_file(sha256)} is not the file that {CARD_FILE} describes: its hash differs")
        return cls(BoostedTrees.from_bytes(data, len(NAMES)), card)


def model_file(sha256: str) -> str:
    """The name of the trees with this hash."""
    return f"ranker-{sha256[:16]}.trees"


def _described(place: Any) -> str | None:
    """The hash in the card of a folder or package; None where there is no card that is one."""
    try:
        return _card_of(read_bounded(place, CARD_FILE, MAX_CARD_BYTES))[1]
    except ModelError:
        return None


def read_bounded(place: Any, name: str, limit: int) -> bytes:
    """At most ``limit`` bytes of a file in a folder or package."""
    try:
        with place.joinpath(name).open("rb") as stream:
            data: bytes = stream.read(limit + 1)
    except OSError as error:
        raise ModelError(f"cannot read {name}: {error.strerror or error}; run `magus train`") from None
    if len(data) > limit:
        raise ModelError(f"{name} is larger than {limit} B")
    return data


def _card_of(data: bytes) -> tuple[ModelCard, str]:
    """The card and the hash it gives."""
    try:
        document = json.loads(data)
        if document["schema"] != SCHEMA:
            raise ModelError(f"{CARD_FILE} has another schema than {SCHEMA}")
        if tuple(document["features"]) != NAMES:
            raise ModelError("the model was trained on other features than this version computes; run `magus train`")
        training, metrics = document["training"], document["held_out"]
        found = tuple((str(name)[:64], float(value)) for name, value in metrics.items())
        card = ModelCard(
            str(document["fingerprint"]),
            int(training["seed"]),
            int(training["scenarios"]),
            int(training["runs"]),
            found,
        )
        sha256 = str(document["sha256"])
        if not _SHA256.fullmatch(sha256):
            raise ValueError(sha256)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ModelError(f"{CARD_FILE} is damaged: {type(error).__name__}") from None
    if not all(math.isfinite(value) for _, value in card.metrics):
        raise ModelError(f"{CARD_FILE} is damaged: a figure is not finite")
    return card, sha256
