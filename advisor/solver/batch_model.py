"""Batches of any sizes as a CP-SAT model: how many grains of which block are copied and computed together, and when.

A grain is a number of rows. Copies are optional intervals, on their link without overlap and on the pool of engines
cumulatively; kernels are intervals on the SMs, in the order of the batches, each behind the copies of its own. What is
summed is the same run backwards. Times are in units of 10 ns: finer ones only make numbers larger.

A kernel takes what a table says for its grains, whose stairs leave the solver without a bound; a line below all of
them, through the origin, gives it one (its slope is the least time of a grain in the table).
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from ...compiler.ir import Cancelled, ShouldStop, heeding
from ...compiler.ir.stopping import never
from .model import make_solver
from .ortools import cp_model
from .solving import Meanwhile, solve

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
    solver, found = make_solver(seed), _Collector(model.grains, should_stop)
    solver.parameters.max_deterministic_time = limit
    with suppress(Cancelled), heeding(should_stop):
        solve(solver, model.model, found, meanwhile)
    return tuple(dict.fromkeys(reversed(found.values)))


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


class _Collector(cp_model.CpSolverSolutionCallback):
    """Takes down every better batching, and stops the search on request."""

    def __init__(self, grains: Sequence[Sequence[cp_model.IntVar]], should_stop: ShouldStop) -> None:
        super().__init__()
        self._grains, self._should_stop = grains, should_stop
        self.values: list[Grains] = []

    def on_solution_callback(self) -> None:
        """Called by the solver."""
        self.values.append(tuple(tuple(self.value(variable) for variable in row) for row in self._grains))
        if self._should_stop():
            self.stop_search()
