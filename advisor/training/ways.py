"""Ways to choose a schedule at once: the model, the model without one of its parts, and what is simpler."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import log
from random import Random
from time import process_time

import numpy as np
import numpy.typing as npt

from ...compiler.ir import TICKS_PER_US, OpCase, OpChoice
from ...compiler.planning.build import build_op_plan, reject_choice
from ...compiler.planning.knobs.engine import default_engine
from ...compiler.templates import BASELINE
from ...simcore import RunOutcome, simulate_op
from ..candidates.candidate import forms_of, may_deadlock
from ..candidates.predicted import is_serial, library_us, usual_serials
from ..candidates.shortlist import shortlist_unit
from ..estimate.makespan import estimate_ticks
from ..implementations.predict import MIN_GAIN
from ..learned.proposal_model import (
    DEFAULT_EVALUATIONS,
    LEAST,
    MANY_EVALUATIONS,
    Library,
    Proposal,
    ProposalModel,
    polished,
    serial_proposals,
    usual_engines,
)
from ..learned.situation import Situation
from ..learned.structure import Structure, catalogue, fitted
from .families import draw
from .table import ANYWHERE, LabelTable
from .train import fit_model

FloatArray = npt.NDArray[np.float64]

# Scenarios by which the best static schedule is chosen.
NUM_STATIC = 24
# Equal pieces of each shard that the roofline chooses among, beside no pieces at all.
PIECES = (2, 4, 8, 16, 32)


def first_legal(structures: Iterable[Structure], scenario: OpCase) -> OpChoice | None:
    """Return the first of ``structures`` that ``scenario`` can run, fitted to it."""
    choices = (fitted(structure, scenario) for structure in structures)
    return next((choice for choice in choices if choice is not None and not may_deadlock(choice)), None)


def or_serial(scenario: OpCase, choice: OpChoice | None) -> OpChoice:
    """Return ``choice``, or the usual serial schedule if there is none."""
    return usual_serials(scenario)[0] if choice is None else choice


def predicted_ticks(scenario: OpCase, choice: OpChoice) -> float:
    """Return the estimated time of a schedule; that of the library is a closed form."""
    if choice.engine.by_library:
        return library_us(scenario) * TICKS_PER_US
    return estimate_ticks(scenario, build_op_plan(scenario, choice))


def nearest(winners: ProposalModel, scenario: OpCase) -> OpChoice | None:
    """Return the structure that won in the nearest situation, fitted to ``scenario``.

    ``winners`` is a model whose libraries have nothing but winners of searches. All numbers of a situation count alike,
    each over its standard deviation.
    """
    library, values = winners.library(scenario), Situation.of(scenario).values
    apart = np.square(winners.scale.apart(values, library.origins)).sum(axis=1)
    return first_legal((library.structures[place] for place in np.argsort(apart, kind="stable")), scenario)


def drawn(model: ProposalModel, scenario: OpCase, seed: int) -> OpChoice | None:
    """Return any structure of the library of ``model`` that ``scenario`` can run, all with equal chances."""
    structures = list(model.library(scenario).structures)
    Random(f"any structure {seed} {scenario.name}").shuffle(structures)
    return first_legal(structures, scenario)


def closed_form(without_trees: ProposalModel, scenario: OpCase) -> OpChoice | None:
    """Return the structure of the library that the closed form of the pipeline takes for the fastest."""
    return next(without_trees.choices(scenario), None)


def roofline(scenario: OpCase) -> OpChoice:
    """Return ``uniform_fused_1d`` with the number of equal pieces that a textbook pipeline at full rates picks.

    With kernel and collective at their full rates, the longer one hides the shorter one but for one of the pieces, and
    every piece costs an event and a setup of its copies. Cut kernels are taken to be as efficient as whole ones. Where
    no number of pieces is faster than one after the other, the serial schedule is returned.
    """
    situation, ranks, engine = Situation.of(scenario), scenario.num_ranks, default_engine(scenario.system)
    comm = situation.ratio("log_comm_over_whole")
    cost = situation.ratio("event_over_whole") + comm * situation.ratio("setup_over_comm")
    times = {OpChoice(BASELINE.name, ranks, engine): 1.0 + comm + cost}
    for pieces in PIECES:
        choice = OpChoice("uniform_fused_1d", pieces * ranks, engine)
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


@dataclass(frozen=True, slots=True)
class Models:
    """A model and what it is compared with.

    ``without_trees`` and ``without_winners`` lack one of its parts, ``winners_alone`` the catalogue. ``static`` are the
    best structures for all scenarios, of each direction; ``seed`` is that of the random choice.
    """

    whole: ProposalModel
    without_trees: ProposalModel
    without_winners: ProposalModel
    winners_alone: ProposalModel
    static: dict[bool, Structure]
    seed: int


Way = Callable[[Models, OpCase], Sequence[OpChoice]]


def _best(scenario: OpCase, proposals: Sequence[Proposal], count: int = 1) -> list[OpChoice]:
    """Return the ``count`` fastest by their estimates, the usual serial schedules among them as in advice."""
    times = {choice: predicted_ticks(scenario, choice) for choice in usual_serials(scenario)}
    times |= {proposal.choice: proposal.estimate_ticks for proposal in proposals}
    return sorted(times, key=lambda choice: times[choice])[:count]


def _improved(
    model: ProposalModel, scenario: OpCase, count: int = 1, evaluations: int = DEFAULT_EVALUATIONS
) -> list[OpChoice]:
    """Return the ``count`` fastest of the proposals, of small changes of the first, and of serial schedules.

    As in advice: without small changes where there are no ``evaluations`` of them.
    """
    proposals = model.propose(scenario)
    changed = [polished(scenario, proposal, evaluations) for proposal in proposals[:1]]
    return _best(scenario, [*changed, *proposals, *serial_proposals(scenario)], count)


def _static(models: Models, scenario: OpCase) -> OpChoice | None:
    return first_legal([models.static[scenario.shape.pattern.consumes]], scenario)


def _simple(pick: Callable[[Models, OpCase], OpChoice | None]) -> Way:
    return lambda models, scenario: [or_serial(scenario, pick(models, scenario))]


MODEL = "model"
# A way without a part has all other parts of the model.
WAYS: dict[str, Way] = {
    MODEL: lambda models, scenario: _improved(models.whole, scenario),
    "model, 2 simulations": lambda models, scenario: _improved(models.whole, scenario, 2, MANY_EVALUATIONS),
    "without small changes": lambda models, scenario: _improved(models.whole, scenario, evaluations=0),
    "without trees": lambda models, scenario: _improved(models.without_trees, scenario),
    "without winners": lambda models, scenario: _improved(models.without_winners, scenario),
    f"{LEAST} estimates": lambda models, scenario: _best(scenario, models.whole.propose(scenario, LEAST)),
    "nearest neighbour": _simple(lambda models, scenario: nearest(models.winners_alone, scenario)),
    "closed form": _simple(lambda models, scenario: closed_form(models.without_trees, scenario)),
    "roofline": _simple(lambda models, scenario: roofline(scenario)),
    "best static schedule": _simple(_static),
    "random": _simple(lambda models, scenario: drawn(models.whole, scenario, models.seed)),
    "serial": lambda models, scenario: list(usual_serials(scenario)[-1:]),
}


def models_without(table: LabelTable, held_out: frozenset[int], seed: int) -> Models:
    """Return the models that are fitted to all scenarios of ``table`` but those ``held_out``."""
    known = frozenset(labels.idx for labels in table.labels) - held_out
    return models_of(fit_model(table, known, seed), table, best_static(table, known, seed), seed)


def models_of(whole: ProposalModel, table: LabelTable, static: dict[bool, Structure], seed: int) -> Models:
    """Return a model that was fitted to scenarios of ``table``, and what it is compared with."""
    found = {(winner.structure, winner.consumes) for winner in table.winners if winner.idx != ANYWHERE}
    without_winners, winners_alone = (
        replace(
            whole,
            before=_part(whole.before, found, won=won, consumes=False),
            after=_part(whole.after, found, won=won, consumes=True),
        )
        for won in (False, True)
    )
    return Models(whole, replace(whole, trees=None), without_winners, winners_alone, static, seed)


def _part(library: Library, found: set[tuple[Structure, bool]], *, won: bool, consumes: bool) -> Library:
    """Return the structures of ``library`` that searches found, or all others."""
    structures = library.structures
    kept = [place for place, structure in enumerate(structures) if ((structure, consumes) in found) is won]
    return Library(tuple(structures[place] for place in kept), library.origins[kept], consumes=consumes)


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """The answer of one way: the ticks of the fastest that was simulated, and CPU time to choose.

    ``is_serial`` is whether nothing overlaps in it, ``is_reported`` whether advice would recommend it: its estimate
    leads that of every serial schedule by what is worth a change, and by what the profile resolves. ``error`` is the
    logarithm of simulated over estimated time, None for the library's schedule, which is not estimated.
    """

    ticks: int
    is_serial: bool
    is_reported: bool
    error: float | None
    simulations: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of all ways in scenario ``idx``; ``serial_ticks`` is the least time of any serial schedule.

    It is an estimate, of the usual engines with all execution options.
    """

    idx: int
    by_way: dict[str, TimedAnswer]
    serial_ticks: float


def answers_in(models: Models, seed: int, idx: int) -> Answers:
    """Return the answers in scenario ``idx`` of ``seed``."""
    scenario, known = draw(seed, idx).scenario, dict[OpChoice, int]()
    models.whole.propose(scenario)  # what a running advisor has cached
    serial_ticks = least_serial_ticks(scenario)
    reported_ticks = serial_ticks / (1 + max(MIN_GAIN, scenario.resolution))
    by_way = {name: _answer(way, models, scenario, reported_ticks, known) for name, way in WAYS.items()}
    return Answers(idx, by_way, serial_ticks)


def _answer(
    way: Way, models: Models, scenario: OpCase, reported_ticks: float, known: dict[OpChoice, int]
) -> TimedAnswer:
    """Return the answer of ``way``; ``known`` are simulated times. What takes up to ``reported_ticks`` is reported."""
    since = process_time()
    choices = way(models, scenario)
    seconds = process_time() - since
    for choice in choices:
        if choice not in known:
            known[choice] = simulated_ticks(scenario, choice)
    best = min(choices, key=lambda choice: known[choice])
    serial, predicted = is_serial(scenario, best), predicted_ticks(scenario, best)
    error = None if best.engine.by_library else log(known[best] / predicted)
    reported = not serial and predicted <= reported_ticks
    return TimedAnswer(known[best], serial, reported, error, len(choices) if len(choices) > 1 else 0, seconds)


def simulated_ticks(scenario: OpCase, choice: OpChoice) -> int:
    """Return the simulated time of a schedule, in the units of a shortlist.

    Raises
    ------
    RuntimeError
        If it does not end.
    """
    schedule = build_op_plan(scenario, choice)
    result = simulate_op(scenario, schedule, unit_bytes=shortlist_unit(scenario, schedule))
    if result.outcome is not RunOutcome.DONE:
        raise RuntimeError(f"{schedule.expression} of {scenario.name}: {result.outcome.value}")
    return result.makespan_ticks


def least_serial_ticks(scenario: OpCase) -> float:
    """Return the least estimate of a serial schedule, by any of the usual engines with all execution options."""
    bases = [OpChoice(BASELINE.name, scenario.num_ranks, engine) for engine in usual_engines(scenario)]
    forms = (form for base in bases for form in forms_of(scenario, base))
    return min(predicted_ticks(scenario, choice) for choice in (*usual_serials(scenario), *bases, *forms))
