"""What the benchmarks simulate: shipped examples at a granularity, and systems built for one property."""

from functools import cache

from magus.compiler import compile_file
from magus.compiler.ir import TICKS_PER_SECOND, OpCase
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.examples import path as example
from magus.simcore.lower.plan import lower, plan_of
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.program import Flow, OpKind, OpSpec, Program, Stage, TrafficClass

LINE_BYTES, PACKET_BYTES = 128, 1024
DEMO, DOWN = "llama70b_tp8_mi300x", "gemm_rs_h100"


@cache
def shipped(name: str, *settings: tuple[str, str]) -> OpCase:
    """A shipped example, compiled."""
    return compile_file(example(name), settings).scenario().case


def program_of(scenario: OpCase, schedule: str | None, unit_bytes: int, *, fold: bool = True) -> Program:
    """``scenario`` under a schedule, the first declared if None, in units of ``unit_bytes``."""
    plan = plan_of(scenario, resolve_schedule(scenario, schedule))
    return lower(scenario.system, plan, unit_bytes=unit_bytes, fold=fold).program


def all_gather(per_rank: str, *, fold: bool = False) -> Program:
    """The shipped all_gather of 8 H100 behind NVSwitch, in lines."""
    return program_of(shipped("all_gather_h100", ("per_rank", per_rank)), None, LINE_BYTES, fold=fold)


def overlapped_gemm(unit_bytes: int) -> Program:
    """608 tiles on 304 CUs with their traffic, and seven DMA transfers at a time to the peers, as one folded GPU."""
    builder = ProgramBuilder(8, period=1, unit_bytes=unit_bytes)
    lines = unit_bytes // LINE_BYTES
    l2 = builder.server("l2", 830 * lines, _nanoseconds(137))
    hbm = builder.server("hbm", 3050 * lines, _nanoseconds(290))
    links = [builder.server(f"link+{peer}", 275_000 * lines, _nanoseconds(700)) for peer in range(1, 8)]
    cus, engines = builder.pool("cus", 304), builder.pool("dma", 7)
    tile_ticks = _nanoseconds(489_000)
    traffic = ((((l2, 0),), 40_000), (((hbm, 0), (l2, 0)), 3000), (((l2, 0), (hbm, 0)), 1000))
    flows = tuple(Flow(route, units // lines, tile_ticks * 9 // 10 * lines // units) for route, units in traffic)
    builder.op(0, OpSpec(OpKind.TILE, "gemm", [Stage(tile_ticks, flows)], pool=cus), count=608)
    for _ in range(8):
        for peer, link in enumerate(links, start=1):
            route = ((hbm, 0), (link, 0), (hbm, peer))
            flow = Flow(route, 40_000 // lines, 275_000 * lines, traffic=TrafficClass.COMM)
            builder.op(
                0, OpSpec(OpKind.TRANSFER, "chunk", [Stage(0, (flow,))], pool=engines, setup_ticks=_nanoseconds(1000))
            )
    return builder.build()


def ring_all_gather(num_ranks: int, lines_a_step: int) -> Program:
    """A ring on which every GPU passes on what it got in the step before, folded: each step waits for the one before.

    3 TB/s of memory, links of 50 GB/s and 500 ns each way.
    """
    builder = ProgramBuilder(num_ranks, period=1, unit_bytes=LINE_BYTES)
    hbm = builder.server("hbm", _ticks(LINE_BYTES, 3e12), _nanoseconds(300))
    out, back = (builder.server(name, _ticks(LINE_BYTES, 5e10), _nanoseconds(500)) for name in ("out", "in"))
    engines = builder.pool("dma", 1)
    gap = _ticks(LINE_BYTES, 1e11)
    flow = Flow(((hbm, 0), (out, 0), (back, 1), (hbm, 1)), lines_a_step, gap, traffic=TrafficClass.COMM)
    stages = (Stage(0, (flow,)),)
    last = range(0)
    for _ in range(num_ranks - 1):
        step = builder.op(0, OpSpec(OpKind.TRANSFER, "step", stages, pool=engines, setup_ticks=_nanoseconds(1000)))
        builder.after(step, last)
        last = step
    return builder.build()


def _ticks(num_bytes: int, bytes_per_second: float) -> int:
    return round(num_bytes / bytes_per_second * TICKS_PER_SECOND)


def _nanoseconds(duration: float) -> int:
    return round(duration * TICKS_PER_SECOND / 1_000_000_000)
