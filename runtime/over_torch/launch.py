"""Processes of this machine that carry plans out, one for each rank; they end when this one does."""

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from ..report import RunRefused, RunReport, reject_run
from ..run import DETAIL, Job

WORKER = "--worker"
"""The first word of a process that is started here: WORKER FOLDER RANK NUM_RANKS."""
JOBS, REPORTS, STORE = "jobs", "reports", "store"
"""Files in the folder of a run: what to do, what became of it, and where ranks find each other."""
LOST = 3
"""Exit code of a process that lost another one."""
INTERFACE = "GLOO_SOCKET_IFNAME"
LOOK_S = 0.02
"""How often to look at the processes."""
PATIENCE_S = 5
"""How long a process has to end once it is told to."""


def loopback() -> dict[str, str]:
    """Return the environment in which gloo stays on this machine, unless it already says which interface to take."""
    return {} if INTERFACE in os.environ else {INTERFACE: "lo0" if sys.platform == "darwin" else "lo"}


class RankFailed(RuntimeError):
    """The process of a rank has ended without a result."""


def carry_out_over_torch(
    jobs: Sequence[Job], seeds: Iterable[int] = range(3), detail: int | None = DETAIL
) -> tuple[RunReport, ...]:
    """Carry out ``jobs``, all for as many ranks, one after the other, in a process for each rank on this machine.

    ``seeds`` and ``detail`` are those of ``magus.runtime.carry_out``.

    Raises
    ------
    RunRefused
        If one of them cannot be carried out.
    ModuleNotFoundError
        If torch is not installed.
    RankFailed
        If a process fails, or is ended.
    """
    if find_spec("torch") is None:
        raise ModuleNotFoundError("torch is not installed", name="torch")
    for system, _, plan in jobs:
        RunRefused.require(reject_run(system, plan))
    (num_ranks,) = {system.num_ranks for system, _, _ in jobs}
    with TemporaryDirectory(prefix="magus-") as name:
        folder = Path(name)
        (folder / JOBS).write_bytes(pickle.dumps((tuple(jobs), tuple(seeds), detail)))
        with _processes(folder, num_ranks) as processes:
            _wait_for(processes, folder)
        reports: tuple[RunReport, ...] = pickle.loads((folder / REPORTS).read_bytes())
    return reports


@contextmanager
def _processes(folder: Path, num_ranks: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start a process for each rank; whatever happens none is left."""
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, **loopback(), "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(num_ranks):
            words = [sys.executable, "-m", "magus.runtime.over_torch", WORKER, str(folder), str(rank), str(num_ranks)]
            with (folder / f"rank{rank}.err").open("wb") as errors:
                process = subprocess.Popen(
                    words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors
                )
            processes.append(process)
        yield processes
    finally:
        _end(processes)


def _wait_for(processes: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    """Wait until all have ended well; one that fails takes those with it that only lost it."""
    codes: list[int | None] = [None]
    while None in codes and all(code in (None, 0, LOST) for code in codes):
        time.sleep(LOOK_S)
        codes = [process.poll() for process in processes]
    failed = [rank for rank, code in enumerate(codes) if code not in (None, 0)]
    if failed:
        rank = min(failed, key=lambda rank: codes[rank] == LOST)
        said = (folder / f"rank{rank}.err").read_text(errors="replace").strip().splitlines()
        raise RankFailed(f"the process of rank {rank} ended with {codes[rank]}: {said[-1] if said else 'no message'}")


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
