"""Random scenarios with simulated schedules: what the ranker is trained on and judged by.

Each scenario is drawn from its own seed, so the data are the same however many processes simulate, and scenario i is
the same in a set of 10 and of 1000.
"""

from collections.abc import Iterator
from concurrent.futures import as_completed
from dataclasses import dataclass
from itertools import product
from random import Random

import numpy as np
import numpy.typing as npt

from ...compiler.ir import Choice, Counted, Scenario
from ...compiler.planning.build import build_schedule, reject_choice
from ...compiler.planning.knobs.engine import ENGINE
from ...compiler.planning.knobs.structure import CHUNKS, TEMPLATE
from ...compiler.templates import BY_NAME
from ...simcore import RunOutcome, simulate
from ..solver.domains import domains_of, streams_of
from ..workers import interrupts_blocked_in_children, open_pool
from .features import FloatArray, matrix
from .randomised import random_scenario

CHOICES_PER_SCENARIO = 24


@dataclass(frozen=True, slots=True)
class Dataset:
    """Simulated choices. N rows, F features; times in ticks, of estimates in the features alone."""

    features: FloatArray  # [N, F]
    simulated_ticks: npt.NDArray[np.int64]  # [N]
    scenario_idx: npt.NDArray[np.int64]  # [N]

    def of(self, rows: npt.NDArray[np.bool_]) -> "Dataset":
        """The rows where ``rows`` [N] is true."""
        return Dataset(self.features[rows], self.simulated_ticks[rows], self.scenario_idx[rows])


@dataclass(frozen=True, slots=True)
class _Simulated:
    """One scenario's rows."""

    idx: int
    features: FloatArray
    ticks: tuple[int, ...]


def build_dataset(seed: int, scenarios: int, *, workers: int = 1, progress: Counted | None = None) -> Dataset:
    """Simulate some choices of ``scenarios`` random scenarios.

    Parameters
    ----------
    workers
        Processes; the result does not depend on it.
    progress
        Told how many scenarios are done and how many there are.
    """
    report = progress or (lambda done, total: None)
    found: list[_Simulated] = []
    for simulated in _simulate_all(seed, scenarios, workers):
        found.append(simulated)
        report(len(found), scenarios)
    found.sort(key=lambda simulated: simulated.idx)
    return Dataset(
        features=np.concatenate([one.features for one in found]),
        simulated_ticks=np.array([ticks for one in found for ticks in one.ticks], np.int64),
        scenario_idx=np.array([one.idx for one in found for _ in one.ticks], np.int64),
    )


def _simulate_all(seed: int, scenarios: int, workers: int) -> Iterator[_Simulated]:
    """Every scenario once, in the order in which they are done."""
    if workers <= 1:
        yield from (_simulate_one(seed, idx) for idx in range(scenarios))
        return
    with open_pool(workers) as pool:
        with interrupts_blocked_in_children():
            futures = [pool.submit(_simulate_one, seed, idx) for idx in range(scenarios)]
        yield from (future.result() for future in as_completed(futures))


def _simulate_one(seed: int, idx: int) -> _Simulated:
    scenario, unit = random_scenario(seed, idx)
    choices = sample_choices(scenario, Random(f"choices {seed} {idx}"), CHOICES_PER_SCENARIO)
    schedules = [build_schedule(scenario, choice) for choice in choices]
    ticks = []
    for schedule in schedules:
        result = simulate(scenario, schedule, unit_bytes=unit)
        if result.outcome is not RunOutcome.DONE:
            raise RuntimeError(f"{schedule.expression} of {scenario.name}: {result.outcome.value}")
        ticks.append(result.makespan_ticks)
    return _Simulated(idx, matrix(scenario, schedules), tuple(ticks))


def sample_choices(scenario: Scenario, random: Random, count: int) -> tuple[Choice, ...]:
    """At most ``count`` feasible choices, a serial one and every template that has any among them."""
    domains = domains_of(scenario)
    found: dict[str, list[Choice]] = {}
    explored = [template for template in map(BY_NAME.__getitem__, domains[TEMPLATE]) if template.explored]
    for template, chunks, engine in product(explored, domains[CHUNKS], domains[ENGINE]):
        for streams in streams_of(template):
            choice = Choice(template.name, chunks, engine, streams)
            if reject_choice(scenario, choice) is None:
                found.setdefault(choice.template, []).append(choice)
    first = [random.choice(choices) for choices in found.values()]
    rest = [choice for choices in found.values() for choice in choices if choice not in first]
    random.shuffle(rest)
    return tuple(first + rest)[:count]
