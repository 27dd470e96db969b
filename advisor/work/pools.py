"""Functions run side by side, in threads or in processes; and questions of asynchronous programs.

Whoever asks stops what is still running by leaving the block: threads hear of it, processes are ended.
"""

import gc
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Any, Protocol, TypeVar

from ...compiler.ir import Cancelled, Counted, ShouldStop, never
from .processes import POLL_S, Caller, Processes, forks

T = TypeVar("T")
Argument = TypeVar("Argument")
Question = TypeVar("Question", bound=Hashable)
Answer = TypeVar("Answer")
AnswerOf = Callable[[Question, ShouldStop], Answer]
Ask = Callable[[Sequence[Question]], Sequence[Callable[[], Answer]]]
"""Begins to answer questions; returns for each what waits for its answer, or raises its error."""


class Submit(Protocol):
    """Begins ``function(argument, should_stop)`` beside the caller as soon as a thread or a process is free."""

    def __call__(self, function: Callable[[Argument, ShouldStop], T], argument: Argument) -> Future[T]:
        """Return its future; of a process that ends before it answers it raises ``ProcessDied``."""


@contextmanager
def open_threads(count: int, at_end: Callable[[], None] = lambda: None) -> Iterator[Submit]:
    """Yield what runs functions in ``count`` threads, which end with the block.

    When the block is left, what has not begun is left out, and the rest is asked to stop; then ``at_end`` is called.
    """
    stop = Event()
    with ThreadPoolExecutor(count) as pool:
        try:
            yield lambda function, argument: pool.submit(function, argument, stop.is_set)
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            at_end()


@contextmanager
def open_processes(count: int) -> Iterator[Submit]:
    """Yield what runs functions of the top of a module in ``count`` processes, which end with the block.

    If the caller is ``forking`` all are forked with the first function, else they are spawned as they are needed.
    """
    processes, to_fork = Processes[Any, Any](count, _called), forks()
    try:
        with open_threads(count, processes.kill) as begin:

            def submit(function: Callable[[Argument, ShouldStop], T], argument: Argument) -> Future[T]:
                nonlocal to_fork
                if to_fork:  # not before: what the caller loads until then is loaded once
                    processes.fork()
                    to_fork = False
                return begin(processes.ask, (function, argument))

            yield submit
    finally:
        processes.close()


def _called(call: tuple[Callable[..., object], object], caller: Caller) -> object:
    """In a process."""
    function, argument = call
    return function(argument, caller.should_stop)


def result_of(future: Future[T], should_stop: ShouldStop) -> T:
    """Wait for a result.

    Raises
    ------
    Cancelled
        If ``should_stop`` returned true first.
    """
    while not should_stop():
        if wait([future], timeout=POLL_S).done:
            return future.result()
    raise Cancelled


@contextmanager
def in_threads(answer: AnswerOf[Question, Answer], threads: int) -> Iterator[Ask[Question, Answer]]:
    """Yield a function that begins to answer questions, and returns for each in order what waits for its answer.

    With one thread a question is answered when its answer is asked for.
    """
    if threads <= 1:
        yield lambda questions: [partial(answer, each, never) for each in questions]
    else:
        with open_threads(threads) as submit:
            yield lambda questions: [submit(answer, each).result for each in questions]


def counted(ask: Ask[Question, Answer], progress: Counted, least: int) -> Ask[Question, Answer]:
    """Return ``ask`` that reports the number of answers so far to ``progress``, of ``least`` or more."""
    done = 0

    def counting(answer: Callable[[], Answer]) -> Answer:
        nonlocal done
        found = answer()
        done += 1
        progress(done, max(done, least))
        return found

    return lambda questions: [partial(counting, each) for each in ask(questions)]


def answer_many(answer: AnswerOf[Question, Answer], questions: Sequence[Question], threads: int) -> list[Answer]:
    """Return the answer to each question, in order, asking each different one once in ``threads``.

    The first error is raised, and what has not begun by then is left out.
    """
    different = tuple(dict.fromkeys(questions))
    with _set_aside(), in_threads(answer, threads) as ask:
        answers = {question: result() for question, result in zip(different, ask(different), strict=True)}
    return [answers[question] for question in questions]


@contextmanager
def _set_aside() -> Iterator[None]:
    """Leave what there is out of garbage collections in the block, unless the program has frozen objects itself.

    Else each of hundreds of answers pays for walks over all that is loaded.
    """
    first = not gc.get_freeze_count()
    if first:
        gc.freeze()
    try:
        yield
    finally:
        if first:
            gc.unfreeze()


async def in_thread(work: Callable[[ShouldStop], Answer]) -> Answer:
    """Return the result of ``work`` in a thread; when the task is cancelled, ``should_stop`` of ``work`` is true."""
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
