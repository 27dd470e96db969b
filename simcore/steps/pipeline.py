"""The time of a pipeline: each rank computes in its order, and begins what it has got. Exact in ticks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...compiler.ir.step import ChunkPass, PassKind, Pipeline, PipelineKind
from .orders import Orders, Slot, orders_of, rank_of

MOST_TASKS = 200_000
"""Tasks beyond which a pipeline is run with fewer microbatches, and the others follow from its period."""


class PipelineError(RuntimeError):
    """The orders wait for each other in a circle; ``ranks`` are where each rank stands."""

    def __init__(self, stuck: Sequence[tuple[int, Slot]]) -> None:
        self.stuck = tuple(stuck)
        super().__init__("; ".join(f"stage {rank} waits to compute {_text(slot)}" for rank, slot in stuck))


def _text(slot: Slot) -> str:
    return " beside ".join(f"{each.work.value} of chunk {each.chunk}, microbatch {each.microbatch}" for each in slot)


@dataclass(frozen=True, slots=True)
class ChunkTicks:
    """Ticks of one chunk of layers; ``gained`` is how much sooner its passes end beside each other.

    ``first_forward`` and ``last_backward`` are those of the first microbatch forward and of the last one backward,
    which other traffic runs beside.
    """

    forward: int
    inputs: int
    weights: int
    gained: int = 0
    first_forward: int | None = None
    last_backward: int | None = None

    @property
    def backward(self) -> int:
        """Of the whole backward pass."""
        return self.inputs + self.weights


@dataclass(frozen=True, slots=True)
class SlotInterval:
    """A slot of a rank, from ``begin_ticks`` to ``end_ticks``."""

    rank: int
    slot: Slot
    begin_ticks: int
    end_ticks: int


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """A run of a pipeline.

    Attributes
    ----------
    ends
        Ticks at which each rank has ended, [ranks].
    busy
        Ticks that each rank computes, [ranks].
    intervals
        What was computed when, of all microbatches that were run.
    microbatches
        How many there are; ``simulated`` were run, and ``period_ticks`` is the time of each round of the others.
    """

    ends: tuple[int, ...]
    busy: tuple[int, ...]
    intervals: tuple[SlotInterval, ...]
    microbatches: int
    simulated: int
    period_ticks: int | None = None

    @property
    def makespan_ticks(self) -> int:
        """When the last rank has ended."""
        return max(self.ends)


def run_pipeline(
    pipeline: Pipeline,
    chunks: Sequence[ChunkTicks],
    microbatches: int,
    send_ticks: int,
    beside_ticks: int = 0,
    most_tasks: int = MOST_TASKS,
) -> PipelineRun:
    """Run a pipeline.

    Parameters
    ----------
    chunks
        Of each chunk along a path, [chunks]: as many as stages, or a multiple of that where they are interleaved.
    send_ticks
        From the end of a chunk until the next one's rank has what it takes.
    beside_ticks
        How much longer that is where two passes end at once: what both hand on goes the same way to the same rank.
    most_tasks
        Above as many tasks fewer microbatches are run. The others follow to the tick: tasks of one round end as long
        after those of the round before on every rank, for as many rounds as any task reaches back, and so do all later
        rounds, which wait for nothing else.
    """
    ranks, sends = len(chunks) // pipeline.chunks, (send_ticks, beside_ticks)
    per_microbatch = len(chunks) * (3 if pipeline.kind is PipelineKind.ZERO_BUBBLE else 2)
    if microbatches * per_microbatch > most_tasks:
        found = _by_period(pipeline, chunks, microbatches, sends, ranks)
        if found is not None:
            return found
    return _run(orders_of(pipeline, ranks, microbatches), chunks, microbatches, sends)[0]


def _by_period(
    pipeline: Pipeline, chunks: Sequence[ChunkTicks], microbatches: int, sends: tuple[int, int], ranks: int
) -> PipelineRun | None:
    """The run of all microbatches by the period of some; None if these show none."""
    # As many microbatches go from the first rank to the last and back before the same waits come again.
    round_of = ranks
    # No rank has more microbatches open than this, between the oldest and the youngest.
    reach = ranks * (pipeline.chunks + 2)
    some = 4 * reach + (microbatches - 4 * reach) % round_of
    while some < microbatches // 2:
        run, ended = _run(orders_of(pipeline, ranks, some), chunks, some, sends)
        period = ended.period(round_of, reach)
        if period is not None:
            before, _ = _run(orders_of(pipeline, ranks, some - round_of), chunks, some - round_of, sends)
            rounds = (microbatches - some) // round_of
            busy = (now + rounds * (now - then) for now, then in zip(run.busy, before.busy, strict=True))
            ends = tuple(end + rounds * period for end in run.ends)
            return replace(run, ends=ends, busy=tuple(busy), microbatches=microbatches, period_ticks=period)
        some += some // round_of * round_of
    return None


class _Ended:
    """When the forward pass of each chunk and microbatch has ended, and the gradients of its inputs.

    Both are [paths][chunks][microbatches of a path], None as long as that is not known.
    """

    def __init__(self, orders: Orders, per_path: int) -> None:
        self.forward: list[list[list[int | None]]] = self._empty(orders, per_path)
        self.backward: list[list[list[int | None]]] = self._empty(orders, per_path)
        self._orders = orders

    @staticmethod
    def _empty(orders: Orders, per_path: int) -> list[list[list[int | None]]]:
        return [[[None] * per_path for _ in range(orders.chunks)] for _ in range(orders.paths)]

    def add(self, task: ChunkPass, end: int) -> None:
        """Note the end of a task, from which on others are sent what it makes."""
        if task.work is not PassKind.WEIGHTS:
            table = self.forward if task.work is PassKind.FORWARD else self.backward
            table[task.path][task.chunk][task.microbatch] = end

    def is_sent(self, task: ChunkPass) -> bool:
        """Whether another rank goes on with what a pass makes."""
        return task.chunk != (self._orders.chunks - 1 if task.work is PassKind.FORWARD else 0)

    def taken(self, task: ChunkPass, send_ticks: int) -> int | None:
        """When a rank has what a task takes: of a neighbouring chunk, or of its own forward pass."""
        path, chunk, last = task.path, task.chunk, self._orders.chunks - 1
        if task.work is PassKind.WEIGHTS or (task.work is PassKind.FORWARD and chunk == 0):
            return 0
        if task.work is PassKind.FORWARD:
            before, end = chunk - 1, self.forward[path][chunk - 1][task.microbatch]
        elif chunk == last:
            before, end = chunk, self.forward[path][chunk][task.microbatch]
        else:
            before, end = chunk + 1, self.backward[path][chunk + 1][task.microbatch]
        ranks = self._orders.num_ranks
        is_sent = rank_of(path, before, ranks) != rank_of(path, chunk, ranks)
        return None if end is None else end + send_ticks * is_sent

    def period(self, round_of: int, reach: int) -> int | None:
        """The time from round to round in the middle of the run, None if it is not the same for all of ``reach``."""
        step = max(1, round_of // self._orders.paths)
        periods: set[int] = set()
        for table in (self.forward, self.backward):
            for ends in (each for path in table for each in path):
                first = max(1, (len(ends) - reach) // 2)
                middle = ends[first : min(first + reach + step, len(ends) - 1)]
                periods |= {(then or 0) - (now or 0) for now, then in zip(middle, middle[step:], strict=False)}
        return periods.pop() if len(periods) == 1 else None


def _run(
    orders: Orders, chunks: Sequence[ChunkTicks], microbatches: int, sends: tuple[int, int]
) -> tuple[PipelineRun, _Ended]:
    ranks, per_path = orders.num_ranks, microbatches // orders.paths
    ended = _Ended(orders, per_path)
    free, busy, place = [0] * ranks, [0] * ranks, [0] * ranks
    intervals: list[SlotInterval] = []
    moved = True
    while moved:
        moved = False
        for rank, slots in enumerate(orders.slots):
            while place[rank] < len(slots):
                slot = slots[place[rank]]
                taken = [ended.taken(task, sends[0]) for task in slot]
                if None in taken:
                    break
                begin = max(free[rank], *(each for each in taken if each is not None))
                ticks = _ticks(slot, chunks, per_path - 1)
                free[rank] = begin + ticks
                busy[rank] += ticks
                longer = sends[1] if len(slot) > 1 and all(map(ended.is_sent, slot)) else 0
                for task in slot:
                    ended.add(task, free[rank] + longer)
                intervals.append(SlotInterval(rank, slot, begin, free[rank]))
                place[rank] += 1
                moved = True
    stands = zip(range(ranks), orders.slots, place, strict=True)
    stuck = [(rank, slots[at]) for rank, slots, at in stands if at < len(slots)]
    if stuck:
        raise PipelineError(stuck)
    return PipelineRun(tuple(free), tuple(busy), tuple(intervals), microbatches, microbatches), ended


def _ticks(slot: Slot, chunks: Sequence[ChunkTicks], last: int) -> int:
    """Ticks of a slot; the last microbatch backward is number ``last``."""
    if len(slot) == 2:
        forward, backward = (chunks[task.chunk] for task in slot)
        return forward.forward + backward.backward - min(forward.gained, backward.gained)
    (task,) = slot
    ticks = chunks[task.chunk]
    match task.work:
        case PassKind.FORWARD if task.microbatch == 0 and ticks.first_forward is not None:
            return ticks.first_forward
        case PassKind.FORWARD:
            return ticks.forward
        case PassKind.INPUTS:
            return ticks.inputs
    longer = 0
    if task.microbatch == last and ticks.last_backward is not None:
        longer = ticks.last_backward - ticks.backward
    return longer + (ticks.weights if task.work is PassKind.WEIGHTS else ticks.backward)
