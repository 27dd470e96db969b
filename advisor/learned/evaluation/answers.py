"""What every way answers in one scenario, simulated."""

from dataclasses import dataclass
from math import log
from time import process_time

from ....compiler.ir import Choice, Scenario
from ....compiler.planning.build import build_schedule
from ....compiler.templates import BASELINE
from ....simcore import RunOutcome, simulate_op
from ...candidates.predicted import is_serial, usual_serials
from ...candidates.shortlist import shortlist_unit
from ...candidates.variations import forms_of
from ...corpus.families import draw
from ...implementations.promise import MIN_GAIN
from ..polish import usual_engines
from .baselines import predicted_ticks
from .ways import WAYS, Models, Way


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """The answer of one way: the ticks of the fastest that was simulated, and CPU time to choose.

    ``is_serial`` is whether nothing overlaps in it, ``is_told`` whether advice would recommend it: its estimate leads
    that of every serial schedule by what is worth a change, and by what the profile resolves. ``error`` is the
    logarithm of simulated over estimated time, None for the library's schedule, which is not estimated.
    """

    ticks: int
    is_serial: bool
    is_told: bool
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
    scenario, known = draw(seed, idx).scenario, dict[Choice, int]()
    models.whole.propose(scenario)  # what a running advisor has cached
    serial_ticks = least_serial_ticks(scenario)
    told_ticks = serial_ticks / (1 + max(MIN_GAIN, scenario.resolution))
    by_way = {name: _answer(way, models, scenario, told_ticks, known) for name, way in WAYS.items()}
    return Answers(idx, by_way, serial_ticks)


def _answer(way: Way, models: Models, scenario: Scenario, told_ticks: float, known: dict[Choice, int]) -> TimedAnswer:
    """Return the answer of ``way``; ``known`` are simulated times. It is told if it takes ``told_ticks`` at most."""
    since = process_time()
    choices = way(models, scenario)
    seconds = process_time() - since
    for choice in choices:
        if choice not in known:
            known[choice] = simulated_ticks(scenario, choice)
    best = min(choices, key=lambda choice: known[choice])
    serial, predicted = is_serial(scenario, best), predicted_ticks(scenario, best)
    error = None if best.engine.by_library else log(known[best] / predicted)
    told = not serial and predicted <= told_ticks
    return TimedAnswer(known[best], serial, told, error, len(choices) if len(choices) > 1 else 0, seconds)


def simulated_ticks(scenario: Scenario, choice: Choice) -> int:
    """Return the simulated time of a schedule, in the units of a shortlist.

    Raises
    ------
    RuntimeError
        If it does not end.
    """
    schedule = build_schedule(scenario, choice)
    result = simulate_op(scenario, schedule, unit_bytes=shortlist_unit(scenario, schedule))
    if result.outcome is not RunOutcome.DONE:
        raise RuntimeError(f"{schedule.expression} of {scenario.name}: {result.outcome.value}")
    return result.makespan_ticks


def least_serial_ticks(scenario: Scenario) -> float:
    """Return the least estimate of a serial schedule, by any of the usual engines with all execution options."""
    bases = [Choice(BASELINE.name, scenario.num_ranks, engine) for engine in usual_engines(scenario)]
    forms = (form for base in bases for form in forms_of(scenario, base))
    return min(predicted_ticks(scenario, choice) for choice in (*usual_serials(scenario), *bases, *forms))
