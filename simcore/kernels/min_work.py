"""Least SM time and memory traffic of a kernel however it is cut, for lower bounds."""

from fractions import Fraction

from ...compiler.ir import KernelShape, Scenario
from .dispatch import model_of, whole_shape
from .work import hbm_bytes

_ALL = Fraction(1)


def least_sm_ticks(scenario: Scenario, share: Fraction = _ALL) -> int:
    """SM-ticks (SMs times time) that kernels take, however they are cut; or ``share`` of their rows.

    0 where there is no kernel before or after a collective, or a GEMM of one column, which has no tiles.
    """
    if scenario.workload.then is not None:
        return sum(least_sm_ticks(stage, share) for stage in scenario.stages)
    shape = _shape(scenario)
    return 0 if shape is None else model_of(shape).min_sm_ticks(scenario, shape, share)


def least_bytes(scenario: Scenario) -> int:
    """Bytes that kernels read from memory and write, however they are cut."""
    if scenario.workload.then is not None:
        return sum(map(least_bytes, scenario.stages))
    shape = _shape(scenario)
    return 0 if shape is None else sum(hbm_bytes(shape, accumulate=False))


def _shape(scenario: Scenario) -> KernelShape | None:
    return whole_shape(scenario) or scenario.workload.compute
