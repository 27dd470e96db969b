"""Every feasible schedule of a scenario, or a minimal set of rules that leave none."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...compiler.ir import Scenario, ShouldStop
from ...compiler.planning.knobs.structure import TEMPLATE
from ...compiler.templates import BASELINE, BY_NAME, Template
from . import vectorised
from .diverse import diverse
from .domains import Domains, domains_of, knobs_of
from .dominance import RULES, dominated, left_out
from .knobs import At, Choices, Codes, Knobs, Varied
from .model import SpaceModel, make_solver
from .ortools import cp_model
from .result import Absence, Assumed, NoFeasibleSchedule, Space
from .solving import solve
from .stream import Stream

# With more combinations of values than this, feasible or not, the space is written down by the generator.
SOLVED_CODES = 200_000
TWIN = "what it does here is there under the name of another template"


@dataclass(frozen=True)
class Enumeration:
    """One enumeration: at most ``limit`` choices, with ``seed`` for the solver's search and the sample."""

    scenario: Scenario
    limit: int | None
    seed: int
    should_stop: ShouldStop

    @cached_property
    def domains(self) -> Domains:
        """The candidate values of each knob."""
        return domains_of(self.scenario)

    @cached_property
    def knobs(self) -> Knobs:
        """The values of each knob in a code."""
        return knobs_of(self.scenario, self.domains)

    def space(self, generated: bool | None) -> Space:
        """See ``enumerate_space`` in the package."""
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"a limit on the number of schedules must be positive, not {self.limit}")
        if generated if generated is not None else self.knobs.num_codes > SOLVED_CODES:
            return self._generated()
        return self._solved()

    def _generated(self) -> Space:
        """All of a large space, or with a limit a diverse sample of it."""
        legal = vectorised.generate(self.scenario, self.domains, self.should_stop)
        stopped = self.should_stop() or len(legal) > vectorised.MOST_CODES
        if not len(legal) and not stopped:
            raise NoFeasibleSchedule(_conflict(self.scenario, self.domains))
        codes = legal
        for places in self._dominated.values():
            codes = codes[~dominated(places, self.knobs, codes)]
        assumed, varied = self._assumed(legal), Choices(self.knobs, codes).varied()
        size = None if stopped else len(codes)
        if self.limit is not None and self.limit < len(codes):
            codes = diverse(self.knobs, codes, self.limit, self.seed)
        return self._space(Choices(self.knobs, codes), size, assumed, varied)

    def _solved(self) -> Space:
        """The solutions of the solver, until it has all, reaches the limit, or is stopped."""
        codes, complete = self._solutions()
        if not len(codes) and complete:
            raise NoFeasibleSchedule(_conflict(self.scenario, self.domains))
        choices = Choices(self.knobs, np.sort(codes))
        return self._space(choices, len(codes) if complete else None, self._assumed(None), choices.varied())

    def _solutions(self) -> tuple[Codes, bool]:
        """The codes that the solver finds, and whether they are all."""
        found: list[int] = []
        stream = self._stream()
        for batch in stream.batches():
            for code in batch:
                # One more than the limit shows that there are more.
                if len(found) == self.limit or self.should_stop():
                    return np.array(found, np.int64), False
                found.append(code)
            if not batch and self.should_stop():
                break
        return np.array(found, np.int64), stream.status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)

    def _stream(self) -> Stream:
        space_model = SpaceModel(self.scenario, self.domains, switchable=False)
        for places in self._dominated.values():
            space_model.leave_out(places)
        solver = make_solver(self.seed)
        parameters = solver.parameters
        parameters.enumerate_all_solutions = True
        # The model is clauses and one sum, and all of its solutions are asked for: there is nothing to prepare.
        parameters.cp_model_presolve, parameters.symmetry_level, parameters.linearization_level = False, 0, 0
        return Stream(solver, space_model.model, space_model.code)

    @cached_property
    def _dominated(self) -> dict[str, list[At]]:
        """Digits that each dominance rule leaves out, by its name; none if they are switched off."""
        if not self.scenario.explore.dominance:
            return {}
        found = {rule.name: left_out(rule, self.scenario, self.domains, self.knobs) for rule in RULES}
        return {name: places for name, places in found.items() if places}

    def _assumed(self, legal: Codes | None) -> tuple[Assumed, ...]:
        """The dominance rules in force that leave anything out, each counted for itself; none if it is stopped."""
        if not self._dominated or self.should_stop():
            return ()
        if legal is None:
            legal = vectorised.generate(self.scenario, self.domains, self.should_stop)
        counts: dict[str, int] = {}
        for name, places in self._dominated.items():
            if self.should_stop():
                return ()
            counts[name] = int(dominated(places, self.knobs, legal).sum())
        return tuple(Assumed(rule.name, rule.sentence, counts[rule.name]) for rule in RULES if counts.get(rule.name))

    def _space(self, choices: Choices, size: int | None, assumed: tuple[Assumed, ...], varied: Varied) -> Space:
        """``size`` is that of the whole space, None where it is not known."""
        absent: tuple[Absence, ...] = ()
        if size == len(choices):
            present = np.unique(self.knobs.digits(choices.codes, TEMPLATE)).tolist()
            absent = self._absences({self.domains[TEMPLATE][digit] for digit in present})
        return Space(choices, size == len(choices), absent, assumed, size, varied)

    def _absences(self, present: set[str]) -> tuple[Absence, ...]:
        """Why templates that the file names have no schedule; one that is merely tried by default needs no excuse."""
        named = set(self.scenario.explore.values(TEMPLATE.word)) - {BASELINE.name} - present
        missing = [name for name in self.domains[TEMPLATE] if name in named]
        return tuple(Absence(name, explain(self.scenario, BY_NAME[name]) or (TWIN,)) for name in missing)


def explain(scenario: Scenario, template: Template | None = None) -> tuple[str, ...]:
    """A minimal set of rules that leave no schedule, or none of ``template``; empty if there is one."""
    domains = domains_of(scenario)
    return _conflict(scenario, domains if template is None else {**domains, TEMPLATE: (template.name,)})


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
