"""Hashes of the code that models depend on: the ticks of the simulator with the estimates, or with the features.

A model is stale once its hash differs from that of what it was trained with. The simulator shows itself in the
makespans, to the tick, of a few small schedules of different templates on different fabrics, of both patterns and kinds
of engine. They are a sample of what the simulator does and no list of what a model knows: a new template adds none.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

from ...compiler.ir import (
    Choice,
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Kernels,
    Pattern,
    Scenario,
    Schedule,
    Wait,
)
from ...compiler.planning.build import build_schedule
from ...compiler.planning.expression import expression_of
from ...simcore import simulate
from ..estimate.makespan import estimate_ticks
from .features import NAMES, features_of
from .randomised import base_scenario

UNIT_BYTES = 4096
DMA, SM = EngineKind.DMA, EngineKind.SM
AG, RS = Pattern.AG_GEMM, Pattern.GEMM_RS

MI_MESH, MI_RING = ("MI300X", "full_mesh(xgmi)"), ("MI300X", "ring(xgmi)")
MI_SWITCH, H_SWITCH = ("MI300X", "switch(nvswitch, link=nvlink)"), ("H100", "switch(nvswitch, link=nvlink)")
H_RING, H_MESH = ("H100", "ring(nvlink)"), ("H100", "full_mesh(xgmi)")

Case = tuple[tuple[str, str], Pattern, int, str, int, EngineKind, int, int]
# GPU and fabric, pattern, rows; template, chunks, engine, number of engines, streams. All run in about a second.
CASES: tuple[Case, ...] = (
    (MI_MESH, AG, 256, "serial", 4, DMA, 3, 1),
    (MI_MESH, AG, 256, "uniform_fused_1d", 16, DMA, 3, 1),
    (MI_MESH, RS, 256, "shard_p2p", 4, SM, 8, 1),
    (MI_MESH, RS, 256, "uniform_fused_2d", 16, SM, 8, 1),
    (MI_RING, AG, 128, "hetero_fused_1d", 8, DMA, 2, 1),
    (MI_RING, AG, 128, "hetero_unfused_1d", 8, SM, 6, 4),
    (MI_RING, RS, 128, "serial", 4, SM, 16, 1),
    (MI_RING, RS, 128, "uniform_fused_1d", 8, DMA, 1, 1),
    (MI_SWITCH, AG, 512, "shard_p2p", 4, DMA, 1, 1),
    (MI_SWITCH, AG, 512, "serial", 4, SM, 4, 1),
    (H_SWITCH, AG, 512, "hetero_fused_1d", 16, SM, 16, 1),
    (H_SWITCH, AG, 64, "uniform_fused_2d", 16, DMA, 3, 1),
    (H_SWITCH, RS, 512, "hetero_unfused_1d", 16, DMA, 3, 4),
    (H_SWITCH, RS, 64, "hetero_fused_1d", 8, SM, 32, 1),
    (H_SWITCH, RS, 64, "serial", 4, DMA, 8, 1),
    (H_RING, AG, 256, "uniform_fused_1d", 32, SM, 12, 1),
    (H_RING, AG, 256, "shard_p2p", 4, SM, 4, 1),
    (H_MESH, RS, 256, "uniform_fused_2d", 8, DMA, 8, 1),
    (H_MESH, RS, 256, "hetero_fused_1d", 4, DMA, 1, 1),
    (H_MESH, AG, 1024, "hetero_unfused_1d", 4, DMA, 4, 1),
)
PERSISTENT = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
BY_GET = ExecutionOptions(direction=Direction.GET, protocol=CopyProtocol.LL)
# What searches find also depends on execution options, which the ranker does not know.
WITH_OPTIONS = (
    ((MI_MESH, AG, 256, "hetero_fused_1d", 16, DMA, 3, 1), PERSISTENT),
    ((H_SWITCH, AG, 512, "hetero_unfused_1d", 16, DMA, 3, 4), PERSISTENT),
    ((H_SWITCH, RS, 64, "hetero_fused_1d", 8, SM, 32, 1), PERSISTENT),
    ((MI_RING, AG, 128, "serial", 4, SM, 16, 1), BY_GET),
    ((H_SWITCH, RS, 256, "uniform_fused_2d", 8, SM, 8, 1), replace(PERSISTENT, protocol=CopyProtocol.LL128)),
)
NUM_RANKS, HIDDEN, INNER = 4, 1024, 4096


@cache
def fingerprint() -> str:
    """Return the hash of simulator and features, in hexadecimal; takes about a second."""
    return _hash("\n".join(NAMES), tuple((case, ExecutionOptions()) for case in CASES), features_of)


@cache
def engine_fingerprint() -> str:
    """Return the hash of simulator and estimates: what a search finds is the same while it is, whatever ranks."""

    def estimated(scenario: Scenario, schedule: Schedule) -> tuple[float]:
        return (estimate_ticks(scenario, schedule).makespan_ticks,)

    return _hash("estimates", (*((case, ExecutionOptions()) for case in CASES), *WITH_OPTIONS), estimated)


def _hash(
    head: str,
    cases: Iterable[tuple[Case, ExecutionOptions]],
    numbers_of: Callable[[Scenario, Schedule], Iterable[float]],
) -> str:
    """Hash the makespan of each case, and its numbers to the digits that are safe to compare."""
    digest = hashlib.sha256(head.encode())
    for ((gpu, fabric), pattern, rows, template, chunks, kind, count, streams), options in cases:
        scenario = base_scenario(gpu, fabric, NUM_RANKS, pattern, (rows, HIDDEN, INNER))
        choice = Choice(template, chunks, EngineChoice(kind, count), streams, tactics=options)
        schedule = build_schedule(scenario, choice)
        result = simulate(scenario, schedule, unit_bytes=UNIT_BYTES)
        numbers = " ".join(f"{value:.6g}" for value in numbers_of(scenario, schedule))
        digest.update(f"\n{expression_of(choice)} {result.makespan_ticks} {numbers}".encode())
    return digest.hexdigest()
