"""Memory that a schedule needs of a rank beyond the inputs and the output of its workload."""

from ..ir import (
    Adds,
    Pattern,
    Reduction,
    Scenario,
    Step,
    Workload,
    cutting_of,
    moved_rows,
)
from ..templates import Cut, Template
from .buffers import elements_reused


def staging_bytes(scenario: Scenario, *, slices_inner: bool) -> int:
    """Memory of a rank beyond its input and output: gathered rows, what is sent, or partial sums sent and received.

    Where what an output sums over is cut (``slices_inner``) it is kept in fp32 meanwhile.
    """
    workload, n = scenario.workload, scenario.num_ranks
    if workload.moved is None:
        return 0
    remote = _remote_bytes(workload, n)
    match workload.pattern:
        case Pattern.GEMM_RS | Pattern.GEMM_AR:
            return workload.moved.num_bytes + remote
        case Pattern.AG_GEMM | Pattern.A2A_GEMM:
            return remote + (_accumulator_bytes(workload) if slices_inner else 0)
        case Pattern.GEMM_A2A:
            return remote + _own_bytes(workload, n)
        case Pattern.GEMM_A2A_GEMM:
            sums = _accumulator_bytes(workload.stage(1)) if slices_inner else 0
            return 2 * remote + _own_bytes(workload, n) + sums
        case Pattern.REDUCE_SCATTER | Pattern.ALL_REDUCE:
            return remote
        case _:
            return 0  # what a lone collective moves without a sum is its output


def _accumulator_bytes(workload: Workload) -> int:
    assert workload.compute is not None, "this workload has a kernel after a collective"
    return workload.compute.accumulator_bytes


def _remote_bytes(workload: Workload, num_ranks: int) -> int:
    """Bytes of the moved tensor that a rank gets: all but its own block, or the uneven blocks of an all_to_all."""
    moved = workload.moved
    assert moved is not None, "this workload moves a tensor"
    rows = sum(moved_rows(workload, num_ranks, 0, holder) for holder in range(1, num_ranks))
    return rows * moved.cols * moved.dtype.num_bytes


def _own_bytes(workload: Workload, num_ranks: int) -> int:
    """The own block of what an all_to_all takes."""
    assert workload.moved is not None, "this workload moves a tensor"
    return moved_rows(workload, num_ranks) * workload.moved.cols * workload.moved.dtype.num_bytes


def staging_of_steps(scenario: Scenario, ranks: tuple[tuple[Step, ...], ...], *, slices_inner: bool) -> int:
    """The same for steps of every different rank.

    Algorithms differ in how many parts they put down to be summed, and a get may land where an earlier one has been
    read.
    """
    workload, pattern = scenario.workload, scenario.workload.pattern
    needed = staging_bytes(scenario, slices_inner=slices_inner)
    if workload.moved is not None and pattern in (Pattern.AG_GEMM, Pattern.A2A_GEMM):
        reused = min(elements_reused(steps, scenario.num_ranks, exchanges=pattern.exchanges) for steps in ranks)
        return needed - reused * workload.moved.dtype.num_bytes
    if workload.moved is None or not workload.pattern.sums:
        return needed
    usual = workload.moved.rows * workload.moved.cols * (scenario.num_ranks - 1) // scenario.num_ranks
    sums = ([step for step in steps if isinstance(step, Reduction)] for steps in ranks)
    parts = max(sum((s.num_parts - 1) * s.region.rows.size * s.region.cols.size for s in each) for each in sums)
    return needed + (parts - usual) * workload.moved.dtype.num_bytes


def slices_inner(scenario: Scenario, template: Template) -> bool:
    """Whether the template cuts what one output sums over: the inner dimension of a GEMM, or keys."""
    match cutting_of(scenario.workload.last_stage).adds:
        case Adds.COLUMNS:
            return template.cut is Cut.COLUMNS
        case Adds.ROWS:
            return template.overlaps and template.cut is not Cut.COLUMNS
        case Adds.BLOCKS:
            return template.overlaps and not template.rows_from_all_ranks
        case Adds.NONE:
            return False
