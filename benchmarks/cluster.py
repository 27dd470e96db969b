"""A sweep on a dask cluster whose parts die: how many answers are computed, repeated and lost, and what each takes.

``python -m benchmarks.cluster --questions 10000`` starts a scheduler and two workers on loopback. The program that asks
is killed after a third of the questions, a worker after two thirds; the same command then goes on. Workers log what
they have computed (``harness/computed_log.py``), and share no folder with the one that asks.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from .harness.computed_log import COMPUTED_LOG

PRELOAD = Path(__file__).parent / "harness" / "computed_log.py"
STEP, SIDE = 64, 100
"""Rows and columns of the tensors that are gathered are multiples of ``STEP``, up to ``SIDE`` of them each.

Only one schedule is looked at, besides the library's: it is about what happens to answers, not to find them.
"""
SCENARIO = f"""use "nvidia/h100"
param ROWS = {STEP} in {STEP}..{STEP * SIDE} step {STEP}
param COLS = {STEP} in {STEP}..{STEP * SIDE} step {STEP}
system node {{ gpus 2 x H100; fabric switch(nvswitch, link=nvlink) }}
workload gather on node {{
  x = tensor bf16[ROWS, COLS] shard rows
  y = all_gather(x)
}}
explore gather {{ schedules serial; engine dma(1) }}
"""
ROWS_AT_ONCE = 10
"""Of one sweep, which has 1,024 points at most."""
ONE_AFTER_THE_OTHER = """import json, sys
from magus.tui.cli import main
for command in json.loads(sys.argv[1]):
    sys.argv[1:] = command
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
"""
PATIENCE_S = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """``answered`` different points of ``asked``; ``computed`` answers, ``repeated`` of them; seconds of CPU in all."""

    asked: int
    answered: int
    computed: int
    repeated: int
    cpu_s: float

    @property
    def lost(self) -> int:
        """Points without an answer."""
        return self.asked - self.answered


@dataclass(frozen=True, slots=True)
class Loopback:
    """A scheduler and its workers, processes of this machine, with their files in ``folder``."""

    folder: Path

    @property
    def address_file(self) -> Path:
        """Where the scheduler says its address."""
        return self.folder / "scheduler.json"

    @property
    def log(self) -> Path:
        """What workers have computed."""
        return self.folder / "computed"

    def num_computed(self) -> int:
        """Lines of the log."""
        return self.log.read_text(encoding="ascii").count("\n") if self.log.exists() else 0

    @contextmanager
    def scheduler(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run a scheduler."""
        self.address_file.unlink(missing_ok=True)
        words = ("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        with _process(*words, "--scheduler-file", str(self.address_file)) as process:
            wait_for(self.address_file.exists, process)
            yield process

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run a worker of one thread."""
        words = ("distributed.cli.dask_worker", "--no-nanny", "--nthreads", "1", "--no-dashboard")
        more = {COMPUTED_LOG: str(self.log), "MAGUS_CACHE_DIR": str(self.folder / "workers")}
        file = ("--scheduler-file", str(self.address_file), "--local-directory", str(self.folder))
        begun = len(self._ready())
        with _process(*words, *file, "--preload", str(PRELOAD), more=more) as process:
            wait_for(lambda: len(self._ready()) > begun, process)
            yield process

    def _ready(self) -> list[Path]:
        return list(self.folder.glob(f"{self.log.name}.*"))

    @property
    def answers(self) -> Path:
        """What the sweeps print: a pipe would fill, and they would wait for a reader."""
        return self.folder / "answers.csv"

    def asking(self, num_questions: int) -> subprocess.Popen[str]:
        """Begin the sweeps over so many points, whose rows go to ``answers``, one sweep after the other."""
        address = json.loads(self.address_file.read_text(encoding="utf-8"))["address"]
        file = self.folder / "gather.mgs"
        file.write_text(SCENARIO, encoding="utf-8")
        rows, cols = sides(num_questions)
        of_cols, commands = f"COLS={STEP}..{STEP * cols} step {STEP}", list[list[str]]()
        for first in range(1, rows + 1, ROWS_AT_ONCE):
            last = min(rows, first + ROWS_AT_ONCE - 1)
            words = ["--set", f"ROWS={STEP * first}..{STEP * last} step {STEP}", "--set", of_cols]
            commands.append(["sweep", str(file), *words, "--no-verify", "--top", "1", "--csv", "--scheduler", address])
        command = [sys.executable, "-c", ONE_AFTER_THE_OTHER, json.dumps(commands)]
        more = {"MAGUS_CACHE_DIR": str(self.folder / "asking")}
        with self.answers.open("w") as out:
            return subprocess.Popen(command, env=_environment(more), stdout=out, stderr=subprocess.PIPE, text=True)


def killed_and_resumed(num_questions: int, folder: Path) -> Outcome:
    """Ask, kill who asks and then a worker, ask on, and ask once more."""
    before, there = _cpu_s(), Loopback(folder)
    with there.scheduler(), ExitStack() as workers:
        first, _ = (workers.enter_context(there.worker()) for _ in range(2))
        asking = there.asking(num_questions)
        wait_for(lambda: there.num_computed() >= num_questions // 3, asking)
        asking.kill()
        asking.communicate()
        asking = there.asking(num_questions)
        wait_for(lambda: there.num_computed() >= 2 * num_questions // 3, asking)
        first.kill()
        workers.enter_context(there.worker())
        _, said = asking.communicate(timeout=PATIENCE_S)
        assert asking.returncode == 0, said
        text = there.answers.read_text(encoding="utf-8")
        there.asking(num_questions).communicate(timeout=PATIENCE_S)
        assert there.answers.read_text(encoding="utf-8") == text, "answers changed"
    points = points_of(text)
    assert len(points) == len(set(points)), "a point is answered twice"
    lines = there.log.read_text(encoding="ascii").splitlines()
    rows, cols = sides(num_questions)
    return Outcome(rows * cols, len(points), len(lines), len(lines) - len(set(lines)), _cpu_s() - before)


def points_of(text: str) -> list[tuple[int, int]]:
    """Return rows and columns of the points of CSV that several sweeps have printed."""
    lines = (line.split(",", 2) for line in text.splitlines())
    return [(int(rows), int(cols)) for rows, cols, _ in lines if rows.isdecimal()]


def sides(num_questions: int) -> tuple[int, int]:
    """Return of how many numbers of rows and of columns that many questions are, or a few less."""
    rows = -(-num_questions // SIDE)
    return rows, num_questions // rows


def wait_for(is_so: Callable[[], bool], process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Wait until something is so, while a process runs.

    Raises
    ------
    RuntimeError
        If the process ends first, with what it said, or after ``PATIENCE_S``.
    """
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            raise RuntimeError(f"it ended first, or took too long: {process.communicate()[1]!r}")
        time.sleep(0.02)


@contextmanager
def _process(module: str, *words: str, more: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module in a process of its own, which ends with the block."""
    command = [sys.executable, "-m", module, *words]
    process = subprocess.Popen(
        command, env=_environment(more or {}), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "MAGUS_NO_CACHE"}
    return {**kept, **more}


def _cpu_s() -> float:
    """Seconds of CPU of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=10_000, metavar="N", help="at most 10,000")
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        found = killed_and_resumed(arguments.questions, Path(folder))
    print(f"{found.asked:,} asked, {found.computed:,} computed, {found.repeated} repeated, {found.lost} lost")
    print(f"{found.cpu_s / found.asked * 1e3:.0f} ms of CPU for each, with what processes take to begin")


if __name__ == "__main__":
    main()
