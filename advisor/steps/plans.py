"""Plans of what a step is made of: passes of a layer, some parts of them, and what stages send."""

from dataclasses import replace

from ...compiler.ir import (
    EngineMode,
    Made,
    OpCase,
    OpChoice,
    OpPlan,
    OpShape,
    Pattern,
    Plan,
    Read,
    Scenario,
    Schedule,
    Shard,
    System,
    Tensor,
    Workload,
)
from ...compiler.planning.build import build_op_plan
from ...compiler.planning.knobs.library import library_engine
from ...compiler.planning.plan import build_plan
from ...compiler.templates import BASELINE
from .times import handed_on


def pass_plan(system: System, workload: Workload, schedule: Schedule) -> Plan:
    """Return the plan of one layer as a step has it, with nothing of others ahead.

    Raises
    ------
    ScheduleError
        If the schedule cannot run so.
    """
    return build_plan(system, replace(workload, repeat=None), replace(schedule, prefetch=0, deferred=()))


def some_parts(plan: Plan, apart: frozenset[str], *, of: bool) -> Plan:
    """Return the parts of a backward pass that make gradients of weights, the ops ``apart``, or the others."""
    kept = [part for part in plan.parts if (part.op in apart) is of]
    names = {part.name for part in kept}
    parts = tuple(
        replace(
            part,
            waits=tuple(wait for wait in part.waits if wait.on in names),
            step_waits=tuple(wait for wait in part.step_waits if wait.on in names),
        )
        for part in kept
    )
    return replace(plan, parts=parts)


def some_ops(workload: Workload, apart: frozenset[str], *, of: bool) -> Workload:
    """Return a workload of some ops, as ``some_parts``; what they read of the others is there from the start."""
    names = {op.name for op in workload.ops if (op.name in apart) is of}

    def read(each: Read) -> Read:
        return each if each.made_by in names else replace(each, made_by="", what=Made.OUTPUT)

    ops = tuple(replace(op, reads=tuple(map(read, op.reads))) for op in workload.ops if op.name in names)
    return replace(workload, ops=ops, results=tuple(each for each in workload.results if each[1] in names))


def send_plan(stages: System, forward: Scenario) -> tuple[OpCase, OpPlan]:
    """Return what a rank of one stage sends to one of the next, by the SMs of the library: the rows that it has.

    Raises
    ------
    ScheduleError
        If no algorithm does it.
    """
    moved, pair = handed_on(forward), replace(stages, num_ranks=2)
    assert moved.shard is not Shard.NONE or forward.num_ranks == 1, "each rank of a stage has rows of its own"
    rows = moved.rows // (forward.num_ranks if moved.shard is Shard.ROWS else 1)
    cols = moved.cols // (forward.num_ranks if moved.shard is Shard.COLS else 1)
    tensor = Tensor("x", moved.dtype, rows, cols, Shard.NONE)
    case = OpCase("send", pair, OpShape("send", "", Pattern.SEND_RECV, (tensor,), tensor, None, "y"))
    choice = OpChoice(BASELINE.name, pair.num_ranks, replace(library_engine(pair.gpu), mode=EngineMode.SHARED))
    return case, build_op_plan(case, choice)
