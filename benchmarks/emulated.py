"""What it costs to simulate one GPU beside others that are replayed, by how many there are (Eidola, figure 11).

The kernel is the fused GEMV and all_reduce of arXiv 2305.06942, in which each GPU has as much of the matrix whatever
their number. The paper has 3 to 255 replayed ones and 7.3 to 35.9 times the simulation of a single GPU, and 256 times
for all 256 in detail. What is alike in both is how much less one GPU beside replayed ones costs than all of them.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from magus.compiler import compile_text
from magus.compiler.ir import OpCase, OpPlan, Replay
from magus.compiler.planfile.file import ignore_warnings
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.simcore import RunOptions, record_writes, simulate_op

from .harness.report import Figure, main, timed

ROWS, COLUMNS, LINE_BYTES = 8192, 4096, 128
REPLAYED = (3, 15, 63)
IN_DETAIL = (3, 15)
"""Numbers for which all GPUs are simulated too, none for another."""
PUBLISHED, PUBLISHED_SAVED = "the paper 7.3 to 35.9, of 3 to 255", "the paper 7.1 to 35, of 256"
"""Figure 11 of arXiv 2606.12638: over a single GPU, and 256 times that over both ends of it."""


def fused(gpus: int) -> tuple[OpCase, OpPlan]:
    """Return the fused kernel on ``gpus`` MI300X in a full mesh; of one GPU the GEMV alone."""
    columns = COLUMNS * gpus
    shards = ("shard cols", "shard rows") if gpus > 1 else ("", "")
    result, template = "all_reduce(gemm(w, v))", f"hetero_unfused_1d(chunks={gpus}, streams=1, engine=sm(tiles),"
    scenario = compile_text(
        f'use "amd/mi300x"\nsystem node {{ gpus {max(2, gpus)} x MI300X; fabric full_mesh(xgmi) }}\n'
        f"workload fused on node {{ w = tensor bf16[{ROWS}, {columns}] {shards[0]}\n"
        f"v = tensor bf16[{columns}, 1] {shards[1]}\ny = {result if gpus > 1 else 'gemm(w, v)'} }}\n"
    )
    case = scenario.scenario().case
    text = f"{template} kernel=persistent, per=tile)" if gpus > 1 else "serial(engine=dma(1))"
    return case, resolve_schedule(case, text, ignore_warnings)


def replaying(case: OpCase, schedule: OpPlan) -> OpCase:
    """Return ``case`` in which rank 0 alone is simulated, beside what the others wrote in a run of all."""
    writes = record_writes(case, schedule, unit_bytes=LINE_BYTES)
    return replace(case, system=replace(case.system, replay=Replay("recorded", writes)))


def figures() -> Iterator[Figure]:
    """All figures: simulations in lines, lowering included."""
    case, schedule = fused(1)
    cpu_time = partial(timed, repeats=3, clock=time.process_time)
    alone, _ = cpu_time(partial(simulate_op, case, schedule, unit_bytes=LINE_BYTES))
    yield Figure("GEMV on one GPU", alone, "s", "lower")
    for count in REPLAYED:
        whole, schedule = fused(count + 1)
        here = replaying(whole, schedule)
        seconds, _ = cpu_time(partial(simulate_op, here, schedule, unit_bytes=LINE_BYTES))
        yield Figure(f"{count} replayed GPUs, over one GPU; {PUBLISHED}", seconds / alone, "x", "lower")
        if count in IN_DETAIL:
            each = RunOptions(fold=False)
            in_detail = partial(simulate_op, whole, schedule, unit_bytes=LINE_BYTES, options=each)
            all_of_them, _ = cpu_time(in_detail, repeats=1)
            name = f"{count + 1} GPUs in detail, over {count} replayed; {PUBLISHED_SAVED}"
            yield Figure(name, all_of_them / seconds, "x", "higher")


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", figures))
