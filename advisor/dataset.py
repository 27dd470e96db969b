"""Random scenarios with simulated schedules: what the ranker is trained on and judged by.

A scenario is one of the shipped GPUs with every figure moved by up to 30 %, behind some fabric, with a workload of the
sizes that language models have. Each is drawn from its own seed, so the data are the same however many processes
simulate, and scenario i is the same in a set of 10 and of 1000.
"""

import math
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from random import Random

import numpy as np
import numpy.typing as npt

from ..compiler import compile_text
from ..compiler.plan import build_schedule, why_illegal
from ..compiler.scenario import Explore, Fabric, Gpu, Link, Pattern, Scenario, Switch, System
from ..compiler.schedule import Choice, EngineChoice, EngineKind
from ..compiler.templates import TEMPLATES
from ..simcore import PACKET_BYTES, Outcome, simulate
from ..simcore.lower import lower
from .features import FloatArray, matrix
from .solver.space import BASELINE, domains_of, streams_of

SPREAD = 0.3
CHOICES_PER_SCENARIO = 24
# Serial runs of up to this many line-hops; finer plans have up to ten times as many. Coarser units than the largest
# would make what a unit does at the end of a transfer show in the times.
MAX_SERIAL_LINE_HOPS = 100_000
MAX_UNIT_BYTES = 64 * 1024

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

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Dataset:
    """Simulated choices. N rows, F features; times in ticks, of estimates in the features alone."""

    features: FloatArray  # [N, F]
    simulated_ticks: npt.NDArray[np.int64]  # [N]
    scenario_idx: npt.NDArray[np.int64]  # [N]
    is_serial: npt.NDArray[np.bool_]  # [N]

    def of(self, rows: npt.NDArray[np.bool_]) -> "Dataset":
        """The rows where ``rows`` [N] is true."""
        return Dataset(self.features[rows], self.simulated_ticks[rows], self.scenario_idx[rows], self.is_serial[rows])


@dataclass(frozen=True, slots=True)
class _Simulated:
    """One scenario's rows."""

    idx: int
    features: FloatArray
    ticks: tuple[int, ...]
    is_serial: tuple[bool, ...]


def build_dataset(seed: int, scenarios: int, *, workers: int = 1, progress: Progress | None = None) -> Dataset:
    """Simulate some choices of ``scenarios`` random scenarios.

    Parameters
    ----------
    workers
        Processes; the result does not depend on it.
    progress
        Told how many scenarios are done and how many there are.
    """
    report = progress or (lambda done, total: None)
    found: list[_Simulated] = []
    for simulated in _simulate_all(seed, scenarios, workers):
        found.append(simulated)
        report(len(found), scenarios)
    found.sort(key=lambda simulated: simulated.idx)
    return Dataset(
        features=np.concatenate([one.features for one in found]),
        simulated_ticks=np.array([ticks for one in found for ticks in one.ticks], np.int64),
        scenario_idx=np.array([one.idx for one in found for _ in one.ticks], np.int64),
        is_serial=np.array([serial for one in found for serial in one.is_serial], np.bool_),
    )


def _simulate_all(seed: int, scenarios: int, workers: int) -> Iterator[_Simulated]:
    """Every scenario once, in the order in which they are done."""
    if workers <= 1:
        yield from (_simulate_one(seed, idx) for idx in range(scenarios))
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(_simulate_one, seed, idx) for idx in range(scenarios)]
        try:
            yield from (future.result() for future in as_completed(futures))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _simulate_one(seed: int, idx: int) -> _Simulated:
    scenario, unit = random_scenario(seed, idx)
    choices = sample_choices(scenario, Random(f"choices {seed} {idx}"), CHOICES_PER_SCENARIO)
    ticks = []
    for choice in choices:
        result = simulate(scenario, build_schedule(scenario, choice), unit_bytes=unit)
        if result.outcome is not Outcome.DONE:
            raise RuntimeError(f"{choice} of {scenario.name}: {result.outcome.value}")
        ticks.append(result.makespan_ticks)
    serial = tuple(choice.template == BASELINE.name for choice in choices)
    return _Simulated(idx, matrix(scenario, choices), tuple(ticks), serial)


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
            base_scenario(gpu, fabric, ranks, pattern, rows, hidden, inner), name=f"{seed}/{idx}", system=moved
        )
        scenario = replace(scenario, explore=Explore(engines=_engines(random, scenario)))
        unit = _unit_bytes(scenario)
        if unit is not None or rows == ranks:
            return scenario, unit or MAX_UNIT_BYTES
        rows = max(ranks, rows // 2 // ranks * ranks)  # far beyond what is quick to simulate


def sample_choices(scenario: Scenario, random: Random, count: int) -> tuple[Choice, ...]:
    """At most ``count`` feasible choices, a serial one and every template that has any among them."""
    domains = domains_of(scenario)
    found: dict[str, list[Choice]] = {}
    for idx, chunks, engine in product(domains.templates, domains.chunks, domains.engines):
        for streams in streams_of(TEMPLATES[idx]):
            choice = Choice(TEMPLATES[idx].name, chunks, engine, streams)
            if why_illegal(scenario, choice) is None:
                found.setdefault(choice.template, []).append(choice)
    first = [random.choice(choices) for choices in found.values()]
    rest = [choice for choices in found.values() for choice in choices if choice not in first]
    random.shuffle(rest)
    return tuple(first + rest)[:count]


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
    engine = domains_of(scenario).engines[0]
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
    rows: int = 1024,
    hidden: int = 1024,
    inner: int = 1024,
) -> Scenario:
    """A scenario on shipped hardware, compiled as a user's would be."""
    text = WORKLOADS[pattern].format(m=rows, hidden=hidden, inner=inner)
    return compile_text(
        f'use "amd/mi300x"\nuse "nvidia/h100"\nsystem node {{ gpus {ranks} x {gpu}; fabric {fabric} }}\n'
        f"workload random on node {{ {text} }}\n"
    ).scenario()


def _vary_system(random: Random, system: System) -> System:
    """Every figure moved by up to SPREAD, independently; notes on where it came from dropped."""
    fabric, link, switch = system.fabric, system.fabric.link, system.fabric.switch
    speed = _factor(random)
    link = Link(
        link.name, link.peak_bytes_per_s, _scaled(link.achieved_bytes_per_s, speed), _moved(random, link.latency_ticks)
    )
    if switch is not None:
        rate = _scaled(switch.bytes_per_s, speed)
        switch = Switch(switch.name, switch.ports, rate, _moved(random, switch.latency_ticks))
    both_ways = fabric.both_ways and random.random() < 0.7
    return System(
        system.name, system.num_ranks, _vary_gpu(random, system.gpu), Fabric(fabric.kind, link, switch, both_ways)
    )


def _vary_gpu(random: Random, gpu: Gpu) -> Gpu:
    hbm, model, memory = gpu.hbm, gpu.gemm, _factor(random)
    return replace(
        gpu,
        sms=_moved(random, gpu.sms),
        peak_flops=tuple((dtype, _moved(random, peak)) for dtype, peak in gpu.peak_flops),
        l2=replace(
            gpu.l2, bytes_per_s=_moved(random, gpu.l2.bytes_per_s), latency_ticks=_moved(random, gpu.l2.latency_ticks)
        ),
        hbm=replace(
            hbm,
            peak_bytes_per_s=_scaled(hbm.peak_bytes_per_s, memory),
            achieved_bytes_per_s=_scaled(hbm.achieved_bytes_per_s, memory),
            latency_ticks=_moved(random, hbm.latency_ticks),
        ),
        gemm=replace(
            model,
            start_ticks=_moved(random, model.start_ticks),
            tile_ticks=_moved(random, model.tile_ticks),
            k_step_ticks=_moved(random, model.k_step_ticks),
        ),
        dma=replace(
            gpu.dma,
            engines=random.choice((2, 4, 8, 14, 16)),
            setup_ticks=_moved(random, gpu.dma.setup_ticks),
            bytes_per_s=_moved(random, gpu.dma.bytes_per_s),
        ),
        sm_copy=replace(
            gpu.sm_copy,
            bytes_per_s=_moved(random, gpu.sm_copy.bytes_per_s),
            setup_ticks=_moved(random, gpu.sm_copy.setup_ticks),
        ),
        launch=replace(
            gpu.launch,
            kernel_ticks=_moved(random, gpu.launch.kernel_ticks),
            event_ticks=_moved(random, gpu.launch.event_ticks),
        ),
        provenance=(),
    )


def _factor(random: Random) -> float:
    """Between 1 - SPREAD and 1 + SPREAD, even in the logarithm."""
    return math.exp(random.uniform(math.log(1 - SPREAD), math.log(1 + SPREAD)))


def _moved(random: Random, value: int) -> int:
    return _scaled(value, _factor(random))


def _scaled(value: int, factor: float) -> int:
    return max(1, round(value * factor))
