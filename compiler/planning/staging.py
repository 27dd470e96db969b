"""Memory that a schedule needs beyond inputs and output, and what its template takes as the workload.

Transfers may use a buffer for what is gathered one after the other. It is free again when everything that reads it is
done. Only a get knows: it is issued by the rank that reads, after those steps. A put is issued by another rank and
waits for nothing here, so it has a buffer of its own.
"""

from collections import Counter
from dataclasses import dataclass, replace
from graphlib import CycleError

from ..codes import Code
from ..ir import (
    Adds,
    Direction,
    EngineKind,
    EngineMode,
    OpCase,
    OpChoice,
    OpShape,
    Pattern,
    Rect,
    Reduction,
    Rejection,
    Step,
    System,
    TileGroup,
    Transfer,
    before_each,
    cutting_of,
    inner_size,
    moved_rows,
    tile_cols,
)
from ..templates import BY_NAME, Cut, Template
from ..templates.base import TemplateInput


@dataclass(slots=True)
class _Buffer:
    """Memory of ``elements``, last used by ``holder``, whose ``readers`` must be done before the next may have it."""

    elements: int
    holder: Transfer
    readers: frozenset[str]


def elements_reused(steps: tuple[Step, ...], num_ranks: int, *, exchanges: bool) -> int:
    """Elements of what the gets of a rank bring that need no memory of their own, because a buffer is free by then.

    Each get takes a buffer that is surely free and large enough, that of the same peer before others, or else a new
    one: so no plan can overwrite what is still to be read, whatever it waits for. Where peers get what this rank got,
    no buffer is free. Of an all_to_all (``exchanges``) kernels know what a get brings from rank r + k as rows of r + k.
    """
    gets = [step for step in steps if isinstance(step, Transfer) and step.direction is Direction.GET]
    if any(step.peer_after for step in gets) or not any(step.after for step in gets):
        return 0
    try:
        before = before_each(steps)
    except CycleError:  # such a plan is refused, and never runs
        return 0
    buffers: list[_Buffer] = []
    for step in gets:
        owner = (step.peer if exchanges else step.region.owner) % num_ranks
        _place(buffers, step, before[step.name], _readers(steps, step, owner, num_ranks))
    return sum(map(_elements, gets)) - sum(buffer.elements for buffer in buffers)


def _elements(step: Transfer) -> int:
    return step.region.elements


def _place(buffers: list[_Buffer], step: Transfer, before: frozenset[str], readers: frozenset[str]) -> None:
    elements = _elements(step)
    free = [each for each in buffers if each.elements >= elements and each.readers and each.readers <= before]
    if not free:
        buffers.append(_Buffer(elements, step, readers))
        return
    chosen = min(free, key=lambda each: (each.holder.peer != step.peer, each.elements))
    chosen.holder, chosen.readers = step, readers


def _readers(steps: tuple[Step, ...], step: Transfer, owner: int, num_ranks: int) -> frozenset[str]:
    """Kernels and puts of this rank that read any of what ``step`` gets from the shard of r + ``owner``."""
    here = Rect.of(step.region)
    return frozenset(
        each.name
        for each in steps
        if any((block - owner) % num_ranks == 0 and here.clip(rect) is not None for block, rect in _read_by(each))
    )


def _read_by(step: Step) -> list[tuple[int, Rect]]:
    """(owner, rectangle) of the moved tensor that a step reads from what is gathered."""
    if isinstance(step, TileGroup):
        rows = ((tiles.owner, tiles.rows) for tiles in step.regions)
        return [(owner, Rect(span.start, span.stop, step.k.start, step.k.stop)) for owner, span in rows]
    puts = isinstance(step, Transfer) and step.direction is Direction.PUT
    return (
        [(owner, Rect.of(step.region)) for owner in step.region.owners] if isinstance(step, Transfer) and puts else []
    )


def staging_bytes(scenario: OpCase, *, slices_inner: bool) -> int:
    """Memory of a rank beyond its input and output: gathered rows, what is sent, or partial sums sent and received.

    Where what an output sums over is cut (``slices_inner``) it is kept in fp32 meanwhile.
    """
    shape, n = scenario.shape, scenario.num_ranks
    if shape.moved is None:
        return 0
    remote = _remote_bytes(shape, n)
    match shape.pattern:
        case Pattern.GEMM_RS | Pattern.GEMM_AR:
            return shape.moved.num_bytes + remote
        case Pattern.AG_GEMM | Pattern.A2A_GEMM:
            return remote + (_accumulator_bytes(shape) if slices_inner else 0)
        case Pattern.GEMM_A2A:
            return remote + _own_bytes(shape, n)
        case Pattern.GEMM_A2A_GEMM:
            sums = _accumulator_bytes(shape.stage(1)) if slices_inner else 0
            return 2 * remote + _own_bytes(shape, n) + sums
        case Pattern.REDUCE_SCATTER | Pattern.ALL_REDUCE:
            return remote
        case _:
            return 0  # what a lone collective moves without a sum is its output


def _accumulator_bytes(shape: OpShape) -> int:
    assert shape.compute is not None, "this workload has a kernel after a collective"
    return shape.compute.accumulator_bytes


def _remote_bytes(shape: OpShape, num_ranks: int) -> int:
    """Bytes of the moved tensor that a rank gets: all but its own block, or the uneven blocks of an all_to_all."""
    moved = shape.moved_tensor
    rows = sum(moved_rows(shape, num_ranks, 0, holder) for holder in range(1, num_ranks))
    return moved.dtype.bytes_of(rows * moved.cols)


def _own_bytes(shape: OpShape, num_ranks: int) -> int:
    """The own block of what an all_to_all takes."""
    return shape.moved_tensor.dtype.bytes_of(moved_rows(shape, num_ranks) * shape.moved_tensor.cols)


def staging_of_steps(scenario: OpCase, ranks: tuple[tuple[Step, ...], ...], *, slices_inner: bool) -> int:
    """The same for steps of every different rank.

    Algorithms differ in how many parts they put down to be summed, and a get may arrive where an earlier one has been
    read.
    """
    shape, pattern = scenario.shape, scenario.shape.pattern
    needed = staging_bytes(scenario, slices_inner=slices_inner)
    if shape.moved is not None and pattern in (Pattern.AG_GEMM, Pattern.A2A_GEMM):
        reused = min(elements_reused(steps, scenario.num_ranks, exchanges=pattern.exchanges) for steps in ranks)
        return needed - shape.moved.dtype.bytes_of(reused)
    if shape.moved is not None and pattern is Pattern.ALL_TO_ALL:
        return needed + shape.moved.dtype.bytes_of(_elements_passed(ranks))
    if shape.moved is None or not shape.pattern.sums:
        return needed
    usual = shape.moved.rows * shape.moved.cols * (scenario.num_ranks - 1) // scenario.num_ranks
    sums = ([step for step in steps if isinstance(step, Reduction)] for steps in ranks)
    parts = max(sum((s.num_parts - 1) * s.region.elements for s in each) for each in sums)
    return needed + shape.moved.dtype.bytes_of(parts - usual)


def _elements_passed(ranks: tuple[tuple[Step, ...], ...]) -> int:
    """Elements that come to the busiest rank to be passed on, of steps of every different rank."""
    passed = Counter[int]()
    for rank, steps in enumerate(ranks):
        for step in steps:
            if isinstance(step, Transfer) and step.passes:
                passed[(rank + step.peer) % len(ranks)] += _elements(step)
    return max(passed.values(), default=0)


def slices_inner(scenario: OpCase, template: Template) -> bool:
    """Whether the template cuts what one output sums over: the inner dimension of a GEMM, or keys."""
    match cutting_of(scenario.shape.last_stage).adds:
        case Adds.COLUMNS:
            return template.cut is Cut.COLUMNS
        case Adds.ROWS:
            return template.overlaps and template.cut is not Cut.COLUMNS
        case Adds.BLOCKS:
            return template.overlaps and not template.rows_from_all_ranks
        case Adds.NONE:
            return False


def reject_reach(system: System, *, sums: bool) -> Rejection | None:
    """Why the fabric cannot copy to all ranks, or sum what all ranks hold; None if it can."""
    switch, word = system.fabric.one_switch, "reduces" if sums else "multicast"
    what = "sums what all ranks hold" if sums else "copies to all ranks at once"
    if switch is None:
        return Rejection(Code.MGS409, f"no switch of {system.name} {what}", "this needs fabric switch(...)")
    if not (switch.reduces if sums else switch.multicast):
        return Rejection(
            Code.MGS409, f"switch {switch.name} is not one that {what}", f"its profile says so: {word} yes"
        )
    return None


def template_input(scenario: OpCase, choice: OpChoice) -> TemplateInput:
    """The workload of ``scenario`` as the template of ``choice`` sees it; of two kernels the second is in ``then``."""
    if scenario.shape.then is not None:
        first, then = (template_input(stage, choice) for stage in scenario.stages)
        return replace(first, then=then)
    shape, n = scenario.shape, scenario.num_ranks
    moved, gemm, alone = shape.moved, shape.gemm, shape.pattern is Pattern.KERNEL
    rows = moved.rows if moved is not None else gemm.m if gemm is not None else 0
    return TemplateInput(
        pattern=shape.pattern,
        num_ranks=1 if shape.pattern in (Pattern.GEMM, Pattern.KERNEL) else n,
        shard_rows=rows // (n if moved is not None else 1),
        cols=moved.cols if moved is not None else 0,
        inner=0 if alone else inner_size(shape),
        output_cols=0 if alone else tile_cols(shape),
        pieces=pieces_of(choice.chunks, n, BY_NAME[choice.template]),
        streams=choice.streams,
        output_rows=gemm.m if gemm is not None else 0,
        algorithm=choice.algorithm,
        tactics=choice.tactics,
        # What goes by ports cannot be added as it lands.
        engine=EngineKind.DMA if choice.engine.mode is EngineMode.PORTS else choice.engine.kind,
        by_tiles=choice.engine.by_tiles,
        split=shape.split,
        loads=shape.loads if moved is not None else (),
        rank=shape.rank,
        node=scenario.system.fabric.node_size,
        grid=sides_of(scenario),
        network=scenario.network if choice.trees else None,
        multicast=reject_reach(scenario.system, sums=False) is None,
        reduces=reject_reach(scenario.system, sums=True) is None,
        cutting=cutting_of(shape),
        parts=choice.parts,
        slices=choice.slices,
        columns=choice.columns,
        lanes=choice.lanes,
        order=choice.order,
        depth=choice.depth,
        waves=choice.waves,
        sums=choice.sums,
        trees=choice.trees,
    )


def sides_of(scenario: OpCase) -> tuple[int, ...]:
    """The sides of a torus that are longer than 1, none of another network."""
    return tuple(side for side in scenario.system.fabric.topology.grid(scenario.system.fabric) if side > 1)


def pieces_of(chunks: int, num_ranks: int, template: Template) -> int:
    """Chunks per shard; ``chunks`` counts pieces of the whole tensor."""
    return 1 if template.cut is Cut.SHARD else chunks // num_ranks
