"""Many questions at once, in threads, and questions of asynchronous programs."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import TypeVar

from ..compiler.ir import Counted, ShouldStop, never

Question = TypeVar("Question", bound=Hashable)
Answer = TypeVar("Answer")
AnswerOf = Callable[[Question, ShouldStop], Answer]
Ask = Callable[[Sequence[Question]], Sequence[Callable[[], Answer]]]
"""Begins to answer questions; returns for each what waits for its answer, or raises its error."""


@contextmanager
def in_threads(answer: AnswerOf[Question, Answer], threads: int) -> Iterator[Ask[Question, Answer]]:
    """Yield a function that begins to answer questions, and returns for each in order what waits for its answer.

    With one thread a question is answered when its answer is asked for. When the block is left early, what has not
    begun is left out, and the rest is told to stop.
    """
    if threads <= 1:
        yield lambda questions: [partial(answer, each, never) for each in questions]
        return
    stop = Event()
    with ThreadPoolExecutor(threads) as pool:
        try:
            yield lambda questions: [pool.submit(answer, each, stop.is_set).result for each in questions]
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)


def counted(ask: Ask[Question, Answer], progress: Counted, least: int) -> Ask[Question, Answer]:
    """Return ``ask`` with ``progress`` told the answers so far, of ``least`` or more."""
    done = 0

    def told(answer: Callable[[], Answer]) -> Answer:
        nonlocal done
        found = answer()
        done += 1
        progress(done, max(done, least))
        return found

    return lambda questions: [partial(told, each) for each in ask(questions)]


def answer_many(answer: AnswerOf[Question, Answer], questions: Sequence[Question], threads: int) -> list[Answer]:
    """Return the answer to each question, in order, asking each different one once in ``threads``.

    The first error is raised, and what has not begun by then is left out.
    """
    different = tuple(dict.fromkeys(questions))
    with in_threads(answer, threads) as ask:
        answers = {question: result() for question, result in zip(different, ask(different), strict=True)}
    return [answers[question] for question in questions]


async def in_thread(work: Callable[[ShouldStop], Answer]) -> Answer:
    """Return the result of ``work`` in a thread; when the task is cancelled, what ``work`` asks says to stop."""
    import asyncio  # most programs have no event loop

    stop = Event()

    def worked() -> Answer:
        try:
            return work(stop.is_set)
        except StopIteration as error:  # no future takes it: the task would wait forever
            raise RuntimeError("nothing was there where something is expected") from error

    try:
        return await asyncio.to_thread(worked)
    except asyncio.CancelledError:
        stop.set()
        raise
