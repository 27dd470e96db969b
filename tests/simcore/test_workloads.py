"""Kernels other than a GEMM beside a collective, through the whole simulator."""

import pytest

from magus.compiler import compile_text
from magus.compiler.ir import EngineChoice, EngineKind, OpChoice
from magus.compiler.planning.build import build_op_plan
from magus.simcore import RunOptions, WhatIf, simulate_op
from magus.simcore.cores.engine import Core, run
from magus.simcore.simulate import Case
from tests.helpers.marks import thinned
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.lowering import lower_op
from tests.helpers.oracle.oracle import Oracle
from tests.helpers.scenarios.workloads import TEXTS, choices_of, workload_of
from tests.helpers.some import some

pytestmark = pytest.mark.usefixtures("compiled_core")
LINE = 4096
# Any will do: the waterfall ends there.
BOUND = 100_000_000


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", thinned(TEXTS, 2))
def test_every_core_equals_the_oracle(name: str) -> None:
    """Every template, small: all ranks at once and one rank for all in turn."""
    scenario = workload_of(name, ranks=2, m=512, d=64)
    for number, choice in some(enumerate(choices_of(scenario, pieces=(1, 2)))):
        schedule = build_op_plan(scenario, choice)
        program = lower_op(scenario, schedule, unit_bytes=LINE, fold=number % 3 == 0).program
        expected = Oracle(program).run()
        assert not expected.deadlock
        for core in Core:
            assert differences(program, run(program, core=core), expected) == [], (choice, core)


@pytest.mark.quick(4)
@pytest.mark.parametrize("system", thinned(range(3), 3))
@pytest.mark.parametrize("name", TEXTS)
def test_one_rank_stands_for_all(name: str, system: int) -> None:
    scenario = workload_of(name, m=512, system=system)
    for choice in some(list(choices_of(scenario, pieces=(2,)))[::2]):
        schedule = build_op_plan(scenario, choice)
        folded, all_ranks = (
            simulate_op(scenario, schedule, unit_bytes=16384, options=RunOptions(fold)) for fold in (True, False)
        )
        assert folded.makespan_ticks == all_ranks.makespan_ticks, choice


@pytest.mark.parametrize("name", TEXTS)
def test_the_waterfall_adds_up_and_serial_has_no_decomposition_loss(name: str) -> None:
    scenario = workload_of(name)
    template = "uniform_fused_2d" if name.startswith("A2A+attention") else "uniform_fused_1d"
    engine = EngineChoice(EngineKind.DMA, 3)
    choices = OpChoice("serial", 4, engine), OpChoice(template, 8, engine)

    serial, cut = (
        simulate_op(scenario, build_op_plan(scenario, choice), unit_bytes=4096, what_if=WhatIf(4096, BOUND))
        for choice in choices
    )
    for result in (serial, cut):
        fall = result.waterfall
        assert fall is not None
        parts = fall.exposed_ticks + fall.decomposition_ticks + fall.contention_ticks + fall.launch_sync_ticks
        assert fall.bound_ticks + parts == fall.makespan_ticks == result.makespan_ticks
    assert serial.dil == 1.0 and cut.dil is not None and cut.dil > 1
    assert cut.waterfall is not None and cut.waterfall.decomposition_ticks > 0


@pytest.mark.parametrize(
    ("template", "work"),
    [
        ("serial", "all_gather(x)"),
        ("hierarchical", "all_gather(x)"),
        ("ring", "all_gather(x)"),
        ("forest", "all_reduce(x)"),
    ],
)
def test_what_if_runs_that_change_nothing_are_left_out(
    template: str, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without kernels none meets copies, of sums none is whole, and what is known is not simulated again."""
    text = f"""use "nvidia/h100"
link nic {{ bandwidth 50 GB/s; achieved 45 GB/s; latency 1.5 us }}
system s {{ gpus 8 x H100; fabric rails(nvswitch, link=nvlink, node=4, nic=nic) }}
workload one on s {{ x = tensor bf16[512, 1024] {"shard rows" if "gather" in work else ""}; y = {work} }}
"""
    case = compile_text(text).scenario().case
    plan = build_op_plan(case, OpChoice(template, 8, EngineChoice(EngineKind.DMA, 4)))
    left_out = simulate_op(case, plan, unit_bytes=4096, what_if=WhatIf(4096, BOUND))
    known = simulate_op(case, plan, unit_bytes=1024, what_if=WhatIf(4096, BOUND, left_out.makespan_ticks))
    monkeypatch.setattr(Case, "only_copies", False)
    monkeypatch.setattr(Case, "has_tiles", True)
    whole = simulate_op(case, plan, unit_bytes=4096, what_if=WhatIf(4096, BOUND))

    fall = whole.waterfall
    assert left_out == whole and fall is not None and known.waterfall == fall
    assert fall.decomposition_ticks == 0 < fall.launch_sync_ticks
    assert template == "forest" or fall.contention_ticks == 0
