"""Two plans at once, each on groups of its own: exact in all cores, folded or not."""

from itertools import product

import pytest

from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import TICKS_PER_SECOND, EngineChoice, EngineKind, EngineMode, OpChoice, Scenario, System
from magus.compiler.planning.build import build_op_plan
from magus.simcore.cores.engine import Core, run
from magus.simcore.lower.beside import LoweredBeside, OnGroup, lower_beside, rejected
from magus.simcore.lower.plan import lower, plan_of
from magus.simcore.program.program import Program
from tests.helpers.marks import thinned
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.oracle import Oracle

UNIT = 1024
TEXT = """use "nvidia/h100"
link ib { bandwidth 50 GB/s; achieved 45 GB/s; latency 1.5 us }
system pod { gpus 8 x H100; fabric FABRIC; mesh MESH }
workload layer on pod.tp { x = tensor bf16[64, 128] shard rows; w = tensor bf16[128, 256] shard cols
  xg = all_gather(x); y = gemm(xg, w) }
workload back on pod.tp { h = tensor bf16[64, 256] shard cols; w = tensor bf16[256, 128] shard rows
  y = reduce_scatter(gemm(h, w)) }
workload grads on pod.dp { g = tensor bf16[128, 64]; s = reduce_scatter(g) }
workload sums on pod.dp { g = tensor bf16[128, 64]; s = all_reduce(g) }
workload weights on pod.dp { g = tensor bf16[128, 64] shard rows; s = all_gather(g) }
"""
SWITCH, RAILS = "switch(nvswitch, link=nvlink)", "rails(nvswitch, link=nvlink, node=4, nic=ib)"
MESHES = [
    *product((SWITCH, RAILS, "full_mesh(nvlink)"), ("tp 4, dp 2", "tp 2, dp 4", "dp 4, tp 2", "tp 1, dp 8")),
    ("fat_tree(nvswitch, link=nvlink, leaf=4, spines=2)", "tp 4, dp 2"),
    ("torus(nvlink, shape=[2, 4])", "tp 4, dp 2"),
]
ENGINES = {
    "dma": EngineChoice(EngineKind.DMA, 2),
    "one": EngineChoice(EngineKind.DMA, 1),
    "sm": EngineChoice(EngineKind.SM, 8),
    "shared": EngineChoice(EngineKind.SM, 8, EngineMode.SHARED),
}
WAYS = [
    *product(("serial", "uniform_fused_1d"), ("dma", "sm"), ("serial",), ENGINES),
    *product(("serial",), ("dma", "shared"), ("ring",), ("sm", "shared")),
]


def scenarios(fabric: str, mesh: str, layer: str, traffic: str) -> tuple[Scenario, Scenario]:
    found = compile_text(TEXT.replace("FABRIC", fabric).replace("MESH", mesh))
    return found.scenario(layer), found.scenario(traffic)


def on_group(scenario: Scenario, template: str, engine: str) -> OnGroup:
    chunks = scenario.num_ranks * (2 if template == "uniform_fused_1d" and scenario.num_ranks > 1 else 1)
    choice = OpChoice(template, chunks, ENGINES[engine]) if chunks > 1 else OpChoice("serial", 1, ENGINES["dma"])
    return OnGroup(scenario.system, plan_of(scenario.case, build_op_plan(scenario.case, choice)))


def ends(lowered: LoweredBeside) -> list[set[int]]:
    """When each of both plans is over in its groups."""
    done = run(lowered.program).op_done
    return [{int(done[ops.start : ops.stop].max()) for ops in each} for each in (lowered.first, lowered.second)]


def differs_from_oracle(program: Program) -> list[str]:
    expected = Oracle(program).run()
    return [
        f"{core.value}: {name}" for core in Core for name in differences(program, run(program, core=core), expected)
    ]


CASES = [
    (mesh, kinds, way)
    for mesh, kinds, way in product(MESHES, product(("layer", "back"), ("grads", "sums", "weights")), WAYS)
    if not (kinds[0] == "back" and way[1] == "dma" and way[0] != "serial")
]


@pytest.mark.parametrize("case", thinned(CASES, 74))
def test_two_plans_at_once_are_exact(case: tuple[tuple[str, str], tuple[str, str], tuple[str, str, str, str]]) -> None:
    (fabric, mesh), kinds, (template, engine, algorithm, copier) = case
    layer, traffic = scenarios(fabric, mesh, *kinds)
    both = on_group(layer, template, engine), on_group(traffic, algorithm, copier)
    folded, whole = (lower_beside(*both, unit_bytes=UNIT, fold=fold) for fold in (True, False))

    assert whole.program.ranks_simulated == 8
    assert ends(folded) == ends(whole)
    assert not differs_from_oracle(folded.program) and not differs_from_oracle(whole.program)


def test_ranks_that_are_alike_in_both_are_written_once() -> None:
    """A node of four has one tensor-parallel group, or two of which each has two ranks of a data-parallel one."""
    for mesh, written in (("tp 4, dp 2", 1), ("tp 2, dp 4", 2)):
        layer, traffic = scenarios(RAILS, mesh, "layer", "weights")
        both = on_group(layer, "serial", "dma"), on_group(traffic, "serial", "dma")
        assert lower_beside(*both, unit_bytes=UNIT).program.ranks_simulated == written


@pytest.mark.parametrize("mesh", ["tp 4, dp 2", "tp 2, dp 4"])
def test_each_is_no_faster_than_alone_and_both_no_slower_than_in_turn(mesh: str) -> None:
    layer, traffic = scenarios(SWITCH, mesh, "layer", "grads")
    both = on_group(layer, "serial", "dma"), on_group(traffic, "serial", "shared")
    alone = [run(lower(on.system, on.plan, unit_bytes=UNIT).program).makespan_ticks for on in both]
    found = [max(each) for each in ends(lower_beside(*both, unit_bytes=UNIT))]

    assert found[0] >= alone[0] and found[1] >= alone[1] and max(found) <= sum(alone)


def test_what_both_send_crosses_the_same_ports() -> None:
    """Three blocks of 2 MiB and one of 4 MiB leave by one port behind a switch; on rails the latter by the NIC."""
    text = "workload WHAT on pod.AXIS { x = tensor bf16[4096, 1024] shard rows; y = all_gather(x) }\n"
    head = TEXT.partition("workload")[0].replace("MESH", "tp 4, dp 2")
    both = "".join(text.replace("WHAT", axis).replace("AXIS", axis) for axis in ("tp", "dp"))
    at_once = {}
    for fabric in (SWITCH, RAILS):
        found = compile_text(head.replace("FABRIC", fabric) + both)
        groups = [on_group(found.scenario(axis), "serial", by) for axis, by in (("tp", "dma"), ("dp", "one"))]
        alone = [run(lower(on.system, on.plan, unit_bytes=4096).program).makespan_ticks for on in groups]
        at_once[fabric] = max(max(each) for each in ends(lower_beside(*groups, unit_bytes=4096)))
        assert max(alone) <= at_once[fabric] <= sum(alone)
    (port,) = {on.system.fabric.link.achieved_bytes_per_s for on in groups[:1]}

    assert at_once[SWITCH] >= TICKS_PER_SECOND * (3 * 2 + 4) * 2**20 // port
    assert at_once[RAILS] < max(alone) * 1.05


def test_groups_whose_shared_links_are_not_known_are_refused() -> None:
    layer, traffic = scenarios("ring(nvlink)", "tp 4, dp 2", "layer", "grads")
    found = rejected(layer.system, traffic.system)

    assert found is not None and found.code is Code.MGS440
    assert isinstance(layer.system, System) and rejected(layer.system, layer.system) is not None
