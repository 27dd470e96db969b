"""The feasible schedules of a scenario, stated as a CP-SAT model. OR-tools is loaded at the first call."""

from ...compiler.ir import OpCase, ShouldStop
from ...compiler.ir.stopping import never
from .memory import Absence, Assumed, NoFeasibleSchedule, Space

__all__ = ["Absence", "Assumed", "NoFeasibleSchedule", "Space", "enumerate_space"]


def enumerate_space(
    scenario: OpCase,
    *,
    limit: int | None = None,
    seed: int = 0,
    should_stop: ShouldStop = never,
    generated: bool | None = None,
) -> Space:
    """Return the feasible choices of ``scenario`` within its ``explore`` block, the same in every run.

    A generator writes down a large space; it gives the same set as the solver and is faster.

    Parameters
    ----------
    limit
        Most choices: of a large space a diverse sample with every template, else the first that the solver finds.
        ``Space.complete`` tells whether there are more.
    seed
        Seed of the solver's search and of the sample. It matters only with a limit.
    should_stop
        Asked at least once a second; what was found is kept.
    generated
        Whether to use the generator; by default the size of the space decides.

    Raises
    ------
    NoFeasibleSchedule
        If there is none, not even the serial baseline.
    ValueError
        If ``limit`` is not positive.
    """
    from .enumerate import Enumeration

    return Enumeration(scenario, limit, seed, should_stop).space(generated)
