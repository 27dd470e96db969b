"""Speed of the compiled core on programs with kernels and on collectives alone, in line-hops per second of CPU time.

``--against PATH`` measures another checkout too, run by run in turns with this one, and adds the ratios. Each load and
checkout has a process of its own, which lowers the program and simulates it once before it is measured; the fastest
run counts. The time to compile is that of a process with an empty cache folder.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import IO

from .harness.checkouts import HERE, environment, trees
from .harness.report import Figure, parser_of, tell

UNCHANGED = 0.97
"""How fast a change may make the core, by the median over the loads, beside the checkout it is measured against."""

SECONDS_PER_TURN = 0.3
"""Of CPU time; short runs are repeated until it is over."""

LOAD_COMPILED = """
import time
begin = time.perf_counter()
from magus.simcore.cores.engine import Core, run
from magus.simcore.program.builder import ProgramBuilder
program = ProgramBuilder(1, unit_bytes=128).build()
loaded = time.perf_counter()
run(program, core=Core.COMPILED)
print(time.perf_counter() - loaded)
"""


@dataclass(frozen=True, slots=True)
class Load:
    """A shipped example under a schedule, the first declared if it is empty."""

    example: str
    schedule: str
    unit_bytes: int = 128

    @property
    def name(self) -> str:
        """What it is called in the figures, and ``--only`` looks for."""
        return f"{self.example} {self.schedule or 'as declared'}, {self.unit_bytes} B"


DMA7 = "engine=dma(7)"
LOADS = (
    Load("llama70b_tp8_mi300x", ""),
    Load("llama70b_tp8_mi300x", f"serial({DMA7})"),
    Load("llama70b_tp8_mi300x", f"hetero_fused_1d(chunks=16, {DMA7})"),
    Load("llama70b_tp8_mi300x", "", 1024),
    Load("moe_dispatch_mi300x", ""),
    Load("moe_dispatch_mi300x", f"hetero_fused_1d(chunks=16, {DMA7})"),
    Load("moe_combine_mi300x", ""),
    Load("hot_expert_mi300x", ""),
    Load("gemm_rs_h100", ""),
    Load("gemm_rs_h100", "uniform_fused_1d(chunks=32)"),
    Load("ring_attention_h100", ""),
    Load("ulysses_h100", ""),
    Load("all_to_all_mi300x", ""),
    Load("fsdp_two_nodes_h100", "", 8192),
    Load("all_gather_h100", ""),
    Load("all_gather_h100", "ring(engine=dma(7))"),
    Load("all_reduce_h100", ""),
    Load("all_reduce_h100", "ring(chunks=32, engine=sm(32))"),
)


def work(load: Load) -> None:
    """Be the process of one load: say its line-hops, then for each line read run it, and say what it took."""
    from magus.simcore.cores.engine import Core, run

    from .harness.loads import program_of, shipped

    program = program_of(shipped(load.example), load.schedule or None, load.unit_bytes)
    print(run(program, core=Core.COMPILED).line_hops, flush=True)
    for _ in sys.stdin:
        print(fastest(partial(run, program, core=Core.COMPILED)), flush=True)


def fastest(action: Callable[[], object]) -> float:
    """CPU seconds of the fastest of as many calls as a turn has time for."""
    begin = time.process_time()
    best, now = float("inf"), begin
    while now < begin + SECONDS_PER_TURN:
        action()
        before, now = now, time.process_time()
        best = min(best, now - before)
    return best


@dataclass
class Worker:
    """A process that runs one load of one checkout when it is told to."""

    said: IO[str]
    reported: IO[str]
    seconds: float = float("inf")  # of the fastest run

    @classmethod
    def start(cls, tree: Path, load: int, stack: ExitStack) -> "Worker":
        """Start the process; it ends with ``stack``."""
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.compiled", "--work", str(load)],
                env=environment(tree, HERE),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert process.stdin and process.stdout, "both are pipes"
        return cls(process.stdout, process.stdin)

    def run(self) -> None:
        """Run the load for one turn."""
        print(file=self.reported, flush=True)
        self.seconds = min(self.seconds, float(self.said.readline()))


def load_figures(places: Mapping[str, Path], number: int, rounds: int) -> Iterator[Figure]:
    """Rates of one load in each checkout, and their ratio."""
    load = LOADS[number]
    with ExitStack() as stack:
        workers = {label: Worker.start(tree, number, stack) for label, tree in places.items()}
        line_hops = {label: int(worker.said.readline()) for label, worker in workers.items()}
        for _ in range(rounds):
            for worker in workers.values():
                worker.run()
    rates = {label: line_hops[label] / worker.seconds for label, worker in workers.items()}
    for label, rate in rates.items():
        yield Figure(f"{load.name}, {label}", rate, "line-hops/s", "higher")
    if len(rates) == 2:
        yield Figure(f"{load.name}, here over there", rates["here"] / rates["there"], "x", "higher")


def compile_figures(places: Mapping[str, Path]) -> Iterator[Figure]:
    """Seconds to import numba and compile, and then to load what was compiled."""
    for label, tree in places.items():
        with tempfile.TemporaryDirectory() as folder:
            for what in ("compile", "load from the cache on disk"):
                seconds = seconds_to_load(tree, Path(folder))
                yield Figure(f"import numba and {what}, {label}", seconds, "s", "lower")


def seconds_to_load(tree: Path, cache: Path) -> float:
    """Seconds until the compiled core can run, in a process of its own with the cache folder ``cache``."""
    variables = {**environment(tree), "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", LOAD_COMPILED]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=variables).stdout)


def figures(places: Mapping[str, Path], only: str, rounds: int) -> Iterator[Figure]:
    """Those of loads whose name contains ``only``; of the time to compile if that is empty."""
    if not only:
        yield from compile_figures(places)
    ratios = []
    for number, load in enumerate(LOADS):
        if only in load.name:
            for figure in load_figures(places, number, rounds):
                yield figure
                ratios += [figure.value] if figure.unit == "x" else []
    if ratios:
        yield Figure("median, here over there", median(ratios), "x", "higher", UNCHANGED)


def run(argv: Sequence[str] | None = None) -> int:
    """The command line; a missed target is reported and is no error."""
    parser = parser_of(__doc__)
    parser.add_argument("--against", type=Path, metavar="PATH", help="another checkout of Magus, measured in turns")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="turns of each load and checkout")
    parser.add_argument("--only", default="", metavar="WORD", help="loads whose name contains this")
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.work is not None:
        work(LOADS[options.work])
        return 0
    with trees(options.against) as places:
        tell(figures(places, options.only, options.rounds), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(run())
