"""The process of one rank that ``launch.py`` starts: worker FOLDER RANK NUM_RANKS."""

import os
import pickle
import signal
import sys
from pathlib import Path
from threading import Thread

import torch
import torch.distributed as dist

from .messages import RankLost
from .rank_run import carry_out_here
from .rendezvous import JOB, LOST, REPORTS, STORE


def main(folder: Path, rank: int, num_ranks: int) -> int:
    """Carry out what the folder says; rank 0 writes the reports. Return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this process ends it
    Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=(folder / STORE).as_uri(), rank=rank, world_size=num_ranks)
    jobs, seeds, detail = pickle.loads((folder / JOB).read_bytes())
    try:
        reports = tuple(carry_out_here(scenario, schedule, seeds, detail) for scenario, schedule in jobs)
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
    code = main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a thread may still wait in gloo
