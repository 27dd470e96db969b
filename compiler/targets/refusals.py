"""Which plans one persistent GEMM kernel with copies beside it cannot carry out, and why."""

from collections.abc import Iterable
from dataclasses import replace

from ..codes import Code
from ..ir import (
    Adds,
    GemmShape,
    Kernels,
    OpCase,
    OpPlan,
    Pattern,
    Reach,
    Rejection,
    Step,
    TileGroup,
    Transfer,
    Wait,
    cutting_of,
)
from ..verify.happens_before import deadlock_faults

PATTERNS = (Pattern.AG_GEMM, Pattern.A2A_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.GEMM_A2A)
_ELSE = "magus plan --format json writes any plan"


def reject_triton(scenario: OpCase, schedule: OpPlan) -> Rejection | None:
    """Why ``schedule`` is no Triton kernel with copies beside it, None if it is."""
    unfit = _reject_workload(scenario) or _reject_tile(schedule)
    return unfit or _reject_steps(scenario, schedule) or _reject_order(scenario, schedule)


def _reject_workload(scenario: OpCase) -> Rejection | None:
    workload = scenario.shape
    patterns = ", ".join(pattern.value for pattern in PATTERNS)
    if workload.then is not None or not isinstance(workload.gemm, GemmShape) or workload.pattern not in PATTERNS:
        return _rejection(f"{workload.name} is {workload.label}, and the kernel is one GEMM", f"it does {patterns}")
    gemm = workload.gemm
    if gemm.dtype.block > 1 or gemm.right is not gemm.dtype:
        return _rejection(f"the kernel multiplies tiles as they are, and {gemm.text} has scales or two types", _ELSE)
    if workload.uneven:
        return _rejection(f"{workload.name} sends blocks of different sizes", "leave rows=[...] out")
    if workload.by_columns or workload.loads:
        what = "columns" if workload.by_columns else "rows that differ in number"
        message = f"{workload.name} is summed in parts of {what}, and the copies here move equal blocks of rows"
        return _rejection(message, f"rows that are a multiple of {scenario.num_ranks}, or {_ELSE}")
    if cutting_of(workload).adds is Adds.BLOCKS:
        return _rejection(f"{workload.name} has blocks side by side in the inner dimension", _ELSE)
    return None


def _reject_tile(schedule: OpPlan) -> Rejection | None:
    odd = [side for side in schedule.tactics.tile if side & (side - 1)]
    return _rejection(f"blocks of Triton are powers of two, and the tile has {odd[0]}", "another tile") if odd else None


def _reject_steps(scenario: OpCase, schedule: OpPlan) -> Rejection | None:
    if schedule.engine.by_tiles:
        return _rejection(
            f"{schedule.engine} stores or pulls from tiles, the kernel stores at its own rank", "engine=dma or sm(8)"
        )
    for rank in range(schedule.period(scenario.num_ranks)):
        slices: set[tuple[object, ...]] = set()
        for step in schedule.steps_of(rank):
            if isinstance(step, Transfer) and step.reach is Reach.ALL:
                return _rejection(f"{step.name} goes through the switch, to or from all", "another algorithm than nvls")
            if isinstance(step, Transfer) and step.reduce:
                return _rejection(f"{step.name} adds where it arrives, copies here do not", "engine=dma")
            if isinstance(step, TileGroup):
                unfit = _reject_slice(step, slices)
                if unfit is not None:
                    return unfit
    return None


def _reject_slice(step: TileGroup, computed: set[tuple[object, ...]]) -> Rejection | None:
    """Tiles of one region add up in the program that computes them: slices have the same regions."""
    regions = {(region.owner, region.rows, region.cols) for region in step.regions}
    if step.accumulate and not regions <= computed:
        return _rejection(f"{step.name} adds to tiles that no group before it has computed alike", _ELSE)
    computed |= regions
    return None


def _reject_order(scenario: OpCase, schedule: OpPlan) -> Rejection | None:
    """The groups of all streams go into one kernel, in the order in which they are issued."""
    one_kernel = replace(schedule.tactics, kernel=Kernels.PERSISTENT, wait=Wait.EVENT)
    merged = replace(
        schedule,
        steps=_in_one_stream(schedule.steps),
        by_rank=tuple(map(_in_one_stream, schedule.by_rank)),
        overrides=tuple(replace(each, step=_in_one_stream((each.step,))[0]) for each in schedule.overrides),
        tactics=one_kernel,
    )
    for fault in deadlock_faults(scenario, merged):
        return _rejection(f"the kernels cannot be one kernel: {fault.message}", "streams=1, or --format json")
    return None


def _in_one_stream(steps: Iterable[Step]) -> tuple[Step, ...]:
    return tuple(replace(step, stream=0) if isinstance(step, TileGroup) else step for step in steps)


def reject_slices(scenario: OpCase, schedule: OpPlan) -> Rejection | None:
    """Why a kernel that computes each tile at once cannot carry out ``schedule``, None if it can."""
    for rank in range(schedule.period(scenario.num_ranks)):
        for step in schedule.steps_of(rank):
            if isinstance(step, TileGroup) and step.accumulate:
                hint = "a schedule that cuts rows, such as hetero_fused_1d; or leave --kernel out"
                return _rejection(f"{step.name} adds a slice of the inner dimension, the kernel takes all of it", hint)
    return None


def not_expressed(message: str) -> Rejection:
    """A rejection of what copies and sums cannot say."""
    return _rejection(message, _ELSE)


def _rejection(message: str, hint: str) -> Rejection:
    return Rejection(Code.MGS541, message, hint)
