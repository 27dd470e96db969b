"""Speed of the simulator, in line-hops per second: a unit of traffic passing one server.

Ratios compare within this run: all cores and the event-driven oracle of the tests give the same integers on the same
loads, which is asserted, and simpy about the same makespan. "Pure" is the faster of the two cores without numba.
"""

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial

from magus.compiler.schedule_text import resolve_schedule
from magus.simcore.engine import Core, pure_core, run
from magus.simcore.lower import lower
from magus.simcore.program import Program
from tests.oracle import Oracle

from . import simpy_machine
from .loads import (
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
from .report import Figure, main, timed

ORACLE_LINE_HOPS = 2_000_000
"""The oracle is not run on more line-hops than this."""

SPEEDUP_LINE_HOPS = 400_000
SPEEDUP_TARGET, COMPILED_SPEEDUP_TARGET = 10, 1.7
"""From that many line-hops up: how many times as fast as the oracle, and compiled as fast as numpy."""

LOAD_COMPILED = """
import time
begin = time.perf_counter()
from magus.simcore.engine import Core, run
from magus.simcore.program import ProgramBuilder
program = ProgramBuilder(1, folded=False, unit_bytes=128).build()
loaded = time.perf_counter()
run(program, core=Core.COMPILED)
print(time.perf_counter() - loaded)
"""


def measure() -> Iterator[Figure]:
    """All figures, in the order they are measured."""
    yield from _loading_figures()
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
    yield from _ring_figures()
    yield from _packet_error_figures()
    yield from _linearity_figures()


def _loading_figures() -> Iterator[Figure]:
    """In processes of their own, with a cache folder that is empty the first time."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("compile", "load from the cache on disk"):
            command = [sys.executable, "-c", LOAD_COMPILED]
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            yield Figure(f"compiled core, import numba and {name}", float(done.stdout), "s", "lower")


def _all_gather_figures(program: Program) -> Iterator[Figure]:
    line_hops = program.num_line_hops
    load = f"all_gather, 8 GPUs unfolded, {line_hops:.1e} line-hops"
    large = line_hops >= SPEEDUP_LINE_HOPS
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
    speedup, target = rates[Core.COMPILED] / rates[Core.WINDOWS], COMPILED_SPEEDUP_TARGET if large else None
    yield Figure(f"{load}, compiled over numpy", speedup, "x", "higher", target)
    if line_hops <= ORACLE_LINE_HOPS:
        seconds, expected = timed(Oracle(program).run)
        done.append(expected.done)
        yield Figure(f"{load}, oracle", line_hops / seconds, "line-hops/s", "higher")
        speedup = rates[pure_core(program)] * seconds / line_hops
        yield Figure(f"{load}, pure over oracle", speedup, "x", "higher", SPEEDUP_TARGET if large else None)
    assert all(times == done[0] for times in done), "what is compared must give the same results"


def _simpy_figures(program: Program) -> Iterator[Figure]:
    line_hops = program.num_line_hops
    load = f"all_gather, 8 GPUs unfolded, {line_hops:.1e} line-hops"
    seconds, ticks = timed(partial(simpy_machine.makespan, program))
    yield Figure(f"{load}, simpy", line_hops / seconds, "line-hops/s", "higher")
    for core in (pure_core(program), Core.COMPILED):
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
        pure = pure_core(program)
        for core, target in ((pure, 1.5e6), (Core.COMPILED, 15e6 if line_hops >= 1e5 else None)):
            seconds, _ = timed(partial(run, program, core=core), repeats=5)
            yield Figure(f"{load}, {core.value}", line_hops / seconds, "line-hops/s", "higher", target)


def _demo_figures() -> Iterator[Figure]:
    """The demo under its declared schedule, folded."""
    scenario = shipped(DEMO)
    schedule = resolve_schedule(scenario, None)
    seconds, _ = timed(partial(lower, scenario, schedule, unit_bytes=PACKET_BYTES), repeats=5)
    yield Figure("demo, folded, lowering", seconds, "s", "lower", 0.05)
    for name, unit_bytes, targets in (("packet", PACKET_BYTES, (0.8, 0.5)), ("line", LINE_BYTES, (4.0, 2.0))):
        program = program_of(scenario, None, unit_bytes)
        for core, target in zip((Core.WINDOWS, Core.COMPILED), targets, strict=True):
            seconds, result = timed(partial(run, program, core=core), repeats=3)
            load = f"demo, folded, {name}, {result.line_hops:.1e} line-hops, {core.value}"
            yield Figure(load, seconds, "s", "lower", target)


def _ring_figures() -> Iterator[Figure]:
    build = partial(ring_all_gather, 65_536, 32)
    building, program = timed(build)
    load = f"ring all_gather, 65536 GPUs folded, {program.num_line_hops:.1e} line-hops"
    yield Figure(f"{load}, building", building, "s", "lower")
    for core, target in ((pure_core(program), 20), (Core.COMPILED, 2)):
        seconds, _ = timed(partial(run, program, core=core))
        yield Figure(f"{load}, {core.value}, building included", building + seconds, "s", "lower", target)


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


def _linearity_figures() -> Iterator[Figure]:
    """The exponent of time over work, fitted to an all_gather of 1e5, 1e6 and 1.5e7 line-hops."""
    loads = [all_gather(per_rank) for per_rank in ("64 KiB", "512 KiB", "8 MiB")]
    for core in (Core.WINDOWS, Core.COMPILED):
        points = [
            (math.log(program.num_line_hops), math.log(timed(partial(run, program, core=core), repeats=3)[0]))
            for program in loads
        ]
        x_mean, y_mean = (sum(point[axis] for point in points) / len(points) for axis in (0, 1))
        slope = sum((x - x_mean) * (y - y_mean) for x, y in points) / sum((x - x_mean) ** 2 for x, _ in points)
        yield Figure(f"exponent of time over line-hops, 1e5 to 1.5e7, {core.value}", slope, "", "lower")


if __name__ == "__main__":
    sys.exit(main(__doc__.partition("\n")[0], measure))
