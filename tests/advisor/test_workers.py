"""Simulations in processes: same results, heard stops, nothing left behind, signals left alone."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from magus.advisor import enumerate_space
from magus.advisor.failures import FailureKind
from magus.advisor.workers import SimulationJob, open_workers, run_job
from magus.compiler.codes import Code
from magus.compiler.ir import Choice, EngineChoice, EngineKind, EngineMode, ExecutionOptions, Kernels, Wait
from magus.compiler.planning.build import build_schedule
from tests.helpers.paths import ROOT
from tests.helpers.scenarios.scenarios import ag_gemm, h100, switch

SCENARIO = ag_gemm(256, 512, 512)
JOBS = [
    SimulationJob(
        SCENARIO, build_schedule(SCENARIO, Choice("uniform_fused_1d", chunks, EngineChoice(EngineKind.DMA, 7))), 1024
    )
    for chunks in (16, 32, 64)
]
# Starts workers, says their pids, and sleeps inside the pool until it is killed.
HOLDER = """
import multiprocessing, sys, time
sys.path.insert(0, {root!r})
from magus.advisor.workers import open_workers
from tests.advisor.test_workers import JOBS
if __name__ == "__main__":
    with open_workers(2) as workers:
        workers.run(JOBS)
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        time.sleep(600)
"""


def test_processes_give_the_results_of_this_one_in_order() -> None:
    with open_workers(2) as workers:
        assert workers.run(JOBS) == [run_job(job) for job in JOBS]


@pytest.mark.parametrize("count", [1, 2])
def test_a_stop_is_heard_and_nothing_is_left(count: int) -> None:
    with open_workers(count, lambda: True) as workers:
        assert workers.run(JOBS) == [None] * len(JOBS)
        assert workers.stopped and not workers.failures


@pytest.mark.parametrize("count", [1, 2])
def test_what_was_simulated_before_a_stop_is_kept(count: int) -> None:
    done = 0

    def told(number: int) -> None:
        nonlocal done
        done = number

    with open_workers(count, lambda: done >= 1) as workers:
        results = workers.run(JOBS, told)

    assert workers.stopped
    assert any(results) and all(result in (None, run_job(job)) for job, result in zip(JOBS, results, strict=True))


@pytest.mark.parametrize("count", [1, 2])
def test_ctrl_c_ends_a_run_whose_caller_knows_of_it_and_no_other(count: int) -> None:
    pressed = False

    def press(number: int) -> None:
        nonlocal pressed
        pressed = number > 0
        if pressed:
            raise KeyboardInterrupt

    with open_workers(count, lambda: pressed) as workers:
        assert any(workers.run(JOBS, press)) and workers.stopped
    with open_workers(1) as workers, pytest.raises(KeyboardInterrupt):
        workers.run(JOBS, press)


@pytest.mark.parametrize("count", [1, 2])
def test_one_that_fails_takes_no_other_with_it(count: int) -> None:
    wrong = replace(JOBS[0], unit_bytes=SCENARIO.gpu.line_bytes + 1)
    with open_workers(count) as workers:
        results = workers.run([JOBS[0], wrong, JOBS[1]])

    assert results == [run_job(JOBS[0]), None, run_job(JOBS[1])]
    (failure,) = workers.failures
    assert failure.kind is FailureKind.FAULT and failure.subject == wrong.schedule.expression
    assert "ValueError" in failure.reason


def test_one_that_is_too_large_is_told_with_its_limit() -> None:
    vast = ag_gemm(1 << 20, 1 << 15, 1 << 17)
    choice = Choice("uniform_fused_1d", 16, EngineChoice(EngineKind.DMA, 7))
    with open_workers(1) as workers:
        assert workers.run([SimulationJob(vast, build_schedule(vast, choice), vast.gpu.line_bytes)]) == [None]

    (failure,) = workers.failures
    assert failure.kind is FailureKind.TOO_LARGE and "the limit is" in failure.reason


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


def test_what_never_finishes_is_told_with_its_circle() -> None:
    """Copies that queue for the SMs of a kernel that waits for them."""
    scenario = ag_gemm(3072, 1536, 512, ranks=3, gpu=h100(), fabric=switch())
    shared = EngineChoice(EngineKind.SM, 16, EngineMode.SHARED)
    tactics = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
    parts = ((1024, 768), (0, 256))
    schedule = build_schedule(scenario, Choice("bespoke", 3, shared, 3, tactics, parts=parts))

    with open_workers(1) as pool:
        assert pool.run([SimulationJob(scenario, schedule, 4096)]) == [None]
    (failure,) = pool.failures
    assert failure.kind is FailureKind.NEVER_FINISHES
    assert failure.reason.startswith(Code.MGS503.name) and "waits for a slot" in failure.reason
