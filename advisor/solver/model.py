"""The CP-SAT model of one scenario: a literal for each value of each knob, and a clause for all that is forbidden."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from ...compiler.ir import Scenario
from ...compiler.planning.knobs import Knob
from ...compiler.planning.knobs.structure import TEMPLATE
from ...compiler.templates import BY_NAME
from .domains import Domains
from .knobs import At, Knobs
from .ortools import cp_model
from .tables import RuleTables, Table


@dataclass(frozen=True, slots=True)
class Family:
    """Clauses that stand for one rule, in force while ``literal`` is true."""

    literal: cp_model.IntVar
    sentence: str


class SpaceModel:
    """The feasible choices of ``scenario``: every family of rules, each of which the caller may switch.

    With ``switchable`` each rule is guarded by a literal, and the caller says which are in force; nobody reads the code
    of a solution then. Without it all are, for good, which makes the smaller and faster model.

    ``literals[knob][digit]`` is true if the knob has that value. ``code`` is the whole choice as a number, as in
    ``Knobs``: one variable to read instead of one for each knob.
    """

    def __init__(self, scenario: Scenario, domains: Domains, *, switchable: bool) -> None:
        self.model, self._switchable = cp_model.CpModel(), switchable
        tables = RuleTables(scenario, domains, guarded=switchable)
        self.knobs: Knobs = tables.axes
        self._literals: Mapping[Knob, Sequence[cp_model.IntVar]] = {
            knob: tuple(self.model.new_bool_var(f"{knob.word}_{value}") for value in values)
            for knob, values in self.knobs.values.items()
        }
        self.code = self.model.new_int_var(0, self.knobs.num_codes - 1, "code")
        for each in self._literals.values():
            self.model.add_exactly_one(each)
        if not switchable:
            self._tie_code()
        self._families: dict[str, Family] = {}
        every = [(digit, tables.of(BY_NAME[name])) for digit, name in enumerate(self.knobs.values[TEMPLATE])]
        of_each = ((table, digit) for digit, each in every for table in each if table.of_template)
        for_all = {table.order: (table, None) for _, each in every for table in each if not table.of_template}
        for table, template in sorted((*of_each, *for_all.values()), key=lambda each: each[0].order):
            self._add(table, template)

    @property
    def families(self) -> tuple[Family, ...]:
        """The families, in the order in which they are explained."""
        return tuple(self._families.values())

    def leave_out(self, places: Iterable[At]) -> None:
        """Forbid what a dominance rule leaves out."""
        for at in places:
            for digits in product(*at.values()):
                self._forbid([self._literals[knob][digit] for knob, digit in zip(at, digits, strict=True)])

    def assume(self, families: tuple[Family, ...]) -> None:
        """Put these rules, and no other, in force for the next solve."""
        self.model.clear_assumptions()
        self.model.add_assumptions([family.literal for family in families])

    def _tie_code(self) -> None:
        weighted = ((self._literals[knob], weight) for knob, weight in self.knobs.weights.items())
        terms = (digit * weight * literal for each, weight in weighted for digit, literal in enumerate(each))
        self.model.add(self.code == sum(terms))

    def _add(self, table: Table, template: int | None) -> None:
        """Forbid what a table of one template, or of all of them, forbids."""
        own = [] if template is None else [self._literals[TEMPLATE][template]]
        for place, message in table.forbidden.items():
            literals = [self._literals[knob][digit] for knob, digit in zip(table.knobs, place, strict=True)]
            family = self._family(table, message) if self._switchable and table.explained else None
            self._forbid([*own, *literals], family)

    def _family(self, table: Table, message: str) -> Family:
        sentence = message if table.sentence is None else table.sentence()
        if sentence not in self._families:
            self._families[sentence] = Family(self.model.new_bool_var(f"rule_{len(self._families)}"), sentence)
        return self._families[sentence]

    def _forbid(self, literals: Iterable[cp_model.IntVar], family: Family | None = None) -> None:
        """No choice has all of these, under ``family`` or always."""
        guard = [] if family is None else [~family.literal]
        self.model.add_bool_or([*guard, *(~literal for literal in literals)])


def make_solver(seed: int) -> cp_model.CpSolver:
    """A solver whose search is the same every time: one worker and a fixed seed."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    # Or it takes Ctrl-C away from the caller for good.
    solver.parameters.catch_sigint_signal = False
    return solver
