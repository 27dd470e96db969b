"""Questions answered in processes: stops are heard, errors come back, and one that dies takes no other with it."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import SpawnProcess
from pathlib import Path
from pickle import PicklingError

import pytest

from magus.advisor.work.processes import ProcessDied, Processes
from magus.compiler.ir import Cancelled
from magus.simcore.memo.memo import Store, memoizing
from tests.helpers.answering import answer
from tests.helpers.paths import ROOT
from tests.helpers.some import some

# Asks one question and ends while the process waits for another.
USER = """
import sys
sys.path.insert(0, {root!r})
from magus.advisor.work.processes import Processes
from tests.helpers.answering import answer
if __name__ == "__main__":
    print(Processes(1, answer).ask(sys.argv[1]), flush=True)
"""

# Asks a process that ends before it reads anything, with more to answer by than a pipe holds.
STILLBORN = """
import multiprocessing, sys
from functools import partial
from multiprocessing import resource_tracker
sys.path.insert(0, {root!r})
from magus.advisor.work.processes import ProcessDied, Processes
from tests.helpers.answering import answer
if __name__ == "__main__":
    resource_tracker.ensure_running()
    multiprocessing.set_executable("/bin/false")
    try:
        Processes(1, partial(answer, b"x" * 1_000_000)).ask("hello")
    except ProcessDied:
        print("died")
"""


@pytest.fixture(scope="module")
def two() -> Iterator[Processes[str, object]]:
    processes = Processes[str, object](2, answer)
    yield processes
    processes.close()


@pytest.fixture
def one() -> Iterator[Processes[str, object]]:
    processes = Processes[str, object](1, answer)
    yield processes
    processes.close()


def is_running(pid: object) -> bool:
    assert isinstance(pid, int)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def ends(what: Callable[[], bool]) -> bool:
    """Whether something is over within some seconds."""
    for _ in range(500):
        if not what():
            return True
        time.sleep(0.01)
    return False


@pytest.mark.slow
def test_several_answer_at_the_same_time(two: Processes[str, object]) -> None:
    stop = threading.Event()
    with ThreadPoolExecutor(3) as threads:
        waiting = threads.submit(two.ask, "wait", stop.is_set)
        pids = {two.ask("pid") for _ in range(3)}
        stop.set()
        assert waiting.result() == "stopped"
    assert len(pids) == 1 and os.getpid() not in pids


@pytest.mark.slow
def test_who_asks_one_at_a_time_begins_one() -> None:
    processes = Processes[str, object](3, answer)
    assert len({processes.ask("pid") for _ in range(4)}) == 1
    processes.close()


def test_what_is_reported_on_the_way_comes_in_order(two: Processes[str, object]) -> None:
    reported: list[object] = []
    assert two.ask("tell", tell=reported.append) == "told"
    assert reported == [0, 1, 2]


def test_errors_are_raised_here_and_the_process_goes_on(one: Processes[str, object]) -> None:
    pid = one.ask("pid")
    with pytest.raises(ValueError, match=r"^wrong$"):
        one.ask("wrong")
    with pytest.raises(ProcessDied):
        one.ask("odd")
    assert one.ask("pid") == pid


def test_one_that_dies_is_begun_anew(one: Processes[str, object]) -> None:
    pid = one.ask("pid")
    with pytest.raises(ProcessDied):
        one.ask("die")
    assert one.ask("pid") != pid


@pytest.mark.slow
def test_one_that_dies_while_it_is_idle_is_begun_anew(one: Processes[str, object]) -> None:
    pid = one.ask("pid")
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    for child in multiprocessing.active_children():
        if child.pid == pid:
            child.join()
    assert one.ask("pid") != pid


def test_one_that_cannot_begin_is_one_that_died(one: Processes[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise OSError("no more processes")

    with monkeypatch.context() as patched:
        patched.setattr(SpawnProcess, "start", refuse)
        with pytest.raises(ProcessDied):
            one.ask("hello")
    assert one.ask("hello") == "hello"


@pytest.mark.skipif(not Path("/bin/false").exists(), reason="has no program that ends at once")
def test_one_that_ends_while_it_begins_does_not_keep_its_caller() -> None:
    run = [sys.executable, "-c", STILLBORN.format(root=str(ROOT))]

    assert subprocess.run(run, capture_output=True, text=True, timeout=60).stdout == "died\n"


def test_a_stop_that_comes_too_late_is_no_stop_of_the_next(one: Processes[str, object]) -> None:
    one.ask("pid")
    requested = iter([False])  # it has begun
    assert isinstance(one.ask("late", lambda: next(requested, True)), float)
    assert one.ask("hello") == "hello"


def test_who_waits_for_a_process_may_stop(one: Processes[str, object]) -> None:
    busy = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(one.ask, "wait", busy.is_set)
        while not waiting.running():
            time.sleep(0.01)
        requested_at = time.monotonic()
        with pytest.raises(Cancelled):
            one.ask("hello", lambda: time.monotonic() - requested_at > 0.5)
        busy.set()


def test_the_time_of_waiting_is_known_to_the_process(one: Processes[str, object]) -> None:
    since = time.monotonic()
    waited_s = one.ask("late")  # it begins first
    assert isinstance(waited_s, float)
    assert 0 < waited_s < time.monotonic() - since - 0.2


@pytest.mark.slow
def test_ctrl_c_ends_what_is_computed(one: Processes[str, object]) -> None:
    pid = one.ask("pid")
    with pytest.raises(KeyboardInterrupt):
        one.ask("tell", tell=lambda _: _pressed())
    assert ends(lambda: is_running(pid))
    assert one.ask("hello") == "hello"


def _pressed() -> None:
    raise KeyboardInterrupt


def test_ctrl_c_under_a_caller_who_knows_of_it_is_a_stop(one: Processes[str, object]) -> None:
    pressed = False

    def press(_signal: int, _frame: object) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    try:
        pid = one.ask("pid")
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        assert one.ask("wait", lambda: pressed) == "stopped"
        assert pressed and one.ask("pid") == pid
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_a_child_of_fork_has_processes_of_its_own(one: Processes[str, object]) -> None:
    pid = one.ask("pid")
    there, here = os.pipe()
    child = os.fork()
    if not child:
        other = one.ask("pid")
        os.write(here, b"same" if other == pid else b"other")
        one.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(there, 8) == b"other" and one.ask("pid") == pid


def test_results_are_kept_where_they_are_kept_at_that_time(one: Processes[str, object], tmp_path: Path) -> None:
    assert one.ask("store") is None
    with memoizing(Store(tmp_path)):
        assert one.ask("store") == Store(tmp_path)
    assert one.ask("store") is None


@pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked here")
def test_forks_answer_by_what_is_in_memory_and_cannot_be_pickled() -> None:
    processes = Processes[str, str](2, lambda question, _: question[::-1])
    processes.fork()
    try:
        assert [processes.ask("stop"), processes.ask("pots")] == ["pots", "stop"]
    finally:
        processes.close()


def test_a_process_that_cannot_be_sent_what_it_answers_by_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, start = list[SpawnProcess](), SpawnProcess.start

    def started(process: SpawnProcess) -> None:
        begun.append(process)
        start(process)

    monkeypatch.setattr(SpawnProcess, "start", started)
    with pytest.raises((AttributeError, PicklingError)):
        Processes[str, str](1, lambda question, _: question).ask("hello")
    assert some(begun) and not any(process.is_alive() for process in begun)


@pytest.mark.slow
def test_close_ends_all_and_a_later_question_begins_them_again(two: Processes[str, object]) -> None:
    pid = two.ask("pid")
    two.close()
    assert ends(lambda: is_running(pid))
    assert two.ask("hello") == "hello"


@pytest.mark.slow
def test_nothing_outlives_a_program_that_closes_nothing(tmp_path: Path) -> None:
    pid = int(asked_once("pid", tmp_path))
    assert ends(lambda: is_running(pid))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals cannot be blocked here")
def test_the_first_process_of_a_program_begins_with_interrupts_blocked(tmp_path: Path) -> None:
    assert asked_once("blocked", tmp_path) == "True"


def asked_once(question: str, folder: Path) -> str:
    """What a program prints that asks one question."""
    program = folder / "user.py"
    program.write_text(USER.format(root=str(ROOT)))
    words = [sys.executable, str(program), question]
    return subprocess.run(words, check=True, capture_output=True, timeout=60, text=True).stdout.strip()


def test_who_goes_on_after_a_stop_is_ended(one: Processes[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magus.advisor.work.processes.LAST_S", 0.2)
    first = one.ask("pid")
    with pytest.raises(Cancelled):
        one.ask("deaf", _stopping_later())
    assert ends(lambda: is_running(first))
    assert one.ask("pid") != first


def _stopping_later() -> Callable[[], bool]:
    """Say to stop once the question was sent."""
    end = time.monotonic() + 0.5
    return lambda: time.monotonic() > end
