"""Processes that answer questions side by side: planning in Python would have threads take turns.

A process is spawned at its first question and talks with whoever asks over one pipe: a question there, what it has to
tell and the answer back, and a stop there. It has no locks in common with others, so one that dies takes no question
but its own with it, and the next question starts it anew. Pools of ``workers.py`` are for jobs of one answer, which
begin and stop together.
"""

import math
import multiprocessing
import os
import pickle
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from threading import Semaphore, Thread
from typing import Generic, TypeVar, cast

from ..compiler.ir import Cancelled, ShouldStop, never
from ..simcore.memo.memo import current_store, use
from ..simcore.memo.store import Store
from .pools import GRACE_S, POLL_S, end_with_parent, interrupts_blocked_in_children

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Tell = Callable[[object], None]

LAST_S = 10.0
"""Seconds that a process has for the best answer so far once it is told to stop; it is ended then."""
_STOP = None
"""Sent in place of a question to have the best answer so far; one that comes after the answer is passed over."""


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

    TOLD = 0
    ANSWER = 1
    ERROR = 2


class Processes(Generic[Question, Answer]):
    """``count`` processes that answer by ``answer_of``, which is pickled, as questions and answers are.

    Threads may share them. A child of ``fork`` has processes of its own.
    """

    def __init__(self, count: int, answer_of: AnswerOf[Question, Answer]) -> None:
        self.count = count
        self._answer_of = answer_of
        self._pid, self._idle = 0, _Idle(0)

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
        asked_at, idle = time.monotonic(), self._idle_here()
        process = idle.take(should_stop)
        try:
            if process is None or not process.process.is_alive():
                process = _Process.start(self._answer_of)
            kind, content = process.reply((current_store(), question, asked_at), should_stop, tell)
        except BaseException:  # what it still does is of no use
            if process is not None:
                process.end()
            idle.put(None)
            raise
        idle.put(process)
        if kind is _Reply.ANSWER:
            return cast("Answer", content)
        raise content if isinstance(content, Exception) else ProcessDied("an answer that cannot be sent")

    def close(self) -> None:
        """End the processes that are idle; a later question starts them again."""
        idle = self._idle_here()
        for process in (all_idle := list(idle.take_all())):
            if process is not None:
                process.end()
        for _ in all_idle:
            idle.put(None)

    def _idle_here(self) -> "_Idle":
        if self._pid != os.getpid():
            self._pid, self._idle = os.getpid(), _Idle(self.count)
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
    def start(cls, answer_of: Callable[..., object]) -> "_Process":
        context = multiprocessing.get_context("spawn")  # a fork copies the locks of a caller's threads
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(there, answer_of), daemon=True)
        try:
            with interrupts_blocked_in_children():
                process.start()
        except OSError as error:
            here.close()
            raise ProcessDied from error
        finally:
            there.close()
        return cls(process, here)

    def reply(self, asked: object, should_stop: ShouldStop, tell: Tell) -> tuple[_Reply, object]:
        """Send what is asked; return the answer or the error."""
        self._send(asked)
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
                if kind is not _Reply.TOLD:
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


def _serve(pipe: Connection, answer_of: AnswerOf[object, object]) -> None:
    """In a process: answer until the caller is gone. The caller handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            asked: tuple[Store | None, object, float] | None = pipe.recv()
            if asked is not _STOP:
                pipe.send(_reply_to(asked, pipe, answer_of))


def _reply_to(
    asked: tuple[Store | None, object, float], pipe: Connection, answer_of: AnswerOf[object, object]
) -> tuple[_Reply, object]:
    store, question, asked_at = asked
    use(store)
    # While a question is answered, nothing comes but a stop, or the end of a caller that is gone.
    caller = Caller(lambda what: pipe.send((_Reply.TOLD, what)), pipe.poll, time.monotonic() - asked_at)
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
