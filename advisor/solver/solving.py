"""A solver at work in a thread of its own, so that its caller hears of Ctrl-C and of a wish to stop meanwhile."""

from collections.abc import Callable
from threading import Thread

from ...compiler.ir import ShouldStop, checkpoint
from .ortools import cp_model

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
        stop(solver, thread)
    if isinstance(ended[0], BaseException):
        raise ended[0]
    return ended[0]


def stop(solver: cp_model.CpSolver, thread: Thread) -> None:
    """End the search of ``solver`` in ``thread``, which may not have begun yet and could not be told then."""
    while thread.is_alive():
        solver.stop_search()
        thread.join(POLL_S)
