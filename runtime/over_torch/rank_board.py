"""The board of one rank among others, and when all of them stand still.

A rank that stands still may still be woken by a message. So each reports, whenever it stands still, how many messages
it has sent to and received from each other. Once every message in these reports has been received, nothing is under way
and no rank can have gone on since its report: to do so it would have needed a message that is in none of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Lock

from ..board import Board
from ..tasks import Mark, Queue, Task


@dataclass(frozen=True, slots=True)
class Standstill:
    """Messages that a rank has sent to and received from each rank when it stood still."""

    sent: tuple[int, ...]
    received: tuple[int, ...]


class RankBoard(Board):
    """The tasks of one rank; each time that it stands still it says so in ``standstills``, and waits for messages."""

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
            self._reach(mark, task)
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
