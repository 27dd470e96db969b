"""Simulations of a random sample of measured collectives, compared with the closed form."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from ....compiler import compile_text
from ....compiler.ir import Scenario
from ....compiler.text.load import shipped_libraries
from ....simcore.cores.engine import run
from ....simcore.kernels.nccl import NcclCollective, collective_time
from ....simcore.lower.collective import collective_program
from .collectives import MeasuredPoint, point_label
from .sim_vs_form import Agreement, agreement_of

CHANNELS = 16
"""SMs of the library on each GPU. The time of a lone collective does not depend on it: channels share the data."""

MAX_UNITS = 8192
"""Most units that one rank moves; larger collectives are simulated in coarser units."""

NODE = """
use "{library}"
system node {{ gpus {ranks} x {gpu}; fabric switch(nvswitch, link=nvlink) }}
workload none on node {{
  x = tensor bf16[{ranks}, 64] shard rows
  y = all_gather(x)
}}
"""


@cache
def scenario_of(gpu: str, ranks: int) -> Scenario:
    """Return GPUs of the shipped library with its switch, and a placeholder workload."""
    library = next(name for name in shipped_libraries() if name.partition("/")[2] == gpu.lower())
    return compile_text(NODE.format(library=library, gpu=gpu, ranks=ranks)).scenario()


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
    system = scenario_of(point.gpu, point.ranks).system
    expected = collective_time(system.gpu, point.operation, point.num_bytes, point.ranks)
    unit = system.gpu.line_bytes
    while expected.moved_bytes > unit * MAX_UNITS:
        unit *= 2
    program = collective_program(system, point.operation, point.num_bytes, channels=CHANNELS, unit_bytes=unit)
    return abs(run(program).makespan_ticks / expected.ticks - 1)
