"""One rank of a plan, whose memory alone is here: what concerns another rank becomes a message.

A message is taken before its sender goes on. So threads that receive never send: they leave that to the outbox.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Thread

import numpy as np
import torch.distributed as dist

from ...compiler.ir import Plan, System, Transfer, Workload
from ..board import Census, HoldPolicy, RankBoard, RunOver, Standstill
from ..execute import Executor, Stuck, stuck_sentences
from ..memory import Array
from ..problem import Problem
from ..report import Outcome, RunReport, SeedRun
from ..run import DETAIL, PlanRun
from ..tasks import Mark, Queue, Task
from .messages import Head, MessageKind, Messenger, RankLost, multiply

FIRST_OF = (Outcome.FAULT, Outcome.DEADLOCK, Outcome.WRONG, Outcome.EXACT)
"""What a run is called where its ranks end differently: after a fault others wait, or have what is wrong."""


def carry_out_here(
    system: System, workload: Workload, plan: Plan, seeds: Iterable[int] = range(3), detail: int | None = DETAIL
) -> RunReport:
    """Carry ``plan`` out with the other ranks of the default process group, each of which calls this.

    Arguments are those of ``magus.runtime.carry_out``, and so is the report, the same at every rank.

    Raises
    ------
    RunRefused
        If it cannot be carried out.
    RankLost
        If the process of another rank ends.
    """
    return RunReport.of(system, plan, (RankRun(system, workload, plan, seed, detail).report() for seed in seeds))


class Post:
    """Sends what ``rank`` does to the ranks that wait for it; ``outbox`` has what is to be sent by another thread."""

    def __init__(self, rank: int, tasks: Iterable[Task], messenger: Messenger, board: RankBoard) -> None:
        self.rank, self.messenger, self.board = rank, messenger, board
        self.outbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._waiting: dict[Mark, set[int]] = {}
        for task in tasks:
            for mark in task.waits:
                if mark[0] == rank != task.rank:
                    self._waiting.setdefault(mark, set()).add(task.rank)

    def send(self, rank: int, kind: MessageKind, task: Task, values: Array | None = None) -> None:
        """Send a message that may wake ``rank``; return once it takes it."""
        self.board.count_sent(rank)
        self.messenger.send(rank, Head(kind, task.number, task.known), values)

    def announce(self, kind: MessageKind, mark: Mark, task: Task) -> None:
        """Tell the ranks that wait for ``mark`` that ``task`` has done what it says."""
        for rank in sorted(self._waiting.get(mark, ())):
            self.send(rank, kind, task)

    def announce_later(self, kind: MessageKind, mark: Mark, task: Task) -> None:
        """Count the messages of ``announce`` as sent, and leave them to the outbox."""
        for rank in sorted(self._waiting.get(mark, ())):
            self.board.count_sent(rank)
            self.outbox.put(partial(self.messenger.send, rank, Head(kind, task.number, task.known)))


class RankExecutor(Executor):
    """Carries out the tasks of this rank in one part, and what the messages of other ranks say of it."""

    _board: RankBoard

    def __init__(
        self, problem: Problem, tasks: tuple[Task, ...], board: RankBoard, policy: HoldPolicy, post: Post
    ) -> None:
        super().__init__(problem, tasks, board, policy)
        self._rank, self._post = post.rank, post
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
        self._post.messenger.send(rank, Head(MessageKind.ASK, task.number, task.known))
        values = answer.get()
        if values is None:
            raise RunOver
        return values

    def deliver(self, rank: int, values: Array, task: Task) -> None:
        """Land here and tell the ranks that wait for that, or send the values to ``rank``."""
        assert isinstance(task.step, Transfer)
        if rank == self._rank:
            super().deliver(rank, values, task)
            self._post.announce(MessageKind.ARRIVED, (rank, task.step.signal), task)
        else:
            self._post.send(rank, MessageKind.PUT, task, values)

    def done(self, task: Task) -> None:
        """Tell of the step here, and the ranks that wait for it."""
        super().done(task)
        self._post.announce(MessageKind.FLAG, (task.rank, task.step.name), task)

    def multiply(self, x: Array, w: Array) -> Array:
        """Return the product by torch."""
        return multiply(x, w)

    # What others do here.

    def arrived(self, rank: int, head: Head, task: Task) -> None:
        """Do what a message of ``rank`` says of the step of ``task``.

        Raises
        ------
        Fault
            If what arrives finds something else there, in no order.
        RankLost
            If its values do not come.
        """
        if head.kind is MessageKind.ANSWER:
            self._answers[task.number, rank].put(self._post.messenger.values(rank, head, self.size_of(task)))
            return
        task.known, step = head.known, task.step
        if not isinstance(step, Transfer) or head.kind is MessageKind.FLAG:
            self._board.arrive(rank, (rank, step.name), task)
        elif head.kind is MessageKind.ARRIVED:
            self._board.arrive(rank, (rank, step.signal), task)
        else:
            self.land(self._rank, self._post.messenger.values(rank, head, self.size_of(task)), task)
            mark = (self._rank, step.signal)
            self._post.announce_later(MessageKind.ARRIVED, mark, task)
            self._board.arrive(rank, mark, task)

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
            self._post.messenger.send(rank, Head(MessageKind.ANSWER, task.number), values)

    def give_up(self, rank: int) -> None:
        """End all waits for answers of ``rank``, which sends none any more."""
        self._ended.add(rank)
        for (_, source), answer in list(self._answers.items()):
            if source == rank:
                answer.put(None)


@dataclass(frozen=True, slots=True)
class _End:
    """How a run ended at one rank; ``stuck`` has the tasks that wait there, by their numbers."""

    outcome: Outcome
    sentences: list[str]
    stuck: list[tuple[int, tuple[Mark, ...]]]


class RankRun(PlanRun):
    """One run of a plan at this rank: its memory in ``problems`` may be filled before ``work``."""

    _board: RankBoard
    _executors: Mapping[str, RankExecutor]
    _of_task: Mapping[int, RankExecutor]

    def __init__(self, system: System, workload: Workload, plan: Plan, seed: int, detail: int | None) -> None:
        self.rank = dist.get_rank()
        super().__init__(system, workload, plan, seed, detail)
        self._census = Census(self._num_ranks)

    def _prepare(self, threads: dict[Queue, int]) -> None:
        self._threads = {queue: number for queue, number in threads.items() if queue[0] == self.rank}
        self._board = RankBoard(self.tasks.all, self._num_ranks, self._threads, self._seed)
        self._messenger = Messenger(self._num_ranks, len(self.tasks.all))
        self._post = Post(self.rank, self.tasks.all, self._messenger, self._board)

    def _executor(self, problem: Problem, tasks: tuple[Task, ...]) -> RankExecutor:
        return RankExecutor(problem, tasks, self._board, HoldPolicy(self._seed), self._post)

    def report(self) -> SeedRun:
        """Carry everything out with the other ranks, and compare; the same at every rank."""
        self.work()
        mine: _End | str
        try:
            mine = _End(*self.found((self.rank,)), [(task.number, marks) for task, marks in self._board.stuck])
        except RankLost:
            raise
        except Exception as error:
            mine = f"rank {self.rank}: {type(error).__name__}: {error}"
        every: list[_End | str] = [mine] * self._num_ranks
        dist.all_gather_object(every, mine)
        failures = [each for each in every if isinstance(each, str)]
        if failures:
            raise RuntimeError("; ".join(failures))
        return self._of_all([each for each in every if isinstance(each, _End)])

    def _of_all(self, ends: list[_End]) -> SeedRun:
        outcome = next(each for each in FIRST_OF if each in {end.outcome for end in ends})
        sentences = [sentence for end in ends if end.outcome is outcome for sentence in end.sentences]
        if outcome is Outcome.DEADLOCK:
            stuck: list[Stuck] = [(self.tasks.all[number], marks) for end in ends for number, marks in end.stuck]
            sentences = stuck_sentences(stuck, self.tasks.all, self._num_ranks)
        return SeedRun.of(self._seed, outcome, sentences)

    def work(self) -> None:
        """Carry out the steps of this rank until those of all ranks are done, or stand still, or something fails."""
        others = [rank for rank in range(self._num_ranks) if rank != self.rank]
        receivers = [Thread(target=self._receive, args=(rank,), daemon=True) for rank in others]
        reporter, sender = (Thread(target=target, daemon=True) for target in (self._report_standstills, self._send))
        for thread in (*receivers, reporter, sender):
            thread.start()
        super().work()
        self._board.standstills.put(None)
        self._post.outbox.put(None)
        for thread in (reporter, sender):
            thread.join()
        for rank in others:
            self._try_to_send(rank, Head(MessageKind.END))
        for thread in receivers:
            thread.join()

    def _receive(self, rank: int) -> None:
        """Take the messages of ``rank`` until its last one; an error ends the run, and not the messages."""
        n = self._num_ranks
        try:
            while (head := self._messenger.receive(rank)).kind is not MessageKind.END:
                if head.kind is MessageKind.STILL:
                    self._take_report(rank, Standstill(head.counts[:n], head.counts[n : 2 * n]))
                else:
                    self._take(rank, head)
        except RankLost as error:
            self._board.stop(error)
        self._board.stop()
        for executor in self._executors.values():
            executor.give_up(rank)

    def _take(self, rank: int, head: Head) -> None:
        executor, task = self._of_task[head.number], self.tasks.all[head.number]
        if head.kind is MessageKind.ASK:
            self._post.outbox.put(partial(executor.answer, rank, head, task))
            return
        try:
            executor.arrived(rank, head, task)
        except RankLost:
            raise
        except Exception as error:
            self._board.stop(error)

    def _send(self) -> None:
        while (send := self._post.outbox.get()) is not None:
            try:
                send()
            except Exception as error:
                self._board.stop(error)

    def _report_standstills(self) -> None:
        """Tell rank 0 each time that this rank stands still."""
        while (standstill := self._board.standstills.get()) is not None:
            if self.rank == 0:
                self._take_report(0, standstill)
            else:
                self._try_to_send(0, Head(MessageKind.STILL, counts=(*standstill.sent, *standstill.received)))

    def _take_report(self, rank: int, standstill: Standstill) -> None:
        if self._census.all_still(rank, standstill):
            self._board.stop()

    def _try_to_send(self, rank: int, head: Head) -> None:
        try:
            self._messenger.send(rank, head)
        except RankLost as error:
            self._board.stop(error)
