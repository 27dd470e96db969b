"""The feasible schedules of a scenario, stated as a CP-SAT model. OR-tools is loaded at the first call."""

from collections.abc import Callable

from ...compiler.scenario import Scenario
from ...compiler.templates import Template
from .space import Absence, NoFeasibleSchedule, Space

__all__ = ["Absence", "NoFeasibleSchedule", "Space", "enumerate_space", "explain_infeasible"]


def enumerate_space(
    scenario: Scenario,
    *,
    limit: int | None = None,
    seed: int = 0,
    should_stop: Callable[[], bool] | None = None,
) -> Space:
    """The feasible choices of ``scenario`` within its ``explore`` block, the same in every run.

    Parameters
    ----------
    limit
        At most this many, the first that the solver finds; ``Space.complete`` tells whether there are more.
    seed
        Of the solver's search. It decides which choices are found first, and so matters only with a limit.
    should_stop
        Asked at every solution found.

    Raises
    ------
    NoFeasibleSchedule
        If there is none, not even the serial baseline.
    ValueError
        If ``limit`` is not positive.
    """
    from .enumerate import enumerate_choices

    return enumerate_choices(scenario, limit=limit, seed=seed, should_stop=should_stop)


def explain_infeasible(scenario: Scenario, template: Template | None = None) -> tuple[str, ...]:
    """A minimal set of rules that leave no schedule, or none of ``template``; empty if there is one."""
    from .enumerate import explain

    return explain(scenario, template)
