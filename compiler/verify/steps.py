"""Steps that do not fit the workload or the machine: regions outside the tensor, operations engines cannot do."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from ..codes import Code
from ..ir import (
    Adds,
    Arrival,
    Direction,
    EngineKind,
    IndexRange,
    OpShape,
    Pattern,
    PlanFault,
    RankPlan,
    Reach,
    Rect,
    Reduction,
    Region,
    Step,
    TileGroup,
    Transfer,
    before_each,
    cutting_of,
    first_gap,
    inner_size,
    moved_rows,
    num_tile_blocks,
    regions_of,
    tile_cols,
    tile_rows,
    uncovered,
)
from ..planning.staging import reject_reach


def shape_faults(plan: RankPlan) -> Iterator[PlanFault]:
    """Return the faults of single steps of one rank."""
    for step in plan.steps.values():
        if isinstance(step, TileGroup):
            yield from _tile_faults(plan, step)
        yield from _region_faults(plan, step)
        yield from _owners_faults(plan, step)
        if isinstance(step, Transfer):
            yield from _engine_faults(plan, step)
            yield from _peer_faults(plan, step)
        yield from _sum_faults(plan, step)


def _tile_faults(plan: RankPlan, step: TileGroup) -> Iterator[PlanFault]:
    workload = plan.scenario.shape.stage(step.kernel)
    for each in step.slices:
        if not 0 <= each.start < each.stop <= inner_size(workload):
            yield PlanFault(Code.MGS509, step.name, f"{step.name} computes k {each}, outside this workload")
    if step.more_k and workload.pattern is not Pattern.GEMM:
        message = f"{step.name} has several slices of k, and a kernel with a collective has one"
        yield PlanFault(Code.MGS509, step.name, message)
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


def _head_faults(shape: OpShape, step: TileGroup, n: int) -> Iterator[PlanFault]:
    """Check that kernels of attention take whole heads, and all rows where a query needs the keys of all rows."""
    cutting = cutting_of(shape)
    if cutting.head == 1:
        return
    cols = IndexRange(0, tile_cols(shape))
    cut = step.k if shape.pattern.consumes else step.regions[0].cols
    if cut.start % cutting.head or cut.stop % cutting.head:
        message = f"{step.name} cuts a head of keys, which is {cutting.head} columns"
        yield PlanFault(Code.MGS509, step.name, message)
    if shape.pattern.consumes and any(region.cols != cols for region in step.regions):
        message = f"{step.name} says its heads by k and names all {cols.size} columns of the output"
        yield PlanFault(Code.MGS509, step.name, message)
    rows, needed = sum(region.rows.size for region in step.regions), sum(tile_rows(shape, n, j) for j in range(n))
    if not cutting.by_rows and rows != needed:
        message = f"{step.name} has {rows} of {needed} rows, and a query needs the keys of all of them"
        yield PlanFault(Code.MGS509, step.name, message)


def _region_faults(plan: RankPlan, step: Step) -> Iterator[PlanFault]:
    if isinstance(step, TileGroup) and not plan.scenario.shape.num_kernels:
        return
    for region in regions_of(step):
        rows, cols = _block_of(plan, step, region)
        inside = 0 <= region.rows.start < region.rows.stop <= rows
        if not inside or not 0 <= region.cols.start < region.cols.stop <= cols:
            where = f"[{region.rows}, {region.cols}]"
            yield PlanFault(Code.MGS509, step.name, f"{step.name} names {where}, outside a shard of {rows} x {cols}")


def _owners_faults(plan: RankPlan, step: Step) -> Iterator[PlanFault]:
    """Check that steps which name rows of several ranks are puts and sums of a collective alone."""
    if isinstance(step, TileGroup) or not step.region.also:
        return
    shape, n = plan.scenario.shape, plan.scenario.num_ranks
    if len({owner % n for owner in step.region.owners}) <= len(step.region.also):
        yield PlanFault(Code.MGS509, step.name, f"{step.name} names the rows of a rank twice")
    single = ""
    if shape.pattern.exchanges or not shape.is_collective:
        single = f"a {'copy' if isinstance(step, Transfer) else 'sum'} of {shape.label}"
    elif isinstance(step, Transfer) and step.direction is Direction.GET:
        single = "a get"
    elif isinstance(step, Transfer) and step.reach is Reach.ALL:
        single = "a put to all"
    if single:
        message = f"{step.name} names rows of several ranks, and {single} has those of one"
        yield PlanFault(Code.MGS509, step.name, message)


def _block_of(plan: RankPlan, step: Step, region: Region) -> tuple[int, int]:
    """Return rows and columns of the block that ``region`` lies in."""
    shape, n = plan.scenario.shape, plan.scenario.num_ranks
    cols = shape.moved.cols if shape.moved is not None else 0
    if isinstance(step, TileGroup):
        stage = shape.stage(step.kernel)
        return tile_rows(stage, n, region.owner), tile_cols(stage)
    gets = isinstance(step, Transfer) and step.direction is Direction.GET
    source = (step.peer if gets else step.origin) if isinstance(step, Transfer) else 0
    return moved_rows(shape, n, region.owner, source), cols


def _engine_faults(plan: RankPlan, step: Transfer) -> Iterator[PlanFault]:
    engine = plan.schedule.engine
    if step.reduce and plan.scenario.mover(engine, step, plan.rank) is EngineKind.DMA:
        who = "a DMA engine" if engine.kind is EngineKind.DMA else "a network card"
        yield PlanFault(Code.MGS403, step.name, f"{step.name}: {who} cannot reduce")
    if step.lane is not None and not 0 <= step.lane < engine.count:
        yield PlanFault(Code.MGS401, step.name, f"{step.name} asks for engine {step.lane} of {engine.count}")


def _peer_faults(plan: RankPlan, step: Transfer) -> Iterator[PlanFault]:
    n, gets = plan.scenario.num_ranks, step.direction is Direction.GET
    if step.origin and (plan.scenario.shape.pattern is not Pattern.ALL_TO_ALL or gets or step.reach is Reach.ALL):
        message = f"{step.name} says whose block it passes on, as puts to one rank in an all_to_all alone do"
        yield PlanFault(Code.MGS509, step.name, message)
    if step.peer_after and (not gets or step.reach is Reach.ALL):
        message = f"{step.name} waits for its peer, and a get from one rank alone does"
        yield PlanFault(Code.MGS509, step.name, message)
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
    pattern, engine = plan.scenario.shape.pattern, plan.schedule.engine
    adds = isinstance(step, Transfer) and step.reduce
    by_switch = isinstance(step, Transfer) and step.reach is Reach.ALL
    if adds and engine.kind is EngineKind.SM and pattern is Pattern.GEMM_RS and not by_switch and not engine.by_tiles:
        message = f"{step.name} adds into a block that its owner's kernel still writes, in no order"
        yield PlanFault(Code.MGS509, step.name, message)
    if (adds or isinstance(step, Reduction)) and not pattern.sums:
        message = f"{step.name} sums, and {plan.scenario.shape.label} has nothing to sum"
        yield PlanFault(Code.MGS509, step.name, message)


_MAX_NAMES = 4


def bring_hint(plan: RankPlan, step: Step, missing: Rect, source: int, arrivals: Iterable[Arrival]) -> str:
    """Name the signals of ``arrivals`` that bring ``missing`` from the rank ``source`` places further."""
    rects_by_name: dict[str, list[Rect]] = {}
    own_transfers = {name for name, behind in plan.before.items() if step.name in behind}
    for arrival in arrivals:
        part = Rect.of(arrival.region).clip(missing)
        # All ranks have the same plan: a transfer that a rank sends after the step cannot be waited for.
        late = plan.schedule.symmetric and arrival.transfer.name in own_transfers
        if part is not None and not late:
            rects_by_name.setdefault(arrival.transfer.signal, []).append(part)
    sender = (plan.rank + source) % plan.scenario.num_ranks
    return _wait_for(rects_by_name, "brings", f" of rank {sender}")


def compute_hint(plan: RankPlan, step: Step, missing: Rect, owner: int, groups: Iterable[TileGroup]) -> str:
    """Name those of ``groups`` that compute ``missing`` of block ``owner``."""
    n, before = plan.scenario.num_ranks, plan.before
    rects_by_name: dict[str, list[Rect]] = {}
    for group in groups:
        for region in group.regions:
            part = Rect.of(region).clip(missing) if (region.owner - owner) % n == 0 else None
            if part is not None and step.name not in before[group.name]:
                rects_by_name.setdefault(group.name, []).append(part)
    return _wait_for(rects_by_name, "computes", f" of block +{owner % n}")


def _wait_for(rects_by_name: dict[str, list[Rect]], verb: str, where: str) -> str:
    if not rects_by_name:
        return ""
    names = list(rects_by_name)[:_MAX_NAMES]
    parts = list(dict.fromkeys(str(part) for name in names for part in rects_by_name[name]))
    if len(rects_by_name) > _MAX_NAMES:
        return f"add: after {', '.join(names)}, ... ({len(rects_by_name)} in all)"
    verb = verb if len(names) == 1 else verb[:-1]
    return f"add: after {', '.join(names)}, which {verb} {' and '.join(parts[:_MAX_NAMES])}{where}"


def output_faults(plan: RankPlan) -> Iterator[PlanFault]:
    """Check that every (row, column, k) of the output of each kernel is computed exactly once."""
    for kernel in range(plan.scenario.shape.num_kernels):
        yield from _kernel_faults(plan, kernel)


def _kernel_faults(plan: RankPlan, kernel: int) -> Iterator[PlanFault]:
    workload, n, groups = plan.scenario.shape.stage(kernel), plan.scenario.num_ranks, _groups(plan, kernel)
    slices = _inner_slices(workload, groups)
    for owner in range(num_tile_blocks(workload, n)):
        whole = Rect(0, tile_rows(workload, n, owner), 0, tile_cols(workload))
        for low, high, parts in slices:
            rects = [Rect.of(region) for group in parts for region in group.regions if region.owner % n == owner]
            missing, twice = uncovered(whole, rects) if whole.area else (None, None)
            for rect, fault in ((missing, "never computed"), (twice, "computed twice")):
                if rect is not None:
                    of = f"{_tensor(plan, workload)}block {(plan.rank + owner) % n}"
                    yield PlanFault(Code.MGS507, "", f"{rect} of {of}, k {low}:{high}, are {fault}")
    if len(slices) > 1 or cutting_of(workload).adds_ranks or any(group.accumulate for group in groups):
        yield from _slice_faults(plan, workload, groups)


def _inner_slices(shape: OpShape, groups: list[TileGroup]) -> list[tuple[int, int, list[TileGroup]]]:
    """Cut the inner dimension where a group begins or ends; return (start, stop, groups that cover it) of each."""
    cuts = sorted({0, inner_size(shape)}.union(*(group.inner_cuts for group in groups)))
    slices = [(group, each) for group in groups for each in group.slices]
    return [
        (low, high, [group for group, each in slices if each.start <= low and high <= each.stop])
        for low, high in pairwise(cuts)
    ]


def _groups(plan: RankPlan, kernel: int) -> list[TileGroup]:
    return [step for step in plan.steps.values() if isinstance(step, TileGroup) and step.kernel == kernel]


def _tensor(plan: RankPlan, stage: OpShape) -> str:
    """Name the output for messages, where a workload has two."""
    return f"{stage.output}, " if plan.scenario.shape.then is not None else ""


def computed_faults(plan: RankPlan, step: Step, region: Region) -> Iterator[PlanFault]:
    """Check that groups before ``step`` compute all of ``region`` (and all of k) of the first kernel's output."""
    workload, n, wanted = plan.scenario.shape.stage(0), plan.scenario.num_ranks, Rect.of(region)
    before = plan.before[step.name]
    groups = [group for group in _groups(plan, 0) if group.name in before]
    for low, high, parts in _inner_slices(workload, groups):
        rects = [Rect.of(r) for group in parts for r in group.regions if r.owner % n == region.owner % n]
        missing = first_gap(wanted, rects)
        if missing is not None:
            of = f"{_tensor(plan, workload)}block +{region.owner}"
            message = f"{step.name} takes {missing} of {of} before they are computed"
            later = [g for g in _groups(plan, 0) if g.name not in before and g.k.start < high and low < g.k.stop]
            yield PlanFault(Code.MGS508, step.name, message, compute_hint(plan, step, missing, region.owner, later))
            return


def _slice_faults(plan: RankPlan, shape: OpShape, groups: list[TileGroup]) -> Iterator[PlanFault]:
    """Check that parts of the same output run one after the other; the first stores and the others add."""
    # One SM computes a tile of a persistent kernel, slice after slice.
    before, n = before_each(plan.steps.values()), plan.scenario.num_ranks
    for group in groups:
        others = [other for other in groups if other is not group and _same_output(shape, group, other, n)]
        earlier = [other for other in others if other.name in before[group.name]]
        for other in others:
            if other not in earlier and group.name not in before[other.name]:
                message = f"{group.name} and {other.name} write the same tiles, and neither waits for the other"
                yield PlanFault(Code.MGS508, group.name, message, f"add to {group.name}: after {other.name}")
        if group.accumulate and not earlier:
            yield PlanFault(Code.MGS507, group.name, f"{group.name} adds to tiles that nothing wrote before")
        if earlier and not group.accumulate:
            message = f"{group.name} overwrites what {earlier[0].name} wrote; accumulate adds to it"
            yield PlanFault(Code.MGS507, group.name, message)


def _same_output(shape: OpShape, one: TileGroup, other: TileGroup, num_ranks: int) -> bool:
    """Whether two groups add to the same output: slices of k of the same tiles, or rows of the same heads of keys.

    Blocks side by side are slices of k too: groups at the same rows add to the same output.
    """
    cutting = cutting_of(shape)
    if cutting.adds is Adds.ROWS:
        return one.k.meets(other.k)
    blocks = cutting.adds is Adds.BLOCKS
    if cutting.head > 1 or (one.slices == other.slices and not blocks):
        return False  # each head has an output of its own
    return any(
        (blocks or a.owner % num_ranks == b.owner % num_ranks) and Rect.of(a).clip(Rect.of(b)) is not None
        for a in one.regions
        for b in other.regions
    )
