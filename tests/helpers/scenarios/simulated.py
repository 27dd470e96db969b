"""Runs to draw: each pattern under plans that differ in engines, waits and kernels."""

import random
from collections.abc import Iterator

from magus.compiler.ir import EngineChoice, EngineKind, ExecutionOptions, Kernels, OpCase, OpChoice, Pattern, Wait
from magus.compiler.planning.build import build_op_plan
from magus.simcore import Result, simulate_op
from tests.helpers.scenarios.drawn import draw_choices, draw_scenario
from tests.helpers.scenarios.scenarios import ag_gemm


def runs(pattern: Pattern, count: int) -> Iterator[tuple[OpCase, Result]]:
    rng = random.Random(pattern.value)
    scenario = draw_scenario(rng, pattern)
    for choice in draw_choices(rng, scenario, count):
        yield scenario, simulate_op(scenario, build_op_plan(scenario, choice))


def persistent_run() -> tuple[OpCase, Result]:
    """Groups of one persistent kernel, which overlap in their stream."""
    scenario = ag_gemm(2048, 2048, 512)
    tactics = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
    choice = OpChoice("uniform_fused_1d", 32, EngineChoice(EngineKind.DMA, 7), tactics=tactics)
    return scenario, simulate_op(scenario, build_op_plan(scenario, choice))
