"""What each kind of step does with the memories of the ranks."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from ..compiler.ir import Direction, Pattern, Reach, Reduction, Region, TileGroup, Transfer
from .board import Board, HoldPolicy, Moment
from .memory import Array, Attention, CheckedArray, Fault, Mask, PartialSum, Place, RankMemory, common
from .operands import ADDED
from .problem import FROM_FIRST, GATHERS, Expected, Problem
from .report import MAX_NAMED, Outcome
from .tasks import MEMORY, Mark, Task, landing_ranks, marks_of, source_ranks


class Executor:
    """Carries out the tasks of one part on the memories of ``problem``, and tells ``board`` what has happened.

    All memories are here. ``fetch`` and ``deliver`` are what a subclass does otherwise, where a rank has its own.
    """

    def __init__(self, problem: Problem, tasks: tuple[Task, ...], board: Board, policy: HoldPolicy) -> None:
        self._problem, self._board, self._policy = problem, board, policy
        self._n, self._pattern = problem.num_ranks, problem.shape.pattern
        self._sums: dict[int, list[tuple[Task, Place]]] = {}
        for task in tasks:
            if isinstance(task.step, Reduction):
                places = self._places(task.rank, task.step.region)
                self._sums.setdefault(task.rank, []).extend((task, place) for place in places)

    def carry_out(self, task: Task) -> None:
        """Do what the step of a task says; it may be held up before it reads, and before it writes.

        Raises
        ------
        Fault
            If it finds what cannot be right.
        """
        self._pause(task, Moment.BEGIN)
        match task.step:
            case Transfer() as step:
                self._transfer(task, step)
            case TileGroup() as step:
                self._compute(task, step)
            case Reduction() as step:
                self._sum(task, step)
        self.done(task)

    def done(self, task: Task) -> None:
        """Tell of the step that it is done."""
        self._board.reach((task.rank, task.step.name), task)

    def _pause(self, task: Task, moment: Moment) -> None:
        if self._policy.holds(task, moment):
            self._board.hold(task)

    def targets(self, task: Task) -> Iterator[tuple[int, str, Place]]:
        """Yield what a task writes: rank, name of the tensor, and place."""
        match task.step:
            case Transfer() as step:
                for rank in landing_ranks(step, task.rank, self._n):
                    name = self._landing(rank, step).name
                    yield from ((rank, name, place) for place in self._landing_places(task, step))
            case Reduction() as step:
                name = self._problem.memories[task.rank].result.name
                yield from ((task.rank, name, place) for place in self._places(task.rank, step.region))
            case TileGroup() as step:
                output = self._problem.memories[task.rank].outputs[step.kernel]
                name = output.name if output is not None else self._problem.memories[task.rank].data.name
                for region in step.regions:
                    yield task.rank, name, self._tile_place(task.rank, step, region)

    # Transfers.

    def _places(self, rank: int, region: Region) -> list[Place]:
        """Return the place of the rows of each owner, all of them as large."""
        rows, cols = self._problem.layout.rows.at(region.rows), self._problem.layout.cols.at(region.cols)
        return [((rank + owner) % self._n, rows, cols) for owner in region.owners]

    def size_of(self, task: Task) -> tuple[int, int]:
        """Return the rows, of all owners, and the columns that the transfer of ``task`` moves."""
        assert isinstance(task.step, Transfer)
        places = self._places(task.rank, task.step.region)
        _, rows, cols = places[0]
        return len(places) * (rows.stop - rows.start), cols.stop - cols.start

    def _landing(self, rank: int, step: Transfer) -> CheckedArray:
        """Return what a transfer to ``rank`` is written to."""
        memory = self._problem.memories[rank]
        return memory.passing if self._pattern.exchanges and step.passes else memory.result

    def _landing_places(self, task: Task, step: Transfer) -> list[Place]:
        """Return where a transfer arrives; of an all_to_all blocks are filed by the rank that they come from."""
        places = self._places(task.rank, step.region)
        if not self._pattern.exchanges:
            return places
        source = (task.rank + (step.peer if step.direction is Direction.GET else step.origin)) % self._n
        return [(source * self._n + block if step.passes else source, rows, cols) for block, rows, cols in places]

    def _transfer(self, task: Task, step: Transfer) -> None:
        sources = source_ranks(step, task.rank, self._n)
        values: Array = np.sum([self.fetch(rank, task) for rank in sources], axis=0)
        self._pause(task, Moment.END)
        for rank in landing_ranks(step, task.rank, self._n):
            self.deliver(rank, values, task)

    def fetch(self, rank: int, task: Task) -> Array:
        """Return what the transfer of ``task`` reads at ``rank``.

        Raises
        ------
        Fault
            If it is not there, or in no order.
        """
        return self.read(rank, task)

    def deliver(self, rank: int, values: Array, task: Task) -> None:
        """Land what the transfer of ``task`` brings to ``rank``, and set its signal there.

        Raises
        ------
        Fault
            If something else is there, in no order.
        """
        assert isinstance(task.step, Transfer)
        self.land(rank, values, task)
        self._board.reach((rank, task.step.signal), task)

    def read(self, rank: int, task: Task) -> Array:
        """Read in the memory of ``rank`` what the transfer of ``task`` takes there, rows of one owner behind others."""
        assert isinstance(task.step, Transfer)
        places = self._places(task.rank, task.step.region)
        return np.concatenate([self._read(rank, task, task.step, place) for place in places])

    def _read(self, rank: int, task: Task, step: Transfer, place: Place) -> Array:
        memory, block = self._problem.memories[rank], place[0]
        if self._pattern.sums:
            return memory.read_sum(place, task)
        if step.origin:
            return memory.passing.read(((rank + step.origin) % self._n * self._n + block, *place[1:]), task)
        has = rank == block if self._pattern in GATHERS else rank == 0 or self._pattern not in FROM_FIRST
        return (memory.data if has else memory.result).read(place, task)

    def land(self, rank: int, values: Array, task: Task) -> None:
        """Write what the transfer of ``task`` brings to the memory of ``rank``; a put to all spares its own rank."""
        step = task.step
        assert isinstance(step, Transfer)
        if rank == task.rank and step.direction is Direction.PUT:
            return
        places = self._landing_places(task, step)
        for place, part in zip(places, np.split(values, len(places)), strict=True):
            self._land(rank, place, part, task, step)

    def _land(self, rank: int, place: Place, values: Array, task: Task, step: Transfer) -> None:
        memory, adds = self._problem.memories[rank], step.reduce and step.reach is Reach.PEER
        if not self._pattern.sums:
            landing = self._landing(rank, step)
            landing.write(place, values + landing.read(place, task) if adds else values, task)
        elif adds:
            memory.add(place, values, task)
        else:
            parts = self._to_be_summed(rank, place, task)
            if parts.any():
                with memory.lock:
                    memory.parts.append(PartialSum(task, place, values, parts))
            if not parts.all():
                memory.store_sum(place, values, task, ~parts)

    def _to_be_summed(self, rank: int, place: Place, task: Task) -> Mask:
        """Return where a sum at ``rank`` may still come: what arrives there is a part and not a result."""
        mask = np.zeros(self._problem.memories[rank].result.values[place].shape, dtype=np.bool_)
        for other, summed in self._sums.get(rank, ()):
            both = common(place, summed)
            if both is not None and not task.follows(other.number):
                mask[_within(place, both)] = True
        return mask

    # Kernels.

    def _sum(self, task: Task, step: Reduction) -> None:
        memory = self._problem.memories[task.rank]
        places = self._places(task.rank, step.region)
        totals = [self._total(memory, place, task, step) for place in places]
        self._pause(task, Moment.END)
        for place, total in zip(places, totals, strict=True):
            memory.store_sum(place, total, task)

    def _total(self, memory: RankMemory, place: Place, task: Task, step: Reduction) -> Array:
        """Return the sum of the rank's own part at ``place`` and of those that the task follows, which are used up."""
        total = memory.read_sum(place, task)
        count = np.ones(total.shape, dtype=np.int64)
        with memory.lock:
            for part in memory.parts:
                both = common(place, part.place)
                if both is None or not task.follows(part.task.number):
                    continue
                here, there = _within(place, both), _within(part.place, both)
                taken = part.left[there].copy()
                total[here] += np.where(taken, part.values[there], 0.0)
                count[here] += taken
                part.left[there] = False
        wrong = count != step.num_parts
        if wrong.any():
            where = memory.result.where(place, wrong)
            raise Fault(f"{task} sums {step.num_parts} parts of {where}, and waits for {int(count[wrong][0])}")
        return total

    def _tile_place(self, rank: int, step: TileGroup, region: Region) -> Place:
        axes, stage = self._problem.layout.kernels[step.kernel], self._problem.shape.stage(step.kernel)
        if self._pattern is Pattern.KERNEL:
            return 0, slice(0, axes.rows.size), slice(0, axes.cols.size)
        attention = self._problem.attentions[step.kernel]
        if attention is not None:
            return attention.place(attention.heads_of(step), self._rows(rank, region))
        owner = (rank + region.owner) % self._n if stage.pattern.overlaps else 0
        block = 0 if self._problem.side_by_side(stage) else owner
        return block, axes.rows.at(region.rows), axes.cols.at(region.cols)

    def _compute(self, task: Task, step: TileGroup) -> None:
        memory, attention = self._problem.memories[task.rank], self._problem.attentions[step.kernel]
        if self._pattern is Pattern.KERNEL:
            made = [self._mixed(task, step)]
        else:
            made = self._products(task, step) if attention is None else self._attended(task, step, attention)
        self._pause(task, Moment.END)
        buffer = memory.outputs[step.kernel] or memory.data
        for place, values in made:
            if step.accumulate:
                values = values + buffer.read(place, task)
            elif ADDED in self._problem.slots:
                values = values + self.operand(task, *ADDED, place)
            buffer.write(place, values, task)

    def _rows(self, rank: int, region: Region) -> tuple[int, slice]:
        """Return the block and the rows of ``region`` in what moves."""
        return (rank + region.owner) % self._n, self._problem.layout.rows.at(region.rows)

    def _attended(self, task: Task, step: TileGroup, attention: Attention) -> list[tuple[Place, Array]]:
        heads, blocks = attention.heads_of(step), [self._rows(task.rank, region) for region in step.regions]
        arrived, operand = partial(self.arrived_at, task), partial(self.operand, task, step.kernel)
        made = attention.computed(task.rank, heads, blocks, arrived, operand, self.multiply)
        return list(zip((attention.place(heads, block) for block in blocks), made, strict=False))

    def _products(self, task: Task, step: TileGroup) -> list[tuple[Place, Array]]:
        products = [self._product(task, step, region) for region in step.regions]
        if not self._problem.side_by_side(self._problem.shape.stage(step.kernel)):
            return products
        if len({region.rows for region in step.regions}) > 1:
            raise Fault(f"{task} adds up blocks of different rows")
        return [(products[0][0], np.sum([values for _, values in products], axis=0))]

    def _product(self, task: Task, step: TileGroup, region: Region) -> tuple[Place, Array]:
        slots, place = self._problem.slots, self._tile_place(task.rank, step, region)
        block, side = (task.rank + region.owner) % self._n, slots[step.kernel, 1].num_blocks > 1
        made = []
        for inner in map(self._problem.layout.kernels[step.kernel].inner.at, step.slices):
            if (step.kernel, 0) in slots:
                x = self.operand(task, step.kernel, 0, (place[0], place[1], inner))
            else:
                x = self.arrived_at(task, (block, place[1], inner))
            w = self.operand(task, step.kernel, 1, (block if side else 0, inner, place[2]))
            made.append(self.multiply(x, w))
        return place, sum(made[1:], start=made[0])

    def _mixed(self, task: Task, step: TileGroup) -> tuple[Place, Array]:
        slots = self._problem.slots.values()
        taken = [slot.take(task.rank, (0, slice(0, slot.rows.size), slice(0, slot.cols.size)), task) for slot in slots]
        return self._tile_place(task.rank, step, step.regions[0]), self._problem.mixed(taken)

    def arrived_at(self, task: Task, place: Place) -> Array:
        """Return what a kernel takes of what a collective brings, its rank's own block included."""
        memory = self._problem.memories[task.rank]
        return (memory.data if place[0] == task.rank else memory.result).read(place, task)

    def operand(self, task: Task, kernel: int, number: int, place: Place) -> Array:
        """Return what a kernel takes of an operand that no collective of its part brings."""
        return self._problem.slots[kernel, number].take(task.rank, place, task)

    def multiply(self, x: Array, w: Array) -> Array:
        """Return the product of two matrices."""
        return np.asarray(x @ w)


def _within(place: Place, inner: Place) -> tuple[slice, slice]:
    """Return ``inner`` as indices into what was read from ``place``."""
    rows, cols = place[1].start, place[2].start
    return (
        slice(inner[1].start - rows, inner[1].stop - rows),
        slice(inner[2].start - cols, inner[2].stop - cols),
    )


Stuck = tuple[Task, tuple[Mark, ...]]
"""A task that waits, and what for."""


def ended(board: Board, tasks: Sequence[Task], num_ranks: int) -> tuple[Outcome, list[str]]:
    """Return how a run ended, with sentences, without a look at its numbers: EXACT, FAULT or DEADLOCK.

    An error that says nothing of the plan is raised. ``tasks`` are those of all ranks.
    """
    if isinstance(board.error, Fault):
        return Outcome.FAULT, [str(board.error)]
    if board.error is not None:
        raise board.error
    if stuck := board.stuck:
        return Outcome.DEADLOCK, stuck_sentences(stuck, tasks, num_ranks)
    return Outcome.EXACT, []


def stuck_sentences(stuck: Iterable[Stuck], tasks: Sequence[Task], num_ranks: int) -> list[str]:
    """Name the steps that wait for each other in turn, else all that wait, and what for; ``tasks`` are those of all."""
    setters: dict[str, list[Task]] = {}
    names = {(task.rank, task.step.name) for task in tasks}
    for task in tasks:
        if isinstance(task.step, Transfer):
            setters.setdefault(task.step.signal, []).append(task)
    circle = circle_in([one for one in stuck if one[0].queue[1] != MEMORY], num_ranks)  # what frees only follows
    return [
        f"{task} waits for {' and '.join(_mark_text(task, mark, names, setters) for mark in marks)}"
        for task, marks in circle
    ]


def circle_in(stuck: Sequence[Stuck], num_ranks: int) -> Sequence[Stuck]:
    """Return tasks that wait for each other in turn, each with what it waits for in the next; else all of ``stuck``."""
    waiting = {mark: one for one in stuck for mark in marks_of(one[0], num_ranks)}
    path: list[Stuck] = []
    task, marks = stuck[0]
    while all(task is not before for before, _ in path):
        mark = next((mark for mark in marks if mark in waiting), None)
        if mark is None:
            return stuck
        path.append((task, (mark,)))
        task, marks = waiting[mark]
    return path[next(place for place, (before, _) in enumerate(path) if before is task) :]


def _mark_text(task: Task, mark: Mark, names: set[Mark], setters: dict[str, list[Task]]) -> str:
    rank, name = mark
    if mark in names:
        place = f" of rank {rank}" if rank != task.rank else ""
        queue = f", before it in {task.queue[1]}" if name == task.behind and name not in task.step.after else ""
        return f"{name}{place}{queue}"
    return f"{name}, which nothing sets" if name not in setters else name


def differences(executor: Executor, problem: Problem, tasks: Sequence[Task], ranks: Sequence[int]) -> Iterator[str]:
    """Yield what is not as it must be at ``ranks``, and parts of sums that nobody has taken."""
    for expected in (each for rank in ranks for each in problem.expected(rank)):
        differs = expected.find() != expected.wanted
        if differs.any():
            yield _difference(executor, expected, np.argwhere(differs)[0], tasks)
    for rank in ranks:
        memory = problem.memories[rank]
        for part in memory.parts:
            if part.left.any():
                yield f"{part.task} brings {memory.result.where(part.place, part.left)}, which rank {rank} never sums"


def _difference(executor: Executor, expected: Expected, where: np.ndarray, tasks: Sequence[Task]) -> str:
    row, col = (int(index) for index in where)
    rows, cols = expected.buffer.interval(row, col)
    found, wanted, name = expected.find()[row, col], expected.wanted[row, col], expected.buffer.name
    writers = [
        str(task) if task.rank != expected.rank else task.step.name
        for task in tasks
        for rank, tensor, (block, in_rows, in_cols) in executor.targets(task)
        if (rank, tensor, block) == (expected.rank, name, expected.block)
        and in_rows.start <= row < in_rows.stop
        and in_cols.start <= col < in_cols.stop
    ]
    by = f"written by {', '.join(writers[-MAX_NAMED:])}" if writers else "which no step writes"
    what = "nothing" if np.isnan(found) else f"{found:g} in place of {wanted:g}"
    return f"rank {expected.rank} has {what} in rows {rows}, columns {cols} of block {expected.block} of {name}, {by}"
