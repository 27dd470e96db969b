"""The time of a pipeline: each rank computes in its order, and begins what it has got. Exact in ticks."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

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


class SendMet(NamedTuple):
    """By how many ticks a pass is ``longer``, and a send ``later``, where the one begins with the other."""

    work: PassKind
    longer: int
    later: int


@dataclass(frozen=True, slots=True)
class ChunkTicks:
    """Ticks of one chunk of layers; ``gained`` is how much sooner its passes end beside each other.

    ``first_forward`` and ``last_backward`` are those of the first microbatch forward and of the last one backward,
    which other traffic runs beside. ``meets`` says how much longer a pass takes that begins with a send, and the send.
    Where gradients of weights come later, those of inputs are so much ``sooner`` than as the rest of a whole pass.
    """

    forward: int
    inputs: int
    weights: int
    gained: int = 0
    first_forward: int | None = None
    last_backward: int | None = None
    meets: tuple[SendMet, ...] = field(default=(), kw_only=True)
    sooner: int = field(default=0, kw_only=True)

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
        From the end of a chunk until the next one's rank has what it takes, where neither begins a pass meanwhile.
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
        if task.work is PassKind.WEIGHTS:
            return False
        return task.chunk != (self._orders.chunks - 1 if task.work is PassKind.FORWARD else 0)

    def next_rank(self, task: ChunkPass) -> int:
        """The rank that goes on with what a pass makes."""
        chunk = task.chunk + (1 if task.work is PassKind.FORWARD else -1)
        return rank_of(task.path, chunk, self._orders.num_ranks)

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


@dataclass(slots=True)
class _Sent:
    """What a slot hands on to another rank: under way until ``end``, and ``later`` than that by what it meets."""

    tasks: list[ChunkPass]
    begin: int
    end: int
    to: int
    later: int = 0


class _Run:
    """A pipeline as it runs: slots begin in the order of time, each beside the sends that are under way then.

    What is left of a send shares SMs and ports with a pass that begins on either of its ranks: both take longer, by as
    much of what a whole send does as is left. A send that begins within a pass is taken to meet none of its copies.
    """

    def __init__(self, orders: Orders, chunks: Sequence[ChunkTicks], microbatches: int, sends: tuple[int, int]) -> None:
        self._orders, self._chunks, self._sends = orders, chunks, sends
        self._per_path = microbatches // orders.paths
        self.ended = _Ended(orders, self._per_path)
        self.free, self.busy, self.place = ([0] * orders.num_ranks for _ in range(3))
        self.intervals: list[SlotInterval] = []
        self._events = [(0, rank) for rank in range(orders.num_ranks)]
        self._under_way: list[list[_Sent]] = [[] for _ in range(orders.num_ranks)]
        self._any_meet = sends[0] > 0 and any(each.meets for each in chunks)

    def work(self) -> None:
        """Begin each slot when its rank is free and has what it takes."""
        while self._events:
            now, rank = heapq.heappop(self._events)
            slots = self._orders.slots[rank]
            if self.free[rank] > now or self.place[rank] == len(slots):
                continue
            slot = slots[self.place[rank]]
            for task in slot:
                taken = self.ended.taken(task, self._sends[0])
                if taken is None or taken > now:
                    break
            else:
                self._begin(rank, slot, now)

    def _begin(self, rank: int, slot: Slot, now: int) -> None:
        ticks = _ticks(slot, self._chunks, self._per_path - 1)
        ticks += self._meet(rank, slot, now) if self._any_meet else 0
        end = now + ticks
        self.free[rank] = end
        self.busy[rank] += ticks
        self.place[rank] += 1
        self.intervals.append(SlotInterval(rank, slot, now, end))
        heapq.heappush(self._events, (end, rank))
        sent = [task for task in slot if self.ended.is_sent(task)]
        longer = self._sends[1] if len(sent) > 1 else 0
        for task in slot:
            self.ended.add(task, end + longer)
        if sent:
            comes, to = end + self._sends[0] + longer, self.ended.next_rank(sent[0])
            heapq.heappush(self._events, (comes, to))
            if self._any_meet and to != rank:
                each = _Sent(sent, end, comes, to)
                self._under_way[rank].append(each)
                self._under_way[to].append(each)

    def _meet(self, rank: int, slot: Slot, now: int) -> int:
        """How much longer a slot takes that begins now; sends that are under way arrive later too."""
        send, longer = self._sends[0], 0
        under_way = self._under_way[rank] = [each for each in self._under_way[rank] if each.end > now]
        met = [each for task in slot for each in self._chunks[task.chunk].meets if each.work is task.work]
        for each in under_way if met else ():
            if each.begin <= now:
                left = each.end - now
                longer += sum(one.longer for one in met) * left // send
                later = sum(one.later for one in met) * min(left, send) // send
                self._delay(each, max(later, each.later))
        return longer

    def _delay(self, sent: _Sent, later: int) -> None:
        if later > sent.later:
            sent.later = later
            for task in sent.tasks:
                self.ended.add(task, sent.end + later - self._sends[0])
            heapq.heappush(self._events, (sent.end + later, sent.to))


def _run(
    orders: Orders, chunks: Sequence[ChunkTicks], microbatches: int, sends: tuple[int, int]
) -> tuple[PipelineRun, _Ended]:
    run = _Run(orders, chunks, microbatches, sends)
    run.work()
    stands = zip(range(orders.num_ranks), orders.slots, run.place, strict=True)
    stuck = [(rank, slots[at]) for rank, slots, at in stands if at < len(slots)]
    if stuck:
        raise PipelineError(stuck)
    return PipelineRun(tuple(run.free), tuple(run.busy), tuple(run.intervals), microbatches, microbatches), run.ended


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
            return ticks.inputs - ticks.sooner
    longer = 0
    if task.microbatch == last and ticks.last_backward is not None:
        longer = ticks.last_backward - ticks.backward
    return longer + (ticks.weights if task.work is PassKind.WEIGHTS else ticks.backward)
