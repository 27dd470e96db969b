"""Speed of lanes: candidates of a search simulated side by side, against one by one, in line-hops per second.

Ratios compare within this run, in turns, and all ways give the same runs, which is asserted. Times are of
the processor, not of the clock: what else the machine does then matters less.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from magus.compiler.planning.build import ScheduleError
from magus.simcore.cores import engine
from magus.simcore.cores.batch import run_lanes
from magus.simcore.cores.engine import Core, pure_core, run
from magus.simcore.program.outcome import Run
from magus.simcore.program.program import Program

from .harness.loads import DEMO, DOWN, PACKET_BYTES, all_gather, overlapped_gemm, program_of, ring_all_gather, shipped
from .harness.report import Figure, main

SPEEDUP_TARGET = 2
DEMO_SECONDS = 0.8

TEMPLATES = ("uniform_fused_1d", "hetero_fused_1d")
ENGINES = ("dma(7)", "sm(8)", "sm(16)")
SCHEDULES = (
    *(f"{name}(engine={way})" for name in ("serial", "shard_p2p") for way in ENGINES),
    *(f"{name}(chunks={chunks}, engine={way})" for name in TEMPLATES for chunks in (8, 16, 32) for way in ENGINES),
)


@dataclass(frozen=True)
class Load:
    """Candidates of about so many line-hops each: a shipped scenario of a size, in units of a size."""

    name: str
    scenario: str
    m: str
    unit_bytes: int
    target: bool = False  # whether 64 of them are to be SPEEDUP_TARGET times as fast side by side

    def candidates(self, count: int) -> list[Program]:
        """``count`` candidates, each schedule in turn."""
        programs = _lowered(self.scenario, (("M", self.m),), self.unit_bytes)
        return [programs[idx % len(programs)] for idx in range(count)]


LOADS = (
    Load("1e3", "decode_small_batch", "16", 65536),
    Load("1e4", DOWN, "512", 65536, target=True),
    Load("1e5", DOWN, "512", 8192, target=True),
    Load("6e4, overlapped gemm", DEMO, "64", 8192),
)


def figures() -> Iterator[Figure]:
    """All figures, in the order they are measured."""
    for load in LOADS:
        yield from _load_figures(load)
    for name, program in (("ring", ring_all_gather(80, 32)), ("all_gather", all_gather("64 KiB", fold=True))):
        yield from _ratio_figures(f"{name}, {program.num_line_hops:.1e} line-hops", [program] * 64, None)
    programs = LOADS[2].candidates(64)
    yield from _ratio_figures("1e5 with idle gaps", [with_naps(program) for program in programs], None)
    slower = [slowed(program, 1 + idx % 4 / 4) for idx, program in enumerate(programs)]
    yield from _ratio_figures("1e5 with latencies from one to 1.75 times", slower, None)
    yield from _ratio_figures("overlapped gemm, packet", [overlapped_gemm(PACKET_BYTES)] * 4, None)
    yield from _demo_figures()


def with_naps(program: Program) -> Program:
    """The same, every op set up for a millisecond longer."""
    return replace(program, op_setup_ticks=program.op_setup_ticks + 10**11)


def slowed(program: Program, factor: float) -> Program:
    """The same with latencies ``factor`` times as long."""
    return replace(program, latency_ticks=(program.latency_ticks * factor).astype(np.int64))


def _load_figures(load: Load) -> Iterator[Figure]:
    """One by one in windows and on the heap, then 1, 8 and 64 in lanes."""
    programs = load.candidates(64)
    line_hops = _line_hops(programs) / len(programs)
    few = programs[:: len(programs) // 8]
    yield Figure(f"{load.name}, line-hops a candidate", line_hops, "line-hops", "higher")
    seconds, _ = _cpu_seconds([partial(_one_by_one, few, Core.HEAP)])[0]
    yield Figure(f"{load.name}, one by one, heap", _line_hops(few) / seconds, "line-hops/s", "higher")
    for count in (1, 8):
        part = programs[:count]
        seconds, _ = _cpu_seconds([partial(run_lanes, part, core=Core.WINDOWS)])[0]
        yield Figure(f"{load.name}, {count} in lanes", _line_hops(part) / seconds, "line-hops/s", "higher")
    yield from _ratio_figures(load.name, programs, SPEEDUP_TARGET if load.target else None)


def _ratio_figures(name: str, programs: Sequence[Program], target: float | None) -> Iterator[Figure]:
    """One by one in windows, and side by side."""
    ways = (partial(_one_by_one, programs, Core.WINDOWS), partial(run_lanes, programs, core=Core.WINDOWS))
    (alone, expected), (laned, found) = _cpu_seconds(ways)
    assert _same(found, expected), "what is compared must give the same runs"
    line_hops = _line_hops(programs)
    load = f"{name}, {len(programs)}"
    yield Figure(f"{load} one by one, windows", line_hops / alone, "line-hops/s", "higher")
    yield Figure(f"{load} in lanes", line_hops / laned, "line-hops/s", "higher")
    yield Figure(f"{load} in lanes over one by one in windows", alone / laned, "x", "higher", target)


def _demo_figures() -> Iterator[Figure]:
    """All schedules of the demo that differ, in packets."""
    programs = _lowered(DEMO, (), PACKET_BYTES)
    ways = (
        lambda: tuple(run(program, core=pure_core(program)) for program in programs),
        partial(run_lanes, programs, core=Core.WINDOWS),
    )
    (alone, expected), (laned, found) = _cpu_seconds(ways, repeats=1)
    assert _same(found, expected), "what is compared must give the same runs"
    name = f"demo, folded, packet, {len(programs)} schedules"
    yield Figure(f"{name}, one by one", alone / len(programs), "s/candidate", "lower", DEMO_SECONDS)
    yield Figure(f"{name}, lanes", laned / len(programs), "s/candidate", "lower", DEMO_SECONDS)


def _lowered(scenario: str, settings: tuple[tuple[str, str], ...], unit_bytes: int) -> list[Program]:
    programs = []
    for schedule in SCHEDULES:
        try:
            programs.append(program_of(shipped(scenario, *settings), schedule, unit_bytes))
        except ScheduleError:  # its chunks do not divide
            continue
    return programs


def _one_by_one(programs: Sequence[Program], core: Core) -> tuple[Run, ...]:
    return tuple(engine.run(program, core=core) for program in programs)


def _cpu_seconds(
    ways: Sequence[Callable[[], tuple[Run, ...]]], repeats: int = 3
) -> list[tuple[float, tuple[Run, ...]]]:
    """Fastest of a few turns of each way, and what it returned."""
    best: list[tuple[float, tuple[Run, ...]]] = [(math.inf, ())] * len(ways)
    for _ in range(repeats):
        for idx, way in enumerate(ways):
            begin = time.process_time()
            result = way()
            best[idx] = (min(best[idx][0], time.process_time() - begin), result)
    return best


def _line_hops(programs: Sequence[Program]) -> int:
    return sum(program.num_line_hops for program in programs)


def _same(found: Sequence[Run], expected: Sequence[Run]) -> bool:
    pairs = zip(found, expected, strict=True)
    return all(np.array_equal(one.op_done, other.op_done) and one.line_hops == other.line_hops for one, other in pairs)


if __name__ == "__main__":
    sys.exit(main(__doc__.partition("\n")[0], figures))
