"""Hand-offs: an op starts on rows as soon as another op has made them.

Hand-offs by chunks are steps of an op that make the rows that a step of another takes: rows of a block of the tensor
between the two, of a rank counted from the own one. Both sides must be cut by rows: what comes of a reduce_scatter or
of a kernel behind an all_gather, and what an all_gather or a kernel before a sum takes.

A lone GEMM behind a kernel and its all_to_all may be cut along it. Each kernel of the pair makes rows for some ranks.
As all ranks do alike, rows of the same others arrive here: from them the GEMM has a kernel too. Chains of two kernels
with an all_to_all between them are cut so (Syncopate, arXiv 2601.20595).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..codes import Code
from ..ir import (
    Direction,
    IndexRange,
    Kernels,
    Op,
    OpCase,
    OpPlan,
    OpShape,
    Part,
    Pattern,
    Rect,
    Reduction,
    Region,
    Rejection,
    Scenario,
    StepWait,
    Then,
    TileGroup,
    Transfer,
    Workload,
    regions_of,
)

_TAKE_ROWS = (Pattern.GEMM_RS, Pattern.GEMM_AR)

Places = tuple[tuple[int, Rect], ...]
"""Rectangles of what is between two ops, each in the block of a rank: all columns, where only rows count."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """Blocks of ``rows`` x ``cols`` that an all_to_all brings, as the input of a GEMM: that of the own rank first.

    They lie one below the other, or ``side_by_side``: then each is a slice of the inner dimension.
    """

    num_ranks: int
    rows: int
    cols: int
    side_by_side: bool

    @classmethod
    def of(cls, pair: OpShape, taker: OpShape, num_ranks: int) -> "Delivered | None":
        """What ``pair`` brings for ``taker``; None if that is no kernel with an all_to_all of equal blocks and a GEMM.

        >>> from ..ir import DType, GemmShape, Shard, Tensor
        >>> first = GemmShape(8, 4, 6, DType.BF16)
        >>> moved = Tensor("h", DType.BF16, 8, 4, Shard.NONE)
        >>> pair = OpShape("h", "", Pattern.GEMM_A2A, (), moved, first, "h")
        >>> then = OpShape("y", "", Pattern.GEMM, (), None, GemmShape(8, 2, 4, DType.BF16), "y")
        >>> Delivered.of(pair, then, 2)
        Delivered(num_ranks=2, rows=4, cols=4, side_by_side=False)
        """
        gemm = taker.gemm
        if pair.pattern is not Pattern.GEMM_A2A or taker.pattern is not Pattern.GEMM or pair.uneven:
            return None
        assert gemm is not None, "the pattern says so"
        rows, cols = pair.moved_tensor.rows // num_ranks, pair.moved_tensor.cols
        if (gemm.m, gemm.k) == (num_ranks * rows, cols):
            return cls(num_ranks, rows, cols, side_by_side=False)
        return cls(num_ranks, rows, cols, side_by_side=True) if (gemm.m, gemm.k) == (rows, num_ranks * cols) else None

    def place(self, region: Region) -> Rect:
        """Rows and inner indices of the input at which the like of ``region``, of a block that is sent, arrives here.

        >>> Delivered(4, 100, 10, side_by_side=True).place(Region(1, IndexRange(20, 40), IndexRange(0, 10)))
        Rect(top=20, bottom=40, left=30, right=40)
        """
        block, rect = -region.owner % self.num_ranks, Rect.of(region)
        down, right = (0, block * self.cols) if self.side_by_side else (block * self.rows, 0)
        return Rect(rect.top + down, rect.bottom + down, rect.left + right, rect.right + right)

    def landing(self, schedule: OpPlan) -> Iterator[tuple[str, Rect]]:
        """What brings the input at a rank: kernels for its own block, and signals of what others send."""
        for step in schedule.steps:
            if isinstance(step, Transfer):
                yield step.signal, self.place(step.region)
            elif isinstance(step, TileGroup):
                yield from ((step.name, self.place(region)) for region in step.regions if region.owner == 0)

    def cut_as(self, schedule: OpPlan, num_cols: int) -> tuple[TileGroup, ...]:
        """The kernels of a GEMM with so many columns of output, one for each of ``schedule``.

        What needs no transfer comes first. There are none where a kernel of ``schedule`` makes slices of other rows
        for some ranks than for others.
        """
        groups = _last_slices([step for step in schedule.steps if isinstance(step, TileGroup)])
        own_first = sorted(groups, key=lambda group: any(region.owner for region in group.regions))
        found: list[TileGroup] = []
        for group in own_first:
            rects = [self.place(region) for region in group.regions]
            slices = _slices(rects)
            if not slices:
                return ()
            rows = dict.fromkeys(IndexRange(rect.top, rect.bottom) for rect in rects)
            regions = tuple(Region(0, each, IndexRange(0, num_cols)) for each in rows)
            before = tuple(each.name for each in found if _overlap(each.regions, regions))
            first, *more = slices
            adds = bool(before)
            found.append(TileGroup(group.name, regions, first, before, group.stream, adds, more_k=tuple(more)))
        return tuple(found)


def delivered_for(workload: Workload, op: Op, num_ranks: int) -> tuple[str, Delivered] | None:
    """The pair that brings what ``op`` takes by rows, by its name, and how; None if it is no GEMM behind such a one."""
    pair = op.takes_rows_of
    delivered = Delivered.of(workload.op(pair).shape, op.shape, num_ranks) if pair else None
    return (pair, delivered) if delivered is not None else None


def following(workload: Workload, num_ranks: int) -> dict[str, tuple[Op, ...]]:
    """By the name of a pair the GEMMs behind it that may be cut along it."""
    found: dict[str, tuple[Op, ...]] = {}
    for op in workload.ops:
        delivered = delivered_for(workload, op, num_ranks)
        if delivered is not None:
            found[delivered[0]] = (*found.get(delivered[0], ()), op)
    return found


def as_one(pair: OpShape, behind: OpShape) -> OpShape:
    """Both kernels and the all_to_all between them as one op, which a template cuts as a whole."""
    assert behind.gemm is not None, "what is cut along a pair is a GEMM"
    return replace(
        pair,
        pattern=Pattern.GEMM_A2A_GEMM,
        tensors=tuple(dict.fromkeys((*pair.tensors, *behind.tensors))),
        made=(*pair.made, *behind.made),
        then=Then(behind.gemm, behind.output),
    )


def sole_chain(scenario: Scenario) -> tuple[OpCase, str] | None:
    """The pair and the GEMM behind it that alone have a choice, as one op, and the GEMM's name; None if more have one.

    As for ``Scenario.sole`` the other ops are kernels without tiles that need them or that they need.
    """
    workload = scenario.workload
    found = following(workload, scenario.system.num_ranks)
    if len(found) != 1:
        return None
    ((pair, behind),) = found.items()
    gemm, readers = behind[0], [op for op in workload.ops if any(read.made_by == pair for read in op.reads)]
    if len(readers) > 1 or not all(read.by_rows or not read.made_by for read in gemm.reads):
        return None
    first = workload.op(pair)
    both = replace(first, shape=as_one(first.shape, gemm.shape))
    whose = {gemm.name: pair}
    others = tuple(
        replace(op, reads=tuple(replace(read, made_by=whose.get(read.made_by, read.made_by)) for read in op.reads))
        for op in workload.ops
        if op not in (first, gemm)
    )
    sole = replace(scenario, workload=replace(workload, ops=(both, *others)), schedules=()).sole
    return None if sole is None else (sole, gemm.name)


def reject_chained(op: Op, pair: Op, maker: Part, steps: Sequence[TileGroup]) -> Rejection | None:
    """Why a GEMM ``op`` cannot be ``steps``, cut along ``pair`` which is carried out as ``maker``; None if it can."""
    schedule, hint = maker.schedule, f"{pair.name} = uniform_fused_1d(chunks=...)"
    if maker.shape != pair.shape:
        why, hint = "it is separated, and moved as a whole", f"a template that overlaps it in itself: {hint}"
    elif schedule.tactics.kernel is Kernels.PERSISTENT:
        why, hint = "its kernel is persistent, and ends as a whole", "kernel=launched"
    elif not schedule.symmetric:
        why, hint = (
            "its ranks differ, and what arrives is not what a rank makes",
            "steps that are the same on all ranks",
        )
    elif sum(isinstance(step, TileGroup) for step in schedule.steps) < 2:
        why, hint = "it is one kernel, which makes all before anything moves", f"a template that cuts its rows: {hint}"
    elif not steps:
        why, hint = "a kernel of that makes other rows for some ranks than for others", f"cut all blocks alike: {hint}"
    else:
        return None
    return Rejection(Code.MGS509, f"{op.name} cannot be cut along {pair.name}: {why}", hint)


def _last_slices(groups: Sequence[TileGroup]) -> list[TileGroup]:
    """The kernels after which nothing is added to what they make."""
    return [
        group
        for place, group in enumerate(groups)
        if not any(later.accumulate and _overlap(group.regions, later.regions) for later in groups[place + 1 :])
    ]


def _slices(rects: Sequence[Rect]) -> tuple[IndexRange, ...]:
    """The inner indices of rectangles that are the same rows of all of them, joined; none where they are not."""
    rows = {(rect.top, rect.bottom) for rect in rects}
    inner = sorted({(rect.left, rect.right) for rect in rects})
    if len(rows) * len(inner) != len(rects):
        return ()
    gaps = [place for place in range(1, len(inner)) if inner[place - 1][1] != inner[place][0]]
    return tuple(IndexRange(inner[one][0], inner[other - 1][1]) for one, other in pairwise((0, *gaps, len(inner))))


def _overlap(some: Sequence[Region], others: Sequence[Region]) -> bool:
    """Whether two kernels make parts of the same rows and columns."""
    return any(one.meets(other) for one in some for other in others)


def row_waits(maker: Part, taker: Part, num_ranks: int) -> tuple[StepWait, ...]:
    """The waits of steps of ``taker`` for what makes their rows in ``maker``; empty without a hand-off."""
    if not (_begins_by_itself(maker.schedule) and _begins_by_itself(taker.schedule)):
        return ()
    made, taken = _sides(maker, taker, num_ranks)
    if not made or not taken or not _covered(made, taken):
        return ()
    return tuple(
        StepWait(step, maker.name, other)
        for step, mine in taken.items()
        for other, theirs in made.items()
        if any(_meet(one, another) for one in mine for another in theirs)
    )


def _sides(maker: Part, taker: Part, num_ranks: int) -> tuple[dict[str, Places], dict[str, Places]]:
    """What steps and signals of ``maker`` leave, and what steps of ``taker`` take of it."""
    delivered = Delivered.of(maker.shape, taker.shape, num_ranks)
    if delivered is None or len(taker.schedule.steps) == 1:
        return dict(_made(maker)), dict(_taken(taker))
    made: dict[str, Places] = {}
    for name, rect in delivered.landing(maker.schedule):
        made[name] = (*made.get(name, ()), (0, rect))
    return made, dict(_input(taker.schedule))


def _begins_by_itself(schedule: OpPlan) -> bool:
    """Whether all ranks do alike, and each step begins by itself."""
    return schedule.symmetric and schedule.tactics.kernel is not Kernels.PERSISTENT and not schedule.engine.by_library


def _made(part: Part) -> Iterator[tuple[str, Places]]:
    """The steps of a part that leave rows of its output, with the rows of each."""
    for step in part.schedule.steps:
        if part.shape.pattern.reduces and isinstance(step, Reduction):
            yield step.name, _rows(regions_of(step))
        elif part.shape.pattern is Pattern.AG_GEMM and isinstance(step, TileGroup):
            yield step.name, _rows(step.regions)


def _taken(part: Part) -> Iterator[tuple[str, Places]]:
    """The steps of a part that take rows of its input at their rank, with the rows of each; none where ranks get them.

    Of what is gathered those of the own block are its input; what comes from others has waited at theirs.
    """
    steps, pattern = part.schedule.steps, part.shape.pattern
    if any(isinstance(step, Transfer) and step.direction is Direction.GET for step in steps):
        return
    for step in steps:
        own = tuple(region for region in regions_of(step) if region.owner == 0)
        if pattern.gathers and own:
            yield step.name, _rows(own)
        elif pattern in _TAKE_ROWS and isinstance(step, TileGroup):
            yield step.name, _rows(step.regions)


def _input(schedule: OpPlan) -> Iterator[tuple[str, Places]]:
    """What each kernel of a lone GEMM takes of its input."""
    for step in schedule.steps:
        if isinstance(step, TileGroup):
            taken = (replace(region, cols=k) for region in step.regions for k in step.slices)
            yield step.name, tuple((0, Rect.of(each)) for each in taken)


def _rows(regions: Iterable[Region]) -> Places:
    """Whole rows: columns and slices of them are all needed."""
    return tuple((each.owner, Rect(each.rows.start, each.rows.stop, 0, 1)) for each in regions)


def _covered(made: Mapping[str, Places], taken: Mapping[str, Places]) -> bool:
    """Whether steps make every row that is taken: where a switch sums, no step does.

    Of a row all slices are made, or none: a plan that leaves some out is refused by itself.
    """
    spans: dict[int, list[tuple[int, int]]] = {}
    for places in made.values():
        for owner, rect in places:
            spans.setdefault(owner, []).append((rect.top, rect.bottom))
    return all(_within(rect, sorted(spans.get(owner, ()))) for each in taken.values() for owner, rect in each)


def _within(rect: Rect, spans: list[tuple[int, int]]) -> bool:
    reached = rect.top
    for start, stop in spans:
        if start <= reached:
            reached = max(reached, stop)
    return reached >= rect.bottom


def _meet(one: tuple[int, Rect], other: tuple[int, Rect]) -> bool:
    return one[0] == other[0] and one[1].clip(other[1]) is not None
