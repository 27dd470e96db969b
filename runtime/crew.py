"""The threads of queues, which take tasks from a board and carry them out."""

from collections.abc import Callable, Mapping, Sequence
from threading import Thread

from ..compiler.ir import Schedule
from .board import Board, RunOver
from .tasks import ENGINE_THREADS, Queue, Task


def threads_of(schedule: Schedule, tasks: Sequence[Task]) -> dict[Queue, int]:
    """Return the number of threads of each queue: several where transfers are in no lane."""
    engines = max(1, min(schedule.engine.count, ENGINE_THREADS))
    return {task.queue: engines if task.queue[1] == "engines" else 1 for task in tasks}


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
