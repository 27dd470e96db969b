"""Simulations of a random sample of measured GEMM shapes, compared with the closed form."""

import random
from collections.abc import Callable
from dataclasses import replace

from ....compiler.ir import TICKS_PER_US, Choice, DType, GemmShape, Pattern, Scenario, Shard, Tensor, Workload
from ....compiler.planning.build import build_schedule
from ....compiler.planning.knobs.engine import default_engine
from ....compiler.templates import BASELINE
from ....simcore import PACKET_BYTES, RunTooLarge, affordable_unit, simulate_op
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


def _simulated_us(scenario: Scenario, shape: Shape) -> float:
    """Return the makespan of the lone GEMM, scheduled as one kernel."""
    lone = replace(scenario, workload=_workload(*shape))
    schedule = build_schedule(lone, Choice(BASELINE.name, 1, default_engine(lone.system)))
    unit_bytes = affordable_unit(lone, schedule, PACKET_BYTES, MAX_LINE_HOPS)
    return simulate_op(lone, schedule, unit_bytes=unit_bytes).makespan_ticks / TICKS_PER_US


def _workload(m: int, n: int, k: int) -> Workload:
    x = Tensor("x", DType.BF16, m, k, Shard.NONE)
    w = Tensor("w", DType.BF16, k, n, Shard.NONE)
    return Workload("lone", "", Pattern.GEMM, (x, w), None, GemmShape(m, n, k, DType.BF16), "y")
