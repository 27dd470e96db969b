"""Predicted times of implementations, and of the library: its GEMM and its collective one after the other."""

from ...compiler.codes import Code
from ...compiler.ir import TICKS_PER_US, Implementation, Method, Pattern, Rejection, Scenario, TransferPath
from ...compiler.planning.build import ScheduleError, build_schedule
from ...simcore import PACKET_BYTES, RunTooLarge, affordable_unit, simulate
from ...simcore.kernels.gemm import gemm_work
from ...simcore.kernels.nccl import NcclCollective, collective_time
from .machine import machine_of

MAX_LINE_HOPS = 2_000_000
_COLLECTIVES = {
    Pattern.AG_GEMM: NcclCollective.ALL_GATHER,
    Pattern.GEMM_RS: NcclCollective.REDUCE_SCATTER,
    Pattern.GEMM_AR: NcclCollective.ALL_REDUCE,
}


def predict_us(scenario: Scenario, implementation: Implementation) -> float | Rejection:
    """Return the predicted time of ``implementation`` in us, or why there is none."""
    method = implementation.method(scenario.workload.pattern)
    if method is None:
        return Rejection(Code.MGS530, f"{implementation.name} does not do {scenario.workload.pattern.value}")
    if method.missing:
        return Rejection(Code.MGS209, f"{implementation.name}: {', '.join(method.missing)} not known")
    us = library_us(scenario) if method.path is TransferPath.LIBRARY else _simulated_us(scenario, method)
    if isinstance(us, Rejection):
        return us
    return us + (method.call_ticks + method.barrier_ticks) / TICKS_PER_US


def library_us(scenario: Scenario) -> float | Rejection:
    """Return the time of the library's GEMM and collective one after the other, by their closed forms."""
    gpu, workload = scenario.gpu, scenario.workload
    collective = _COLLECTIVES.get(workload.pattern)
    if collective is None or workload.gemm is None or workload.moved is None:
        return Rejection(Code.MGS530, f"no closed form of a library for {workload.pattern.value}")
    if gpu.collectives is None:
        return Rejection(Code.MGS530, f"the profile of {gpu.name} has no collectives")
    shape = workload.gemm
    work = gemm_work(gpu, shape, gpu.sms)
    # Bytes as in nccl-tests: the gathered tensor, or the partial sums of a rank.
    num_bytes = shape.m * (shape.k if workload.pattern is Pattern.AG_GEMM else shape.n) * shape.dtype.num_bytes
    return work.alone_ticks / TICKS_PER_US + collective_time(gpu, collective, num_bytes, scenario.num_ranks).us


def _simulated_us(scenario: Scenario, method: Method) -> float | Rejection:
    machine = machine_of(scenario, method)
    try:
        schedule = build_schedule(machine, method.choice)
        unit_bytes = affordable_unit(machine, schedule, PACKET_BYTES, MAX_LINE_HOPS)
        return simulate(machine, schedule, unit_bytes=unit_bytes).makespan_ticks / TICKS_PER_US
    except ScheduleError as error:
        return error.rejection
    except RunTooLarge as error:
        return Rejection(Code.MGS406, str(error).splitlines()[0])
