"""Simulations in threads and processes: same results, heard stops, nothing left behind, signals left alone."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from magus.advisor import AdviceOptions, Advisor, enumerate_space
from magus.advisor.work.pools import open_processes
from magus.advisor.work.processes import forking
from magus.advisor.work.workers import FailureKind, SimulationJob, open_workers, run_job, suits_threads
from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import (
    Cancelled,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    Kernels,
    OpChoice,
    ShouldStop,
    Wait,
)
from magus.compiler.planning.build import build_op_plan
from tests.helpers.paths import ROOT
from tests.helpers.scenarios.fabrics import rails
from tests.helpers.scenarios.scenarios import ag_gemm, h100, switch

SCENARIO = ag_gemm(256, 512, 512)
JOBS = [
    SimulationJob(
        SCENARIO, build_op_plan(SCENARIO, OpChoice("uniform_fused_1d", chunks, EngineChoice(EngineKind.DMA, 7))), 1024
    )
    for chunks in (16, 32, 64)
]
VAST = ag_gemm(8192, 8192, 8192)
LONG = SimulationJob(
    VAST, build_op_plan(VAST, OpChoice("serial", 8, EngineChoice(EngineKind.DMA, 7))), VAST.gpu.line_bytes
)
"""A job that takes longer than a stop takes to be heard."""
# Starts workers, says their pids, and sleeps inside the pool until it is killed.
HOLDER = """
import multiprocessing, sys, time
sys.path.insert(0, {root!r})
from magus.advisor.work.workers import open_workers
from tests.advisor.test_workers import JOBS
if __name__ == "__main__":
    with open_workers(2) as workers:
        workers.run(JOBS)
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        time.sleep(600)
"""


# One after the other, in processes, and in threads.
WAYS = pytest.mark.parametrize(("count", "threads"), [(1, False), (2, False), (2, True)])


@pytest.mark.slow
@pytest.mark.parametrize("threads", [False, True])
def test_workers_give_the_results_of_this_thread_in_order(threads: bool) -> None:
    with open_workers(2, threads=threads) as workers:
        assert workers.run(JOBS) == [run_job(job) for job in JOBS]


@pytest.mark.quick(2)
@WAYS
def test_what_is_begun_early_gives_the_same_and_what_is_dropped_nothing(count: int, threads: bool) -> None:
    with open_workers(count, threads=threads) as workers:
        early, dropped, late = (workers.begin([job])[0] for job in JOBS)
        dropped.drop()
        assert workers.finish([late]) == [run_job(JOBS[2])]
        assert workers.finish([early]) == [run_job(JOBS[0])]
    assert not workers.failures


@pytest.mark.quick(1)
@WAYS
def test_what_is_begun_ahead_is_taken_by_who_wants_an_equal_one(count: int, threads: bool) -> None:
    equal = replace(JOBS[0], schedule=replace(JOBS[0].schedule))
    with open_workers(count, threads=threads) as workers:
        workers.ahead(JOBS[:2])
        ahead = [each.future for each in workers._ahead]
        (taken,) = workers.begin([equal])
        assert len(ahead) == (2 if count > 1 else 0) and [taken.future, *ahead[1:]] == (ahead or [None])
        assert workers.finish([taken]) == [run_job(JOBS[0])]
    assert not workers.failures


def test_a_caller_that_forks_has_processes_while_it_is_busy_and_none_where_it_waits() -> None:
    with forking(), open_workers(2, threads=True, busy=True) as workers:
        assert workers.run(JOBS) == [run_job(job) for job in JOBS]
        assert len(multiprocessing.active_children()) == (2 if sys.platform == "linux" else 0)
        assert workers.compute(_where, 5)() == (5, os.getpid()) or sys.platform == "linux"
    for busy in (False, True):
        with open_workers(2, threads=True, busy=busy) as workers:
            workers.run(JOBS[:1])
            assert not multiprocessing.active_children()
            assert workers.compute(_where, 5)() == (5, os.getpid())


@pytest.mark.quick(1)
@pytest.mark.parametrize("begin", [forking, nullcontext])
def test_processes_that_do_not_end_by_themselves_are_gone_with_the_block(
    begin: Callable[[], AbstractContextManager[None]], tmp_path: Path
) -> None:
    before = set(multiprocessing.active_children())
    with begin(), open_processes(2) as submit:
        waiting = [submit(_begin_and_sleep, tmp_path / str(number)) for number in range(3)]
        while sum(1 for _ in tmp_path.iterdir()) < 2:
            time.sleep(0.01)
        begun = set(multiprocessing.active_children()) - before
        since = time.monotonic()

    assert time.monotonic() - since < 5
    assert len(begun) == 2 and not begun & set(multiprocessing.active_children())
    assert all(future.done() for future in waiting) and waiting[-1].cancelled(), "nobody waits for ever"


def _begin_and_sleep(path: Path, should_stop: ShouldStop) -> None:
    path.touch()
    time.sleep(30)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux")
def test_what_a_forked_process_computes_is_what_this_one_does() -> None:
    stop = threading.Event()
    with forking(), open_workers(2, stop.is_set) as workers:
        begun, failing = workers.compute(_where, 5), workers.compute(_fail, 5)
        value, pid = begun()
        assert value == 5 and pid != os.getpid()
        with pytest.raises(ValueError, match="on purpose"):
            failing()
        begun = workers.compute(_where, 6)
        for child in multiprocessing.active_children():
            child.kill()
        assert begun()[0] == 6, "of a process that died, or computed here"
        stop.set()
        with pytest.raises(Cancelled):
            workers.compute(_until_stopped, 7)()


def _where(value: int, should_stop: ShouldStop) -> tuple[int, int]:
    return value, os.getpid()


def _fail(value: int, should_stop: ShouldStop) -> int:
    raise ValueError("on purpose")


def _until_stopped(value: int, should_stop: ShouldStop) -> int:
    while not should_stop():
        time.sleep(0.01)
    raise Cancelled


def test_a_stop_keeps_what_was_done_beside_the_caller() -> None:
    stop = threading.Event()
    with open_workers(2, stop.is_set, threads=True) as workers:
        (early,) = workers.begin(JOBS[:1])
        assert early.future is not None
        early.future.result()
        stop.set()
        assert workers.finish([early]) == [run_job(JOBS[0])]
    assert workers.stopped


def test_threads_are_reported_to_stop_when_the_block_is_left() -> None:
    stop = threading.Event()
    with open_workers(2, stop.is_set, threads=True) as workers:
        threading.Timer(0.1, stop.set).start()
        results = workers.run([LONG] * 50)
        running = threading.active_count()

    assert workers.stopped and None in results and not workers.failures
    assert threading.active_count() < running


@pytest.mark.parametrize(("engine", "compiled"), [("", True), ("compiled", True), ("windows", False)])
def test_threads_suit_what_is_compiled_and_seen_alike(
    monkeypatch: pytest.MonkeyPatch, engine: str, compiled: bool
) -> None:
    monkeypatch.setenv("MAGUS_ENGINE", engine)

    assert suits_threads(SCENARIO) is compiled
    assert not suits_threads(replace(SCENARIO, system=replace(SCENARIO.system, fabric=rails(4))))


@pytest.mark.quick(1)
@WAYS
def test_a_stop_is_heard_and_nothing_is_left(count: int, threads: bool) -> None:
    with open_workers(count, lambda: True, threads=threads) as workers:
        assert workers.run([LONG] * 3) == [None] * 3
        assert workers.stopped and not workers.failures


@pytest.mark.quick(1)
@WAYS
def test_what_was_simulated_before_a_stop_is_kept(count: int, threads: bool) -> None:
    done = 0

    def reported(number: int) -> None:
        nonlocal done
        done = number

    with open_workers(count, lambda: done >= 1, threads=threads) as workers:
        results = workers.run(JOBS, reported)

    assert workers.stopped
    assert any(results) and all(result in (None, run_job(job)) for job, result in zip(JOBS, results, strict=True))


@pytest.mark.quick(1)
@WAYS
def test_ctrl_c_ends_a_run_whose_caller_knows_of_it_and_no_other(count: int, threads: bool) -> None:
    pressed = False

    def press(number: int) -> None:
        nonlocal pressed
        pressed = number > 0
        if pressed:
            raise KeyboardInterrupt

    with open_workers(count, lambda: pressed, threads=threads) as workers:
        assert any(workers.run(JOBS, press)) and workers.stopped
    with open_workers(1) as workers, pytest.raises(KeyboardInterrupt):
        workers.run(JOBS, press)


@pytest.mark.quick(1)
@WAYS
def test_one_that_fails_takes_no_other_with_it(count: int, threads: bool) -> None:
    wrong = replace(JOBS[0], unit_bytes=SCENARIO.gpu.line_bytes + 1)
    with open_workers(count, threads=threads) as workers:
        results = workers.run([JOBS[0], wrong, JOBS[1]])

    assert results == [run_job(JOBS[0]), None, run_job(JOBS[1])]
    (failure,) = workers.failures
    assert failure.kind is FailureKind.FAULT and failure.subject == wrong.schedule.expression
    assert "ValueError" in failure.reason


def test_one_that_is_too_large_is_reported_with_its_limit() -> None:
    vast = ag_gemm(1 << 20, 1 << 15, 1 << 17)
    choice = OpChoice("uniform_fused_1d", 16, EngineChoice(EngineKind.DMA, 7))
    with open_workers(1) as workers:
        assert workers.run([SimulationJob(vast, build_op_plan(vast, choice), vast.gpu.line_bytes)]) == [None]

    (failure,) = workers.failures
    assert failure.kind is FailureKind.TOO_LARGE and "the limit is" in failure.reason


def test_an_answer_is_an_estimate_where_no_run_is_affordable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magus.simcore.lower.budget.MAX_UNLIKE", 10)
    scenario = compile_text("""use "amd/mi300x"
system box { gpus 4 x MI300X; fabric edges(xgmi=[[0, 1], [1, 2], [2, 3]]) }
workload one on box { x = tensor bf16[1024, 1024] shard rows; y = all_gather(x) }
""").scenario()
    advice = Advisor().recommend(scenario, AdviceOptions())

    assert advice.recommended.is_estimate and advice.bound is not None
    assert any("too large to simulate" in mark and "no ranks are alike" in mark for mark in advice.marks)


def test_workers_that_die_leave_their_jobs_to_this_process() -> None:
    with open_workers(2) as workers:
        workers.run(JOBS[:1])
        for child in multiprocessing.active_children():
            child.kill()
        assert workers.run(JOBS) == [run_job(job) for job in JOBS]
        assert workers.failures == []


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
def test_workers_die_with_a_caller_that_is_killed(tmp_path) -> None:  # type: ignore[no-untyped-def]
    root = str(ROOT)
    script = tmp_path / "holder.py"
    script.write_text(HOLDER.format(root=root))
    holder = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    workers = [int(pid) for pid in holder.stdout.readline().split()]
    holder.kill()
    holder.wait()

    deadline = time.monotonic() + 20
    while any(map(_runs, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)

    assert len(workers) == 2
    assert not any(map(_runs, workers))


def _runs(pid: int) -> bool:
    """Whether the process exists and is no zombie that only waits to be collected."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


def test_enumerating_leaves_the_handler_of_ctrl_c_alone() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        enumerate_space(SCENARIO)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
    finally:
        signal.signal(signal.SIGINT, before)

    assert heard == [signal.SIGINT]


def test_what_never_finishes_is_reported_with_its_circle() -> None:
    """Copies that queue for the SMs of a kernel that waits for them."""
    scenario = ag_gemm(3072, 1536, 512, ranks=3, gpu=h100(), fabric=switch())
    shared = EngineChoice(EngineKind.SM, 16, EngineMode.SHARED)
    tactics = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
    parts = ((1024, 768), (0, 256))
    schedule = build_op_plan(scenario, OpChoice("bespoke", 3, shared, 3, tactics, parts=parts))

    with open_workers(1) as pool:
        assert pool.run([SimulationJob(scenario, schedule, 4096)]) == [None]
    (failure,) = pool.failures
    assert failure.kind is FailureKind.NEVER_FINISHES
    assert failure.reason.startswith(Code.MGS503.name) and "waits for a slot" in failure.reason
