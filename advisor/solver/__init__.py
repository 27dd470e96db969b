"""The feasible schedules of a scenario, stated as a CP-SAT model. OR-tools is loaded at the first call."""

from collections.abc import Callable, Iterator

from ...compiler.ir import Choice, Scenario, ShouldStop
from ...compiler.templates import Template
from .result import Absence, Assumed, NoFeasibleSchedule, Space

__all__ = [
    "Absence",
    "Assumed",
    "NoFeasibleSchedule",
    "Space",
    "enumerate_space",
    "explain_infeasible",
    "iterate_space",
]


def enumerate_space(
    scenario: Scenario,
    *,
    limit: int | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    should_stop: ShouldStop | None = None,
    progress: Callable[[int], None] | None = None,
    generated: bool | None = None,
) -> Space:
    """The feasible choices of ``scenario`` within its ``explore`` block, the same in every run.

    A large space is written down by a generator, which gives the same set as the solver and is faster.

    Parameters
    ----------
    limit
        At most this many: of a large space a diverse sample with every template, else the first that the solver finds.
        ``Space.complete`` tells whether there are more.
    time_limit
        Seconds for the solver; what was found by then is kept.
    seed
        Of the solver's search and of the sample. It matters only with a limit.
    should_stop
        Asked at least once a second; what was found is kept.
    progress
        Told now and then how many were found so far.
    generated
        Whether the generator is used, by the size of the space where it is not said.

    Raises
    ------
    NoFeasibleSchedule
        If there is none, not even the serial baseline.
    ValueError
        If ``limit`` is not positive.
    """
    from .enumerate import EnumerationLimits, enumerate_choices

    return enumerate_choices(scenario, EnumerationLimits(limit, time_limit, should_stop, progress), seed, generated)


def iterate_space(scenario: Scenario, *, seed: int = 0) -> Iterator[Choice]:
    """The feasible choices as the solver finds them, each once; it stops when the iterator is closed.

    Raises
    ------
    NoFeasibleSchedule
        At the first step, if there is none.
    """
    from .enumerate import stream_choices

    return stream_choices(scenario, seed)


def explain_infeasible(scenario: Scenario, template: Template | None = None) -> tuple[str, ...]:
    """A minimal set of rules that leave no schedule, or none of ``template``; empty if there is one."""
    from .enumerate import explain

    return explain(scenario, template)
