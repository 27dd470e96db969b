"""What is simulated at which granularity."""

from dataclasses import replace
from fractions import Fraction

import pytest

from magus.advisor.candidates.candidate import Candidate, ScheduleOrigin, by_time
from magus.advisor.candidates.shortlist import (
    BEHIND,
    FAR_BEHIND,
    NUM_COMPARED,
    SHORTLIST_LINE_HOPS,
    packet_bytes,
    shortlist_unit,
    simulate_shortlist,
    simulate_variants,
)
from magus.advisor.work.workers import open_workers
from magus.compiler import compile_text
from magus.compiler.ir import TICKS_PER_US, Direction, EngineChoice, EngineKind, Explore, OpCase, OpChoice, Pattern
from magus.compiler.planning.build import build_op_plan
from magus.simcore import simulate_op
from magus.simcore.lower.budget import cost_of
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.scenarios.fabrics import fat_tree, rails
from tests.helpers.scenarios.scenarios import ag_gemm, h100

DMA = EngineChoice(EngineKind.DMA, 3)


def candidate(scenario: OpCase, choice: OpChoice, predicted_us: float) -> Candidate:
    schedule = build_op_plan(scenario, choice)
    return Candidate(
        schedule.expression,
        choice,
        schedule,
        ScheduleOrigin.SERIAL if choice.template == "serial" else ScheduleOrigin.TEMPLATE,
        predicted_us,
        None,
        None,
    )


def test_small_pieces_are_simulated_in_lines_and_large_problems_coarser_than_packets() -> None:
    choice = OpChoice("serial", 8, EngineChoice(EngineKind.DMA, 7))
    small, large, vast = ag_gemm(64, 512, 512), ag_gemm(16384, 28672, 8192), ag_gemm(1 << 20, 28672, 8192)

    units = [shortlist_unit(scenario, build_op_plan(scenario, choice)) for scenario in (small, large, vast)]

    assert units[:2] == [128, packet_bytes(large.gpu)] == [128, 1024]
    assert units[2] > 1024


def test_favourites_and_every_serial_schedule_are_simulated() -> None:
    scenario = scenario_of(Pattern.AG_GEMM, SYSTEMS[1], 4, 256, 256, 256)
    serial = candidate(scenario, OpChoice("serial", 4, DMA), 9.0)
    liked = candidate(scenario, OpChoice("shard_p2p", 4, DMA), 1.0)
    other = candidate(scenario, OpChoice("hetero_fused_1d", 4, DMA), 2.0)
    heard: list[tuple[str, int, int]] = []

    with open_workers(1) as pool:
        found = simulate_shortlist(pool, scenario, [liked, other, serial], 1, lambda *said: heard.append(said))

    assert {one.expression for one in found if one.simulated_ticks is not None} == {
        liked.expression,
        serial.expression,
    }
    assert found == by_time(found) and found[-1].expression == other.expression
    assert heard == [("simulate", 0, 2), ("simulate", 1, 2), ("simulate", 2, 2)]


@pytest.mark.parametrize("proposed", [True, False])
def test_templates_that_are_predicted_behind_a_simulated_proposal_are_not_simulated(proposed: bool) -> None:
    scenario = scenario_of(Pattern.AG_GEMM, SYSTEMS[1], 4, 256, 256, 256)
    serial = candidate(scenario, OpChoice("serial", 4, DMA), 1000.0)
    proposal = candidate(scenario, OpChoice("shard_p2p", 4, DMA), 100.0)
    if proposed:
        proposal = replace(proposal, simulated_ticks=100 * TICKS_PER_US, unit_bytes=128)
    near = candidate(scenario, OpChoice("uniform_fused_1d", 8, DMA), BEHIND * 100 - 1)
    behind = [
        candidate(scenario, OpChoice("hetero_fused_1d", chunks, DMA), BEHIND * 100 + chunks) for chunks in (4, 8, 16)
    ]

    with open_workers(1) as pool:
        found = simulate_shortlist(pool, scenario, [proposal, near, *behind, serial], 8, lambda *said: None)

    simulated = {one.expression for one in found if one.simulated_ticks is not None}
    wanted = [proposal, near, *behind[: NUM_COMPARED - 1 if proposed else None], serial]
    assert len(found) == 6 and simulated == {one.expression for one in wanted}


@pytest.mark.quick(1)
@pytest.mark.parametrize(("resolution", "left_out"), [("3 %", 6), ("25 %", 0)])
def test_six_at_most_are_left_out_and_no_tie(resolution: str, left_out: int) -> None:
    scenario = scenario_of(Pattern.AG_GEMM, SYSTEMS[1], 4, 1024, 1024, 1024)
    gemm = replace(scenario.gpu.gemm, resolution=Fraction(resolution.split()[0]) / 100)
    scenario = replace(scenario, system=replace(scenario.system, gpu=replace(scenario.gpu, gemm=gemm)))
    proposal = replace(candidate(scenario, OpChoice("shard_p2p", 4, DMA), 100.0), simulated_ticks=100 * TICKS_PER_US)
    names = ("hetero_fused_1d", "hetero_unfused_1d", "uniform_fused_1d")
    choices = [OpChoice(name, chunks, DMA) for name in names for chunks in (16, 32, 64)]
    behind = [candidate(scenario, choice, 120.0 + place / 2) for place, choice in enumerate(choices)]

    with open_workers(1) as pool:
        found = simulate_shortlist(pool, scenario, [proposal, *behind], len(behind), lambda *said: None)

    assert sum(one.simulated_ticks is None for one in found) == left_out


def test_only_a_lone_collective_has_variants() -> None:
    gemm = scenario_of(Pattern.AG_GEMM, SYSTEMS[1], 4, 256, 256, 256)
    lone = scenario_of(Pattern.ALL_GATHER, SYSTEMS[1], 4, 256, 256, 256)

    with open_workers(1) as pool:
        alone = simulate_shortlist(
            pool, lone, [candidate(lone, OpChoice("serial", 4, DMA), 1.0)], 1, lambda *said: None
        )
        same = [candidate(gemm, OpChoice("serial", 4, DMA), 1.0)]
        assert simulate_variants(pool, gemm, same, lambda *said: None) == same
        found = simulate_variants(pool, lone, alone, lambda *said: None)

    added = [one for one in found if one.expression != alone[0].expression]
    assert [one.choice.tactics.direction for one in added if one.choice] == [Direction.GET]
    assert not added[0].is_serial and added[0].simulated_ticks is not None


def test_ranks_that_are_simulated_one_by_one_share_what_a_run_may_cost() -> None:
    choice = OpChoice("serial", 8, EngineChoice(EngineKind.DMA, 7))
    alike, unlike = (ag_gemm(16384, 28672, 8192, gpu=h100(), fabric=fabric) for fabric in (None, fat_tree(4, 5)))

    units = [shortlist_unit(scenario, build_op_plan(scenario, choice)) for scenario in (alike, unlike)]

    assert units[1] > units[0]
    schedule = build_op_plan(unlike, choice)
    assert cost_of(unlike, schedule, range(8))[0] // units[1] <= SHORTLIST_LINE_HOPS


def test_plans_whose_busiest_link_takes_longer_than_another_plan_are_not_simulated() -> None:
    scenario = ag_gemm(1024 * 32, 512, 512, ranks=32, fabric=rails(8))

    def made(template: str, algorithm: str, predicted_us: float) -> Candidate:
        return candidate(scenario, OpChoice(template, 32, DMA, algorithm=algorithm), predicted_us)

    direct = [made("serial", "", 2.0), made("pipelined", "direct", 1.0)]  # predicted far too fast
    by_nodes = [made("serial", "hierarchical", 40.0), made("pipelined", "hierarchical", 30.0)]
    everything = by_time([*direct, *by_nodes])

    def simulated(requested: OpCase, candidates: list[Candidate]) -> set[str]:
        with open_workers(1) as pool:
            found = simulate_shortlist(pool, requested, candidates, 8, lambda *said: None)
        assert len(found) == len(candidates)
        return {one.expression for one in found if one.simulated_ticks is not None}

    names = {one.expression for one in by_nodes}
    assert simulated(scenario, everything) == names
    assert simulated(scenario, direct) == {one.expression for one in direct}  # of each kind there is one
    explored = replace(scenario, explore=Explore.of(algorithm=("direct", "hierarchical")))
    assert simulated(explored, everything) == {one.expression for one in everything}


@pytest.mark.parametrize(("times", "simulated"), [(FAR_BEHIND + 0.1, False), (FAR_BEHIND - 0.1, True)])
def test_plans_of_many_ranks_that_are_predicted_far_behind_are_not_simulated(times: float, simulated: bool) -> None:
    scenario = ag_gemm(1024, 512, 512, ranks=16, fabric=rails(8))
    serial, quick, slow = (
        candidate(scenario, OpChoice(template, 16, DMA, algorithm=algorithm), predicted_us)
        for template, algorithm, predicted_us in (
            ("serial", "hierarchical", 1e6),
            ("pipelined", "hierarchical", 1e6),
            ("pipelined", "direct", times * 1e6),
        )
    )

    with open_workers(1) as pool:
        found = simulate_shortlist(pool, scenario, [quick, serial, slow], 8, lambda *said: None)

    known = {one.expression: one.simulated_ticks is not None for one in found}
    assert known == {serial.expression: True, quick.expression: True, slow.expression: simulated}


@pytest.mark.slow
def test_of_a_collective_alone_what_the_busiest_link_rules_out_is_told_and_is_slower_indeed() -> None:
    """Two triangles and a narrow link: trees pass it once with each shard, straight copies with each copy of it."""
    links = [[0, 1], [0, 2], [1, 2], [3, 4], [3, 5], [4, 5], [2, 3]]
    case = (
        compile_text(f"""use "amd/mi300x"
system box {{ gpus 6 x MI300X; fabric edges(xgmi={links}) }}
workload one on box {{ x = tensor bf16[12288, 1024] shard rows; y = all_gather(x) }}
""")
        .scenario()
        .case
    )
    dma = EngineChoice(EngineKind.DMA, 5)
    choices = [OpChoice("serial", 6, dma), OpChoice("direct", 6, dma), OpChoice("direct", 24, dma)]
    ranked = [candidate(case, choice, float(us)) for us, choice in enumerate(choices, 1)]

    with open_workers(1) as pool:
        found = simulate_shortlist(pool, case, ranked, 8, lambda *said: None)

    ruled_out = [one for one in found if one.least_ticks is not None]
    assert [one.expression for one in ruled_out] == [ranked[2].expression]
    fastest = min(one.ticks for one in found if one.simulated_ticks is not None)
    alone = simulate_op(case, ruled_out[0].schedule, unit_bytes=4096).total_ticks
    assert ruled_out[0].simulated_ticks is None and fastest <= (ruled_out[0].least_ticks or 0) <= alone
    assert all(one.choice is not None and one.choice.trees for one in found if one.ticks == fastest)
