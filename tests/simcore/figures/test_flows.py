"""Flows of data: every kernel is led back to the transfers it waited for, which ended before it began."""

import random

import pytest

from magus.compiler import compile_text
from magus.compiler.ir import EngineChoice, EngineKind, EngineMode, OpChoice, Pattern, TileGroup, arrivals_at
from magus.compiler.planning.build import build_op_plan, declared
from magus.simcore import RunOptions, simulate_op
from magus.simcore.figures.metrics import DataFlow, data_flows
from magus.simcore.figures.result import IntervalKind
from tests.helpers.scenarios.drawn import draw_choices, draw_scenario
from tests.helpers.scenarios.scenarios import ag_gemm
from tests.helpers.some import some


@pytest.mark.parametrize("pattern", [Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.ALL_GATHER])
def test_transfers_end_before_what_waits_for_them_does(pattern: Pattern) -> None:
    rng = random.Random(pattern.value)
    scenario = draw_scenario(rng, pattern)
    last, flows = scenario.num_ranks - 1, list[DataFlow]()
    for choice in draw_choices(rng, scenario, 6):
        result = simulate_op(scenario, build_op_plan(scenario, choice))
        flows += data_flows(scenario, result.schedule, result.timeline, last)

    for flow in some(flows):
        assert flow.rank == last and flow.transfer.kind is IntervalKind.COMM
        assert flow.transfer.end_ticks <= flow.waiter.end_ticks
        assert not flow.path or flow.path[-1] == last


def test_each_group_of_a_chunked_plan_is_led_back_to_its_chunk() -> None:
    scenario = ag_gemm(4096, 512, 4096)
    schedule = build_op_plan(scenario, OpChoice("uniform_fused_1d", 32, EngineChoice(EngineKind.DMA, 7)))
    result = simulate_op(scenario, schedule)

    flows = data_flows(scenario, schedule, result.timeline, 3)

    signals = {arrival.transfer.signal for arrival in arrivals_at(scenario, schedule, 3)}
    waits = [(step.name, name) for step in schedule.steps if isinstance(step, TileGroup) for name in step.after]
    assert {(flow.waiter.name, flow.signal) for flow in flows} == {pair for pair in waits if pair[1] in signals}
    assert {(flow.issuer, *flow.path) for flow in flows} == {(peer, peer, 3) for peer in range(8) if peer != 3}
    assert all(flow.transfer.end_ticks <= flow.waiter.start_ticks for flow in flows) and flows


H100 = """use "nvidia/h100"
system s { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }
workload w on s { x = tensor bf16[4096, 1024] shard rows; b = tensor bf16[1024, 512]; y = gemm(all_gather(x), b) }
"""


def test_a_call_of_the_library_is_one_transfer_of_each_peer() -> None:
    scenario = compile_text(H100).scenario().case
    engine = EngineChoice(EngineKind.SM, 16, EngineMode.LIBRARY)
    result = simulate_op(scenario, build_op_plan(scenario, OpChoice("serial", 8, engine)))

    flows = data_flows(scenario, result.schedule, result.timeline, 0)

    assert {flow.transfer.name for flow in flows} == {"all_gather"}
    assert sorted(flow.issuer for flow in flows) == list(range(1, 8))


QUAD = """use "nvidia/h100"
system quad { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
"""
RING = """workload w on quad { x = tensor bf16[64, 256] shard rows; y = all_gather(x) }
schedule s for w { plan by dma(3); a = get y.shard(1) from 1 signal sa
  b = get y.shard(2) from 1 signal sb peer_after sa; c = get y.shard(3) from 1 signal sc peer_after sb }
"""
SUMMED = """workload w on quad { x = tensor bf16[64, 256]; y = all_reduce(x) }
schedule s for w { plan by sm(4); a = get x.shard(0) from 1 signal sa; b = get x.shard(0) from 2 signal sb
  c = get x.shard(0) from 3 signal sc; r = reduce x.shard(0) parts 4 after sa, sb, sc
  d = get x.shard(1) from 1 signal sd peer_after r; e = get x.shard(2) from 2 signal se peer_after r
  f = get x.shard(3) from 3 signal sf peer_after r }
"""


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (RING, {("sa", 2, "a", "b", (2, 4, 1)), ("sb", 2, "b", "c", (2, 4, 1))}),
        (SUMMED, {("r", peer, "r", name, (peer, 4, 1)) for name, peer in (("d", 2), ("e", 3), ("f", 0))}),
    ],
)
def test_a_get_is_led_back_to_what_its_peer_had_to_have(text: str, expected: set[object], fold: bool) -> None:
    scenario = compile_text(QUAD + text).scenario().case
    schedule = declared(scenario, scenario.schedules[0])
    result = simulate_op(scenario, schedule, options=RunOptions(fold=fold))
    flows = data_flows(scenario, schedule, result.timeline, 1)
    told = [flow for flow in flows if flow.waiter.kind is IntervalKind.COMM]

    assert {(each.signal, each.issuer, each.transfer.name, each.waiter.name, each.path) for each in told} == expected
    assert all(each.transfer.end_ticks <= each.waiter.end_ticks for each in told)
    assert len(flows) - len(told) == (3 if "reduce" in text else 0)


def test_ranks_that_repeat_others_have_their_flows() -> None:
    scenario = ag_gemm(1024, 256, 1024, ranks=4)
    schedule = build_op_plan(scenario, OpChoice("uniform_fused_1d", 8, EngineChoice(EngineKind.DMA, 3)))
    folded, whole = (simulate_op(scenario, schedule, options=RunOptions(fold=fold)) for fold in (True, False))

    for rank in range(4):
        few = data_flows(scenario, schedule, folded.timeline, rank)
        every = data_flows(scenario, schedule, whole.timeline, rank)
        assert [(flow.issuer, flow.signal, flow.path) for flow in few] == [
            (flow.issuer, flow.signal, flow.path) for flow in every
        ]
        assert [flow.waiter.start_ticks for flow in few] == [flow.waiter.start_ticks for flow in every]
        assert [flow.transfer.end_ticks for flow in few] == [flow.transfer.end_ticks for flow in every]
