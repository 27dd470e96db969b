"""Every part of the shipped model earns its place: without it, answers are slower by their estimates.

The scenarios are drawn from a seed that nothing was fitted to. Nothing is simulated: a proposal is chosen by its
estimate, and the estimate of the choice is what a better model lowers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import pytest

from magus.advisor.learned.boosted_trees import BoostedTrees
from magus.advisor.learned.model_file import load
from magus.advisor.training.families import draw
from magus.advisor.training.table import load_table
from magus.advisor.training.ways import MODEL, WAYS, Models, models_of, predicted_ticks
from magus.compiler.ir import OpCase

FloatArray = npt.NDArray[np.float64]

TABLE = Path(__file__).parents[4] / "benchmarks" / "data" / "proposals.npz"
SEED, COUNT = 11, 24
# Least mean logarithm of the time without a part over the time with it: about a third of what it gains here.
MARGINS = {"without small changes": 0.002, "without trees": 0.004, "without winners": 0.008}
# The same of trees that say something at random: these choose as many structures that the closed form alone does not.
CHANCE = 0.001


@pytest.fixture(scope="module")
def shipped() -> Models:
    """The shipped model and the same without each of its parts."""
    return models_of(load()[0], load_table(TABLE), {}, 0)


@pytest.fixture(scope="module")
def scenarios() -> tuple[OpCase, ...]:
    """Scenarios of a seed that no table has."""
    return tuple(draw(SEED, idx).scenario for idx in range(COUNT))


def log_times(way: str, models: Models, scenarios: Sequence[OpCase]) -> FloatArray:
    """Return the logarithm of the estimated time of the answer of ``way`` in each of ``scenarios``."""
    return np.log([predicted_ticks(scenario, WAYS[way](models, scenario)[0]) for scenario in scenarios])


@pytest.fixture(scope="module")
def times(shipped: Models, scenarios: tuple[OpCase, ...]) -> FloatArray:
    """The answers of the shipped model."""
    return log_times(MODEL, shipped, scenarios)


def check_that_it_earns(part: str, times: FloatArray, without: FloatArray) -> None:
    """Check that answers without ``part`` are slower by its margin; ``times`` are those of a model that has it."""
    lost = float(np.mean(without - times))
    assert lost >= MARGINS.get(part, CHANCE), (
        f"{part} answers are slower by {lost:.2%} alone: train anew, or leave the part out"
    )


@pytest.mark.slow
@pytest.mark.parametrize("part", MARGINS)
def test_a_shipped_part_earns_its_place(
    part: str, shipped: Models, scenarios: tuple[OpCase, ...], times: FloatArray
) -> None:
    check_that_it_earns(part, times, log_times(part, shipped, scenarios))


@dataclass(frozen=True, slots=True)
class Noise:
    """Trees that know nothing."""

    seed: int

    def predict(self, features: FloatArray) -> FloatArray:
        """Return any corrections."""
        return np.random.default_rng(self.seed).random(len(features))


@pytest.mark.slow
def test_trees_know_more_than_chance(shipped: Models, scenarios: tuple[OpCase, ...], times: FloatArray) -> None:
    noise = replace(shipped.whole, trees=cast("BoostedTrees", Noise(1)))

    check_that_it_earns("random trees:", times, log_times(MODEL, replace(shipped, whole=noise), scenarios))


def test_a_part_that_changes_nothing_is_found_out() -> None:
    times = np.log(np.arange(1.0, 5.0))

    with pytest.raises(AssertionError, match=r"slower by 0\.00%"):
        check_that_it_earns("without winners", times, times)
