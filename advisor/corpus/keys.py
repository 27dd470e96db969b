"""Keys of records: hashes of all that decides what a search finds, so that what is out of date is never found.

Where classes, modules or functions are renamed, what stands for them in keys stays: a search takes seconds to minutes.

The engine is known by its fingerprint: the makespans and the estimates of a few small schedules of different templates
on different fabrics, of both patterns and kinds of engine, some with other execution options. They are a sample of what
simulator and estimate do and no list: a new template adds none. Models are stale too once it differs.
"""

import hashlib
from dataclasses import replace
from functools import cache

from ...compiler import compile_text
from ...compiler.ir import (
    Choice,
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Kernels,
    Scenario,
    Wait,
)
from ...compiler.ir.topologies import TOPOLOGIES
from ...compiler.planning.build import build_schedule
from ...compiler.planning.expression import expression_of
from ...simcore import simulate_op
from ...simcore.memo.memo import StoredFunctions, content_hash
from ..estimate.makespan import estimate_ticks
from .families import Drawn

# Version of what ``record_of`` does: raise it with every change of the search that the fingerprint does not see.
PROCEDURE = 2

_FABRICS = {topology.name: topology for topology in TOPOLOGIES}
SWITCH, RING, FULL_MESH = (_FABRICS[name] for name in ("switch", "ring", "full_mesh"))
_IN = "magus.compiler.ir.topologies"
FUNCTIONS: StoredFunctions = {
    SWITCH.connect: (f"{_IN}.switch", "_connect"),
    SWITCH.reject: (f"{_IN}.switch", "_reject"),
    SWITCH.where: (f"{_IN}.base", "_busiest"),
    RING.connect: (f"{_IN}.ring", "_connect"),
    RING.where: (f"{_IN}.ring", "_where"),
    FULL_MESH.connect: (f"{_IN}.full_mesh", "_connect"),
    FULL_MESH.where: (f"{_IN}.full_mesh", "_where"),
    FULL_MESH.reject: (f"{_IN}.base", "_fits"),
    FULL_MESH.more_links: (f"{_IN}.base", "_no_more_links"),
    FULL_MESH.node_size: (f"{_IN}.base", "_no_nodes"),
    FULL_MESH.grid: (f"{_IN}.base", "_no_grid"),
}
"""What stands in keys for the functions of the fabrics that are drawn; of those that all share once."""

UNIT_BYTES = 4096
DMA, SM = EngineKind.DMA, EngineKind.SM
AG = (
    "x = tensor bf16[{m}, 1024] shard rows; w = tensor bf16[1024, 4096] shard cols; xg = all_gather(x); y = gemm(xg, w)"
)
RS = (
    "h = tensor bf16[{m}, 4096] shard cols; w = tensor bf16[4096, 1024] shard rows; p = gemm(h, w); "
    "y = reduce_scatter(p)"
)
NUM_RANKS = 4

MI_MESH, MI_RING = ("MI300X", "full_mesh(xgmi)"), ("MI300X", "ring(xgmi)")
MI_SWITCH, H_SWITCH = ("MI300X", "switch(nvswitch, link=nvlink)"), ("H100", "switch(nvswitch, link=nvlink)")
H_RING, H_MESH = ("H100", "ring(nvlink)"), ("H100", "full_mesh(xgmi)")

Case = tuple[tuple[str, str], str, int, str, int, EngineKind, int, int]
# GPU and fabric, workload, rows; template, chunks, engine, number of engines, streams. All run in about a second.
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
WITH_OPTIONS = (
    ((MI_MESH, AG, 256, "hetero_fused_1d", 16, DMA, 3, 1), PERSISTENT),
    ((H_SWITCH, AG, 512, "hetero_unfused_1d", 16, DMA, 3, 4), PERSISTENT),
    ((H_SWITCH, RS, 64, "hetero_fused_1d", 8, SM, 32, 1), PERSISTENT),
    ((MI_RING, AG, 128, "serial", 4, SM, 16, 1), BY_GET),
    ((MI_RING, AG, 512, "hetero_fused_1d", 16, SM, 8, 1), PERSISTENT),
    ((H_RING, AG, 256, "uniform_fused_2d", 16, SM, 8, 1), PERSISTENT),
    ((H_SWITCH, RS, 256, "uniform_fused_2d", 8, SM, 8, 1), replace(PERSISTENT, protocol=CopyProtocol.LL128)),
)


@cache
def engine_version() -> str:
    """Return the version of search, simulator and estimate; takes about a second."""
    return f"{PROCEDURE}-{fingerprint()}"


def key_of(drawn: Drawn) -> str:
    """Return the key of the record of ``drawn``: 64 hexadecimal digits."""
    return content_hash((engine_version(), drawn.scenario), FUNCTIONS)


@cache
def fingerprint() -> str:
    """Return the hash of simulator and estimate, in hexadecimal; takes about a second."""
    digest = hashlib.sha256(b"estimates")
    usual = tuple((case, ExecutionOptions()) for case in CASES)
    for ((gpu, fabric), workload, rows, template, chunks, kind, count, streams), options in (*usual, *WITH_OPTIONS):
        scenario = _scenario(gpu, fabric, workload.format(m=rows))
        choice = Choice(template, chunks, EngineChoice(kind, count), streams, tactics=options)
        schedule = build_schedule(scenario, choice)
        ticks = simulate_op(scenario, schedule, unit_bytes=UNIT_BYTES).makespan_ticks
        # Estimates to the digits that are safe to compare.
        estimate = f"{estimate_ticks(scenario, schedule).makespan_ticks:.6g}"
        digest.update(f"\n{expression_of(choice)} {ticks} {estimate}".encode())
    return digest.hexdigest()


def _scenario(gpu: str, fabric: str, workload: str) -> Scenario:
    return (
        compile_text(
            f'use "amd/mi300x"\nuse "nvidia/h100"\nsystem node {{ gpus {NUM_RANKS} x {gpu}; fabric {fabric} }}\n'
            f"workload random on node {{ {workload} }}\n"
        )
        .scenario()
        .case
    )
