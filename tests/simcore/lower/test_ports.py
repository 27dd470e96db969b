"""Copies by SMs inside nodes and by network cards between them, ``sm(n, ports)``."""

import pytest

from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import (
    EngineChoice,
    EngineKind,
    EngineMode,
    OpCase,
    OpChoice,
    Reduction,
    Transfer,
)
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.text.diagnostics import CompileError
from magus.compiler.verify.check import check_plan
from magus.simcore import RunOptions, simulate_op
from magus.simcore.kernels.gemm import ticks_for
from magus.simcore.lower.one_kernel import launch_ticks
from magus.simcore.lower.waits import poll_ticks

NIC = 'link nic { source assumed "a test"; bandwidth 48 GB/s; achieved 48 GB/s; latency 1.5 us }'
RAILS = "rails(nvswitch, link=nvlink, node=4, nic=nic)"
PORTS = EngineChoice(EngineKind.SM, 8, EngineMode.PORTS)


def case(body: str, fabric: str = RAILS, ranks: int = 8) -> OpCase:
    system = f"system s {{ gpus {ranks} x H100; fabric {fabric} }}"
    return compile_text(f'use "nvidia/h100"\n{NIC}\n{system}\nworkload w on s {{ {body} }}\n').scenario().case


def gather(rows: int = 4096) -> OpCase:
    return case(f"x = tensor bf16[{rows}, 1024] shard rows; y = all_gather(x)")


def test_what_leaves_a_node_takes_the_time_of_a_command_and_of_the_links() -> None:
    two = case("x = tensor bf16[1024, 1024] shard rows; y = all_gather(x)", RAILS.replace("node=4", "node=1"), 2)
    gpu, schedule = two.gpu, build_op_plan(two, OpChoice("direct", 2, PORTS))

    (sent,) = (each for each in simulate_op(two, schedule).timeline.intervals if each.rank == 0)

    size = 512 * 1024 * 2
    memory = 2 * gpu.hbm.latency_ticks
    alone = gpu.dma.setup_ticks + ticks_for(size, two.network.edges[0].bytes_per_s) + memory + 2 * 150_000_000
    assert sent.lane == "port 0"
    assert sent.end_ticks - sent.start_ticks == pytest.approx(alone, rel=0.02)
    assert sent.start_ticks >= launch_ticks(gpu, schedule) + poll_ticks(gpu)


def test_cards_hold_no_sm() -> None:
    one, many = (
        simulate_op(gather(), build_op_plan(gather(), OpChoice("direct", 8, EngineChoice(EngineKind.SM, 1, mode))))
        for mode in (EngineMode.PORTS, EngineMode.OWN)
    )

    near = [each for each in one.timeline.intervals if each.rank == 0 and each.lane.startswith("copy")]
    far = [each for each in one.timeline.intervals if each.rank == 0 and each.lane.startswith("port")]
    assert (len(near), len(far)) == (3, 4)
    assert min(each.start_ticks for each in far) == min(each.start_ticks for each in near)
    assert one.makespan_ticks < many.makespan_ticks


def test_ranks_that_are_alike_take_the_times_of_all() -> None:
    schedule = build_op_plan(gather(), OpChoice("hierarchical", 8, PORTS))

    folded, whole = (simulate_op(gather(), schedule, options=RunOptions(fold=fold)) for fold in (True, False))

    assert folded.makespan_ticks == whole.makespan_ticks


@pytest.mark.parametrize("algorithm", ["ring", "hierarchical", "direct", "double_ring"])
def test_what_a_card_brings_is_summed_by_kernels(algorithm: str) -> None:
    reduced = case("x = tensor bf16[4096, 1024]; y = all_reduce(x)")

    schedule = build_op_plan(reduced, OpChoice(algorithm, 8, PORTS))

    steps = schedule.steps_of(0)
    assert not check_plan(reduced, schedule)
    assert any(isinstance(step, Reduction) for step in steps)
    assert not any(step.reduce for step in steps if isinstance(step, Transfer))


def test_a_card_cannot_add() -> None:
    fabric = RAILS.replace("node=4", "node=1")
    text = f'use "nvidia/h100"\n{NIC}\nsystem s {{ gpus 2 x H100; fabric {fabric} }}\n'
    text += "workload w on s { x = tensor bf16[4096, 1024]; y = reduce_scatter(x) }\n"
    text += "schedule mine for w {\n  plan by sm(8, ports)\n  a = put x.shard(1) to 1 signal s reduce\n}\n"

    with pytest.raises(CompileError) as caught:
        compile_text(text)

    (found,) = caught.value.diagnostics
    assert (found.code, found.message) == (Code.MGS403, "a: a network card cannot reduce")


def test_one_node_has_no_ports() -> None:
    alone = case("x = tensor bf16[4096, 1024] shard rows; y = all_gather(x)", "switch(nvswitch, link=nvlink)")

    unfit = reject_choice(alone, OpChoice("direct", 8, PORTS))

    assert unfit is not None
    assert (unfit.code, unfit.message) == (Code.MGS407, "ports lead out of a node, and all 8 GPUs are in one")
