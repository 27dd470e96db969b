"""Memory that a schedule needs of a rank beyond the inputs and the output of its workload."""

from .extents import moved_rows
from .scenario import Pattern, Scenario, Workload
from .schedule import Reduction, Step
from .templates import Cut, Template


def staging_bytes(scenario: Scenario, *, slices_inner: bool) -> int:
    """Memory of a rank beyond its input and output: gathered rows, or partial sums sent and received.

    Where the inner dimension is cut (``slices_inner``) the output is kept in fp32 while it is being summed.
    """
    workload, n = scenario.workload, scenario.num_ranks
    if workload.moved is None:
        return 0
    remote = _remote_bytes(workload, n)
    match workload.pattern:
        case Pattern.GEMM_RS | Pattern.GEMM_AR:
            return workload.moved.num_bytes + remote
        case Pattern.AG_GEMM | Pattern.A2A_GEMM:
            assert workload.gemm is not None, "both have a GEMM"
            return remote + (workload.gemm.m * workload.gemm.n * 4 if slices_inner else 0)
        case Pattern.REDUCE_SCATTER | Pattern.ALL_REDUCE:
            return remote
        case _:
            return 0  # what a lone collective moves without a sum is its output


def _remote_bytes(workload: Workload, num_ranks: int) -> int:
    """What a rank gets of the moved tensor: all but its own block, or what an uneven all_to_all brings."""
    moved = workload.moved
    assert moved is not None, "this workload moves a tensor"
    rows = sum(moved_rows(workload, num_ranks, owner) for owner in range(1, num_ranks))
    return rows * moved.cols * moved.dtype.num_bytes


def staging_of_steps(scenario: Scenario, ranks: tuple[tuple[Step, ...], ...], *, slices_inner: bool) -> int:
    """The same for steps of every different rank: algorithms differ in how many parts they put down to be summed."""
    workload = scenario.workload
    needed = staging_bytes(scenario, slices_inner=slices_inner)
    if workload.moved is None or not workload.pattern.sums:
        return needed
    usual = workload.moved.rows * workload.moved.cols * (scenario.num_ranks - 1) // scenario.num_ranks
    sums = ([step for step in steps if isinstance(step, Reduction)] for steps in ranks)
    parts = max(sum((s.num_parts - 1) * s.region.rows.size * s.region.cols.size for s in each) for each in sums)
    return needed + (parts - usual) * workload.moved.dtype.num_bytes


def slices_inner(scenario: Scenario, template: Template) -> bool:
    """Whether the template cuts the inner dimension of the GEMM."""
    return template.cut is Cut.COLUMNS and scenario.workload.pattern in (Pattern.AG_GEMM, Pattern.A2A_GEMM)
