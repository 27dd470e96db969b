"""What processes of the tests answer by: functions of a module that another process can import."""

import os
import signal
import time

from magus.advisor.work.processes import Caller
from magus.simcore.memo.memo import current_store


class Odd(Exception):
    """An error that is another one after it was sent."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


def answer(question: str, caller: Caller) -> object:
    """Do what the question says."""
    match question:
        case "pid":
            return os.getpid()
        case "blocked":
            return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        case "store":
            return current_store()
        case "tell":
            for number in range(3):
                caller.tell(number)
            return "told"
        case "wait":
            while not caller.should_stop():
                time.sleep(0.01)
            return "stopped"
        case "deaf":
            time.sleep(60)
        case "late":
            time.sleep(0.2)
            return caller.waited_s
        case "wrong":
            raise ValueError("wrong")
        case "odd":
            raise Odd("one", "two")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
    return question
