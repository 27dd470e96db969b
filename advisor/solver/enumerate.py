"""Every feasible schedule of a scenario, or a minimal set of rules that leave none."""

from collections.abc import Callable
from dataclasses import replace

from ortools.sat.python import cp_model

from ...compiler.scenario import Scenario
from ...compiler.templates import ALL_TEMPLATES, Template
from .model import SpaceModel, choice_of, make_solver
from .space import BASELINE, Absence, Domains, NoFeasibleSchedule, Space, domains_of

ShouldStop = Callable[[], bool]


def enumerate_choices(scenario: Scenario, *, limit: int | None, seed: int, should_stop: ShouldStop | None) -> Space:
    """See ``enumerate_space`` in the package."""
    if limit is not None and limit < 1:
        raise ValueError(f"a limit on the number of schedules must be positive, not {limit}")
    domains = domains_of(scenario)
    space_model = SpaceModel(scenario, domains)
    space_model.enforce_all()
    solver = make_solver(seed)
    solver.parameters.enumerate_all_solutions = True
    found = _Collector(space_model.variables.decisions, limit, should_stop)
    status = solver.solve(space_model.model, found)
    if status == cp_model.INFEASIBLE:
        raise NoFeasibleSchedule(_conflict(scenario, domains))
    # Indices in the order of ALL_TEMPLATES and EngineKind, so that sorting the values sorts the choices.
    choices = tuple(choice_of(values) for values in sorted(found.values))
    complete = not found.stopped
    return Space(choices, complete, _absences(scenario, domains, {c.template for c in choices}) if complete else ())


def explain(scenario: Scenario, template: Template | None) -> tuple[str, ...]:
    """See ``explain_infeasible`` in the package."""
    domains = domains_of(scenario)
    if template is not None:
        domains = replace(domains, templates=(ALL_TEMPLATES.index(template),))
    return _conflict(scenario, domains)


class _Collector(cp_model.CpSolverSolutionCallback):
    """Takes down the decisions of each solution, and stops the search at the limit or on request."""

    def __init__(
        self, decisions: tuple[cp_model.IntVar, ...], limit: int | None, should_stop: ShouldStop | None
    ) -> None:
        super().__init__()
        self._decisions, self._limit, self._should_stop = decisions, limit, should_stop
        self.values: list[tuple[int, ...]] = []
        self.stopped = False

    def on_solution_callback(self) -> None:
        """Called by the solver."""
        if self.stopped:
            return
        # One more than the limit shows that there are more.
        if len(self.values) == self._limit or (self._should_stop is not None and self._should_stop()):
            self.stopped = True
            self.stop_search()
            return
        self.values.append(tuple(self.value(variable) for variable in self._decisions))


def _conflict(scenario: Scenario, domains: Domains) -> tuple[str, ...]:
    """Sentences of rules that cannot hold together, any one of which would free the rest."""
    space_model = SpaceModel(scenario, domains)
    solver = make_solver(0)
    space_model.assume(space_model.rules)
    if solver.solve(space_model.model) != cp_model.INFEASIBLE:
        return ()
    blamed = set(solver.sufficient_assumptions_for_infeasibility())
    core = tuple(rule for rule in space_model.rules if rule.literal.index in blamed)
    for rule in core:
        without = tuple(other for other in core if other is not rule)
        space_model.assume(without)
        if solver.solve(space_model.model) == cp_model.INFEASIBLE:
            core = without
    return tuple(rule.sentence for rule in core)


def _absences(scenario: Scenario, domains: Domains, present: set[str]) -> tuple[Absence, ...]:
    """Why templates that the file names have no schedule; those that are merely tried by default need no excuse."""
    missing = [
        ALL_TEMPLATES[index]
        for index in domains.templates
        if ALL_TEMPLATES[index].name in scenario.explore.templates
        and ALL_TEMPLATES[index] is not BASELINE
        and ALL_TEMPLATES[index].name not in present
    ]
    return tuple(Absence(template.name, explain(scenario, template)) for template in missing)
