"""Simple ways to choose a schedule, to be compared with the model. None estimates a schedule of the scenario."""

from collections.abc import Iterable
from functools import cache
from random import Random

import numpy as np
import numpy.typing as npt

from ....compiler.ir import TICKS_PER_US, Choice, Scenario
from ....compiler.planning.build import build_schedule, reject_choice
from ....compiler.planning.knobs.engine import default_engine
from ....compiler.templates import BASELINE
from ...candidates.predicted import usual_serials
from ...candidates.ranking import library_us
from ...candidates.variations import may_deadlock
from ...corpus.families import draw
from ...estimate.makespan import estimate_ticks
from ..catalogue import catalogue
from ..proposal_model import ProposalModel
from ..situation import Situation
from ..structure import Structure, fitted
from ..table import LabelTable

FloatArray = npt.NDArray[np.float64]

# Scenarios by which the best static schedule is chosen.
NUM_STATIC = 24
# Equal pieces of each shard that the roofline chooses among, beside no pieces at all.
PIECES = (2, 4, 8, 16, 32)


def first_legal(structures: Iterable[Structure], scenario: Scenario) -> Choice | None:
    """Return the first of ``structures`` that ``scenario`` can run, fitted to it."""
    choices = (fitted(structure, scenario) for structure in structures)
    return next((choice for choice in choices if choice is not None and not may_deadlock(choice)), None)


def or_serial(scenario: Scenario, choice: Choice | None) -> Choice:
    """Return ``choice``, or the usual serial schedule if there is none."""
    return usual_serials(scenario)[0] if choice is None else choice


def predicted_ticks(scenario: Scenario, choice: Choice) -> float:
    """Return the estimated time of a schedule; that of the library is a closed form."""
    if choice.engine.by_library:
        return library_us(scenario) * TICKS_PER_US
    return estimate_ticks(scenario, build_schedule(scenario, choice)).makespan_ticks


def nearest(winners: ProposalModel, scenario: Scenario) -> Choice | None:
    """Return the structure that won in the nearest situation, fitted to ``scenario``.

    ``winners`` is a model whose libraries have nothing but winners of searches. All numbers of a situation count alike,
    each over its standard deviation.
    """
    library, values = winners.library(scenario), Situation.of(scenario).values
    apart = np.square(winners.scale.apart(values, library.origins)).sum(axis=1)
    return first_legal((library.structures[place] for place in np.argsort(apart, kind="stable")), scenario)


def drawn(model: ProposalModel, scenario: Scenario, seed: int) -> Choice | None:
    """Return any structure of the library of ``model`` that ``scenario`` can run, all with equal chances."""
    structures = list(model.library(scenario).structures)
    Random(f"any structure {seed} {scenario.name}").shuffle(structures)
    return first_legal(structures, scenario)


def closed_form(without_trees: ProposalModel, scenario: Scenario) -> Choice | None:
    """Return the structure of the library that the closed form of the pipeline takes for the fastest."""
    return next(without_trees.choices(scenario), None)


def roofline(scenario: Scenario) -> Choice:
    """Return ``uniform_fused_1d`` with the number of equal pieces that a textbook pipeline at full rates picks.

    With kernel and collective at their full rates, the longer one hides the shorter one but for one of the pieces, and
    every piece costs an event and a setup of its copies. Cut kernels are taken to be as efficient as whole ones. Where
    no number of pieces is faster than one after the other, the serial schedule is returned.
    """
    situation, ranks, engine = Situation.of(scenario), scenario.num_ranks, default_engine(scenario.system)
    comm = situation.ratio("log_comm_over_whole")
    cost = situation.ratio("event_over_whole") + comm * situation.ratio("setup_over_comm")
    times = {Choice(BASELINE.name, ranks, engine): 1.0 + comm + cost}
    for pieces in PIECES:
        choice = Choice("uniform_fused_1d", pieces * ranks, engine)
        if reject_choice(scenario, choice) is None:
            times[choice] = max(1.0, comm) + min(1.0, comm) / pieces + pieces * cost
    return min(times, key=lambda choice: times[choice])


def best_static(table: LabelTable, known: frozenset[int], seed: int) -> dict[bool, Structure]:
    """Return the usual structure with the least mean of the logarithm of its time, of each direction.

    The mean is over the estimates in ``NUM_STATIC`` of the scenarios that are ``known``.
    """
    best: dict[bool, Structure] = {}
    for consumes in sorted({labels.consumes for labels in table.labels}):
        rows = [labels.idx for labels in table.labels if labels.consumes is consumes]
        Random(f"static {seed}").shuffle(rows)
        tried = [idx for idx in rows if idx in known][:NUM_STATIC]
        usual = _usual_structures(consumes)
        times = np.mean([_log_times(table.seed, idx, usual) for idx in tried], axis=0)
        best[consumes] = usual[int(times.argmin())]
    return best


@cache
def _usual_structures(consumes: bool) -> tuple[Structure, ...]:
    """Return the structures of the catalogue with one stream."""
    knobs = ((structure, structure.knobs) for structure in catalogue(consumes=consumes))
    return tuple(structure for structure, choice in knobs if choice.streams == choice.waves == choice.sums == 1)


@cache
def _log_times(seed: int, idx: int, structures: tuple[Structure, ...]) -> FloatArray:
    """Return the logarithm of the estimate of each structure in one scenario, [P]; of serial where it does not fit."""
    scenario = draw(seed, idx).scenario
    choices = [or_serial(scenario, first_legal([each], scenario)) for each in structures]
    ticks = {choice: predicted_ticks(scenario, choice) for choice in dict.fromkeys(choices)}
    return np.log([ticks[choice] for choice in choices])
