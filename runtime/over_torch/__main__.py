"""One rank of a plan that torchrun starts: torchrun --nproc-per-node 4 -m magus.runtime.over_torch PLAN.json.

The exit code is 0 if all ranks end with what they should, 1 if not, 2 for another number of processes. ``launch.py``
starts it too, with the plans in a folder.
"""

import argparse
import os
import pickle
import signal
import sys
from pathlib import Path
from threading import Thread
from typing import TextIO

import torch
import torch.distributed as dist

from ...compiler.planning.build import ScheduleError
from ...compiler.text.diagnostics import CompileError, printable, render_text
from ..report import RunRefused
from ..run import Job, read_job
from .launch import JOBS, LOST, REPORTS, STORE, WORKER, loopback
from .messages import RankLost
from .rank import carry_out_here


def main() -> int:
    """Carry out what the arguments say; rank 0 prints. Return the exit code."""
    arguments = _arguments()
    if "WORLD_SIZE" not in os.environ:
        _say("magus: start it with torchrun, or use: magus run FILE --on torch", sys.stderr)
        return 2
    first, num_processes = os.environ["RANK"] == "0", int(os.environ["WORLD_SIZE"])
    try:
        system, workload, plan = read_job(arguments.file, arguments.schedule)
        if system.num_ranks != num_processes:
            ranks = system.num_ranks
            text = f"the plan is for {ranks} ranks, and {num_processes} processes are here"
            _say(f"magus: {text}; say --nproc-per-node {ranks} on one machine", sys.stderr)
            return 2
        if os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]:
            os.environ.update(loopback())
        dist.init_process_group("gloo")
        report = carry_out_here(system, workload, plan, range(arguments.seeds))
    except (CompileError, ScheduleError, RunRefused) as error:
        _say(_refusal(error), sys.stderr)  # by each: torchrun ends all with the first
        return 1
    except RankLost as error:
        _say(f"magus: {error}", sys.stderr)
        return LOST
    if first:
        last = report.runs[-1]
        _say(f"{report.schedule}\n  {last.outcome.value} on {report.num_ranks} ranks")
        for sentence in last.sentences:
            _say(f"    {sentence}")
    dist.barrier()
    dist.destroy_process_group()
    return 0 if report.exact else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("magus.runtime.over_torch", description="Carry a plan out, a process per rank.")
    parser.add_argument("file", type=Path, help="a plan, PLAN.json, or a scenario, FILE.mgs")
    parser.add_argument("--schedule", help="of a scenario: a name, a template expression or a plan file")
    parser.add_argument("--seeds", type=int, default=3, help="carry it out so many times, in other orders")
    return parser.parse_args()


def _say(text: str, stream: TextIO | None = None) -> None:
    """Print for torchrun's log; names of files and schedules come from outside."""
    print(printable(text, block=True), file=stream)


def _refusal(error: CompileError | ScheduleError | RunRefused) -> str:
    if isinstance(error, CompileError):
        return render_text(error.diagnostics)
    unfit = error.rejection
    return f"{unfit.code.name} error: {unfit.message}" + (f"\n  help: {unfit.hint}" if unfit.hint else "")


def work(folder: Path, rank: int, num_ranks: int) -> int:
    """Carry out what the folder of ``launch.py`` says; rank 0 writes the reports. Return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this process ends it
    Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=(folder / STORE).as_uri(), rank=rank, world_size=num_ranks)
    jobs: tuple[Job, ...]
    jobs, seeds, detail = pickle.loads((folder / JOBS).read_bytes())
    try:
        reports = tuple(carry_out_here(*job, seeds, detail) for job in jobs)
    except RankLost as error:
        print(error, file=sys.stderr)
        return LOST
    if rank == 0:
        (folder / REPORTS).write_bytes(pickle.dumps(reports))
    dist.barrier()
    dist.destroy_process_group()
    return 0


def _end_with_parent() -> None:
    """End this process at once when the other end of stdin closes."""
    sys.stdin.buffer.read()
    os._exit(LOST)


if __name__ == "__main__":
    launched = sys.argv[1:2] == [WORKER]
    code = work(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])) if launched else main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a thread may still wait in gloo
