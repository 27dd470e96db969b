"""Speed of the simulator, in line-hops per second: a unit of traffic passing one server.

Ratios compare within this run: all cores and the event-driven oracle of the tests give the same integers on the same
loads, which is asserted, and simpy about the same makespan.
"""

import math
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import numpy as np

from magus.advisor import enumerate_space
from magus.compiler.ir import OpCase
from magus.compiler.planning.build import build_op_plan
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.simcore.cores.engine import Core, run
from magus.simcore.lower.plan import lower, plan_of
from magus.simcore.program.program import Program
from tests.helpers.oracle.collective_programs import hierarchical_all_reduce
from tests.helpers.oracle.oracle import Oracle

from .compiled import compile_figures
from .harness import simpy_machine
from .harness.checkouts import trees
from .harness.loads import (
    DEMO,
    DOWN,
    LINE_BYTES,
    PACKET_BYTES,
    all_gather,
    overlapped_gemm,
    program_of,
    ring_all_gather,
    shipped,
)
from .harness.report import Figure, main, timed

MANY_GPUS, PLACES = 65_536, 8
LINES_A_GPU = (8 << 20) // LINE_BYTES
"""8 MiB, cut into lines."""

PEAK_MEMORY = """
import resource, sys
from pathlib import Path
from benchmarks.harness.loads import all_gather
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


def _scale_figures() -> Iterator[Figure]:
    """How far the simulator goes: many GPUs by folding, time linear in the work, memory."""
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


ORACLE_LINE_HOPS = 2_000_000
"""The oracle is not run on more line-hops than this."""

LARGE_LINE_HOPS, SMALL_LINE_HOPS = 400_000, 40_000
LARGE_SPEEDUP, SMALL_SPEEDUP, COMPILED_SPEEDUP = 15, 6, 1.7
"""How many times as fast as the oracle, from that many line-hops up; and compiled as fast as numpy, for large ones."""

ORACLE_RATE = 500_000
"""Line-hops a second that the oracle should reach itself, or being faster would be no feat."""


def measure() -> Iterator[Figure]:
    """All figures, in the order they are measured."""
    with trees() as places:
        yield from compile_figures(places)
    for per_rank in ("32 KiB", "256 KiB", "1 MiB", "4 MiB"):
        yield from _all_gather_figures(all_gather(per_rank))
    yield from _simpy_figures(all_gather("256 KiB"))
    yield from _folded_figures()
    for name, unit_bytes, target in (("line", LINE_BYTES, 12e6), ("packet", PACKET_BYTES, None)):
        program = overlapped_gemm(unit_bytes)
        seconds, result = timed(partial(run, program), repeats=2)
        load = f"overlapped gemm, folded, {name}, {program.num_line_hops:.1e} line-hops"
        yield Figure(f"{load}, {result.core}", program.num_line_hops / seconds, "line-hops/s", "higher", target)
        yield Figure(f"{load}, one run", seconds, "s", "lower", 1.2 if name == "packet" else None)
    yield from _demo_figures()
    yield from _packet_error_figures()
    yield from _scale_figures()


def _all_gather_figures(program: Program) -> Iterator[Figure]:
    line_hops = program.num_line_hops
    load = f"all_gather, 8 GPUs unfolded, {line_hops:.1e} line-hops"
    large = line_hops >= LARGE_LINE_HOPS
    done = []
    best = dict.fromkeys(Core, math.inf)
    for _ in range(3):  # in turns, so that what else the machine does hits all of them
        for core in Core:
            seconds, result = timed(partial(run, program, core=core))
            best[core] = min(best[core], seconds)
            done.append(result.op_done.tolist())
    rates = {core: line_hops / seconds for core, seconds in best.items()}
    for core, rate in rates.items():
        yield Figure(f"{load}, {core.value}", rate, "line-hops/s", "higher")
    speedup, target = rates[Core.COMPILED] / rates[Core.WINDOWS], COMPILED_SPEEDUP if large else None
    yield Figure(f"{load}, compiled over numpy", speedup, "x", "higher", target)
    if line_hops <= ORACLE_LINE_HOPS:
        seconds, expected = timed(Oracle(program).run)
        done.append(expected.done)
        yield Figure(f"{load}, oracle", line_hops / seconds, "line-hops/s", "higher", ORACLE_RATE)
        speedup = rates[Core.WINDOWS] * seconds / line_hops
        target = LARGE_SPEEDUP if large else SMALL_SPEEDUP if line_hops >= SMALL_LINE_HOPS else None
        yield Figure(f"{load}, pure over oracle", speedup, "x", "higher", target)
    assert all(times == done[0] for times in done), "what is compared must give the same results"


def _simpy_figures(program: Program) -> Iterator[Figure]:
    line_hops = program.num_line_hops
    load = f"all_gather, 8 GPUs unfolded, {line_hops:.1e} line-hops"
    seconds, ticks = timed(partial(simpy_machine.makespan, program))
    yield Figure(f"{load}, simpy", line_hops / seconds, "line-hops/s", "higher")
    for core in (Core.WINDOWS, Core.COMPILED):
        own, result = timed(partial(run, program, core=core), repeats=3)
        assert math.isclose(result.makespan_ticks, ticks, rel_tol=0.01), "simpy must simulate the same machine"
        yield Figure(f"{load}, {core.value} over simpy", seconds / own, "x", "higher", 50)


def _folded_figures() -> Iterator[Figure]:
    """Both loads folded to one GPU, from thousands to a hundred thousand line-hops."""
    gathers = [("all_gather", all_gather(per_rank, fold=True)) for per_rank in ("8 KiB", "64 KiB", "512 KiB")]
    rings = [("ring", ring_all_gather(num_ranks, 32)) for num_ranks in (9, 80, 800)]
    for name, program in (*gathers, *rings):
        line_hops = program.num_line_hops
        load = f"{name}, folded, {line_hops:.1e} line-hops"
        for core, target in ((Core.WINDOWS, None), (Core.COMPILED, 15e6 if line_hops >= 1e5 else None)):
            seconds, _ = timed(partial(run, program, core=core), repeats=5)
            yield Figure(f"{load}, {core.value}", line_hops / seconds, "line-hops/s", "higher", target)


def _demo_figures() -> Iterator[Figure]:
    """The demo under its declared schedule, folded."""
    scenario = shipped(DEMO)
    schedule = resolve_schedule(scenario, None)
    seconds, _ = timed(partial(lower, scenario.system, plan_of(scenario, schedule), unit_bytes=PACKET_BYTES), repeats=5)
    yield Figure("demo, folded, lowering", seconds, "s", "lower", 0.05)
    yield from _lowering_figures(scenario)
    for name, unit_bytes, targets in (("packet", PACKET_BYTES, (0.8, 0.5)), ("line", LINE_BYTES, (4.0, 2.0))):
        program = program_of(scenario, None, unit_bytes)
        for core, target in zip((Core.WINDOWS, Core.COMPILED), targets, strict=True):
            seconds, result = timed(partial(run, program, core=core), repeats=3)
            load = f"demo, folded, {name}, {result.line_hops:.1e} line-hops, {core.value}"
            yield Figure(load, seconds, "s", "lower", target)


def _lowering_figures(scenario: OpCase) -> Iterator[Figure]:
    """Lowering against simulating, over every tenth feasible schedule of a scenario."""
    lowering = simulating = 0.0
    for choice in enumerate_space(scenario).choices[::10]:
        schedule = build_op_plan(scenario, choice)
        seconds, lowered = timed(partial(lower, scenario.system, plan_of(scenario, schedule), unit_bytes=PACKET_BYTES))
        lowering += seconds
        simulating += timed(partial(run, lowered.program))[0]
    yield Figure("demo, lowering over simulating its candidates in packets", lowering / simulating, "x", "lower", 1)


def _packet_error_figures() -> Iterator[Figure]:
    """How far the makespan in packets is from the one in lines."""
    schedules = ("serial(engine=dma(7))", "shard_p2p(engine=dma(7))", "uniform_fused_1d(chunks=64, engine=dma(7))")
    hetero = "hetero_fused_1d(chunks=16, engine=dma(7))"
    for name, texts in ((DEMO, (*schedules, hetero)), (DOWN, ("shard_p2p()", "uniform_fused_1d(chunks=32)"))):
        for text in texts:
            by_packet, by_line = (
                run(program_of(shipped(name), text, unit_bytes), core=Core.COMPILED).makespan_ticks
                for unit_bytes in (PACKET_BYTES, LINE_BYTES)
            )
            error = 100 * abs(by_packet / by_line - 1)
            yield Figure(f"{name}, {text}: packets", error, "% of makespan", "lower")


if __name__ == "__main__":
    sys.exit(main(__doc__.partition("\n")[0], measure))
