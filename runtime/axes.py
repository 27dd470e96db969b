"""Compressed coordinates of a plan: of each interval between neighbouring cuts a few indices stand for all of them."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

from ..compiler.ir import (
    Adds,
    AttentionShape,
    IndexRange,
    OpShape,
    Region,
    Step,
    TileGroup,
    cutting_of,
    inner_size,
    moved_rows,
    num_tile_blocks,
    tile_cols,
    tile_rows,
)


@dataclass(frozen=True, slots=True)
class CutAxis:
    """``cuts`` are positions in the tensor where something begins or ends, ``starts`` the same positions in memory."""

    cuts: tuple[int, ...]
    starts: tuple[int, ...]

    @classmethod
    def of(cls, cuts: Iterable[int], detail: int | None) -> "CutAxis":
        """Keep at most ``detail`` indices of each interval, None: all of them.

        >>> axis = CutAxis.of((0, 4096, 8192), detail=2)
        >>> axis.size, axis.at(IndexRange(4096, 8192)), str(axis.around(3))
        (4, slice(2, 4, None), '4096:8192')
        """
        edges = sorted(set(cuts))
        sizes = [stop - start if detail is None else min(stop - start, detail) for start, stop in pairwise(edges)]
        return cls(tuple(edges), tuple(accumulate(sizes, initial=0)))

    @property
    def size(self) -> int:
        """Number of indices in memory."""
        return self.starts[-1]

    def at(self, span: IndexRange) -> slice:
        """Return the indices in memory of ``span``, which begins and ends at cuts."""
        return slice(self.starts[bisect_left(self.cuts, span.start)], self.starts[bisect_left(self.cuts, span.stop)])

    def around(self, index: int) -> IndexRange:
        """Return the interval of the tensor that an index in memory stands for."""
        interval = bisect_right(self.starts, index) - 1
        return IndexRange(self.cuts[interval], self.cuts[interval + 1])

    def kept_before(self, cut: int) -> int:
        """Return how many indices before ``cut`` are in memory."""
        return self.starts[bisect_left(self.cuts, cut)]

    def repeated(self, size: int, count: int) -> "CutAxis":
        """Return ``count`` times the first ``size`` indices of the tensor.

        >>> CutAxis.of((0, 1, 8, 9, 16), detail=2).repeated(8, 3).cuts
        (0, 1, 8, 9, 16, 17, 24)
        """
        inside, kept = bisect_left(self.cuts, size), self.kept_before(size)
        cuts = (size * each + cut for each in range(count) for cut in self.cuts[:inside])
        starts = (kept * each + start for each in range(count) for start in self.starts[:inside])
        return CutAxis((*cuts, size * count), (*starts, kept * count))


@dataclass(frozen=True, slots=True)
class KernelAxes:
    """Rows and columns of the output of a kernel, and its inner dimension."""

    rows: CutAxis
    cols: CutAxis
    inner: CutAxis


MOVED = -1
Axis = tuple[int, str]
"""An axis of a plan: ``rows`` and ``cols`` of MOVED, or ``rows``, ``cols`` and ``inner`` of a kernel by its number."""


def axis_of(stage: OpShape, kernel: int, word: str) -> Axis:
    """Return the axis of a kernel, which may be one of the moved tensor; gathered keys are no rows of the output."""
    rows = stage.pattern.overlaps and cutting_of(stage).adds is not Adds.ROWS
    moved = {"rows": rows, "cols": stage.pattern.produces, "inner": stage.pattern.consumes}
    return (MOVED, "rows" if word == "rows" else "cols") if moved[word] else (kernel, word)


@dataclass(frozen=True, slots=True)
class Layout:
    """Axes of the moved tensor, the rows of one of its blocks and its columns, and of each kernel."""

    rows: CutAxis
    cols: CutAxis
    kernels: tuple[KernelAxes, ...]

    @classmethod
    def of(
        cls,
        shape: OpShape,
        steps: Sequence[Sequence[Step]],
        detail: int | None,
        more: Mapping[Axis, Collection[int]],
    ) -> "Layout":
        """Return the axes that the ``steps`` of each rank cut, with ``more`` cuts; ``detail`` as for ``CutAxis.of``."""
        every = tuple(dict.fromkeys(chain(*steps)))  # ranks that are alike have the same steps
        more = _with_heads(shape, every, more)
        moved, num_ranks = shape.moved, len(steps)
        regions = [region for step in every for region in _moved_regions(shape, step)]
        row_cuts, col_cuts = set(_block_sizes(shape, num_ranks)) | _row_edges(regions), {0} | _col_edges(regions)
        if moved is not None:
            col_cuts.add(moved.cols)
        for group in _groups(every):
            stage = shape.stage(group.kernel)
            if stage.pattern.overlaps:
                row_cuts |= _row_edges(group.regions)
            if stage.pattern.consumes:
                col_cuts |= group.inner_cuts
            elif stage.pattern.produces:
                col_cuts |= _col_edges(group.regions)
        found: dict[Axis, CutAxis] = {}

        def axis(name: Axis, cuts: set[int]) -> CutAxis:
            """Return the axis with ``cuts`` and ``more`` of them that lie between, the same for all that share it."""
            if name not in found:
                end = max(cuts, default=0)
                found[name] = CutAxis.of(cuts | {cut for cut in more.get(name, ()) if cut < end}, detail)
            return found[name]

        rows, cols = axis((MOVED, "rows"), row_cuts), axis((MOVED, "cols"), col_cuts)
        kernels = []
        for kernel, stage in enumerate(shape.stages):
            own = _kernel_cuts(stage, kernel, num_ranks, every)
            kernels.append(KernelAxes(*(axis(axis_of(stage, kernel, word), cuts) for word, cuts in own.items())))
        return cls(rows, cols, tuple(kernels))


def _kernel_cuts(stage: OpShape, kernel: int, num_ranks: int, steps: Iterable[Step]) -> dict[str, set[int]]:
    """Return where steps cut the rows, columns and inner dimension of one kernel."""
    groups = [group for group in _groups(steps) if group.kernel == kernel]
    regions = [region for group in groups for region in group.regions]
    whole = {0, tile_rows(stage, num_ranks)} if num_tile_blocks(stage, num_ranks) == 1 else {0}
    inner = {0, inner_size(stage)}.union(*(group.inner_cuts for group in groups))
    own = {"rows": whole | _row_edges(regions), "cols": {0, tile_cols(stage)} | _col_edges(regions), "inner": inner}
    shape = attention_of(stage)
    if shape is not None:  # no plan cuts queries of its rank, or keys that are there from the start
        own |= {"rows": {0, shape.batch * shape.q_len}, "inner": {0, shape.batch * shape.kv_len}}
    return own


def attention_of(stage: OpShape) -> AttentionShape | None:
    """Return the kernel if it is attention beside a collective."""
    shape = stage.compute
    return shape if isinstance(shape, AttentionShape) and stage.pattern.overlaps else None


def _with_heads(
    workload: OpShape, steps: Iterable[Step], more: Mapping[Axis, Collection[int]]
) -> Mapping[Axis, Collection[int]]:
    """Return ``more`` with cuts at all heads of attention, and in each of them where any is cut.

    So as many columns of each are there for products of queries and keys.
    """
    found = {axis: set(cuts) for axis, cuts in more.items()}
    for kernel, stage in enumerate(workload.stages):
        shape, moved = attention_of(stage), stage.moved
        if shape is None or moved is None:
            continue
        mine = axis_of(stage, kernel, "cols")
        cuts = _col_edges(region for step in steps for region in _moved_regions(workload, step))
        for group in _groups(steps):
            consumes = workload.stage(group.kernel).pattern.consumes
            cuts |= group.inner_cuts if consumes else _col_edges(group.regions)
        inside = {
            cut % shape.head_dim for cut in cuts.union(*(found.get(axis, ()) for axis in (mine, (MOVED, "cols"))))
        }
        for axis, cols in ((mine, tile_cols(stage)), ((MOVED, "cols"), moved.cols)):
            heads = range(0, cols, shape.head_dim)
            found[axis] = found.get(axis, set()) | {head + cut for head in heads for cut in inside | {0}}
    return found


def _groups(steps: Iterable[Step]) -> Iterator[TileGroup]:
    return (step for step in steps if isinstance(step, TileGroup))


def _moved_regions(shape: OpShape, step: Step) -> tuple[Region, ...]:
    return () if isinstance(step, TileGroup) or shape.moved is None else (step.region,)


def _block_sizes(shape: OpShape, num_ranks: int) -> Iterator[int]:
    """Yield the rows of every block of the moved tensor at every rank, and 0."""
    yield 0
    for rank in range(num_ranks if shape.uneven else 1):
        yield from (moved_rows(shape.at(rank), num_ranks, owner) for owner in range(num_ranks))


def _row_edges(regions: Iterable[Region]) -> set[int]:
    return {edge for region in regions for edge in (region.rows.start, region.rows.stop)}


def _col_edges(regions: Iterable[Region]) -> set[int]:
    return {edge for region in regions for edge in (region.cols.start, region.cols.stop)}
