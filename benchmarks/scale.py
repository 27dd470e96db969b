"""How far the simulator goes: many GPUs by folding, time linear in the work, memory.

Alone: ``python -m benchmarks.scale``; it is part of ``benchmarks.simcore``.
"""

import math
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import numpy as np

from magus.simcore.cores.engine import Core, run
from tests.helpers.oracle.collective_programs import hierarchical_all_reduce

from .harness.loads import LINE_BYTES, all_gather, ring_all_gather
from .harness.report import Figure, main, timed

MANY_GPUS, PLACES = 65_536, 8
LINES_A_GPU = (8 << 20) // LINE_BYTES
"""8 MiB, cut into lines."""

PEAK_MEMORY = """
import resource, sys
from pathlib import Path
from {loads} import all_gather
from magus.simcore.cores.engine import Core, run
program = all_gather("{size}")
run(program, core=Core.{core})
status = Path("/proc/self/status")
if status.exists():  # maxrss would be that of the process which started this one, if that is more
    peak = next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(program.num_line_hops, peak)
"""


def figures() -> Iterator[Figure]:
    """All figures, in the order they are measured."""
    yield from _ring_figures()
    yield from _hierarchical_figures()
    yield from _equality_figures()
    yield from _linearity_figures()
    yield from _memory_figures()


def _ring_figures() -> Iterator[Figure]:
    building, program = timed(partial(ring_all_gather, MANY_GPUS, 32))
    load = f"ring all_gather, {MANY_GPUS} GPUs folded, {program.num_line_hops:.1e} line-hops"
    yield Figure(f"{load}, building", building, "s", "lower")
    for core, target in ((Core.WINDOWS, 20), (Core.COMPILED, 2)):
        seconds, _ = timed(partial(run, program, core=core))
        yield Figure(f"{load}, {core.value}, building included", building + seconds, "s", "lower", target)


def _hierarchical_figures() -> Iterator[Figure]:
    """Reduce-scatter in the node, ring all_reduce on the rail, all_gather in the node."""
    build = partial(hierarchical_all_reduce, MANY_GPUS // PLACES, PLACES, LINES_A_GPU, folded=True)
    building, program = timed(build)
    load = f"hierarchical all_reduce, {PLACES} x {MANY_GPUS // PLACES} GPUs folded, 8 MiB each"
    yield Figure(f"{load}, {program.num_line_hops:.1e} line-hops, building", building, "s", "lower")
    for core in (Core.WINDOWS, Core.COMPILED):
        seconds, _ = timed(partial(run, program, core=core))
        yield Figure(f"{load}, {core.value}, building included", building + seconds, "s", "lower", 1)


def _equality_figures() -> Iterator[Figure]:
    """Ops of all ranks that have other times than those of the one rank that stands for all."""
    for num_gpus in (8, 64, 256):
        folded, whole = (
            run(hierarchical_all_reduce(num_gpus // PLACES, PLACES, LINES_A_GPU // 16, folded=fold))
            for fold in (True, False)
        )
        differ = sum(
            int((times != np.repeat(one, num_gpus)).sum())  # ops are described step by step, in each rank by rank
            for times, one in ((whole.op_done, folded.op_done), (whole.op_start, folded.op_start))
        )
        load = f"hierarchical all_reduce, {num_gpus} GPUs, {whole.line_hops:.1e} line-hops unfolded"
        yield Figure(f"{load}: ops that differ when folded", differ, "ops", "lower", 0)


def _linearity_figures() -> Iterator[Figure]:
    """The exponent of time over work, fitted to an all_gather of 1e5, 1e6, 1e7 and 1e8 line-hops."""
    loads = [all_gather(per_rank) for per_rank in ("64 KiB", "512 KiB", "8 MiB", "56 MiB")]
    for core in (Core.WINDOWS, Core.COMPILED):
        points = [
            (math.log(program.num_line_hops), math.log(timed(partial(run, program, core=core), repeats=2)[0]))
            for program in loads
        ]
        x_mean, y_mean = (sum(point[axis] for point in points) / len(points) for axis in (0, 1))
        slope = sum((x - x_mean) * (y - y_mean) for x, y in points) / sum((x - x_mean) ** 2 for x, _ in points)
        load = f"{loads[0].num_line_hops:.0e} to {loads[-1].num_line_hops:.0e}"
        yield Figure(f"exponent of time over line-hops, {load}, {core.value}", slope, "", "lower", 1.1)


def _memory_figures() -> Iterator[Figure]:
    """Of processes of their own, all they ever held included."""
    for core in (Core.WINDOWS, Core.COMPILED):
        code = PEAK_MEMORY.format(size="28 MiB", core=core.name)
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        line_hops, peak = map(int, done.stdout.split())
        load = f"all_gather, 8 GPUs unfolded, {line_hops:.1e} line-hops"
        yield Figure(f"{load}, {core.value}, peak memory", peak / 1e6, "MB", "lower", 300)


if __name__ == "__main__":
    sys.exit(main(__doc__.partition("\n")[0], figures))
