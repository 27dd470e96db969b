"""The two halves of a pair: its kernel and its collective, each alone."""

from dataclasses import replace

from ..ir import Pattern, Workload
from ..templates.collective import collective_in


def kernel_alone(workload: Workload) -> Workload:
    """The kernel of a pair without its collective."""
    pattern = Pattern.GEMM if workload.gemm is not None else Pattern.KERNEL
    return replace(workload, pattern=pattern, moved=None, split=(), loads=(), experts=(), by_columns=False)


def collective_alone(workload: Workload) -> Workload:
    """The collective of a pair without its kernel."""
    pattern = collective_in(workload.pattern)
    assert pattern is not None, "a pair has a collective"
    return replace(workload, pattern=pattern, gemm=None, kernel=None)
