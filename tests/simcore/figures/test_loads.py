"""Loads over time: every byte is in a bucket, none is more than full, and folded ranks have those they repeat."""

import random

import numpy as np
import pytest

from magus.compiler.ir import EngineChoice, EngineKind, OpChoice, Pattern
from magus.compiler.planning.build import build_op_plan
from magus.simcore import RunOptions, simulate_op
from magus.simcore.cores.engine import run
from magus.simcore.figures.load_buckets import loads_of
from magus.simcore.figures.result import LoadKind, Loads, Result
from magus.simcore.memo.codec import decode, encode
from tests.helpers.marks import thinned
from tests.helpers.oracle.lowering import lower_op
from tests.helpers.scenarios.drawn import draw_choices, draw_scenario
from tests.helpers.scenarios.fabrics import EVERY
from tests.helpers.scenarios.scenarios import ag_gemm
from tests.helpers.some import some

DMA = EngineChoice(EngineKind.DMA, 2)


def row_of_memory(loads: Loads, rank: int) -> int:
    row = loads.memory(rank)
    assert row is not None
    return row


@pytest.mark.parametrize("pattern", [Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.ALL_GATHER])
def test_what_is_served_in_all_buckets_is_what_the_run_served(pattern: Pattern) -> None:
    rng = random.Random(pattern.value)
    scenario = draw_scenario(rng, pattern)
    for choice in some(draw_choices(rng, scenario, 6)):
        lowered = lower_op(scenario, build_op_plan(scenario, choice), unit_bytes=1024)
        finished = run(lowered.program)

        loads = loads_of(lowered, finished)

        assert loads.utilization.min() >= 0 and loads.utilization.max() <= 1, choice
        served = finished.server_busy_ticks.sum(axis=1).reshape(-1, lowered.program.ranks_simulated)
        links = [load for load in loads.each if load.kind is LoadKind.LINK]
        busy = sorted(sum(load.busy_ticks) for load in links)
        shifts = range(0, loads.period, scenario.network.period)
        expected = [int(served[server, home + by]) for server, home in lowered.machine.links for by in shifts]
        assert busy == sorted(ticks for ticks in expected if ticks), choice
        memory = lowered.machine.memory[0]
        in_hbm = int(served[memory.hbm : memory.hbm + memory.channels, 0].sum())
        assert sum(loads.each[row_of_memory(loads, 0)].busy_ticks) == in_hbm


def test_the_bytes_are_those_of_the_plan() -> None:
    scenario = ag_gemm(4096, 512, 4096)
    result = simulate_op(scenario, build_op_plan(scenario, OpChoice("shard_p2p", 8, DMA)))

    loads = result.loads
    rows = [row for row, load in enumerate(loads.each) if load.kind is LoadKind.LINK]

    assert loads.num_bytes[rows].sum() == pytest.approx(result.traffic.link_bytes)
    in_memory = result.traffic.hbm_read_bytes + result.traffic.hbm_write_bytes
    # A tile's share is rounded up to whole units.
    assert loads.num_bytes[row_of_memory(loads, 0)].sum() == pytest.approx(in_memory, rel=0.05)
    assert loads.utilization[rows].mean(axis=1).max() == pytest.approx(result.utilization.links)


@pytest.mark.parametrize("name", thinned(EVERY, 3))
def test_each_link_of_every_fabric_has_the_load_that_it_has_when_all_ranks_are_simulated(name: str) -> None:
    ranks, fabric = EVERY[name]
    scenario = ag_gemm(ranks * 64, 64, 512, ranks=ranks, fabric=fabric)
    schedule = build_op_plan(scenario, OpChoice("shard_p2p", ranks, DMA))
    folded = simulate_op(scenario, schedule).loads
    whole = simulate_op(scenario, schedule, options=RunOptions(fold=False)).loads

    rows, all_rows = folded.links(scenario.network), whole.links(scenario.network)

    assert whole.period == ranks and set(rows) == set(all_rows) <= {edge.ends for edge in scenario.network.edges}
    few, many = folded.busy_ticks, whole.busy_ticks
    for ends in some(rows):
        assert few[rows[ends]].sum() == many[all_rows[ends]].sum(), ends
        assert (whole.each[all_rows[ends]].source, whole.each[all_rows[ends]].target) == ends
    for rank in range(ranks):
        assert few[row_of_memory(folded, rank)].sum() == many[row_of_memory(whole, rank)].sum()
    if folded.num_buckets == whole.num_buckets:
        place = [rows[ends] for ends in rows], [all_rows[ends] for ends in rows]
        np.testing.assert_array_equal(few[place[0]], many[place[1]])


def test_a_result_with_loads_is_kept_whole() -> None:
    scenario = ag_gemm(1024, 64, 512)
    result = simulate_op(scenario, build_op_plan(scenario, OpChoice("shard_p2p", 8, DMA)))

    assert decode(encode(result, (result.schedule,)), Result, (result.schedule,)) == result


def test_a_rate_is_a_unit_in_the_time_of_its_service() -> None:
    scenario = ag_gemm(1024, 64, 512)
    loads = simulate_op(scenario, build_op_plan(scenario, OpChoice("shard_p2p", 8, DMA))).loads

    row = loads.links(scenario.network)[0, 1]

    assert loads.capacity_bytes_per_s[row] == pytest.approx(scenario.network.edge(0, 1).bytes_per_s, rel=1e-3)
    in_memory = loads.capacity_bytes_per_s[row_of_memory(loads, 0)]
    assert in_memory == pytest.approx(scenario.gpu.hbm.achieved_bytes_per_s, rel=1e-3)
