"""Steps of one rank, whose memory alone is here: what concerns another rank becomes a message."""

from queue import SimpleQueue

import numpy as np

from ...compiler.ir import Transfer
from ..board import RunOver
from ..execute import Executor
from ..hold_policy import HoldPolicy
from ..memory import Array
from ..problem import Problem
from ..tasks import Mark, Task
from .messages import Head, MessageKind, Messenger, multiply
from .rank_board import RankBoard


class RankExecutor(Executor):
    """Carries out the tasks of ``rank`` and what the messages of other ranks say."""

    def __init__(
        self, rank: int, problem: Problem, tasks: tuple[Task, ...], board: RankBoard, messenger: Messenger, seed: int
    ) -> None:
        super().__init__(problem, tasks, board, HoldPolicy(seed))
        self._rank, self._board_here, self._messenger = rank, board, messenger
        self._waiting: dict[Mark, set[int]] = {}
        for task in tasks:
            for mark in task.waits:
                if mark[0] == rank != task.rank:
                    self._waiting.setdefault(mark, set()).add(task.rank)
        self._answers: dict[tuple[int, int], SimpleQueue[Array | None]] = {}
        self._ended: set[int] = set()

    # What this rank does to others.

    def fetch(self, rank: int, task: Task) -> Array:
        """Read here, or ask ``rank`` for its values."""
        if rank == self._rank:
            return self.read(rank, task)
        answer = self._answers.setdefault((task.number, rank), SimpleQueue())
        if rank in self._ended:
            raise RunOver
        self._messenger.send(rank, Head(MessageKind.ASK, task.number, task.known))
        values = answer.get()
        if values is None:
            raise RunOver
        return values

    def deliver(self, rank: int, values: Array, task: Task) -> None:
        """Land here, or send the values to ``rank``."""
        if rank == self._rank:
            super().deliver(rank, values, task)
        else:
            self._send(rank, MessageKind.PUT, task, values)

    def done(self, task: Task) -> None:
        """Tell of the step here, and the ranks that wait for it."""
        super().done(task)
        for rank in sorted(self._waiting.get((task.rank, task.step.name), ())):
            self._send(rank, MessageKind.FLAG, task)

    def multiply(self, x: Array, w: Array) -> Array:
        """Return the product by torch."""
        return multiply(x, w)

    # What others do here.

    def arrived(self, rank: int, head: Head, task: Task) -> None:
        """Do what a message of ``rank`` says of the step of ``task``.

        Raises
        ------
        Fault
            If what lands finds something else there, in no order.
        RankLost
            If its values do not come.
        """
        if head.kind is MessageKind.ANSWER:
            self._answers[task.number, rank].put(self._messenger.values(rank, head, self.size_of(task)))
            return
        task.known = head.known
        match task.step:
            case Transfer() if head.kind is MessageKind.PUT:
                self.land(self._rank, self._messenger.values(rank, head, self.size_of(task)), task)
                self._board_here.arrive(rank, (self._rank, task.step.signal), task)
            case step:
                self._board_here.arrive(rank, (rank, step.name), task)

    def answer(self, rank: int, head: Head, task: Task) -> None:
        """Send ``rank`` the values that a get of it reads here; NaN if they are wrong.

        Raises
        ------
        Fault
            If they are not there, or in no order.
        """
        task.known = head.known
        values: Array = np.full(self.size_of(task), np.nan)
        try:
            values = self.read(self._rank, task)
        finally:
            self._messenger.send(rank, Head(MessageKind.ANSWER, task.number), values)

    def give_up(self, rank: int) -> None:
        """End all waits for answers of ``rank``, which sends none any more."""
        self._ended.add(rank)
        for (_, source), answer in list(self._answers.items()):
            if source == rank:
                answer.put(None)

    def _send(self, rank: int, kind: MessageKind, task: Task, values: Array | None = None) -> None:
        self._board_here.count_sent(rank)
        self._messenger.send(rank, Head(kind, task.number, task.known), values)
