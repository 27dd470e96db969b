"""Solutions of a CP-SAT model as they are found, while the solver runs in a thread of its own."""

from collections.abc import Iterator
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic

from .ortools import cp_model
from .solving import stop

# Handing over in batches keeps the threads out of each other's way; who waits longer may want to look up.
BATCH_S, PATIENCE_S = 0.02, 0.2


class Stream:
    """The values of one variable in every solution. ``status`` is the solver's, once it is done."""

    def __init__(self, solver: cp_model.CpSolver, model: cp_model.CpModel, variable: cp_model.IntVar) -> None:
        self._solver, self._model, self._variable = solver, model, variable
        self._found: SimpleQueue[list[int] | BaseException | None] = SimpleQueue()
        self.status = cp_model.UNKNOWN

    def batches(self) -> Iterator[list[int]]:
        """Values as they are found, some at a time, or none for a while; leaving early stops the solver."""
        thread = Thread(target=self._solve, daemon=True)
        thread.start()
        try:
            while (batch := self._next()) is not None:
                yield batch
        finally:
            stop(self._solver, thread)

    def _next(self) -> list[int] | None:
        """The next batch, None after the last."""
        try:
            batch = self._found.get(timeout=PATIENCE_S)
        except Empty:
            return []
        if isinstance(batch, BaseException):
            raise batch
        return batch

    def _solve(self) -> None:
        try:
            collector = _Collector(self._variable, self._found)
            self.status = self._solver.solve(self._model, collector)
            self._found.put(collector.batch)
        except BaseException as error:
            self._found.put(error)
        self._found.put(None)


class _Collector(cp_model.CpSolverSolutionCallback):
    """Takes down one value of each solution."""

    def __init__(self, variable: cp_model.IntVar, found: "SimpleQueue[list[int] | BaseException | None]") -> None:
        super().__init__()
        self._variable, self._found = variable, found
        self._since, self.batch = monotonic(), list[int]()

    def on_solution_callback(self) -> None:
        """Called by the solver."""
        self.batch.append(self.value(self._variable))
        if (now := monotonic()) - self._since < BATCH_S:
            return
        self._found.put(self.batch)
        self._since, self.batch = now, []
