"""Drawn scenarios: the shipped GPUs behind the fabrics they come with, and the layers of widely used models.

A scenario belongs to families (GPU, topology, pattern, model, size), so that a model may be judged on families that it
was not fitted to. In half of them every figure of the hardware is moved by up to 30 %, so that a model sees more than
what ships. Each is drawn from its own seed: scenario i is the same in a corpus of 10 and of 1000.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

from ...compiler import compile_text
from ...compiler.ir import Explore, Gpu, OpCase, System

# Share of the scenarios on hardware as shipped; in the others every figure is moved.
AS_SHIPPED = 0.5
SPREAD = 0.3
# Operations of the GEMM of one rank, and bytes of the tensor that is moved, in the largest scenario: larger ones behave
# alike, and take long to simulate.
MAX_FLOPS, MAX_MOVED_BYTES = 4e13, 1 << 31
BYTES = 2


@dataclass(frozen=True, slots=True)
class ScenarioFamily:
    """The words a scenario goes by; ``moved`` is whether its hardware differs from what ships."""

    gpu: str
    topology: str
    ranks: int
    pattern: str
    model: str
    size: str
    moved: bool


@dataclass(frozen=True, slots=True)
class Drawn:
    """OpCase ``idx`` of a seed with its families."""

    seed: int
    idx: int
    family: ScenarioFamily
    scenario: OpCase


@dataclass(frozen=True, slots=True)
class Model:
    """Sizes of a language model: hidden layer, inner layer of the MLP, columns of queries, keys and values.

    ``experts`` is the inner size of one expert, 0 without experts; from the published configurations.
    """

    name: str
    hidden: int
    inner: int
    qkv: int
    experts: int = 0


MODELS = (
    Model("Llama 3 8B", 4096, 14336, 6144),
    Model("Llama 3 70B", 8192, 28672, 10240),
    Model("Llama 3 405B", 16384, 53248, 18432),
    Model("Qwen 2.5 7B", 3584, 18944, 4608),
    Model("Qwen 3 32B", 5120, 25600, 10240),
    Model("DeepSeek-V3", 7168, 18432, 24576, experts=2048),
    Model("Mixtral 8x22B", 6144, 16384, 8192, experts=16384),
)
# Vendor, GPU and how often it is drawn.
GPUS = (
    (4, "amd", "MI300X"),
    (2, "amd", "MI325X"),
    (3, "amd", "MI355X"),
    (2, "nvidia", "A100"),
    (1, "nvidia", "A800"),
    (4, "nvidia", "H100"),
    (2, "nvidia", "H200"),
    (2, "nvidia", "H800"),
    (3, "nvidia", "B200"),
    (1, "nvidia", "B300"),
    (1, "nvidia", "GB200"),
)
# Fabrics by vendor, the one that is sold first, with how often each is drawn.
FABRICS = {
    "amd": ((7, "full_mesh(xgmi)"), (2, "ring(xgmi)")),
    "nvidia": ((7, "switch(nvswitch, link=nvlink)"), (2, "ring(nvlink)"), (1, "full_mesh(nvlink)")),
}
# Patterns as the language writes them, with how often each is drawn; {k} are columns before and {n} after the GEMM.
PATTERNS = {
    "AG+GEMM": (
        4,
        "x = tensor bf16[{m}, {k}] shard rows; w = tensor bf16[{k}, {n}] shard cols; y = gemm(all_gather(x), w)",
    ),
    "GEMM+RS": (
        4,
        "h = tensor bf16[{m}, {k}] shard cols; w = tensor bf16[{k}, {n}] shard rows; y = reduce_scatter(gemm(h, w))",
    ),
    "GEMM+AR": (
        3,
        "h = tensor bf16[{m}, {k}] shard cols; w = tensor bf16[{k}, {n}] shard rows; y = all_reduce(gemm(h, w))",
    ),
    "A2A+GEMM": (2, "x = tensor bf16[{m}, {k}]; w = tensor bf16[{k}, {n}]; y = gemm(all_to_all(x), w)"),
}
# Rows of the workload by regime, as powers of two.
SIZES = {"decode": (4, 9), "prefill": (10, 13), "training": (13, 16)}
OFF_GRID = 0.4
GRAIN = 16


def draw(seed: int, idx: int) -> Drawn:
    """Return scenario ``idx`` of a seed."""
    random = Random(f"corpus {seed} {idx}")
    _, vendor, gpu = random.choices(GPUS, [weight for weight, *_ in GPUS])[0]
    _, fabric = random.choices(FABRICS[vendor], [weight for weight, _ in FABRICS[vendor]])[0]
    ranks = random.choice((2, 4, 8, 8, 8))
    pattern = random.choices(list(PATTERNS), [weight for weight, _ in PATTERNS.values()])[0]
    model, size = random.choice(MODELS), random.choice(list(SIZES))
    before, after = _columns(random, model, pattern, ranks)
    rows = _rows(random, size, ranks)
    while rows > ranks and _too_large(rows, before, after, ranks):
        rows = max(ranks, rows // 2 // ranks * ranks)
    text = PATTERNS[pattern][1].format(m=rows, k=before, n=after)
    scenario = _compiled(vendor, gpu, fabric, ranks, text)
    moved = random.random() >= AS_SHIPPED
    system = moved_system(random, scenario.system) if moved else scenario.system
    family = ScenarioFamily(gpu, fabric.split("(")[0], ranks, pattern, model.name, size, moved)
    return Drawn(seed, idx, family, replace(scenario, name=f"{seed}/{idx}", system=system, explore=Explore()))


def _columns(random: Random, model: Model, pattern: str, ranks: int) -> tuple[int, int]:
    """Return the columns before and after the GEMM of a layer, of all ranks."""
    wide = [model.inner, 2 * model.inner, model.qkv]
    if model.experts:
        wide.append(model.experts)
    width = random.choice(wide) // (GRAIN * ranks) * GRAIN * ranks
    if pattern == "A2A+GEMM":  # the expert's GEMM is not sharded
        return model.hidden, max(GRAIN, width // ranks)
    return (model.hidden, width) if pattern == "AG+GEMM" else (width, model.hidden)


def _rows(random: Random, size: str, ranks: int) -> int:
    """Return rows of one regime: a power of two, or any multiple of the ranks."""
    low, high = SIZES[size]
    if random.random() >= OFF_GRID:
        return max(ranks, 1 << random.randint(low, high))
    return max(ranks, round(2 ** random.uniform(low, high)) // ranks * ranks)


def _too_large(rows: int, before: int, after: int, ranks: int) -> bool:
    return 2 * rows * before * after / ranks > MAX_FLOPS or rows * max(before, after) * BYTES > MAX_MOVED_BYTES


@cache
def _compiled(vendor: str, gpu: str, fabric: str, ranks: int, text: str) -> OpCase:
    return (
        compile_text(
            f'use "{vendor}/{gpu.lower()}"\nsystem node {{ gpus {ranks} x {gpu}; fabric {fabric} }}\n'
            f"workload drawn on node {{ {text} }}\n"
        )
        .scenario()
        .case
    )


def moved_system(random: Random, system: System) -> System:
    """Return ``system`` with every figure moved, independently."""
    fabric, link, switch, speed = system.fabric, system.fabric.link, system.fabric.switch, _factor(random)
    link = replace(
        link,
        achieved_bytes_per_s=_scaled(link.achieved_bytes_per_s, speed),
        latency_ticks=_moved(random, link.latency_ticks),
    )
    if switch is not None:
        latency = _moved(random, switch.latency_ticks)
        switch = replace(switch, bytes_per_s=_scaled(switch.bytes_per_s, speed), latency_ticks=latency)
    return replace(system, gpu=_moved_gpu(random, system.gpu), fabric=replace(fabric, link=link, switch=switch))


def _moved_gpu(random: Random, gpu: Gpu) -> Gpu:
    """Return ``gpu`` with every figure moved, independently; notes on where they came from are dropped."""
    memory = _factor(random)
    hbm = replace(
        gpu.hbm,
        peak_bytes_per_s=_scaled(gpu.hbm.peak_bytes_per_s, memory),
        achieved_bytes_per_s=_scaled(gpu.hbm.achieved_bytes_per_s, memory),
    )
    return replace(
        gpu,
        sms=_moved(random, gpu.sms),
        peak_flops=tuple((dtype, _moved(random, peak)) for dtype, peak in gpu.peak_flops),
        l2=_with_moved(random, gpu.l2, "bytes_per_s", "latency_ticks"),
        hbm=_with_moved(random, hbm, "latency_ticks"),
        gemm=_with_moved(random, replace(gpu.gemm, fp8=None), "start_ticks", "tile_ticks", "k_step_ticks"),
        dma=_with_moved(
            random, replace(gpu.dma, engines=random.choice((2, 4, 8, 14, 16))), "setup_ticks", "bytes_per_s"
        ),
        sm_copy=_with_moved(random, gpu.sm_copy, "bytes_per_s", "setup_ticks"),
        launch=_with_moved(random, gpu.launch, "kernel_ticks", "event_ticks"),
        provenance=(),
    )


def _with_moved(random: Random, part: Any, *names: str) -> Any:
    """Return a part of a GPU with the figures of these names moved, each by itself."""
    return replace(part, **{name: _moved(random, getattr(part, name)) for name in names})


def _factor(random: Random) -> float:
    """Between 1 - SPREAD and 1 + SPREAD, even in the logarithm."""
    return math.exp(random.uniform(math.log(1 - SPREAD), math.log(1 + SPREAD)))


def _moved(random: Random, value: int) -> int:
    """Return ``value`` times a random factor."""
    return _scaled(value, _factor(random))


def _scaled(value: int, factor: float) -> int:
    """Return ``value`` times ``factor``, at least 1."""
    return max(1, round(value * factor))
