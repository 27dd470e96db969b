"""Workloads on groups of a larger system: the times of a system that is written out, and more hardware is no slower."""

import pytest

from magus.compiler import compile_text
from magus.compiler.ir import EngineChoice, EngineKind, OpCase, OpChoice
from magus.compiler.planning.build import build_op_plan
from magus.compiler.templates import BASELINE
from magus.simcore import simulate_op

LINKS = """use "nvidia/h100"
link ib { bandwidth 50 GB/s; achieved NIC; latency 1.5 us }
link half extends nvlink { bandwidth base.bandwidth / 2; achieved base.achieved / 2 }
"""
GATHER = "{ x = tensor bf16[384, 1024] shard rows; y = all_gather(x) }"
PAIR = """{ x = tensor bf16[384, 1024] shard rows; w = tensor bf16[1024, 1536] shard cols; xg = all_gather(x)
y = gemm(xg, w) }"""
RAILS = "rails(nvswitch, link=nvlink, node=8, nic=ib)"
TREE = "fat_tree(nvswitch, link=nvlink, leaf=4, spines=4)"


def case(system: str, workload: str, on: str, nic: str = "45 GB/s") -> OpCase:
    links = LINKS.replace("NIC", nic)
    return compile_text(f"{links}system pod {{ {system} }}\nworkload w on {on} {workload}").scenario().case


def ticks(op: OpCase) -> int:
    choice = OpChoice(BASELINE.name, op.num_ranks, EngineChoice(EngineKind.DMA, 2))
    return simulate_op(op, build_op_plan(op, choice), unit_bytes=4096).makespan_ticks


@pytest.mark.parametrize("workload", [GATHER, PAIR], ids=["gather", "pair"])
@pytest.mark.parametrize(
    ("fabric", "mesh", "group", "written"),
    [
        (RAILS, "tp 8, dp 4", "tp", "gpus 8 x H100; fabric switch(nvswitch, link=nvlink)"),
        (RAILS, "tp 8, dp 4", "dp", "gpus 4 x H100; fabric rails(nvswitch, link=nvlink, node=1, nic=ib)"),
        (RAILS, "tp 4, dp 8", "dp", "gpus 8 x H100; fabric rails(nvswitch, link=nvlink, node=2, nic=ib)"),
        (RAILS, "tp 2, dp 4, pp 4", "tp.dp", "gpus 8 x H100; fabric switch(nvswitch, link=nvlink)"),
        (RAILS, "tp 2, dp 4, pp 4", "dp.pp", "gpus 16 x H100; fabric rails(nvswitch, link=nvlink, node=4, nic=ib)"),
        (TREE, "tp 4, dp 8", "tp", "gpus 4 x H100; fabric switch(nvswitch, link=nvlink)"),
        (TREE, "tp 16, dp 2", "tp", "gpus 16 x H100; fabric fat_tree(nvswitch, link=nvlink, leaf=4, spines=4)"),
        ("torus(nvlink, shape=[4, 8])", "tp 8, dp 4", "tp", "gpus 8 x H100; fabric torus(nvlink, shape=[8])"),
        ("torus(nvlink, shape=[2, 4, 4])", "tp 16, dp 2", "tp", "gpus 16 x H100; fabric torus(nvlink, shape=[4, 4])"),
        ("torus(nvlink, shape=[2, 4, 4])", "tp 4, dp 4, pp 2", "dp", "gpus 4 x H100; fabric torus(nvlink, shape=[4])"),
        ("ring(nvlink)", "tp 4, dp 8", "tp", "gpus 4 x H100; fabric edges(nvlink=[[0, 1], [1, 2], [2, 3]])"),
    ],
)
def test_a_group_takes_as_long_as_a_system_of_it_alone(
    fabric: str, mesh: str, group: str, written: str, workload: str
) -> None:
    part = case(f"gpus 32 x H100; fabric {fabric}; mesh {mesh}", workload, f"pod.{group}")

    assert ticks(part) == ticks(case(written, workload, "pod"))


def test_groups_that_cross_the_same_links_have_their_part_of_them() -> None:
    """Two groups of ranks 0, 2 and 1, 3 on a line share the link in its middle; the first has the others alone."""
    part = case("gpus 4 x H100; fabric edges(nvlink=[[0, 1], [1, 2], [2, 3]]); mesh tp 2, dp 2", GATHER, "pod.dp")
    halves = "gpus 2 x H100; fabric edges(switches=1, half=[[0, 2], [1, 2]])"

    assert ticks(part) == ticks(case(halves, GATHER, "pod"))


def test_faster_links_and_groups_that_share_less_are_no_slower() -> None:
    mesh = f"gpus 32 x H100; fabric {RAILS}; mesh tp TP, dp 8, pp 4 / TP"
    times = [ticks(case(mesh.replace("TP", str(tp)), GATHER, "pod.dp")) for tp in (4, 2, 1)]
    faster = [ticks(case(mesh.replace("TP", "2"), GATHER, "pod.dp", f"{rate} GB/s")) for rate in (25, 40, 50)]

    assert times == sorted(times, reverse=True) and times[0] > times[-1]
    assert faster == sorted(faster, reverse=True) and faster[0] > faster[-1]


def test_the_mesh_of_a_system_changes_nothing_for_all_of_its_ranks() -> None:
    plain = f"gpus 16 x H100; fabric {RAILS}"

    assert ticks(case(f"{plain}; mesh tp 8, dp 2", PAIR, "pod")) == ticks(case(plain, PAIR, "pod"))
