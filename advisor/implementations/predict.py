"""Predicted times of implementations, and of the library: its kernels and its collective one after the other."""

from ...compiler.codes import Code
from ...compiler.ir import TICKS_PER_US, Choice, Implementation, Plan, Rejection, Scenario, TransferPath
from ...compiler.planning.build import ScheduleError, build_schedule
from ...compiler.planning.knobs.library import library_rejection, library_serial
from ...simcore import DEFAULT_OPTIONS, PACKET_BYTES, RunOptions, RunTooLarge, affordable_unit, simulate_op
from .machine import machine_of

MAX_LINE_HOPS = 2_000_000


def predict_us(
    scenario: Scenario, implementation: Implementation, options: RunOptions = DEFAULT_OPTIONS
) -> float | Rejection:
    """Return the predicted time of ``implementation`` in us, or why there is none."""
    method = implementation.method(scenario.workload.pattern)
    if method is None:
        return Rejection(Code.MGS530, f"{implementation.name} does not do {scenario.workload.pattern.value}")
    if method.missing:
        return Rejection(Code.MGS209, f"{implementation.name}: {', '.join(method.missing)} not known")
    try:
        if method.path is TransferPath.LIBRARY:
            us = library_us(scenario, options)
        else:
            us = simulated_us(machine_of(scenario, method), method.choice, options=options)
    except ScheduleError as error:
        return error.rejection
    except RunTooLarge as error:
        return Rejection(Code.MGS406, str(error).splitlines()[0])
    return us + (method.call_ticks + method.barrier_ticks) / TICKS_PER_US


def library_us(scenario: Scenario, options: RunOptions = DEFAULT_OPTIONS) -> float:
    """Return the simulated time of the library's kernels and its collective one after the other.

    Raises
    ------
    ScheduleError
        If the library's time is not known here.
    RunTooLarge
        As ``simulated_us``.
    """
    unfit = library_rejection(scenario)
    if unfit is not None:
        raise ScheduleError(unfit)
    return simulated_us(scenario, library_serial(scenario), options=options)


def simulated_us(
    scenario: Scenario, body: Choice | Plan, name: str = "", options: RunOptions = DEFAULT_OPTIONS
) -> float:
    """Return the simulated time of a schedule, in packets or as coarse as a run of a second needs.

    Raises
    ------
    ScheduleError
        If the schedule does not fit the scenario.
    RunTooLarge
        If the run would take minutes or more memory than is sensible.
    """
    schedule = build_schedule(scenario, body, name)
    unit_bytes = affordable_unit(scenario, schedule, PACKET_BYTES, MAX_LINE_HOPS)
    return simulate_op(scenario, schedule, unit_bytes=unit_bytes, options=options).makespan_ticks / TICKS_PER_US
