"""Processes that answer questions side by side: planning in Python would have threads take turns.

A process talks with whoever asks over one pipe: a question there, what it reports and the answer back, and a stop
there. It has no locks in common with others, so one that dies takes no question but its own with it. It is spawned at
its first question, and again at the next one after it died; or all are forked at once.
"""

import math
import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from threading import Semaphore, Thread
from typing import Generic, TypeVar, cast

from ...compiler.ir import Cancelled, ShouldStop, never
from ...simcore.memo.memo import Store, current_store, use

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Tell = Callable[[object], None]

# Seconds between two checks whether to stop; seconds for the end of a process that was ended.
POLL_S, GRACE_S = 0.2, 0.5
LAST_S = 10.0
"""Seconds that a process has for the best answer so far once it is told to stop; it is ended then."""
_STOP = None
"""Sent in place of a question to have the best answer so far; one that comes after the answer is passed over."""


_forks: ContextVar[bool] = ContextVar("forks", default=False)


@contextmanager
def forking() -> Iterator[None]:
    """Fork the processes that this thread opens in the block, on Linux; elsewhere system libraries may not survive it.

    For programs that know their threads: a fork copies locks as they are, and nobody is left who opens them.
    """
    before = _forks.set(sys.platform == "linux")
    try:
        yield
    finally:
        _forks.reset(before)


def forks() -> bool:
    """Whether this thread forks the processes that it opens."""
    return _forks.get()


class ProcessDied(RuntimeError):
    """The process ended before it answered, perhaps for want of memory."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asked, as a process sees it: takes what it is told, may want no more, and has waited for ``waited_s``."""

    tell: Tell
    should_stop: ShouldStop
    waited_s: float


AnswerOf = Callable[[Question, Caller], Answer]


class _Reply(Enum):
    """What a process says: something on the way, the answer, or the error that is raised in its place."""

    REPORTED = 0
    ANSWER = 1
    ERROR = 2


class Processes(Generic[Question, Answer]):
    """``count`` processes that answer by ``answer_of``; questions, answers and, but for a fork, that are pickled.

    Threads may share them. A child of ``fork`` has processes of its own.
    """

    def __init__(self, count: int, answer_of: AnswerOf[Question, Answer]) -> None:
        self.count = count
        self._answer_of = answer_of
        self._pid, self._idle, self._begun = 0, _Idle(0), set["_Process"]()

    def ask(self, question: Question, should_stop: ShouldStop = never, tell: Tell = lambda what: None) -> Answer:
        """Return the answer, as soon as one of the processes is idle.

        Raises
        ------
        ProcessDied
            If the process ended or could not begin, or its answer cannot be sent.
        Cancelled
            If ``should_stop`` returned true before a process was idle, or the process went on for long after it.
        Exception
            What ``answer_of`` raises.
        """
        requested_at, idle = time.monotonic(), self._idle_here()
        process = idle.take(should_stop)
        try:
            if process is None or not process.process.is_alive():
                process = self._start("spawn")  # a fork copies the locks of a caller's threads
            kind, content = process.reply((current_store(), question, requested_at), should_stop, tell)
        except BaseException:  # what it still does is of no use
            if process is not None:
                self._end(process)
            idle.put(None)
            raise
        idle.put(process)
        if kind is _Reply.ANSWER:
            return cast("Answer", content)
        raise content if isinstance(content, Exception) else ProcessDied("an answer that cannot be sent")

    def fork(self) -> None:
        """Begin all that are idle now, by fork: they begin at once, with what this process has in memory."""
        idle = self._idle_here()
        for process in list(idle.take_all()):
            with suppress(ProcessDied):
                process = process or self._start("fork")
            idle.put(process)

    def kill(self) -> None:
        """Kill the processes, whoever waits for an answer: that raises ``ProcessDied``."""
        for process in tuple(self._begun):
            process.process.kill()

    def close(self) -> None:
        """End the processes that are idle; a later question starts them again."""
        idle = self._idle_here()
        for process in (all_idle := list(idle.take_all())):
            if process is not None:
                self._end(process)
        for _ in all_idle:
            idle.put(None)

    def _start(self, method: str) -> "_Process":
        process = _Process.start(self._answer_of, method)
        self._begun.add(process)
        return process

    def _end(self, process: "_Process") -> None:
        self._begun.discard(process)
        process.end()

    def _idle_here(self) -> "_Idle":
        if self._pid != os.getpid():
            self._pid, self._idle, self._begun = os.getpid(), _Idle(self.count), set()
        return self._idle


class _Idle:
    """Processes that wait for a question, and None for each that is not begun; the last one that was put comes first.

    So those who ask one question at a time begin one process.
    """

    def __init__(self, count: int) -> None:
        self._places: deque[_Process | None] = deque([None] * count)
        self._number = Semaphore(count)

    def put(self, process: "_Process | None") -> None:
        """Put a process on top, and None below all that are begun."""
        (self._places.appendleft if process is None else self._places.append)(process)
        self._number.release()

    def take(self, should_stop: ShouldStop) -> "_Process | None":
        """Wait for one; raise ``Cancelled`` once the caller wants no more."""
        while not should_stop():
            if self._number.acquire(timeout=POLL_S):
                return self._places.pop()
        raise Cancelled

    def take_all(self) -> "Iterator[_Process | None]":
        """Yield those that are idle now."""
        while self._number.acquire(blocking=False):
            yield self._places.pop()


@dataclass(frozen=True, slots=True)
class _Process:
    """A process and this end of its pipe. It is a daemon: the interpreter ends it when it ends."""

    process: BaseProcess
    pipe: Connection

    @classmethod
    def start(cls, answer_of: Callable[..., object], method: str) -> "_Process":
        """Begin a process by ``spawn`` or ``fork``; raise ``ProcessDied`` if the system refuses it, or it ends at once.

        A fork has in memory what it answers by. To others it is sent, and is no argument: ``spawn`` holds both ends of
        the pipe on which arguments go, and would wait forever for a process that ends before it has read many.
        """
        context = cast("SpawnContext", multiprocessing.get_context(method))
        here, there = context.Pipe()
        known = answer_of if method == "fork" else None
        process = context.Process(target=_serve, args=(there, known), daemon=True)
        try:
            if method == "spawn" and os.name == "posix":
                resource_tracker.ensure_running()  # as it begins it lets Ctrl-C through again
            with _interrupts_blocked():
                process.start()
        except OSError as error:
            here.close()
            raise ProcessDied from error
        finally:
            there.close()
        begun = cls(process, here)
        try:
            if known is None:
                begun._send(answer_of)
        except BaseException:  # it ended, what is sent cannot be pickled, or Ctrl-C came
            begun.end()
            raise
        return begun

    def reply(self, requested: object, should_stop: ShouldStop, tell: Tell) -> tuple[_Reply, object]:
        """Send what is asked; return the answer or the error."""
        self._send(requested)
        last = math.inf
        while True:
            if last == math.inf and should_stop():
                self._send(_STOP)
                last = time.monotonic() + LAST_S
            if time.monotonic() > last:
                raise Cancelled
            try:
                heard = self.pipe.poll(POLL_S)
            except KeyboardInterrupt:
                if not should_stop():
                    raise
                continue
            if heard:
                kind, content = self._receive()
                if kind is not _Reply.REPORTED:
                    return kind, content
                tell(content)

    def end(self) -> None:
        """End the process, whatever it does; it writes to disk what is whole or nothing."""
        self.pipe.close()
        self.process.terminate()
        self.process.join(GRACE_S)

    def _send(self, what: object) -> None:
        try:
            self.pipe.send(what)
        except OSError as error:
            raise ProcessDied from error

    def _receive(self) -> tuple[_Reply, object]:
        try:
            kind, content = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise ProcessDied from error
        return kind, content


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C, which a terminal sends to all processes, in the processes that are started in the block."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, known: AnswerOf[object, object] | None) -> None:
    """In a process: answer by what is ``known``, or comes first, until the caller is gone, who handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        answer_of: AnswerOf[object, object] = pipe.recv() if known is None else known
        while True:
            requested: tuple[Store | None, object, float] | None = pipe.recv()
            if requested is not _STOP:
                pipe.send(_reply_to(requested, pipe, answer_of))


def _end_with_parent() -> None:
    """End this process when the one that started it is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _reply_to(
    requested: tuple[Store | None, object, float], pipe: Connection, answer_of: AnswerOf[object, object]
) -> tuple[_Reply, object]:
    store, question, requested_at = requested
    use(store)
    # While a question is answered, nothing comes but a stop, or the end of a caller that is gone.
    caller = Caller(lambda what: pipe.send((_Reply.REPORTED, what)), pipe.poll, time.monotonic() - requested_at)
    try:
        return _Reply.ANSWER, answer_of(question, caller)
    except Exception as error:
        return _Reply.ERROR, error if _travels(error) else None


def _travels(error: Exception) -> bool:
    """Whether an error is the same after it was sent."""
    try:
        return str(pickle.loads(pickle.dumps(error))) == str(error)
    except Exception:
        return False
