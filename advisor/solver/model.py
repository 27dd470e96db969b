"""The CP-SAT model of one scenario: variables, then constraints."""

from collections.abc import Iterable

from ortools.sat.python import cp_model

from ...compiler.ir import Scenario
from .constraints import Constraints
from .domains import Domains, knobs_of
from .rules import Rule, Rules
from .tactics_rules import TacticsConstraints
from .variables import At, Variables, make_variables


class SpaceModel:
    """What is feasible for ``scenario``: every family of rules, each of which the caller may switch.

    With ``switchable`` each rule is guarded by a literal, and the caller says which are in force; nobody reads the code
    of a solution then. Without it all are, for good, which makes the smaller and faster model.
    """

    def __init__(self, scenario: Scenario, domains: Domains, *, switchable: bool) -> None:
        self.model = cp_model.CpModel()
        self.variables: Variables = make_variables(self.model, knobs_of(scenario, domains), coded=not switchable)
        self._rules = Rules(self.model, self.variables, switchable=switchable)
        Constraints(self._rules, scenario, domains).add_all()
        TacticsConstraints(self._rules, scenario, domains).add_all()

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The families, in the order in which they are explained."""
        return tuple(self._rules.added)

    def leave_out(self, places: Iterable[At]) -> None:
        """Forbid what a dominance rule leaves out."""
        for at in places:
            self._rules.forbid(at)

    def assume(self, rules: tuple[Rule, ...]) -> None:
        """Put these rules, and no other, in force for the next solve."""
        self.model.clear_assumptions()
        self.model.add_assumptions([rule.literal for rule in rules if rule.literal is not None])


def make_solver(seed: int) -> cp_model.CpSolver:
    """A solver whose search is the same every time: one worker and a fixed seed."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    # Or it takes Ctrl-C away from the caller for good.
    solver.parameters.catch_sigint_signal = False
    return solver
