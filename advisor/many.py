"""Many questions at once, in threads, and questions of asynchronous programs."""

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

from ..compiler.ir import ShouldStop

Question = TypeVar("Question", bound=Hashable)
Answer = TypeVar("Answer")


def answer_many(answer: Callable[[Question], Answer], questions: Sequence[Question], threads: int) -> list[Answer]:
    """Return the answer to each question, in order, asking each different one once in ``threads``.

    The first error is raised, and what has not begun by then is left out.
    """
    different = tuple(dict.fromkeys(questions))
    with ThreadPoolExecutor(max(1, threads)) as pool:
        try:
            answers = dict(zip(different, pool.map(answer, different), strict=True))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [answers[question] for question in questions]


async def in_thread(work: Callable[[ShouldStop], Answer]) -> Answer:
    """Return the result of ``work`` in a thread; when the task is cancelled, what ``work`` asks says to stop."""
    import asyncio  # most programs have no event loop

    stop = Event()
    try:
        return await asyncio.to_thread(work, stop.is_set)
    except asyncio.CancelledError:
        stop.set()
        raise
