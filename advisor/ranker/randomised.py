"""Random scenarios of the kind that users have: one of the shipped GPUs with every figure moved by up to 30 %, behind
some fabric, with a workload of the sizes that language models have.
"""

import math
from dataclasses import replace
from functools import cache
from random import Random

from ...compiler import compile_text
from ...compiler.ir import (
    Choice,
    EngineChoice,
    EngineKind,
    Explore,
    Fabric,
    Gpu,
    Link,
    Pattern,
    Scenario,
    Switch,
    System,
)
from ...compiler.planning.build import build_schedule
from ...compiler.planning.knobs.engine import ENGINE
from ...compiler.templates import BASELINE
from ...simcore import PACKET_BYTES
from ...simcore.lower.plan import lower
from ..solver.domains import domains_of

SPREAD = 0.3
# Serial runs of up to this many line-hops; finer plans have up to ten times as many. Coarser units than the largest
# would make what a unit does at the end of a transfer show in the times.
MAX_SERIAL_LINE_HOPS = 100_000
MAX_UNIT_BYTES = 64 * 1024

Sizes = tuple[int, int, int]
"""Rows, hidden size and inner size of a workload."""

# Hidden and inner sizes of widely used models, from their published configurations.
MODEL_SIZES = (
    *((2048, 8192), (3584, 18944), (4096, 14336), (5120, 13824), (7168, 18432)),
    *((8192, 28672), (12288, 49152), (16384, 53248)),
)
# Systems to start from, as the language writes them, with how often each is drawn.
SYSTEMS = (
    (6, "MI300X", "full_mesh(xgmi)"),
    (2, "MI300X", "ring(xgmi)"),
    (1, "MI300X", "switch(nvswitch, link=nvlink)"),
    (6, "H100", "switch(nvswitch, link=nvlink)"),
    (2, "H100", "ring(nvlink)"),
    (1, "H100", "full_mesh(xgmi)"),
)
WORKLOADS = {
    Pattern.AG_GEMM: (
        "x = tensor bf16[{m}, {hidden}] shard rows; w = tensor bf16[{hidden}, {inner}] shard cols; "
        "xg = all_gather(x); y = gemm(xg, w)"
    ),
    Pattern.GEMM_RS: (
        "h = tensor bf16[{m}, {inner}] shard cols; w = tensor bf16[{inner}, {hidden}] shard rows; "
        "p = gemm(h, w); y = reduce_scatter(p)"
    ),
}


def random_scenario(seed: int, idx: int) -> tuple[Scenario, int]:
    """Scenario ``idx`` of a seed, and the granularity in bytes at which to simulate it."""
    random = Random(f"scenario {seed} {idx}")
    pattern = random.choice((Pattern.AG_GEMM, Pattern.GEMM_RS))
    weights = [weight for weight, _, _ in SYSTEMS]
    _, gpu, fabric = random.choices(SYSTEMS, weights)[0]
    ranks = random.choice((2, 4, 8, 8))
    hidden, inner = random.choice(MODEL_SIZES)
    inner = random.choice((inner, hidden, inner // 2))
    rows = _rows(random, ranks)
    moved = _vary_system(random, base_scenario(gpu, fabric, ranks).system)
    while True:
        scenario = replace(
            base_scenario(gpu, fabric, ranks, pattern, (rows, hidden, inner)), name=f"{seed}/{idx}", system=moved
        )
        scenario = replace(scenario, explore=Explore.of(engine=_engines(random, scenario)))
        unit = _unit_bytes(scenario)
        if unit is not None or rows == ranks:
            return scenario, unit or MAX_UNIT_BYTES
        rows = max(ranks, rows // 2 // ranks * ranks)  # far beyond what is quick to simulate


def _rows(random: Random, ranks: int) -> int:
    """Rows of the workload, 16 to 65536: a power of two, at times with a quarter, half or three quarters more."""
    power = 1 << random.randint(4, 16)
    rows = power * random.choice((4, 4, 5, 6, 7)) // 4
    return rows if power < 65536 and rows % ranks == 0 else max(power, ranks)


def _engines(random: Random, scenario: Scenario) -> tuple[EngineChoice, ...]:
    """Two numbers of copy engines and three of SMs."""
    engines, most = scenario.gpu.dma.engines, scenario.gpu.sms // 4
    dma = {min(engines, max(1, scenario.num_ranks - 1)), random.randint(1, engines)}
    sms = {random.choice((4, 8)), random.choice((16, 24)), random.choice((32, 48, 64))}
    kinds = [(EngineKind.DMA, count) for count in sorted(dma)] + [(EngineKind.SM, min(most, c)) for c in sorted(sms)]
    return tuple(EngineChoice(kind, count) for kind, count in dict.fromkeys(kinds))


def _unit_bytes(scenario: Scenario) -> int | None:
    """The finest granularity at which a serial run has few enough line-hops, None if even the coarsest has too many."""
    engine = domains_of(scenario)[ENGINE][0]
    schedule = build_schedule(scenario, Choice(BASELINE.name, scenario.num_ranks, engine))
    hops = lower(scenario, schedule, unit_bytes=MAX_UNIT_BYTES).program.num_line_hops
    if hops > MAX_SERIAL_LINE_HOPS:
        return None
    unit = MAX_UNIT_BYTES
    while unit > PACKET_BYTES and hops * 2 <= MAX_SERIAL_LINE_HOPS:
        unit, hops = unit // 2, hops * 2
    return unit


@cache
def base_scenario(
    gpu: str,
    fabric: str,
    ranks: int,
    pattern: Pattern = Pattern.AG_GEMM,
    sizes: Sizes = (1024, 1024, 1024),
) -> Scenario:
    """A scenario on shipped hardware, compiled as a user's would be."""
    rows, hidden, inner = sizes
    text = WORKLOADS[pattern].format(m=rows, hidden=hidden, inner=inner)
    return compile_text(
        f'use "amd/mi300x"\nuse "nvidia/h100"\nsystem node {{ gpus {ranks} x {gpu}; fabric {fabric} }}\n'
        f"workload random on node {{ {text} }}\n"
    ).scenario()


def _vary_system(random: Random, system: System) -> System:
    """Every figure moved by up to SPREAD, independently; notes on where it came from dropped."""
    fabric, link, switch = system.fabric, system.fabric.link, system.fabric.switch
    speed = factor(random)
    link = Link(
        link.name,
        link.peak_bytes_per_s,
        scaled(link.achieved_bytes_per_s, speed),
        moved_value(random, link.latency_ticks),
    )
    if switch is not None:
        rate = scaled(switch.bytes_per_s, speed)
        switch = Switch(switch.name, switch.ports, rate, moved_value(random, switch.latency_ticks))
    both_ways = fabric.both_ways and random.random() < 0.7
    return System(
        system.name, system.num_ranks, moved_gpu(random, system.gpu), Fabric(fabric.topology, link, switch, both_ways)
    )


def moved_gpu(random: Random, gpu: Gpu) -> Gpu:
    """Return ``gpu`` with every figure moved, independently; notes on where they came from are dropped."""
    hbm, model, memory = gpu.hbm, gpu.gemm, factor(random)
    return replace(
        gpu,
        sms=moved_value(random, gpu.sms),
        peak_flops=tuple((dtype, moved_value(random, peak)) for dtype, peak in gpu.peak_flops),
        l2=replace(
            gpu.l2,
            bytes_per_s=moved_value(random, gpu.l2.bytes_per_s),
            latency_ticks=moved_value(random, gpu.l2.latency_ticks),
        ),
        hbm=replace(
            hbm,
            peak_bytes_per_s=scaled(hbm.peak_bytes_per_s, memory),
            achieved_bytes_per_s=scaled(hbm.achieved_bytes_per_s, memory),
            latency_ticks=moved_value(random, hbm.latency_ticks),
        ),
        gemm=replace(
            model,
            start_ticks=moved_value(random, model.start_ticks),
            tile_ticks=moved_value(random, model.tile_ticks),
            k_step_ticks=moved_value(random, model.k_step_ticks),
        ),
        dma=replace(
            gpu.dma,
            engines=random.choice((2, 4, 8, 14, 16)),
            setup_ticks=moved_value(random, gpu.dma.setup_ticks),
            bytes_per_s=moved_value(random, gpu.dma.bytes_per_s),
        ),
        sm_copy=replace(
            gpu.sm_copy,
            bytes_per_s=moved_value(random, gpu.sm_copy.bytes_per_s),
            setup_ticks=moved_value(random, gpu.sm_copy.setup_ticks),
        ),
        launch=replace(
            gpu.launch,
            kernel_ticks=moved_value(random, gpu.launch.kernel_ticks),
            event_ticks=moved_value(random, gpu.launch.event_ticks),
        ),
        provenance=(),
    )


def factor(random: Random) -> float:
    """Between 1 - SPREAD and 1 + SPREAD, even in the logarithm."""
    return math.exp(random.uniform(math.log(1 - SPREAD), math.log(1 + SPREAD)))


def moved_value(random: Random, value: int) -> int:
    """Return ``value`` times a random factor."""
    return scaled(value, factor(random))


def scaled(value: int, factor: float) -> int:
    """Return ``value`` times ``factor``, at least 1."""
    return max(1, round(value * factor))
