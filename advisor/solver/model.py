"""The CP-SAT model of one scenario: variables, then constraints."""

from ortools.sat.python import cp_model

from ...compiler.scenario import Scenario
from ...compiler.schedule import Choice, EngineChoice
from ...compiler.templates import ALL_TEMPLATES
from .constraints import Constraints, Rule
from .space import Domains
from .variables import ENGINE_KINDS, ENGINE_MODES, Variables, make_variables


class SpaceModel:
    """What is feasible for ``scenario``. Every rule is guarded by a literal; the caller sets which are in force."""

    def __init__(self, scenario: Scenario, domains: Domains) -> None:
        self.model = cp_model.CpModel()
        self.variables: Variables = make_variables(self.model, scenario, domains)
        constraints = Constraints(self.model, scenario, domains, self.variables)
        constraints.add_all()
        self.rules: tuple[Rule, ...] = tuple(constraints.rules)

    def enforce_all(self) -> None:
        """Put every rule in force for good."""
        self.model.add_bool_and([rule.literal for rule in self.rules])

    def assume(self, rules: tuple[Rule, ...]) -> None:
        """Put these rules, and no other, in force for the next solve."""
        self.model.clear_assumptions()
        self.model.add_assumptions([rule.literal for rule in rules])


def choice_of(values: tuple[int, ...]) -> Choice:
    """The choice behind the values of ``Variables.decisions``."""
    template, chunks, kind, count, mode, streams = values
    engine = EngineChoice(ENGINE_KINDS[kind], count, ENGINE_MODES[mode])
    return Choice(ALL_TEMPLATES[template].name, chunks, engine, streams)


def make_solver(seed: int) -> cp_model.CpSolver:
    """A solver whose search is the same every time: one worker and a fixed seed."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    # Or it takes Ctrl-C away from the caller for good.
    solver.parameters.catch_sigint_signal = False
    return solver
