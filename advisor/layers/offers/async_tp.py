"""Async-TP of PyTorch, which vLLM calls too: all pairs of a graph are fused, or none.

The pass is switched on for a whole graph, and cuts by rank. It pulls shards; beside other ops there are puts alone,
which take as long. What its calls cost beside the schedule is taken from the pairs alone.
"""

from dataclasses import replace

from ....compiler.ir import (
    TICKS_PER_US,
    Choice,
    Direction,
    Graph,
    GraphChoice,
    GraphOp,
    Implementation,
    OpMode,
    Rejection,
    Scenario,
    Seams,
    System,
)
from ....compiler.planning.build import ScheduleError
from ....simcore import RunTooLarge
from ...implementations.layer_offer import LayerTable, OpSetting
from ...implementations.predict import predict_us, simulated_us

NAME = "torch_async_tp"
FUSED = {"AG+GEMM": "fused_all_gather_matmul", "GEMM+RS": "fused_matmul_reduce_scatter"}


def async_tp_table(graph: Graph, implementation: Implementation) -> LayerTable | None:
    """Return the schedule of ``graph`` with the pass switched on; None where it fuses nothing."""
    fused = {op.name: choice for op in graph.ops if (choice := _fused(op, implementation)) is not None}
    if not fused:
        return None
    modes = tuple(OpMode(name, choice) for name, choice in fused.items())
    order = tuple(op.name for op in graph.ops)
    settings = tuple(
        OpSetting(FUSED[op.workload.pattern.value], op.name, NAME, copy_engine=True)
        for op in graph.ops
        if op.name in fused
    )
    return LayerTable(GraphChoice(NAME, modes, order, seams=Seams.WHOLE), settings)


def _fused(op: GraphOp, implementation: Implementation) -> Choice | None:
    method = implementation.method(op.workload.pattern)
    gemm = op.workload.gemm
    if method is None or gemm is None or op.workload.kernel is not None or op.workload.then is not None:
        return None
    if gemm.dtype not in implementation.dtypes or op.workload.pattern.value not in FUSED:
        return None
    tactics = replace(method.choice.tactics, direction=Direction.PUT)
    return replace(method.choice, tactics=tactics)


def call_ticks(system: System, graph: Graph, table: LayerTable, implementation: Implementation) -> tuple[int, str]:
    """Return what the calls of a layer cost beside the schedule, and for which ops that is not known, in words."""
    total, unknown, known = 0.0, [], dict[object, float | None]()
    choices = {mode.op: mode.body for mode in table.choice.modes}
    for op in graph.ops:
        choice = choices.get(op.name)
        if isinstance(choice, Choice):
            if op.workload not in known:
                known[op.workload] = _call_us(Scenario(op.name, system, op.workload), choice, implementation)
            cost = known[op.workload]
            if cost is None:
                unknown.append(op.name)
            else:
                total += cost
    return round(total * TICKS_PER_US), f"the cost of calls of {', '.join(unknown)}" if unknown else ""


def _call_us(scenario: Scenario, choice: Choice, implementation: Implementation) -> float | None:
    """The time of a pair alone by the implementation, over that of its schedule; None where it has no prediction."""
    predicted = predict_us(scenario, implementation)
    if isinstance(predicted, Rejection):
        return None
    try:
        return max(0.0, predicted - simulated_us(scenario, choice))
    except (ScheduleError, RunTooLarge):
        return None
