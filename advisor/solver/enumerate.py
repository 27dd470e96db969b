"""Every feasible schedule of a scenario, or a minimal set of rules that leave none."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from time import monotonic

import numpy as np
from ortools.sat.python import cp_model

from ...compiler.ir import Choice, Scenario, ShouldStop
from ...compiler.planning.knobs.structure import TEMPLATE
from ...compiler.templates import BY_NAME, Template
from . import vectorised
from .diverse import diverse
from .domains import BASELINE, Domains, domains_of, knobs_of
from .dominance import RULES, dominated, left_out
from .knobs import At, Choices, Codes, Knobs, Varied
from .model import SpaceModel, make_solver
from .result import Absence, Assumed, NoFeasibleSchedule, Space
from .solving import solve
from .stream import Stream

# With more combinations of values than this, feasible or not, the space is written down by the generator.
SOLVED_CODES = 200_000
TWIN = "what it does here is there under the name of another template"


@dataclass(frozen=True, slots=True)
class EnumerationLimits:
    """When to stop: after so many choices, so many seconds, or when asked; ``progress`` hears of the choices so far."""

    choices: int | None = None
    seconds: float | None = None
    should_stop: ShouldStop | None = None
    progress: Callable[[int], None] | None = None


def enumerate_choices(scenario: Scenario, limits: EnumerationLimits, seed: int, generated: bool | None) -> Space:
    """See ``enumerate_space`` in the package."""
    if limits.choices is not None and limits.choices < 1:
        raise ValueError(f"a limit on the number of schedules must be positive, not {limits.choices}")
    domains = domains_of(scenario)
    knobs = knobs_of(scenario, domains)
    if generated if generated is not None else knobs.num_codes > SOLVED_CODES:
        return _generated(scenario, domains, knobs, limits, seed)
    codes, complete = _solved(scenario, domains, knobs, limits, seed)
    if not len(codes) and complete:
        raise NoFeasibleSchedule(_conflict(scenario, domains))
    # Stopped, there is no time for counts that would be of a part anyway.
    assumed = _assumed(scenario, domains, knobs, None, limits) if not _is_stopped(limits) else ()
    choices = Choices(knobs, np.sort(codes))
    return _space(scenario, domains, choices, len(codes) if complete else None, assumed, choices.varied())


def stream_choices(scenario: Scenario, seed: int) -> Iterator[Choice]:
    """See ``iterate_space`` in the package."""
    domains = domains_of(scenario)
    stream, knobs = _stream(scenario, domains, seed, None), knobs_of(scenario, domains)
    yield from map(knobs.choice_of, chain.from_iterable(stream.batches()))
    if stream.status == cp_model.INFEASIBLE:
        raise NoFeasibleSchedule(_conflict(scenario, domains))


def explain(scenario: Scenario, template: Template | None) -> tuple[str, ...]:
    """See ``explain_infeasible`` in the package."""
    domains = domains_of(scenario)
    if template is not None:
        domains = {**domains, TEMPLATE: (template.name,)}
    return _conflict(scenario, domains)


def _generated(scenario: Scenario, domains: Domains, knobs: Knobs, limits: EnumerationLimits, seed: int) -> Space:
    """All of a large space, or with a limit a diverse sample of it."""
    start = monotonic()
    legal = vectorised.generate(scenario, domains, lambda: _is_over(limits, start))
    stopped = _is_over(limits, start) or len(legal) > vectorised.MOST_CODES
    if not len(legal) and not stopped:
        raise NoFeasibleSchedule(_conflict(scenario, domains))
    codes = legal
    for places in _places(scenario, domains, knobs).values():
        codes = codes[~dominated(places, knobs, codes)]
    if limits.progress is not None:
        limits.progress(len(codes))
    assumed = _assumed(scenario, domains, knobs, legal, limits) if not _is_stopped(limits) else ()
    varied = Choices(knobs, codes).varied()
    size = None if stopped else len(codes)
    if limits.choices is not None and limits.choices < len(codes):
        codes = diverse(knobs, codes, limits.choices, seed)
    return _space(scenario, domains, Choices(knobs, codes), size, assumed, varied)


def _solved(
    scenario: Scenario, domains: Domains, knobs: Knobs, limits: EnumerationLimits, seed: int
) -> tuple[Codes, bool]:
    """What the solver finds within the limits, and whether that is all."""
    found: list[int] = []
    stream, start = _stream(scenario, domains, seed, limits.seconds), monotonic()
    for batch in stream.batches():
        for code in batch:
            # One more than the limit shows that there are more.
            if len(found) == limits.choices or _is_over(limits, start):
                return np.array(found, np.int64), False
            found.append(code)
        if limits.progress is not None:
            limits.progress(len(found))
        if not batch and _is_over(limits, start):
            break
    complete = stream.status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    return np.array(found, np.int64), complete


def _is_over(limits: EnumerationLimits, start: float) -> bool:
    late = limits.seconds is not None and monotonic() - start > limits.seconds
    return late or _is_stopped(limits)


def _is_stopped(limits: EnumerationLimits) -> bool:
    return limits.should_stop is not None and limits.should_stop()


def _stream(scenario: Scenario, domains: Domains, seed: int, seconds: float | None) -> Stream:
    space_model = SpaceModel(scenario, domains, switchable=False)
    for places in _places(scenario, domains, space_model.knobs).values():
        space_model.leave_out(places)
    solver = make_solver(seed)
    parameters = solver.parameters
    parameters.enumerate_all_solutions = True
    # The model is nothing but clauses and one sum, and all of its solutions are asked for: there is nothing to prepare.
    parameters.cp_model_presolve, parameters.symmetry_level, parameters.linearization_level = False, 0, 0
    if seconds is not None:
        parameters.max_time_in_seconds = seconds
    return Stream(solver, space_model.model, space_model.code)


def _places(scenario: Scenario, domains: Domains, knobs: Knobs) -> dict[str, list[At]]:
    """What each dominance rule leaves out, by its name; nothing where they are switched off."""
    if not scenario.explore.dominance:
        return {}
    found = {rule.name: left_out(rule, scenario, domains, knobs) for rule in RULES}
    return {name: places for name, places in found.items() if places}


def _assumed(
    scenario: Scenario, domains: Domains, knobs: Knobs, legal: Codes | None, limits: EnumerationLimits
) -> tuple[Assumed, ...]:
    """The dominance rules in force that leave anything out, each counted for itself; none if it is stopped."""
    places = _places(scenario, domains, knobs)
    if not places:
        return ()
    if legal is None:
        legal = vectorised.generate(scenario, domains, lambda: _is_stopped(limits))
    counts: dict[str, int] = {}
    for name, each in places.items():
        if _is_stopped(limits):
            return ()
        counts[name] = int(dominated(each, knobs, legal).sum())
    return tuple(Assumed(rule.name, rule.sentence, counts[rule.name]) for rule in RULES if counts.get(rule.name))


def _space(
    scenario: Scenario,
    domains: Domains,
    choices: Choices,
    size: int | None,
    assumed: tuple[Assumed, ...],
    varied: Varied,
) -> Space:
    """``size`` is that of the whole space, None where it is not known."""
    absent: tuple[Absence, ...] = ()
    if size == len(choices):
        present = np.unique(choices.knobs.digits(choices.codes, TEMPLATE)).tolist()
        absent = _absences(scenario, domains, {domains[TEMPLATE][digit] for digit in present})
    return Space(choices, size == len(choices), absent, assumed, size, varied)


def _conflict(scenario: Scenario, domains: Domains) -> tuple[str, ...]:
    """Sentences of rules that cannot hold together, any one of which would free the rest."""
    space_model = SpaceModel(scenario, domains, switchable=True)
    solver = make_solver(0)
    space_model.assume(space_model.families)
    if solve(solver, space_model.model) != cp_model.INFEASIBLE:
        return ()
    blamed = set(solver.sufficient_assumptions_for_infeasibility())
    core = tuple(family for family in space_model.families if family.literal.index in blamed)
    for family in core:
        without = tuple(other for other in core if other is not family)
        space_model.assume(without)
        if solve(solver, space_model.model) == cp_model.INFEASIBLE:
            core = without
    return tuple(family.sentence for family in core)


def _absences(scenario: Scenario, domains: Domains, present: set[str]) -> tuple[Absence, ...]:
    """Why templates that the file names have no schedule; those that are merely tried by default need no excuse."""
    named = scenario.explore.values(TEMPLATE.word)
    missing = [name for name in domains[TEMPLATE] if name in named and name != BASELINE.name and name not in present]
    return tuple(Absence(name, explain(scenario, BY_NAME[name]) or (TWIN,)) for name in missing)
