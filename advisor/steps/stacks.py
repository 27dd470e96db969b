"""What the stack of a framework costs beside the graph of a layer: attention that keeps its scores, unfused kernels."""

from dataclasses import replace
from fractions import Fraction

from ...compiler.ir import TICKS_PER_SECOND, AttentionBackShape, AttentionShape, Gpu, Scenario, Stack, Sustained, System
from ...compiler.ir.step import StepScenario, StepSchedule


def for_seconds(system: System, stack: Stack | None) -> System:
    """The system at the clock that its GPUs hold, with products at the rate of a stack.

    A step lasts seconds, however short its GEMMs are: each of them runs at the clock of long ones.
    """
    held, products = system.gpu.sustained, Fraction(1) if stack is None else stack.products
    clock = products * (1 if held is None else held.clock)
    return replace(system, gpu=replace(system.gpu, sustained=Sustained(0, clock)))


def memory_ticks(gpu: Gpu, num_bytes: Fraction | int) -> int:
    """How long memory takes for so many bytes at its achieved rate."""
    return int(Fraction(num_bytes * TICKS_PER_SECOND, gpu.hbm.achieved_bytes_per_s))


def stack_ticks(scenario: Scenario, stack: Stack, row_bytes: int, *, backward: bool) -> int:
    """Return what a pass of one layer takes longer under a stack.

    Parameters
    ----------
    scenario
        The pass.
    row_bytes
        Bytes of the tokens of a rank, each as wide as the model.
    """
    rows = stack.backward_rows if backward else stack.forward_rows
    gpu, kernels = scenario.system.gpu, (op.shape.kernel for op in scenario.workload.ops)
    attention = sum(_attention_ticks(gpu, stack, each) for each in kernels if isinstance(each, AttentionShape))
    return memory_ticks(gpu, rows * row_bytes) + attention


def marks_of(scenario: StepScenario, schedule: StepSchedule) -> tuple[str, ...]:
    """What to know before trusting the figures of a step: how far steps with its stack are from measured ones."""
    gpu, stack = scenario.system.gpu.name, schedule.costs
    if stack is None or schedule.stack is None:
        return ("no stack is said: what a framework adds to the kernels of a layer is not counted",)
    if stack.error is None:
        return (f"steps with {schedule.stack.name} on {gpu} were not compared with measured ones",)
    return (f"steps with {schedule.stack.name} are {float(stack.error):.1%} off on average: {stack.compared}",)


def _attention_ticks(gpu: Gpu, stack: Stack, shape: AttentionShape) -> int:
    """What attention takes longer where scores are kept: passes over them, and products of what a mask hides.

    The products run at the rate of the main loop of a GEMM.
    """
    passes = stack.backward_scores if isinstance(shape, AttentionBackShape) else stack.forward_scores
    if not passes:
        return 0
    scores = shape.dtype.bytes_of(shape.batch * shape.heads * shape.q_len * shape.kv_len)
    hidden = replace(shape, causal=False, window=None).flops - shape.flops
    clock = stack.products * (1 if gpu.sustained is None else gpu.sustained.clock)
    rate = gpu.peak(shape.dtype) * gpu.gemm.of(shape.dtype).mma_fraction * clock
    return memory_ticks(gpu, passes * scores) + int(hidden * TICKS_PER_SECOND / rate)
