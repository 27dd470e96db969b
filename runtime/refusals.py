"""Which schedules are not carried out with real data, and why."""

from ..compiler.codes import Code
from ..compiler.ir import (
    AttentionShape,
    GemmShape,
    GraphPlan,
    GroupedGemmShape,
    Pattern,
    Rejection,
    Scenario,
    Schedule,
    System,
)

CARRIED = (GemmShape, GroupedGemmShape, AttentionShape)
"""Kernels of whole numbers; one matrix stands for those of all experts, powers of two for softmax. None derived."""
MAX_STEPS = 1 << 15
"""Most steps of all ranks together: each remembers which of the others came before it."""


def reject_graph_run(system: System, plan: GraphPlan) -> Rejection | None:
    """Why a plan of a graph is not carried out, None if it is; what lone kernels make is stood in for."""
    for part in plan.parts:
        scenario = Scenario(part.name, system, part.workload)
        if part.workload.uneven_by_rank:
            message = f"{part.name} has loads that differ from rank to rank, which are carried out in pairs alone"
            return Rejection(Code.MGS540, message)
        if part.workload.pattern is not Pattern.KERNEL and (unfit := reject_run(scenario, part.schedule)) is not None:
            return unfit
    steps = sum(len(part.schedule.steps_of(rank)) for part in plan.parts for rank in range(system.num_ranks))
    if steps > MAX_STEPS:
        message = f"the plan has {steps} steps over all ranks, {MAX_STEPS} at most are carried out"
        return Rejection(Code.MGS540, message, "choose fewer chunks, fewer layers or fewer ranks")
    return None


def reject_run(scenario: Scenario, schedule: Schedule) -> Rejection | None:
    """Why ``schedule`` is not carried out, None if it is."""
    workload = scenario.workload
    for kernel in range(workload.num_kernels):
        shape = workload.stage(kernel).compute
        if workload.pattern is Pattern.KERNEL or type(shape) not in CARRIED:
            kind = "kernel" if shape is None else shape.operation
            where = f"{kind} alone" if workload.pattern is Pattern.KERNEL else kind
            message = f"{workload.name} computes {where}, which is not carried out with real data"
            hint = "gemm is, alone too, and grouped_gemm and attention before and after a collective"
            return Rejection(Code.MGS540, message, hint)
    steps = sum(len(schedule.steps_of(rank)) for rank in range(scenario.num_ranks))
    if steps > MAX_STEPS:
        message = f"the plan has {steps} steps over all ranks, {MAX_STEPS} at most are carried out"
        return Rejection(Code.MGS540, message, "choose fewer chunks, or fewer ranks")
    return None
