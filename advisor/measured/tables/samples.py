"""Simulations of a random sample of measured GEMM shapes, compared with the closed form."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache

from ....compiler import compile_text
from ....compiler.ir import TICKS_PER_US, DType, GemmShape, OpCase, OpChoice, OpShape, Pattern, Shard, Tensor
from ....compiler.planning.build import build_op_plan
from ....compiler.planning.knobs.engine import default_engine
from ....compiler.planning.knobs.library import library_serial
from ....compiler.templates import BASELINE
from ....compiler.text.load import shipped_libraries
from ....simcore import PACKET_BYTES, RunTooLarge, affordable_unit, simulate_op
from ....simcore.kernels.nccl import NcclCollective
from ....simcore.lower.collective import library_collective_time
from .collectives import MeasuredPoint, point_label
from .gemm import GemmTable, Shape, label_of, lone_scenario, predicted_us
from .sim_vs_form import Agreement, agreement_of

MAX_LINE_HOPS = 200_000
"""Most line-hops of a simulation; units are coarse enough for that."""


def simulated_sample(table: GemmTable, count: int, seed: int, advance: Callable[[], None]) -> Agreement | None:
    """Simulate ``count`` shapes of ``table``, or all if there are fewer; ``advance`` is called after each.

    None if nothing was simulated.
    """
    shapes = sorted(table.times_us)
    chosen = random.Random(seed).sample(shapes, min(count, len(shapes)))
    predicted = predicted_us(table.gpu, chosen)
    scenario = lone_scenario(table.gpu)
    assert scenario is not None, "tables hold GPUs with a profile"
    differences: list[tuple[float, str]] = []
    for shape in chosen:
        try:
            differences.append((abs(_simulated_us(scenario, shape) / predicted[shape] - 1), label_of(shape)))
        except RunTooLarge:
            continue
        finally:
            advance()
    return agreement_of(table.gpu, "GEMM", differences, len(chosen) - len(differences))


def _simulated_us(scenario: OpCase, shape: Shape) -> float:
    """Return the makespan of the lone GEMM, scheduled as one kernel."""
    lone = replace(scenario, shape=_workload(*shape))
    schedule = build_op_plan(lone, OpChoice(BASELINE.name, 1, default_engine(lone.system)))
    unit_bytes = affordable_unit(lone, schedule, PACKET_BYTES, MAX_LINE_HOPS)
    return simulate_op(lone, schedule, unit_bytes=unit_bytes).makespan_ticks / TICKS_PER_US


def _workload(m: int, n: int, k: int) -> OpShape:
    x = Tensor("x", DType.BF16, m, k, Shard.NONE)
    w = Tensor("w", DType.BF16, k, n, Shard.NONE)
    return OpShape("lone", "", Pattern.GEMM, (x, w), None, GemmShape(m, n, k, DType.BF16), "y")


MAX_UNITS = 8192
"""Most units that one rank moves; larger collectives are simulated in coarser units."""

NODE = """
use "{library}"
system node {{ gpus {ranks} x {gpu}; fabric switch(nvswitch, link=nvlink) }}
workload alone on node {{
  x = tensor bf16[{ranks}, {cols}]{shard}
  y = {operation}(x)
}}
"""


@cache
def scenario_of(
    gpu: str, ranks: int, operation: NcclCollective = NcclCollective.ALL_GATHER, num_bytes: int = 1024
) -> OpCase:
    """Return a collective alone on GPUs of the shipped library with its switch; its bytes as nccl-tests counts them."""
    library = next(name for name in shipped_libraries() if name.partition("/")[2] == gpu.lower())
    cols = num_bytes // (ranks * DType.BF16.num_bytes)
    shard = " shard rows" if operation is NcclCollective.ALL_GATHER else ""
    text = NODE.format(library=library, gpu=gpu, ranks=ranks, cols=cols, shard=shard, operation=operation.value)
    return compile_text(text).scenario().case


def sampled(points: Sequence[MeasuredPoint], count: int, seed: int) -> Iterator[list[MeasuredPoint]]:
    """Yield for each GPU and operation ``count`` random points, or all if there are fewer."""
    groups: dict[tuple[str, NcclCollective], list[MeasuredPoint]] = defaultdict(list)
    for point in points:
        groups[point.gpu, point.operation].append(point)
    for group in groups.values():
        ordered = sorted(group, key=lambda point: (point.ranks, point.num_bytes))
        yield random.Random(seed).sample(ordered, min(count, len(ordered)))


def simulated_collectives(points: Sequence[MeasuredPoint], advance: Callable[[], None]) -> Agreement | None:
    """Simulate ``points``, all of one GPU and operation; ``advance`` is called after each. None if there are none."""
    differences = []
    for point in points:
        differences.append((_difference(point), point_label(point)))
        advance()
    return agreement_of(points[0].gpu, points[0].operation.value, differences) if points else None


def _difference(point: MeasuredPoint) -> float:
    scenario = scenario_of(point.gpu, point.ranks, point.operation, point.num_bytes)
    expected, unit = library_collective_time(scenario), scenario.gpu.line_bytes
    while expected.moved_bytes > unit * MAX_UNITS:
        unit *= 2
    schedule = build_op_plan(scenario, library_serial(scenario))
    return abs(simulate_op(scenario, schedule, unit_bytes=unit).makespan_ticks / expected.ticks - 1)
