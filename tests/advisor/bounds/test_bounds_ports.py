"""The bound of schedules with ports: SMs and network cards side by side are as fast as either."""

import pytest

from magus.advisor.bounds.copy_modes import copy_modes_of
from magus.advisor.bounds.lower_bound import lower_bound
from magus.compiler import compile_text
from magus.compiler.ir import EngineKind, OpCase
from magus.compiler.planning.build import declared
from magus.simcore import simulate_op

SYSTEM = """use "nvidia/h100"
link nic { source assumed "a test"; bandwidth 48 GB/s; achieved 48 GB/s; latency 1.5 us }
system s { gpus 8 x H100; fabric rails(nvswitch, link=nvlink, node=4, nic=nic) }
"""
BODIES = {
    "gather": "x = tensor bf16[1024, 512] shard rows; y = all_gather(x)",
    "pair": "x = tensor bf16[1024, 512] shard rows; w = tensor bf16[512, 4096] shard cols; y = gemm(all_gather(x), w)",
}


def case(body: str, engine: str, protocol: str = "simple") -> OpCase:
    template = "pipelined(chunks=8, algorithm=hierarchical, " if body == "pair" else "hierarchical("
    schedule = f"schedule mine for w = {template}engine={engine}, protocol={protocol})\n"
    return compile_text(f"{SYSTEM}workload w on s {{ {BODIES[body]} }}\n{schedule}").scenario().case


@pytest.mark.parametrize("protocol", ["simple", "ll128"])
@pytest.mark.parametrize("body", BODIES)
def test_no_schedule_with_ports_beats_the_bound(body: str, protocol: str) -> None:
    scenario = case(body, "sm(16, ports)", protocol)

    (named,) = scenario.schedules
    assert lower_bound(scenario).ticks <= simulate_op(scenario, declared(scenario, named)).makespan_ticks


def test_what_is_side_by_side_is_set_up_at_once_and_needs_no_sm() -> None:
    asked, unasked = (copy_modes_of(case("pair", each), EngineKind.DMA) for each in ("sm(16, ports)", "sm(16)"))

    (more,) = set(asked) - set(unasked)
    assert (more.setup_ticks, more.by_sms) == (0, False)
    assert more.engines > unasked[0].engines
