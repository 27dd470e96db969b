"""A plan carried out by this process for its rank, together with those of the other ranks."""

from collections.abc import Iterable
from queue import SimpleQueue
from threading import Thread

import torch.distributed as dist

from ...compiler.ir import Scenario, Schedule
from ..axes import Layout
from ..crew import threads_of, work_through
from ..findings import found, how_it_ended
from ..problem import Problem
from ..refusals import reject_run
from ..report import Outcome, RunRefused, RunReport, SeedRun
from ..tasks import tasks_of
from .messages import Head, MessageKind, Messenger, RankLost
from .rank_board import Census, RankBoard, Standstill
from .rank_executor import RankExecutor

FIRST_OF = (Outcome.FAULT, Outcome.DEADLOCK, Outcome.WRONG, Outcome.EXACT)
"""What a run is called where its ranks end differently: after a fault others wait, or have what is wrong."""


def carry_out_here(scenario: Scenario, schedule: Schedule, seeds: Iterable[int], detail: int | None) -> RunReport:
    """Carry ``schedule`` out with the other ranks of the default process group, each of which calls this.

    Arguments are those of ``magus.runtime.carry_out``, and so is the report, the same at every rank.

    Raises
    ------
    RunRefused
        If it cannot be carried out, or the group has another number of ranks.
    RankLost
        If the process of another rank ends.
    """
    unfit = reject_run(scenario, schedule)
    if unfit is not None:
        raise RunRefused(unfit)
    layout = Layout.of(scenario, [schedule.steps_of(rank) for rank in range(scenario.num_ranks)], detail)
    return RunReport.of(scenario, schedule, (_seed_run(scenario, schedule, layout, seed) for seed in seeds))


def _seed_run(scenario: Scenario, schedule: Schedule, layout: Layout, seed: int) -> SeedRun:
    run = RankRun(scenario, schedule, layout, seed)
    run.work()
    mine: tuple[Outcome, list[str]] | str
    try:
        mine = run.found()
    except RankLost:
        raise
    except Exception as error:
        mine = f"rank {run.rank}: {type(error).__name__}: {error}"
    every: list[tuple[Outcome, list[str]] | str] = [mine] * scenario.num_ranks
    dist.all_gather_object(every, mine)
    failures = [each for each in every if isinstance(each, str)]
    if failures:
        raise RuntimeError("; ".join(failures))
    ends = [each for each in every if not isinstance(each, str)]
    outcome = next(each for each in FIRST_OF if each in {end for end, _ in ends})
    return SeedRun.of(seed, outcome, [sentence for end, found in ends if end is outcome for sentence in found])


class RankRun:
    """One run of a plan at this rank: its memory in ``problem`` is to be filled before ``work``."""

    def __init__(self, scenario: Scenario, schedule: Schedule, layout: Layout, seed: int) -> None:
        self.rank, self._num_ranks = dist.get_rank(), scenario.num_ranks
        self._tasks = tasks_of(scenario, schedule)
        every = threads_of(schedule, self._tasks)
        self._threads = {queue: number for queue, number in every.items() if queue[0] == self.rank}
        self._board = RankBoard(self._tasks, self._num_ranks, self._threads, seed)
        self._census, self._asked = Census(self._num_ranks), SimpleQueue[tuple[int, Head] | None]()
        self._messenger = Messenger(self._num_ranks, len(self._tasks))
        self.problem = Problem(scenario, layout, self._tasks, seed)
        self._executor = RankExecutor(self.rank, self.problem, self._tasks, self._board, self._messenger, seed)

    def work(self) -> None:
        """Carry out the steps of this rank until those of all ranks are done, or stand still, or something fails."""
        others = [rank for rank in range(self._num_ranks) if rank != self.rank]
        receivers = [Thread(target=self._receive, args=(rank,), daemon=True) for rank in others]
        reporter, server = (Thread(target=target, daemon=True) for target in (self._report, self._answer))
        for thread in (*receivers, reporter, server):
            thread.start()
        work_through(self._board, self._executor.carry_out, self._threads)
        self._board.standstills.put(None)
        self._asked.put(None)
        for thread in (reporter, server):
            thread.join()
        for rank in others:
            self._try_to_send(rank, Head(MessageKind.END))
        for thread in receivers:
            thread.join()

    def found(self) -> tuple[Outcome, list[str]]:
        """Return what became of the run at this rank, with a sentence for each thing that is wrong.

        An error that says nothing of the plan is raised.
        """
        return found(self._board, self._executor, self.problem, self._tasks, (self.rank,))

    def ended(self) -> tuple[Outcome, list[str]]:
        """Return how the run ended at this rank, without a look at its numbers: EXACT, FAULT or DEADLOCK.

        An error that says nothing of the plan is raised.
        """
        return how_it_ended(self._board, self._tasks)

    def _receive(self, rank: int) -> None:
        """Take the messages of ``rank`` until its last one; an error ends the run, and not the messages."""
        try:
            while (head := self._messenger.receive(rank)).kind is not MessageKind.END:
                if head.kind is MessageKind.ASK:
                    self._asked.put((rank, head))
                elif head.kind is MessageKind.STILL:
                    self._take_report(
                        rank,
                        Standstill(head.counts[: self._num_ranks], head.counts[self._num_ranks : 2 * self._num_ranks]),
                    )
                else:
                    self._take(rank, head)
        except RankLost as error:
            self._board.stop(error)
        self._board.stop()
        self._executor.give_up(rank)

    def _take(self, rank: int, head: Head) -> None:
        try:
            self._executor.arrived(rank, head, self._tasks[head.number])
        except RankLost:
            raise
        except Exception as error:
            self._board.stop(error)

    def _answer(self) -> None:
        while (asked := self._asked.get()) is not None:
            rank, head = asked
            try:
                self._executor.answer(rank, head, self._tasks[head.number])
            except Exception as error:
                self._board.stop(error)

    def _report(self) -> None:
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
