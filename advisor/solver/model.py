"""CP-SAT models: of a space, with a literal for each value of each knob, and of the batches of a plan.

OR-tools imports pandas for variables in series, which nothing here has, and that import takes longer than most
searches. It gets a stand-in, which becomes pandas once something of it is used.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from threading import Thread
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...compiler.ir import Cancelled, OpCase, ShouldStop, checkpoint, heeding
from ...compiler.ir.stopping import never
from ...compiler.planning.knobs import Knob
from ...compiler.planning.knobs.structure import TEMPLATE
from ...compiler.templates import BY_NAME
from .domains import At, Domains, Knobs
from .tables import RuleTables, Table

__all__ = ["cp_model"]


class _PandasOnUse(ModuleType):
    """The names of pandas: placeholders while OR-tools writes them into its signatures, the real ones afterwards."""

    imported = False

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("pandas"), name) if self.imported else type(name, (), {})


def _import_cp_model() -> ModuleType:
    if "pandas" in sys.modules:
        return import_module("ortools.sat.python.cp_model")
    pandas = sys.modules["pandas"] = _PandasOnUse("pandas")
    try:
        return import_module("ortools.sat.python.cp_model")
    finally:
        del sys.modules["pandas"]
        pandas.imported = True


if TYPE_CHECKING:
    from ortools.sat.python import cp_model
else:
    cp_model = _import_cp_model()


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

    def __init__(self, scenario: OpCase, domains: Domains, *, switchable: bool) -> None:
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


POLL_S = 0.1


Meanwhile = Callable[[ShouldStop], None]
"""What a caller does while a solver runs, told when it is done."""


def solve(
    solver: cp_model.CpSolver,
    model: cp_model.CpModel,
    callback: cp_model.CpSolverSolutionCallback | None = None,
    meanwhile: Meanwhile | None = None,
) -> cp_model.CpSolverStatus:
    """Return the status of ``solver.solve``.

    Raises
    ------
    Cancelled
        If the caller is asked to stop.
    """
    checkpoint()
    ended: list[cp_model.CpSolverStatus | BaseException] = []

    def body() -> None:
        try:
            ended.append(solver.solve(model, callback))
        except BaseException as error:
            ended.append(error)

    thread = Thread(target=body, daemon=True)
    thread.start()
    try:
        if meanwhile is not None:
            meanwhile(lambda: not thread.is_alive())
        while thread.is_alive():
            checkpoint()
            thread.join(POLL_S)
    finally:
        while thread.is_alive():  # it may not have begun yet, and could not be told then
            solver.stop_search()
            thread.join(POLL_S)
    if isinstance(ended[0], BaseException):
        raise ended[0]
    return ended[0]


class Solutions(cp_model.CpSolverSolutionCallback):
    """Takes down ``read`` of each solution, in order; one more than ``most`` ends the search.

    ``read`` is given the function from a variable to its value.
    """

    def __init__(self, read: Callable[[Callable[[cp_model.IntVar], int]], Any], most: int | None = None) -> None:
        super().__init__()
        self._read, self._most = read, most
        self.found: list[Any] = []

    def on_solution_callback(self) -> None:
        """Called by the solver."""
        if len(self.found) == self._most:
            self.stop_search()
        else:
            self.found.append(self._read(self.value))


TICKS = 1_000_000
"""Ticks of 10 fs in the model's unit of time."""

Grains = tuple[tuple[int, ...], ...]
"""[batch][block], block 0 the own one."""


@dataclass(frozen=True, slots=True)
class BatchProblem:
    """Input of the model; times are in its units.

    ``blocks`` are the grains of the own block and of that of each peer, ``kernel[d]`` is a kernel over d grains.
    ``link[k]`` names the link of peer k + 1 and ``copy[k]`` is the time of a grain on it. ``start`` is a batching to
    begin with, which also says how many batches there may be; ``bound`` is what nothing is faster than.
    """

    blocks: tuple[int, ...]
    kernel: tuple[int, ...]
    link: tuple[int, ...]
    copy: tuple[int, ...]
    setup: int
    latency: int
    event: int
    engines: int
    start: Grains
    bound: int


def solve_batches(
    problem: BatchProblem,
    *,
    seed: int,
    limit: float,
    should_stop: ShouldStop = never,
    meanwhile: Meanwhile | None = None,
) -> tuple[Grains, ...]:
    """The batchings found, the best first, with one worker and ``limit`` deterministic seconds; maybe none.

    The same problem, seed and limit give the same with the same version of OR-tools. ``meanwhile`` the caller has work.
    """
    model = _Model(problem)
    with heeding(should_stop):
        model.hint_all(seed)
    solver = make_solver(seed)
    solutions = Solutions(lambda value: tuple(tuple(map(value, row)) for row in model.grains))
    solver.parameters.max_deterministic_time = limit
    with suppress(Cancelled), heeding(should_stop):
        solve(solver, model.model, solutions, meanwhile)
    return tuple(dict.fromkeys(reversed(solutions.found)))


class _Model:
    """The variables and constraints of one problem."""

    def __init__(self, problem: BatchProblem) -> None:
        self.model, self._problem = cp_model.CpModel(), problem
        self._batches = range(len(problem.start))
        self._most = sum(problem.kernel[1] * size for size in problem.blocks) * 2 + self._horizon()
        blocks = problem.blocks
        self.grains = [[self._count(size, f"x{j}_{k}") for k, size in enumerate(blocks)] for j in self._batches]
        for k, size in enumerate(blocks):
            self.model.add(sum(row[k] for row in self.grains) == size)
        starts, ends, durations = zip(*(self._kernel(row) for row in self.grains), strict=True)
        for before, after in zip(ends, starts[1:], strict=False):
            self.model.add(after >= before)
        self._copies(starts)
        self._minimise(ends[-1], durations)

    def _horizon(self) -> int:
        problem = self._problem
        copied = sum(size * time for size, time in zip(problem.blocks[1:], problem.copy, strict=True))
        fixed = len(problem.start) * (len(problem.blocks) * problem.setup + problem.latency + problem.event)
        return copied + fixed + len(problem.start) * max(problem.kernel)

    def _count(self, most: int, name: str) -> cp_model.IntVar:
        return self.model.new_int_var(0, most, name)

    def _kernel(self, row: Sequence[cp_model.IntVar]) -> tuple[cp_model.IntVar, cp_model.IntVar, cp_model.IntVar]:
        """(start, end, duration) of the kernel over the grains of ``row``."""
        table = self._problem.kernel
        total, duration = self._count(len(table) - 1, "total"), self._count(max(table), "duration")
        start, end = self._count(self._most, "start"), self._count(self._most, "end")
        self.model.add(total == sum(row))
        self.model.add_element(total, list(table), duration)
        slope = min(time // grains for grains, time in enumerate(table) if grains)
        self.model.add(duration >= slope * total)
        self.model.add(end == start + duration)
        return start, end, duration

    def _copies(self, kernels: Sequence[cp_model.IntVar]) -> None:
        """Each copy holds its link and an engine, and the kernel of its batch waits for it."""
        problem = self._problem
        on_link: dict[int, list[cp_model.IntervalVar]] = {}
        for row, kernel in zip(self.grains, kernels, strict=True):
            for k, (link, time) in enumerate(zip(problem.link, problem.copy, strict=True)):
                used = self.model.new_bool_var("used")
                self.model.add(row[k + 1] >= 1).only_enforce_if(used)
                self.model.add(row[k + 1] == 0).only_enforce_if(~used)
                start, end = self._count(self._most, "begin"), self._count(self._most, "done")
                size = self._count(self._most, "size")
                self.model.add(size == problem.setup + time * row[k + 1])
                interval = self.model.new_optional_interval_var(start, size, end, used, "copy")
                on_link.setdefault(link, []).append(interval)
                self.model.add(kernel >= end + problem.latency + problem.event).only_enforce_if(used)
        for intervals in on_link.values():
            self.model.add_no_overlap(intervals)
        copies = [interval for intervals in on_link.values() for interval in intervals]
        if problem.engines < len(problem.link):
            self.model.add_cumulative(copies, [1] * len(copies), problem.engines)

    def _minimise(self, end: cp_model.IntVar, durations: Sequence[cp_model.IntVar]) -> None:
        self.model.add(end >= self._problem.bound)
        self.model.add(end >= sum(durations))
        self.model.minimize(end)

    def hint_all(self, seed: int) -> None:
        """Hint every variable: with sizes alone the solver often finds no first solution."""
        for row, start in zip(self.grains, self._problem.start, strict=True):
            for variable, value in zip(row, start, strict=True):
                self.model.add_hint(variable, value)
        solver = make_solver(seed)
        solver.parameters.fix_variables_to_their_hinted_value = True
        solver.parameters.max_deterministic_time = 1.0
        if solve(solver, self.model) in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            variables = [self.model.get_int_var_from_proto_index(i) for i in range(len(self.model.proto.variables))]
            values = [solver.value(variable) for variable in variables]
            self.model.clear_hints()  # type: ignore[no-untyped-call]
            for variable, value in zip(variables, values, strict=True):
                self.model.add_hint(variable, value)
