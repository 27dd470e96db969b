"""Scenarios of every pattern on shipped hardware, and schedules for them of every template, algorithm and tactics."""

import random
from functools import cache
from itertools import product

from magus.compiler import compile_text
from magus.compiler.collectives import ALGORITHM_BY_NAME
from magus.compiler.ir import (
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    Kernels,
    LaunchMode,
    OpCase,
    OpChoice,
    Pattern,
    Wait,
    WaitPer,
)
from magus.compiler.planning.build import reject_choice
from magus.compiler.templates import ALL_TEMPLATES

DMA, SM = EngineKind.DMA, EngineKind.SM

TEXTS = {
    Pattern.AG_GEMM: "x = tensor bf16[{m}, {k}] shard rows; w = tensor bf16[{k}, {n}] shard cols; "
    "y = gemm(all_gather(x), w)",
    Pattern.GEMM_RS: "x = tensor bf16[{m}, {k}] shard cols; w = tensor bf16[{k}, {n}] shard rows; "
    "y = reduce_scatter(gemm(x, w))",
    Pattern.GEMM_AR: "x = tensor bf16[{m}, {k}] shard cols; w = tensor bf16[{k}, {n}] shard rows; "
    "y = all_reduce(gemm(x, w))",
    Pattern.A2A_GEMM: "x = tensor bf16[{m}, {k}]; w = tensor bf16[{k}, {n}]; y = gemm(all_to_all(x), w)",
    Pattern.GEMM_A2A: "x = tensor bf16[{m}, {k}]; w = tensor bf16[{k}, {n}]; y = all_to_all(gemm(x, w))",
    Pattern.GEMM_A2A_GEMM: "x = tensor bf16[{m}, {k}]; w = tensor bf16[{k}, {n}]; v = tensor bf16[{n}, {k}]; "
    "y = gemm(all_to_all(gemm(x, w)), v)",
    Pattern.GEMM_BESIDE_AG: "x = tensor bf16[{m}, {k}]; w = tensor bf16[{k}, {n}]; v = tensor bf16[{m}, {n}] "
    "shard rows; y = gemm(x, w); g = all_gather(v)",
    Pattern.GEMM_BESIDE_A2A: "x = tensor bf16[{m}, {k}]; w = tensor bf16[{k}, {n}]; v = tensor bf16[{m}, {n}]; "
    "y = gemm(x, w); t = all_to_all(v)",
    Pattern.ALL_GATHER: "x = tensor bf16[{m}, {k}] shard rows; y = all_gather(x)",
    Pattern.REDUCE_SCATTER: "x = tensor bf16[{m}, {k}]; y = reduce_scatter(x)",
    Pattern.ALL_REDUCE: "x = tensor bf16[{m}, {k}]; y = all_reduce(x)",
    Pattern.ALL_TO_ALL: "x = tensor bf16[{m}, {k}]; y = all_to_all(x)",
    Pattern.BROADCAST: "x = tensor bf16[{m}, {k}]; y = broadcast(x)",
    Pattern.SEND_RECV: "x = tensor bf16[{m}, {k}]; y = send_recv(x)",
    Pattern.GEMM: "x = tensor bf16[{m}, {k}]; w = tensor bf16[{k}, {n}]; y = gemm(x, w)",
    Pattern.KERNEL: "x = tensor bf16[{m}, {k}]; y = tensor bf16[{m}, {k}]; z = add(x, y)",
}
"""A workload of every pattern, by the rows, columns and inner dimension of the whole problem."""

LONE = (
    *(Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER, Pattern.ALL_REDUCE),
    *(Pattern.ALL_TO_ALL, Pattern.BROADCAST, Pattern.SEND_RECV),
)
SYSTEMS = (
    "gpus {ranks} x H100; fabric switch(nvswitch, link=nvlink)",
    "gpus {ranks} x MI300X; fabric full_mesh(xgmi)",
    "gpus {ranks} x MI300X; fabric ring(xgmi)",
    "gpus {ranks} x H100; fabric rails(nvswitch, link=nvlink, node=2, nic=xgmi)",
    "gpus {ranks} x MI300X; fabric torus(xgmi, shape=[2, {half}])",
)
KERNELS = (
    ExecutionOptions(),
    ExecutionOptions(launch=LaunchMode.GRAPH),
    ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL),
    ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL, per=WaitPer.TILE),
)
ENGINES = (
    EngineChoice(DMA, 7),
    EngineChoice(DMA, 2, EngineMode.PRELAUNCHED),
    EngineChoice(DMA, 4, EngineMode.BROADCAST),
    EngineChoice(SM, 16),
    EngineChoice(SM, 64),
    EngineChoice(SM, 32, EngineMode.SHARED),
)


@cache
def scenario_of(pattern: Pattern, system: str, ranks: int, m: int, n: int, k: int) -> OpCase:
    """A scenario as a user's file would give it."""
    where = system.format(ranks=ranks, half=ranks // 2)
    text = TEXTS[pattern].format(m=m, n=n, k=k)
    uses = 'use "amd/mi300x"\nuse "nvidia/h100"\n'
    return compile_text(f"{uses}system s {{ {where} }}\nworkload one on s {{ {text} }}\n").scenario().case


def draw_scenario(rng: random.Random, pattern: Pattern) -> OpCase:
    """``pattern`` on one of the systems, small."""
    ranks = rng.choice((2, 4, 8))
    m, n, k = (ranks * 64 * rng.choice((1, 2, 4)) for _ in range(3))
    systems = SYSTEMS if ranks > 2 else SYSTEMS[:3]
    return scenario_of(pattern, rng.choice(systems), ranks, m, n, k)


def draw_choices(rng: random.Random, scenario: OpCase, count: int) -> list[OpChoice]:
    """``count`` legal choices at most, of all templates, algorithms, engines and tactics."""
    n, found = scenario.num_ranks, list[OpChoice]()
    fitting = [each for each in ALL_TEMPLATES if scenario.shape.pattern in each.patterns]
    ways = list(product(Direction, CopyProtocol, KERNELS, ENGINES))
    for _ in range(40 * count):
        template = rng.choice(fitting)
        direction, protocol, kernel, engine = rng.choice(ways)
        tactics = ExecutionOptions(direction, protocol, kernel.kernel, kernel.wait, kernel.per, kernel.launch)
        algorithm = rng.choice(("", *ALGORITHM_BY_NAME)) if template.has("algorithm") else ""
        pieces = rng.choice((1, 2, 4)) if template.cuts_shards else 1
        streams = rng.choice((1, template.default_streams))
        waves, sums = (rng.choice((1, 2, 3)), rng.choice((1, 2))) if template.has("waves") else (1, 1)
        choice = OpChoice(template.name, n * pieces, engine, streams, tactics, algorithm, waves=waves, sums=sums)
        if choice not in found and reject_choice(scenario, choice) is None:
            found.append(choice)
        if len(found) == count:
            break
    return found
