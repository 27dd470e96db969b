"""Steps that do not fit the workload or the machine: regions outside the tensor, operations engines cannot do."""

from collections.abc import Iterator

from ..codes import Code
from ..ir import (
    Adds,
    Direction,
    EngineKind,
    IndexRange,
    Pattern,
    PlanFault,
    RankPlan,
    Reach,
    Reduction,
    Region,
    Step,
    TileGroup,
    Transfer,
    Workload,
    cutting_of,
    inner_size,
    moved_rows,
    num_tile_blocks,
    tile_cols,
    tile_rows,
)
from ..planning.template_input import reject_reach
from .accesses import regions_of


def shape_faults(plan: RankPlan) -> Iterator[PlanFault]:
    """Return the faults of single steps of one rank."""
    for step in plan.steps.values():
        if isinstance(step, TileGroup):
            yield from _tile_faults(plan, step)
        yield from _region_faults(plan, step)
        if isinstance(step, Transfer):
            yield from _engine_faults(plan, step)
            yield from _peer_faults(plan, step)
        yield from _sum_faults(plan, step)


def _tile_faults(plan: RankPlan, step: TileGroup) -> Iterator[PlanFault]:
    workload = plan.scenario.workload.stage(step.kernel)
    if not 0 <= step.k.start < step.k.stop <= inner_size(workload):
        yield PlanFault(Code.MGS509, step.name, f"{step.name} computes k {step.k}, outside this workload")
    if len({region.cols for region in step.regions}) > 1:
        message = f"{step.name} is one kernel: all its regions have the same columns"
        yield PlanFault(Code.MGS509, step.name, message)
    blocks = num_tile_blocks(workload, plan.scenario.num_ranks)
    if blocks == 1 and any(region.owner for region in step.regions):
        message = f"{step.name} names a block of another rank, and nothing is sharded here"
        yield PlanFault(Code.MGS509, step.name, message)
    if cutting_of(workload).adds is Adds.BLOCKS and len({region.rows for region in step.regions}) > 1:
        message = f"{step.name} joins columns of several blocks: all its regions have the same rows"
        yield PlanFault(Code.MGS509, step.name, message)
    yield from _head_faults(workload, step, plan.scenario.num_ranks)


def _head_faults(workload: Workload, step: TileGroup, n: int) -> Iterator[PlanFault]:
    """Check that kernels of attention take whole heads, and all rows where a query needs the keys of all rows."""
    cutting = cutting_of(workload)
    if cutting.head == 1:
        return
    cols = IndexRange(0, tile_cols(workload))
    cut = step.k if workload.pattern.consumes else step.regions[0].cols
    if cut.start % cutting.head or cut.stop % cutting.head:
        message = f"{step.name} cuts a head of keys, which is {cutting.head} columns"
        yield PlanFault(Code.MGS509, step.name, message)
    if workload.pattern.consumes and any(region.cols != cols for region in step.regions):
        message = f"{step.name} says its heads by k and names all {cols.size} columns of the output"
        yield PlanFault(Code.MGS509, step.name, message)
    rows, needed = sum(region.rows.size for region in step.regions), sum(tile_rows(workload, n, j) for j in range(n))
    if not cutting.by_rows and rows != needed:
        message = f"{step.name} has {rows} of {needed} rows, and a query needs the keys of all of them"
        yield PlanFault(Code.MGS509, step.name, message)


def _region_faults(plan: RankPlan, step: Step) -> Iterator[PlanFault]:
    if isinstance(step, TileGroup) and not plan.scenario.workload.num_kernels:
        return
    for region in regions_of(step):
        rows, cols = _block_of(plan, step, region)
        inside = 0 <= region.rows.start < region.rows.stop <= rows
        if not inside or not 0 <= region.cols.start < region.cols.stop <= cols:
            where = f"[{region.rows}, {region.cols}]"
            message = f"{step.name} names {where}, outside a shard of {rows} x {cols}"
            yield PlanFault(Code.MGS509, step.name, message)


def _block_of(plan: RankPlan, step: Step, region: Region) -> tuple[int, int]:
    """Return rows and columns of the block that ``region`` lies in."""
    workload, n = plan.scenario.workload, plan.scenario.num_ranks
    cols = workload.moved.cols if workload.moved is not None else 0
    if isinstance(step, TileGroup):
        stage = workload.stage(step.kernel)
        return tile_rows(stage, n, region.owner), tile_cols(stage)
    source = step.peer if isinstance(step, Transfer) and step.direction is Direction.GET else 0
    return moved_rows(workload, n, region.owner, source), cols


def _engine_faults(plan: RankPlan, step: Transfer) -> Iterator[PlanFault]:
    engine = plan.schedule.engine
    if step.reduce and engine.kind is EngineKind.DMA:
        yield PlanFault(Code.MGS403, step.name, f"{step.name}: a DMA engine cannot reduce")
    if step.lane is not None and not 0 <= step.lane < engine.count:
        yield PlanFault(Code.MGS401, step.name, f"{step.name} asks for engine {step.lane} of {engine.count}")


def _peer_faults(plan: RankPlan, step: Transfer) -> Iterator[PlanFault]:
    n, gets = plan.scenario.num_ranks, step.direction is Direction.GET
    if step.reach is Reach.PEER:
        if not 1 <= step.peer < n:
            yield PlanFault(Code.MGS509, step.name, f"{step.name} names peer {step.peer} of {n} ranks")
        return
    unfit = reject_reach(plan.scenario.system, sums=gets)
    if unfit is not None:
        yield PlanFault(unfit.code, step.name, f"{step.name}: {unfit.message}")
    if gets is not step.reduce:
        action = "gets from all without a sum" if gets else "puts a sum to all"
        yield PlanFault(Code.MGS509, step.name, f"{step.name} {action}; a switch copies one or sums all")


def _sum_faults(plan: RankPlan, step: Step) -> Iterator[PlanFault]:
    pattern, engine = plan.scenario.workload.pattern, plan.schedule.engine
    adds = isinstance(step, Transfer) and step.reduce
    apart = isinstance(step, Transfer) and step.reach is Reach.ALL
    if adds and engine.kind is EngineKind.SM and pattern is Pattern.GEMM_RS and not apart and not engine.by_tiles:
        message = f"{step.name} adds into a block that its owner's kernel still writes, in no order"
        yield PlanFault(Code.MGS509, step.name, message)
    if (adds or isinstance(step, Reduction)) and not pattern.sums:
        message = f"{step.name} sums, and {plan.scenario.workload.label} has nothing to sum"
        yield PlanFault(Code.MGS509, step.name, message)
