"""Which task of a queue may go next, who is held up, when all stand still, and the threads of the queues.

A thread takes the tasks of its queue as their waits end. Between the parts of a task it may be held up until nothing
else can go on; so a run that never ends on its own is known without a clock: everything waits, and nothing is held up.

A rank among others that stands still may still be woken by a message. So each reports, whenever it stands still, how
many messages it has sent to and received from each other. Once every message in these reports has been received,
nothing is under way and no rank can have gone on since its report: to do so it would have needed a message that is in
none of them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from queue import SimpleQueue
from random import Random
from threading import Condition, Lock, RLock, Thread

from .tasks import Mark, Queue, Task, marks_of


class Moment(Enum):
    """When a task may be held up: before it reads, or before it writes."""

    BEGIN = "begin"
    END = "end"


@dataclass(frozen=True, slots=True)
class HoldPolicy:
    """Who is held up in the run with that seed.

    With seed 0 copies arrive as late as waits allow, with seed 1 kernels begin as late, and from seed 2 on each task is
    held up or not by chance.
    """

    seed: int

    def holds(self, task: Task, moment: Moment) -> bool:
        """Whether to hold ``task`` up at ``moment``: the same in every run with this seed."""
        match self.seed:
            case 0:
                return task.moves and moment is Moment.END
            case 1:
                return not task.moves and moment is Moment.BEGIN
            case seed:
                return Random(f"{seed} {task} {moment.value}").random() < 0.5


class RunOver(Exception):
    """The run is over for all threads."""


@dataclass(eq=False)
class _Line:
    """A queue with its threads: ``ready`` tasks wait for one of them."""

    changed: Condition
    threads: int
    ready: list[Task] = field(default_factory=list)
    busy: int = 0
    left: int = 0

    @property
    def can_go_on(self) -> bool:
        return bool(self.ready) and self.busy < self.threads


class Board:
    """The state of all tasks; ``threads`` is the number of threads of each queue.

    Tasks of queues without threads here are carried out elsewhere; what they reach is still waited for.
    """

    def __init__(self, tasks: Iterable[Task], num_ranks: int, threads: Mapping[Queue, int], seed: int) -> None:
        self._rng = Random(seed)
        self._lock = RLock()
        self.over = Condition(self._lock)
        self._lines = {queue: _Line(Condition(self._lock), count) for queue, count in threads.items()}
        self._held: list[tuple[Task, Condition]] = []
        self._expected: dict[Mark, int] = defaultdict(int)
        self._known: dict[Mark, int] = defaultdict(int)
        self._waiting: dict[Mark, list[Task]] = defaultdict(list)
        self._missing: dict[Task, set[Mark]] = {}
        self._running = 0
        self.stopped = False
        self.error: BaseException | None = None
        for task in tasks:
            for mark in marks_of(task, num_ranks):
                self._expected[mark] += 1
            if task.queue in self._lines:
                self._enter(task)

    def _enter(self, task: Task) -> None:
        line = self._lines[task.queue]
        line.left += 1
        self._missing[task] = set(task.waits)
        for mark in self._missing[task]:
            self._waiting[mark].append(task)
        if not task.waits:
            line.ready.append(task)

    def start(self) -> None:
        """Find a plan whose every step waits."""
        with self._lock:
            self._look_around()

    def take(self, queue: Queue) -> Task:
        """Wait for a task of ``queue`` that may go, in any order if several may.

        Raises
        ------
        RunOver
            If the run is over or nothing is left in the queue.
        """
        line = self._lines[queue]
        with self._lock:
            while not line.ready:
                if self.stopped or not line.left:
                    raise RunOver
                line.changed.wait()
            if self.stopped:
                raise RunOver
            task = line.ready.pop(self._rng.randrange(len(line.ready)))
            line.busy += 1
            line.left -= 1
            self._running += 1
            for mark in task.waits:
                task.known |= self._known[mark]
            return task

    def hold(self, task: Task) -> None:
        """Hold the thread of ``task`` up until nothing else can go on.

        Raises
        ------
        RunOver
            If the run ends before.
        """
        released = Condition(self._lock)
        with self._lock:
            mine = (task, released)
            self._held.append(mine)
            self._running -= 1
            self._look_around()
            while mine in self._held:
                if self.stopped:
                    raise RunOver
                released.wait()

    def reach(self, mark: Mark, task: Task) -> None:
        """Record that ``task`` has reached ``mark``; a signal that several transfers set needs all of theirs."""
        with self._lock:
            self._known[mark] |= task.known | 1 << task.number
            self._expected[mark] -= 1
            for waiting in self._waiting.pop(mark, ()) if not self._expected[mark] else ():
                self._missing[waiting].discard(mark)
                if not self._missing[waiting]:
                    line = self._lines[waiting.queue]
                    line.ready.append(waiting)
                    line.changed.notify()

    def finish(self, task: Task) -> None:
        """Note that a task is done, all its marks with it."""
        with self._lock:
            del self._missing[task]
            line = self._lines[task.queue]
            line.busy -= 1
            self._running -= 1
            if not line.left:
                line.changed.notify_all()
            self._look_around()

    def stop(self, error: BaseException | None = None) -> None:
        """End all threads; the first error is kept."""
        with self._lock:
            self.error, self.stopped = self.error or error, True
            lines, held = (line.changed for line in self._lines.values()), (each for _, each in self._held)
            for changed in (*lines, *held, self.over):
                changed.notify_all()

    @property
    def stuck(self) -> list[tuple[Task, tuple[Mark, ...]]]:
        """Tasks that wait, in their order, and what each waits for."""
        return [
            (task, tuple(mark for mark in task.waits if mark in missing)) for task, missing in self._missing.items()
        ]

    def _look_around(self) -> None:
        """Where nothing can go on, let one thread go that is held up; if there is none, stand still."""
        if self.stopped or self._running or any(line.can_go_on for line in self._lines.values()):
            return
        if self._held:
            _, released = self._held.pop(self._rng.randrange(len(self._held)))
            self._running += 1
            released.notify()
        else:
            self._stand_still()

    def _stand_still(self) -> None:
        """End the run: whatever could come is here."""
        self.stop()


@dataclass(frozen=True, slots=True)
class Standstill:
    """Messages that a rank has sent to and received from each rank when it stood still."""

    sent: tuple[int, ...]
    received: tuple[int, ...]


class RankBoard(Board):
    """The tasks of one rank among others, whose memories are elsewhere.

    Each time that it stands still it says so in ``standstills``, and waits for messages.
    """

    def __init__(self, tasks: Iterable[Task], num_ranks: int, threads: Mapping[Queue, int], seed: int) -> None:
        super().__init__(tasks, num_ranks, threads, seed)
        self._sent, self._received = [0] * num_ranks, [0] * num_ranks
        self.standstills: SimpleQueue[Standstill | None] = SimpleQueue()

    def count_sent(self, rank: int) -> None:
        """Note a message that may wake ``rank``; to be called before it goes."""
        with self._lock:
            self._sent[rank] += 1

    def arrive(self, rank: int, mark: Mark, task: Task) -> None:
        """Note what a message of ``rank`` says: that ``task`` has done what ``mark`` says."""
        with self._lock:
            self._received[rank] += 1
            self.reach(mark, task)
            self._look_around()

    def _stand_still(self) -> None:
        self.standstills.put(Standstill(tuple(self._sent), tuple(self._received)))


class Census:
    """The last report of each rank."""

    def __init__(self, num_ranks: int) -> None:
        self._lock = Lock()
        self._last: list[Standstill | None] = [None] * num_ranks

    def all_still(self, rank: int, standstill: Standstill) -> bool:
        """Take the report of ``rank``; return whether no rank can go on."""
        with self._lock:
            self._last[rank] = standstill
            last = [each for each in self._last if each is not None]
        return len(last) == len(self._last) and all(
            one.sent[to] == other.received[of] for of, one in enumerate(last) for to, other in enumerate(last)
        )


def work_through(board: Board, carry_out: Callable[[Task], None], threads: Mapping[Queue, int]) -> None:
    """Carry out the tasks of ``board``, with so many ``threads`` for each queue, until the run is over.

    Ctrl-C ends them. What fails in a thread ends the run and is ``board.error``.
    """

    def work(queue: Queue) -> None:
        try:
            while True:
                task = board.take(queue)
                carry_out(task)
                board.finish(task)
        except RunOver:
            return
        except BaseException as error:
            board.stop(error)

    crew = [Thread(target=work, args=(queue,), daemon=True) for queue, n in threads.items() for _ in range(n)]
    try:
        for thread in crew:
            thread.start()
        board.start()
        with board.over:
            while not board.stopped:
                board.over.wait()
    except BaseException as error:
        board.stop(error)
        raise
    finally:
        for thread in crew:
            if thread.ident is not None:
                thread.join()
