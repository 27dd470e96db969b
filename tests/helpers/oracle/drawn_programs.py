"""Small plans of every pattern, template, algorithm and tactics, on hardware with everything that profiles can say."""

import random
from dataclasses import replace
from fractions import Fraction

from magus.compiler.collectives import ALGORITHM_BY_NAME
from magus.compiler.ir import TICKS_PER_US as US
from magus.compiler.ir import (
    Cache,
    CopyProtocol,
    Direction,
    Distribution,
    DType,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    Fabric,
    Gpu,
    Kernels,
    Late,
    LaunchMode,
    OpCase,
    OpChoice,
    OpPlan,
    Pattern,
    Shape,
    Straggler,
    Sync,
    Variability,
    Wait,
    WaitPer,
)
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.planning.knobs.engine import MODES, tiles_engine
from magus.compiler.templates import ALL_TEMPLATES
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.scenarios.scenarios import KIB, MIB, TICKS_PER_NS, T

ONE_RANK = (Pattern.GEMM, Pattern.KERNEL)
FAT_TREE = "gpus {ranks} x H100; fabric fat_tree(nvswitch, link=nvlink, leaf=2, spines=2)"
ENGINES = (
    *(EngineChoice(EngineKind.DMA, 3, mode) for mode in (EngineMode.OWN, *MODES[EngineKind.DMA])),
    EngineChoice(EngineKind.DMA, 1),
    *(EngineChoice(EngineKind.SM, count, mode) for count in (1, 4, 8) for mode in (EngineMode.OWN, EngineMode.SHARED)),
    EngineChoice(EngineKind.SM, 4, EngineMode.PORTS),
)


def draw_plan(rng: random.Random, pattern: Pattern) -> tuple[OpCase, OpPlan]:
    """A small scenario of ``pattern``, and one of its schedules."""
    scenario = draw_scenario(rng, pattern)
    return scenario, build_op_plan(scenario, draw_choice(rng, scenario))


def draw_choice(rng: random.Random, scenario: OpCase) -> OpChoice:
    """One of the schedules of a scenario."""
    fitting = [each for each in ALL_TEMPLATES if scenario.shape.pattern in each.patterns]
    while True:
        template = rng.choice(fitting)
        choice = OpChoice(
            template.name,
            scenario.num_ranks * (rng.choice((1, 2, 4)) if template.cuts_shards else 1),
            rng.choice((*ENGINES, tiles_engine(scenario.gpu))),
            rng.choice((1, template.default_streams)),
            _draw_tactics(rng, scenario),
            rng.choice(("", *ALGORITHM_BY_NAME)) if template.has("algorithm") else "",
        )
        if reject_choice(scenario, choice) is None:
            return choice


def draw_variability(rng: random.Random, num_ranks: int) -> Variability:
    """Something of everything that makes ranks differ."""
    return Variability(
        rng.choice((None, Distribution(Shape.UNIFORM, (Fraction(0), Fraction(3 * US))))),
        rng.choice((None, Distribution(Shape.NORMAL, (Fraction(1, 20),)))),
        rng.choice((None, Straggler(Fraction(1, 3), Fraction(13, 10)))),
        (Late(rng.randrange(num_ranks), 5 * US),),
    )


def _draw_tactics(rng: random.Random, scenario: OpCase) -> ExecutionOptions:
    tiles, gemm = [block for block, _ in scenario.gpu.tiles_of(DType.BF16)], scenario.shape.gemm
    splits = (1,) if gemm is None else scenario.gpu.splits_of(DType.BF16, gemm.k)
    return ExecutionOptions(
        rng.choice(list(Direction)),
        rng.choice(list(CopyProtocol)),
        rng.choice(list(Kernels)),
        rng.choice(list(Wait)),
        rng.choice(list(WaitPer)),
        rng.choice(list(LaunchMode)),
        rng.choice(((), rng.choice(tiles))),
        rng.choice(splits),
    )


def draw_scenario(rng: random.Random, pattern: Pattern) -> OpCase:
    """A small scenario of ``pattern`` on hardware with anything that a profile may say."""
    ranks = 1 if pattern in ONE_RANK else rng.choice((2, 3, 4, 4))
    system = rng.choice((*SYSTEMS, FAT_TREE) if ranks == 4 else SYSTEMS[:3])
    m, n, k = (ranks * rng.choice((16, 32, 64)) for _ in range(3))
    scenario = scenario_of(pattern, system, ranks, m, n, k)
    gpu, fabric = _draw_gpu(rng, scenario.gpu), _draw_fabric(rng, scenario.system.fabric)
    return replace(scenario, system=replace(scenario.system, gpu=gpu, fabric=fabric))


def _draw_fabric(rng: random.Random, fabric: Fabric) -> Fabric:
    """Links for every protocol, and a switch that copies and sums if there is one."""
    switch = None if fabric.switch is None else replace(fabric.switch, multicast=True, reduces=True)
    link = replace(fabric.link, protocols=tuple(CopyProtocol), ordered=rng.random() < 0.3)
    return replace(fabric, link=link, switch=switch)


def _draw_gpu(rng: random.Random, gpu: Gpu) -> Gpu:
    """A few SMs, and a random choice of what a profile may leave out."""

    def maybe(value: int) -> int | None:
        return value if rng.random() < 0.3 else None

    dma = replace(
        gpu.dma,
        outstanding_bytes=maybe(16 * KIB),
        issue_interval_ticks=maybe(US // 2) or 0,
        packet_bytes=maybe(4 * KIB) or gpu.dma.packet_bytes,
        packet_ticks=maybe(US // 50) or 0,
        prelaunch_ticks=maybe(US // 4) or 0,
    )
    sync = Sync(maybe(US // 3), maybe(US // 5) or 0, maybe(US // 2), rng.choice((2, 16, 1000)), maybe(US // 2))
    return replace(
        gpu,
        sms=rng.choice((16, 40)),
        dma=dma,
        sync=sync,
        sm_copy=replace(gpu.sm_copy, outstanding_bytes=maybe(8 * KIB)),
        hbm=replace(gpu.hbm, channels=maybe(4) or 1, look_ahead_bytes=maybe(16 * KIB)),
        mall=Cache(rng.choice((32 * KIB, 256 * MIB)), 1, 6 * T, 150 * TICKS_PER_NS) if maybe(1) else None,
        l2=replace(
            gpu.l2, size_bytes=rng.choice((gpu.l2.size_bytes, 32 * KIB, MIB)), instances=maybe(1) or gpu.l2.instances
        ),
    )
