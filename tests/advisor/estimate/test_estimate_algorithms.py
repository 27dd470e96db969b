"""Estimates of collectives by every algorithm are near the simulator, where ranks are alike and where they are not."""

import pytest

from magus.advisor.estimate.makespan import estimate_ticks
from magus.compiler import compile_text
from magus.compiler.collectives import ALGORITHM_BY_NAME
from magus.compiler.ir import EngineChoice, EngineKind, OpCase, OpChoice
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.simcore import simulate_op
from tests.helpers.marks import first, thinned

HEAD = """mgs 1
use "nvidia/h100"
use "amd/mi300x"
link nic {
  bandwidth 50 GB/s @nominal
  achieved 45 GB/s @assumed
  latency 1.5 us @assumed
}
"""
SYSTEMS = {
    "mesh": "8 x MI300X; fabric full_mesh(xgmi)",
    "switch": "8 x H100; fabric switch(nvswitch, link=nvlink)",
    "ring": "8 x MI300X; fabric ring(xgmi)",
    "torus": "8 x MI300X; fabric torus(xgmi, shape=[2, 4])",
    "fat tree": "8 x H100; fabric fat_tree(nvswitch, link=nvlink, leaf=4, spines=2)",
    "rails": "8 x H100; fabric rails(nvswitch, link=nvlink, node=4, nic=nic)",
}
LONE = {
    "all_gather": "x = tensor bf16[4096, 4096] shard rows\n  y = all_gather(x)",
    "reduce_scatter": "x = tensor bf16[4096, 4096]\n  y = reduce_scatter(x)",
    "all_reduce": "x = tensor bf16[4096, 4096]\n  y = all_reduce(x)",
    "broadcast": "x = tensor bf16[4096, 4096]\n  y = broadcast(x)",
}
BESIDE = {
    "GEMM+RS": "x = tensor bf16[4096, 8192] shard cols\n  w = tensor bf16[8192, 4096] shard rows\n"
    "  y = reduce_scatter(gemm(x, w))",
    "AG+GEMM": "x = tensor bf16[4096, 4096] shard rows\n  w = tensor bf16[4096, 8192]\n  y = gemm(all_gather(x), w)",
    "GEMM beside AG": "x = tensor bf16[4096, 4096]\n  w = tensor bf16[4096, 8192]\n  y = gemm(x, w)\n"
    "  v = tensor bf16[4096, 4096] shard rows\n  u = all_gather(v)",
}
FEW = ("switch", "rails")
DMA, SM = EngineChoice(EngineKind.DMA, 7), EngineChoice(EngineKind.SM, 16)


def scenario_of(system: str, body: str) -> OpCase:
    return (
        compile_text(f"{HEAD}system s {{ gpus {SYSTEMS[system]} }}\nworkload w on s {{\n  {body}\n}}\n").scenario().case
    )


def legal(scenario: OpCase, choices: list[OpChoice]) -> list[OpChoice]:
    return [choice for choice in choices if reject_choice(scenario, choice) is None]


def ratio(scenario: OpCase, choice: OpChoice) -> float:
    """Estimated time over simulated time."""
    schedule = build_op_plan(scenario, choice)
    return estimate_ticks(scenario, schedule) / simulate_op(scenario, schedule, unit_bytes=16384).makespan_ticks


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", thinned(ALGORITHM_BY_NAME, 2))
@pytest.mark.parametrize(
    "systems", [FEW, pytest.param(tuple(each for each in SYSTEMS if each not in FEW), marks=pytest.mark.slow)]
)
def test_a_lone_collective(algorithm: str, systems: tuple[str, ...]) -> None:
    found = {}
    for system in systems:
        for name, body in LONE.items():
            scenario = scenario_of(system, body)
            for choice in legal(scenario, [OpChoice(algorithm, 16, DMA), OpChoice(algorithm, 16, SM)]):
                found[system, name, choice.engine] = ratio(scenario, choice)

    off = sorted(abs(each - 1) for each in found.values())
    assert not off or off[len(off) // 2] < 0.1, found
    assert not off or off[-1] < 0.3, found
    assert off or "rails" not in systems, "every algorithm does something on one of the few"


@pytest.mark.parametrize("system", first(["switch", "torus", "rails"], 1))
def test_kernels_beside_a_collective(system: str) -> None:
    found = {}
    for name, body in BESIDE.items():
        scenario, template = scenario_of(system, body), "bulk" if name == "GEMM beside AG" else "pipelined"
        for choice in legal(scenario, [OpChoice(template, 16, SM, algorithm=each) for each in ALGORITHM_BY_NAME]):
            found[name, choice.algorithm] = ratio(scenario, choice)

    off = sorted(abs(each - 1) for each in found.values())
    assert len({algorithm for _, algorithm in found}) >= 4
    assert off[len(off) // 2] < 0.1, found
    assert off[-1] < 0.3, found
