"""Speed of the simulator, in line-hops per second: a unit of traffic passing one server.

Two loads. The shipped all_gather of 8 H100 behind NVSwitch, every rank simulated: both cores and the event-driven
oracle of the tests, from the same run. And one GPU of a folded system that multiplies matrices and sends its shard to
seven peers at the same time, which is what most questions to the advisor come down to.
"""

import sys
from collections.abc import Iterator
from functools import partial

from magus.compiler import compile_file
from magus.compiler.schedule_text import resolve_schedule
from magus.examples import path as example
from magus.simcore.engine import Core, run, suitable_core
from magus.simcore.lower import lower
from magus.simcore.program import TICKS_PER_SECOND, Flow, OpKind, Program, ProgramBuilder, Stage, TrafficClass
from tests.oracle import Oracle

from .report import Figure, main, timed

LINE_BYTES, PACKET_BYTES = 128, 1024
ORACLE_LINE_HOPS = 2_000_000
"""The oracle is not run on more line-hops than this."""

SPEEDUP_LINE_HOPS = 400_000
SPEEDUP_TARGET = 10
"""From that many line-hops up the simulator is to be so many times as fast as the oracle."""


def all_gather(per_rank: str) -> Program:
    """The shipped all_gather of 8 H100 behind NVSwitch, every rank simulated, at line granularity."""
    scenario = compile_file(example("all_gather_h100"), [("per_rank", per_rank)]).scenario()
    schedule = resolve_schedule(scenario, None)
    return lower(scenario, schedule, unit_bytes=scenario.gpu.line_bytes, fold=False).program


def overlapped_gemm(unit_bytes: int) -> Program:
    """608 tiles on 304 CUs with their traffic, and seven DMA transfers at a time to the peers, as one folded GPU."""
    builder = ProgramBuilder(8, folded=True, unit_bytes=unit_bytes)
    lines = unit_bytes // LINE_BYTES
    l2 = builder.server("l2", 830 * lines, _nanoseconds(137))
    hbm = builder.server("hbm", 3050 * lines, _nanoseconds(290))
    links = [builder.server(f"link+{peer}", 275_000 * lines, _nanoseconds(700)) for peer in range(1, 8)]
    cus, engines = builder.pool("cus", 304), builder.pool("dma", 7)
    tile_ticks = _nanoseconds(489_000)
    traffic = ((((l2, 0),), 40_000), (((hbm, 0), (l2, 0)), 3000), (((l2, 0), (hbm, 0)), 1000))
    flows = tuple(Flow(route, units // lines, tile_ticks * 9 // 10 * lines // units) for route, units in traffic)
    builder.op(0, OpKind.TILE, "gemm", [Stage(tile_ticks, flows)], pool=cus, count=608)
    for _ in range(8):
        for peer, link in enumerate(links, start=1):
            route = ((hbm, 0), (link, 0), (hbm, peer))
            flow = Flow(route, 40_000 // lines, 275_000 * lines, traffic=TrafficClass.COMM)
            builder.op(0, OpKind.TRANSFER, "chunk", [Stage(0, (flow,))], pool=engines, setup_ticks=_nanoseconds(1000))
    return builder.build()


def measure() -> Iterator[Figure]:
    """All figures, in the order they are measured."""
    for per_rank in ("32 KiB", "256 KiB", "1 MiB", "4 MiB"):
        yield from _all_gather_figures(all_gather(per_rank))
    for name, unit_bytes, target in (("line", LINE_BYTES, 12e6), ("packet", PACKET_BYTES, None)):
        program = overlapped_gemm(unit_bytes)
        seconds, result = timed(partial(run, program), repeats=2)
        load = f"overlapped gemm, folded, {name}, {program.num_line_hops:.1e} line-hops"
        yield Figure(f"{load}, {result.core}", program.num_line_hops / seconds, "line-hops/s", "higher", target)
        yield Figure(f"{load}, one run", seconds, "s", "lower", 1.2 if name == "packet" else None)


def _all_gather_figures(program: Program) -> Iterator[Figure]:
    line_hops = program.num_line_hops
    load = f"all_gather, 8 GPUs unfolded, {line_hops:.1e} line-hops"
    done, rates = [], {}
    for core in Core:
        seconds, result = timed(partial(run, program, core=core), repeats=3 if line_hops < 1e6 else 1)
        done.append(result.op_done.tolist())
        rates[core] = line_hops / seconds
        yield Figure(f"{load}, {core.value}", rates[core], "line-hops/s", "higher")
    if line_hops <= ORACLE_LINE_HOPS:
        seconds, expected = timed(Oracle(program).run)
        done.append(expected.done)
        yield Figure(f"{load}, oracle", line_hops / seconds, "line-hops/s", "higher")
        target = SPEEDUP_TARGET if line_hops >= SPEEDUP_LINE_HOPS else None
        speedup = rates[suitable_core(program)] * seconds / line_hops
        yield Figure(f"{load}, speedup over oracle", speedup, "x", "higher", target)
    assert all(times == done[0] for times in done), "what is compared must give the same results"


def _ticks(num_bytes: int, bytes_per_second: float) -> int:
    return round(num_bytes / bytes_per_second * TICKS_PER_SECOND)


def _nanoseconds(duration: float) -> int:
    return round(duration * TICKS_PER_SECOND / 1_000_000_000)


if __name__ == "__main__":
    sys.exit(main(__doc__.partition("\n")[0], measure))
