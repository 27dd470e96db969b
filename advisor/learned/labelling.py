"""Labels for the table: winners of records, fitted to every scenario that is drawn and estimated there.

An estimate takes milliseconds where a search takes seconds, and in a search the estimate is within a percent or two of
the simulation: so many scenarios are labelled without a search.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random

import numpy as np
import numpy.typing as npt

from ...compiler.ir import EngineMode, Scenario
from ...compiler.planning.build import build_schedule
from ...compiler.resolve.schedules.from_text import read_choice
from ..candidates.variations import may_deadlock
from ..corpus.families import draw
from ..corpus.record import Record
from ..estimate.makespan import estimate_ticks
from .catalogue import catalogue
from .errors import Found
from .pairs import FeatureScale
from .pipeline import pipeline_times
from .proposal_model import Library
from .situation import Situation
from .structure import Structure, fitted, structure_of
from .table import ANYWHERE, Labels, LabelTable, Winner

FloatArray = npt.NDArray[np.float64]

# Winners of one scenario: of the fastest plans those with different parts, within this ratio of the best.
NUM_WINNERS, MAX_RATIO = 2, 1.03
MAX_BATCHES = 10
# Structures that are labelled in one scenario: the best by the closed form, those from the nearest situations, others.
NUM_FAST, NUM_NEAR, NUM_OTHERS = 40, 60, 30


def winners_of(record: Record) -> Iterator[Winner]:
    """Yield the structures of the fastest plans of a record by their estimates, which make the labels."""
    scenario = draw(record.seed, record.idx).scenario
    plans = sorted(record.plans, key=lambda plan: plan.estimate_ticks)
    choices = ((read_choice(scenario, plan.expression), plan.estimate_ticks) for plan in plans)
    own = [(choice, ticks) for choice, ticks in choices if not choice.engine.by_library]
    seen = set[object]()
    for choice, ticks in own:
        if len(seen) == NUM_WINNERS or ticks > MAX_RATIO * own[0][1]:
            return
        structure = structure_of(scenario, choice)
        kind = (structure.batches, choice.template, choice.algorithm, structure.pieces)
        if kind not in seen and len(structure.batches) <= MAX_BATCHES:
            seen.add(kind)
            yield Winner(structure, record.idx, scenario.workload.pattern.consumes)


def with_catalogue(winners: Iterable[Winner]) -> tuple[Winner, ...]:
    """Return the winners of searches, each structure once, and the catalogue."""
    found: dict[tuple[Structure, bool], Winner] = {}
    for winner in winners:
        if winner.idx != ANYWHERE:
            found.setdefault((winner.structure, winner.consumes), winner)
    for consumes in (False, True):
        for structure in catalogue(consumes=consumes):
            found.setdefault((structure, consumes), Winner(structure, ANYWHERE, consumes))
    return tuple(found.values())


LIBRARY = EngineMode.LIBRARY.value


def found_by(record: Record) -> Found:
    """Return the times of a record."""
    serial = next(plan for plan in record.plans if plan.expression == record.baseline)
    best = min(plan.ticks for plan in record.plans)
    by_estimate = sorted(record.plans, key=lambda plan: plan.estimate_ticks)
    picked = next(plan for plan in by_estimate if LIBRARY not in plan.expression)
    return Found(picked.estimate_ticks, picked.ticks, best, serial.ticks, serial.estimate_ticks)


def labeller_of(records: Sequence[Record]) -> "Labeller":
    """Return the labeller with the winners of ``records``, which are of one seed."""
    winners = with_catalogue(chain.from_iterable(map(winners_of, records)))
    found = {record.idx: found_by(record) for record in records}
    return _labeller(records[0].seed, winners, found)


def labeller_like(table: LabelTable) -> "Labeller":
    """Return the labeller with the winners of searches that ``table`` has, and the catalogue as it is now."""
    found = {row.idx: row.found for row in table.labels if math.isfinite(row.found.best_ticks)}
    return _labeller(table.seed, with_catalogue(table.winners), found)


def _labeller(seed: int, winners: tuple[Winner, ...], found: Mapping[int, Found]) -> "Labeller":
    won_in = {idx: Situation.of(draw(seed, idx).scenario).values for idx in found}
    anywhere = np.mean(list(won_in.values()), axis=0)
    return Labeller(seed, winners, np.array([won_in.get(winner.idx, anywhere) for winner in winners]), found)


@dataclass(frozen=True, slots=True)
class Labeller:
    """Labels scenarios with some of ``winners``.

    ``origins`` [P, F] are the situations in which they won, ``found`` what searches found by scenario.
    """

    seed: int
    winners: tuple[Winner, ...]
    origins: FloatArray
    found: Mapping[int, Found]

    def labels(self, indices: Sequence[int]) -> list[Labels]:
        """Return the labels of scenarios."""
        kinds = {consumes: self._kind(consumes=consumes) for consumes in (False, True)}
        return [self._labels(idx, kinds) for idx in indices]

    def _kind(self, *, consumes: bool) -> "_Kind":
        numbers = [number for number, winner in enumerate(self.winners) if winner.consumes is consumes]
        winners = [self.winners[number] for number in numbers]
        library = Library(tuple(winner.structure for winner in winners), self.origins[numbers], consumes)
        return _Kind(np.array(numbers, np.int64), np.array([winner.idx for winner in winners]), library)

    def _labels(self, idx: int, kinds: Mapping[bool, "_Kind"]) -> Labels:
        drawn = draw(self.seed, idx)
        situation, consumes = Situation.of(drawn.scenario), drawn.scenario.workload.pattern.consumes
        chosen = kinds[consumes].numbers[self._chosen(idx, situation, kinds[consumes])]
        ticks = np.array(list(_ticks(drawn.scenario, [self.winners[number].structure for number in chosen])))
        return Labels(idx, drawn.family, situation, consumes, self.found.get(idx, Found()), chosen, ticks)

    def _chosen(self, idx: int, situation: Situation, kind: "_Kind") -> list[int]:
        """Return the places in ``kind`` of the winners to label; those of the scenario itself are not among them."""
        others = np.flatnonzero(kind.won_in != idx).tolist()
        times = pipeline_times(situation, kind.library.shapes(situation.num_ranks))
        apart = np.square(FeatureScale.of(self.origins).apart(situation.values, kind.library.origins)).sum(axis=1)
        found = kind.won_in != ANYWHERE
        fast = sorted(others, key=lambda place: times[place])[:NUM_FAST]
        near = sorted((place for place in others if found[place]), key=lambda place: apart[place])[:NUM_NEAR]
        drawn = Random(f"labels {self.seed} {idx}").sample(others, min(NUM_OTHERS, len(others)))
        return list(dict.fromkeys((*fast, *near, *drawn)))


@dataclass(frozen=True, slots=True)
class _Kind:
    """The winners before or after a collective, [P]: their numbers, the scenarios they won in, and their structures."""

    numbers: npt.NDArray[np.int64]
    won_in: npt.NDArray[np.int64]
    library: Library


def _ticks(scenario: Scenario, structures: Sequence[Structure]) -> Iterator[float]:
    """Yield the estimate of each structure, infinite where it does not fit."""
    known: dict[object, float] = {}
    for structure in structures:
        choice = fitted(structure, scenario)
        if choice is None or may_deadlock(choice):
            yield float("inf")
            continue
        if choice not in known:
            known[choice] = estimate_ticks(scenario, build_schedule(scenario, choice)).makespan_ticks
        yield known[choice]
