"""Memory of a rank: NaN where nothing was written, and beside each element the step that wrote it last."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock, RLock

import numpy as np
from numpy.typing import NDArray

from ..compiler.ir import AttentionShape, IndexRange, OpShape, TileGroup, cutting_of, tile_rows
from .axes import CutAxis, KernelAxes, Layout
from .tasks import Task

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Place = tuple[int, slice, slice]
"""(block, rows, columns) in memory."""


class Fault(Exception):
    """A step did what its plan does not allow; the message names rank, step and region."""


class CheckedArray:
    """Blocks of rows and columns; each read and write is atomic, and checked for an order between steps."""

    def __init__(self, name: str, blocks: int, axes: tuple[CutAxis, CutAxis], tasks: Sequence[Task]) -> None:
        self.name, self._axes, self._tasks, self._lock = name, axes, tasks, RLock()
        shape = blocks, axes[0].size, axes[1].size
        self.values = np.full(shape, np.nan)
        self._writers = np.zeros(shape, dtype=np.int32)  # number of the task + 1, 0: there from the start
        self._readers: set[int] = set()  # numbers of tasks
        self._freed: Array | None = None  # what was here before it was freed

    def read(self, place: Place, task: Task) -> Array:
        """Return a copy of what is at ``place``.

        Raises
        ------
        Fault
            If some of it is not there yet, or was written by a step that might as well have come later.
        """
        with self._lock:
            values = self.values[place].copy()
            missing = np.isnan(values)
            if missing.any():
                why = "nothing has written yet" if self._freed is None else "is free again by then"
                raise Fault(f"{task} reads {self.where(place, missing)}, which {why}")
            self.demand_order(place, task, "reads")
            self._readers.add(task.number)
            return values

    def write(self, place: Place, values: Array, task: Task, mask: Mask | None = None) -> None:
        """Store ``values``, where ``mask`` says so.

        Raises
        ------
        Fault
            If a step that might as well come later has written there.
        """
        with self._lock:
            self.demand_order(place, task, "writes", mask)
            chosen = np.ones(values.shape, dtype=np.bool_) if mask is None else mask
            self.values[place][chosen] = values[chosen]
            self._writers[place][chosen] = task.number + 1

    def free(self, task: Task) -> None:
        """Poison everything, since nobody reads it any more.

        Raises
        ------
        Fault
            If somebody has read it who might as well come later.
        """
        with self._lock:
            late = next((number for number in sorted(self._readers) if not task.follows(number)), None)
            if late is not None:
                raise Fault(f"{self._tasks[late]} reads {self.name}, which may be free again by then")
            self._freed, self.values = self.values, np.full_like(self.values, np.nan)

    def restore(self) -> None:
        """Undo ``free``: for a look at the end."""
        if self._freed is not None:
            self.values, self._freed = self._freed, None

    def look(self, place: Place) -> Array:
        """Return what is at ``place``, whoever wrote it: for a look at the end."""
        found: Array = self.values[place]
        return found

    def demand_order(self, place: Place, task: Task, verb: str, mask: Mask | None = None) -> None:
        """Check that everything at ``place``, where ``mask`` says so, was written by steps certain to precede ``task``.

        Raises
        ------
        Fault
            If something was not.
        """
        with self._lock:
            writers = self._writers[place] if mask is None else np.where(mask, self._writers[place], 0)
            for number in np.unique(writers):
                if number and number != task.number + 1 and not task.follows(int(number) - 1):
                    where, other = self.where(place, writers == number), self._tasks[int(number) - 1]
                    theirs = "" if other.rank == task.rank else f" of rank {other.rank}"
                    raise Fault(f"{task} {verb} {where}, and {other.step.name}{theirs} writes them, in no order")

    def certain(self, place: Place, task: Task) -> Mask:
        """Return where a step has written that is certain to be done before ``task``."""
        with self._lock:
            writers = self._writers[place]
            known = [number for number in np.unique(writers) if number and task.follows(int(number) - 1)]
            return np.isin(writers, known)

    def where(self, place: Place, mask: Mask) -> str:
        """Return the first interval of ``place`` in which ``mask`` holds, for people."""
        row, col = (int(index) for index in np.argwhere(mask)[0])
        rows, cols = self._axes[0].around(place[1].start + row), self._axes[1].around(place[2].start + col)
        return f"rows {rows}, columns {cols} of block {place[0]} of {self.name}"

    def interval(self, row: int, col: int) -> tuple[IndexRange, IndexRange]:
        """Return the rows and columns of the tensor that an element stands for."""
        return self._axes[0].around(row), self._axes[1].around(col)


@dataclass(slots=True)
class PartialSum:
    """A partial sum that has arrived beside the result; ``left`` is what no sum has taken yet."""

    task: Task
    place: Place
    values: Array
    left: Mask


@dataclass(slots=True)
class RankMemory:
    """What one rank holds of the moved tensor, and the outputs of its kernels.

    ``data`` is what it has from the start or computes: by block, in an all_to_all by the rank that a block is for.
    ``result`` is what arrives or is summed: by block, in an all_to_all by the rank that a block comes from. ``passing``
    is what comes to be passed on there: by the rank that a block comes from, times all ranks, and the one it is for.
    ``added`` is what was added where it arrived, on top of either, ``adders`` where and by whom. ``parts`` wait for
    their sum. ``outputs`` has None for a kernel that computes ``data``.
    """

    data: CheckedArray
    result: CheckedArray
    added: Array
    passing: CheckedArray
    outputs: tuple[CheckedArray | None, ...] = ()
    adders: list[tuple[Place, Task]] = field(default_factory=list)
    parts: list[PartialSum] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def read_sum(self, place: Place, task: Task) -> Array:
        """Return the result where ``task`` is certain to come after it, else the rank's own data.

        Raises
        ------
        Fault
            If the data is not there, or somebody adds to it in no order.
        """
        made = self.result.certain(place, task)
        base = self.result.values[place].copy() if made.all() else self.data.read(place, task)
        base[made] = self.result.values[place][made]
        with self.lock:
            self._demand_added(place, task, "reads")
            return base + self.added[place]

    def add(self, place: Place, values: Array, task: Task) -> None:
        """Add to what is there; steps that add need no order among each other."""
        self.result.demand_order(place, task, "adds to")
        with self.lock:
            self.added[place] += values
            self.adders.append((place, task))

    def store_sum(self, place: Place, values: Array, task: Task, mask: Mask | None = None) -> None:
        """Store a result, in place of what was added there."""
        with self.lock:
            self._demand_added(place, task, "writes")
            self.result.write(place, values, task, mask)
            self.added[place][np.ones(values.shape, dtype=np.bool_) if mask is None else mask] = 0

    def final(self, block: int, rows: slice = slice(None)) -> Array:
        """Return what ``rows`` of a block hold in the end."""
        made, data = self.result.values[block, rows], self.data.values[block, rows]
        total: Array = np.where(np.isnan(made), data, made) + self.added[block, rows]
        return total

    def _demand_added(self, place: Place, task: Task, verb: str) -> None:
        for where, adder in self.adders:
            both = common(place, where)
            if both is not None and not task.follows(adder.number):
                text = self.result.where(both, np.ones(self.added[both].shape, dtype=np.bool_))
                raise Fault(
                    f"{task} {verb} {text}, and {adder.step.name} of rank {adder.rank} adds to them, in no order"
                )


def common(one: Place, other: Place) -> Place | None:
    """Return what two places have in common."""
    rows = slice(max(one[1].start, other[1].start), min(one[1].stop, other[1].stop))
    cols = slice(max(one[2].start, other[2].start), min(one[2].stop, other[2].stop))
    if one[0] != other[0] or rows.start >= rows.stop or cols.start >= cols.stop:
        return None
    return one[0], rows, cols


EXPONENTS = 4
ABOVE_ZERO = 5
"""What is added to each value, which is -4 at least."""
Block = tuple[int, slice]
"""(block, rows in memory)."""
Product = Callable[[Array, Array], Array]


@dataclass(frozen=True, slots=True)
class Attention:
    """A kernel of attention: where its operands lie, and what it makes of them.

    ``num_operands`` counts those that no collective brings: queries, keys and values as one tensor, two or three, the
    queries alone where keys are gathered, and none behind an all_to_all.
    """

    stage: OpShape
    layout: Layout
    axes: KernelAxes
    num_ranks: int
    num_operands: int

    @property
    def shape(self) -> AttentionShape:
        """Its heads and lengths."""
        assert isinstance(self.stage.compute, AttentionShape)
        return self.stage.compute

    def operand_axes(self, operand: int) -> tuple[int, CutAxis, CutAxis]:
        """Return the number of blocks, the rows and the columns of an operand."""
        queries, keys, apart = self.shape.heads, self.shape.kv_heads, self.num_operands - 1
        produces, size = self.stage.pattern.produces, self.shape.head_dim
        if operand:
            return 1, self.axes.inner, self.axes.cols.repeated(size, keys if apart == 2 else 2 * keys)
        count = queries + 2 * keys if produces and not apart else queries
        return self.num_ranks if produces else 1, self.axes.rows, self.axes.cols.repeated(size, count)

    def heads_of(self, step: TileGroup) -> range:
        """Return the heads of keys that a kernel of a plan takes.

        Raises
        ------
        Fault
            If it cuts one.
        """
        cut, head = step.k if self.stage.pattern.consumes else step.regions[0].cols, cutting_of(self.stage).head
        if cut.start % head or cut.stop % head:
            raise Fault(f"{step.name} takes columns {cut} and cuts a head of keys, which is {head} columns")
        return range(cut.start // head, cut.stop // head)

    def place(self, heads: range, block: Block) -> Place:
        """Return where the output of ``heads`` lies that the rows of ``block`` lead to."""
        cols = self._columns(self.axes.cols, heads)
        return (0, slice(0, self.axes.rows.size), cols) if self.stage.pattern.gathers else (*block, cols)

    def blocks(self, rank: int) -> Iterator[Block]:
        """Yield all rows that kernels of ``rank`` take or compute."""
        for block in range(self.num_ranks):
            rows = tile_rows(self.stage, self.num_ranks, block - rank)
            yield block, self.layout.rows.at(IndexRange(0, rows))

    def computed(
        self,
        rank: int,
        heads: range,
        blocks: Sequence[Block],
        arrived: Callable[[Place], Array],
        operand: Callable[[int, Place], Array],
        multiply: Product = np.matmul,
    ) -> list[Array]:
        """Return what ``heads`` make of ``blocks``: for each of them its queries; of gathered keys the sum over all.

        ``arrived`` and ``operand`` read what a collective has brought, and an operand by its number.
        """
        pattern, shape = self.stage.pattern, self.shape
        queries = shape.heads // shape.kv_heads

        def attended(q: Array, keys: Sequence[Array]) -> Array:
            return attend(q, keys, len(heads), queries, self.axes.cols.kept_before(shape.head_dim), multiply)

        def own(number: int, block: Block) -> Array:
            return operand(number, (*block, self._columns(self.operand_axes(number)[2], heads)))

        if pattern.consumes:
            parts = [arrived((*block, self._columns(self.layout.cols, heads))) for block in blocks]
            delivered = np.concatenate(parts)
            if pattern.gathers:
                return [attended(own(0, (0, slice(0, self.axes.rows.size))), [delivered])]
            return np.split(attended(delivered, [delivered]), np.cumsum([len(part) for part in parts])[:-1])
        if self.num_operands == 1:
            keys = [np.concatenate([own(0, block) for block in self.blocks(rank)])]
        else:
            keys = [own(number, (0, slice(0, self.axes.inner.size))) for number in range(1, self.num_operands)]
        return [attended(own(0, block), keys) for block in blocks]

    def _columns(self, cols: CutAxis, heads: range) -> slice:
        """Return the columns of ``heads`` in a tensor that has those of all heads of keys."""
        each = cols.size // self.shape.kv_heads
        return slice(each * heads.start, each * heads.stop)


def attend(q: Array, keys: Sequence[Array], kv_heads: int, queries: int, size: int, multiply: Product) -> Array:
    """Return [row, column] of what stands for attention; of each head ``size`` columns are there.

    ``q`` has for each of ``kv_heads`` so many ``queries`` first. ``keys`` are keys and values: one tensor, of which
    they are the last of each head, or two.
    """
    q = q.reshape(len(q), kv_heads, -1, size)[:, :, :queries]
    heads = [each.reshape(len(each), kv_heads, -1, size) for each in keys]
    k, v = (heads[0][:, :, -2], heads[0][:, :, -1]) if len(heads) == 1 else (heads[0][:, :, 0], heads[1][:, :, 0])
    made = np.empty_like(q)
    for head in range(kv_heads):
        scores = multiply(q[:, head].reshape(-1, size), k[:, head].T)
        weights = np.ldexp(1.0, np.mod(scores, EXPONENTS).astype(np.int64))
        made[:, head] = multiply(weights, v[:, head] + ABOVE_ZERO).reshape(made[:, head].shape)
    return made.reshape(len(q), -1)
