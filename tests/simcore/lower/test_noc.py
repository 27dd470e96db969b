"""The network on chip: tiles and copies share it, as in the closed form, and in every core alike."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler import compile_text
from magus.compiler.ir import EngineChoice, EngineKind, Noc, OpCase, OpChoice
from magus.compiler.planning.build import build_op_plan
from magus.simcore import Result, simulate_op
from magus.simcore.cores.engine import run
from magus.simcore.kernels.copy import slowdown_beside_copies
from magus.simcore.lower.machine import NOC_PACKET_BYTES, Idealization
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.lowering import lower_op
from tests.helpers.oracle.oracle import Oracle
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs, lone_gather, switch

UNIT = 4096
DMA, SM = EngineChoice(EngineKind.DMA, 3), EngineChoice(EngineKind.SM, 6)
NOC = Noc(Fraction(9, 10), 2 * 10**12)
BESIDE = """mgs 1
use "nvidia/h100"
system hgx {{ gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }}
workload one on hgx {{
  x = tensor bf16[{m}, 8192]
  w = tensor bf16[8192, 4096]
  y = gemm(x, w)
  v = tensor bf16[65536, 8192] shard rows
  g = all_gather(v)
}}
"""


def with_noc(scenario: OpCase, noc: Noc | None = NOC) -> OpCase:
    return replace(scenario, system=replace(scenario.system, gpu=replace(scenario.gpu, noc=noc)))


def gathered(noc: Noc | None) -> OpCase:
    return with_noc(ag_gemm(2048, 2048, 2048, ranks=4, fabric=switch()), noc)


def simulated(scenario: OpCase, template: str = "shard_p2p", engine: EngineChoice = DMA) -> Result:
    return simulate_op(
        scenario, build_op_plan(scenario, OpChoice(template, scenario.num_ranks, engine)), unit_bytes=UNIT
    )


def test_only_a_gpu_that_has_one_and_a_plan_with_a_kernel_have_the_server() -> None:
    names = []
    for scenario in (gathered(None), with_noc(lone_gather(512, 512, ranks=4, fabric=switch())), gathered(NOC)):
        schedule = build_op_plan(scenario, OpChoice("serial", 4, DMA))
        names.append("noc" in lower_op(scenario, schedule, unit_bytes=UNIT).program.server_names)

    assert names == [False, False, True]


def test_a_kernel_takes_as_long_with_it_when_nothing_is_copied_beside() -> None:
    without, having = (simulated(gathered(noc), "serial") for noc in (None, NOC))

    assert having.compute_ticks == without.compute_ticks


def test_copies_pass_it_once_where_they_are_read_and_once_where_they_are_written() -> None:
    scenario = gathered(NOC)
    result = simulated(scenario, "serial")
    copied = 3 * 512 * 2048 * 2  # by each rank, and to each
    (noc,) = (load for load in result.servers if load.name == "noc")

    packets = noc.comm_ticks * NOC.copy_bytes_per_s / 10**14 / NOC_PACKET_BYTES
    assert packets == pytest.approx(2 * copied / NOC_PACKET_BYTES, rel=0.01)


def test_the_share_of_contention_in_the_loss_contains_it() -> None:
    scenario = gathered(Noc(Fraction(1), 10**12))
    schedule = build_op_plan(scenario, OpChoice("shard_p2p", 4, DMA))
    alone = lower_op(scenario, schedule, unit_bytes=UNIT, ideal=Idealization.PRIVATE_SERVERS).program

    assert "noc" not in alone.server_names
    assert simulated(scenario).makespan_ticks > run(alone).makespan_ticks


@pytest.mark.parametrize("m", [4096, 8192])
def test_a_gemm_beside_long_copies_is_as_slow_as_the_closed_form_says(m: int) -> None:
    scenario = compile_text(BESIDE.format(m=m)).scenario().case
    schedule = build_op_plan(scenario, OpChoice("bulk", 8, EngineChoice(EngineKind.DMA, 7)))
    beside, alone = (simulate_op(each, schedule, unit_bytes=UNIT) for each in (scenario, with_noc(scenario, None)))
    assert beside.comm_ticks > beside.compute_ticks  # copies all the while
    bytes_per_s = 7 * 65536 // 8 * 8192 * 2 * 1e14 / beside.comm_ticks

    assert scenario.shape.gemm is not None
    slower = slowdown_beside_copies(scenario.gpu, scenario.shape.gemm, scenario.gpu.sms, bytes_per_s)
    assert slower > 1.05
    assert beside.compute_ticks / alone.compute_ticks == pytest.approx(slower, rel=0.02)


def test_copies_that_leave_nothing_are_refused() -> None:
    scenario = gathered(NOC)
    assert scenario.shape.gemm is not None
    with pytest.raises(ValueError, match="leave the GEMM nothing of a server"):
        slowdown_beside_copies(scenario.gpu, scenario.shape.gemm, 132, 2e12)


@given(
    st.sampled_from([ag_gemm, gemm_rs]),
    st.sampled_from([("serial", 4), ("shard_p2p", 4), ("uniform_fused_1d", 8)]),
    st.sampled_from([DMA, SM]),
    st.integers(1, 100),
    st.integers(10**11, 10**13),
)
def test_every_core_agrees_with_the_oracle(make, template, engine, percent, rate) -> None:  # type: ignore[no-untyped-def]
    scenario = with_noc(make(128, 128, 256, ranks=4, fabric=switch()), Noc(Fraction(percent, 100), rate))
    name, chunks = template
    schedule = build_op_plan(scenario, OpChoice(name, chunks, engine))
    program = lower_op(scenario, schedule, unit_bytes=1024).program

    assert differences(program, run(program), Oracle(program).run()) == []
