"""Fabrics as servers: those that are the same network give the same ticks, however they are described."""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product

import pytest

from magus.compiler.ir import EngineChoice, EngineKind, Fabric, OpCase, OpChoice, OpPlan, network_of
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.simcore import RunOptions, RunOutcome, simulate_op
from magus.simcore.cores.engine import run
from magus.simcore.fold.refine import Classes, detect
from magus.simcore.fold.run import quotient
from magus.simcore.lower.machine import distance_ticks
from tests.helpers.marks import first, thinned
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.lowering import lower_op
from tests.helpers.oracle.oracle import Oracle
from tests.helpers.scenarios.fabrics import UNEVEN, fat_tree, graph, rails, torus
from tests.helpers.scenarios.scenarios import ag_gemm, full_mesh, gemm_rs, lone_gather, lone_gemm, ring, switch, xgmi
from tests.helpers.some import some

UNIT = 8192
DMA, SM = EngineChoice(EngineKind.DMA, 2), EngineChoice(EngineKind.SM, 8)


def schedules(scenario: OpCase) -> list[OpPlan]:
    n = scenario.num_ranks
    choices = [
        OpChoice(template, n * pieces, engine)
        for template, pieces in (("serial", 1), ("shard_p2p", 1), ("uniform_fused_1d", 2), ("hetero_fused_1d", 2))
        for engine in (DMA, SM)
    ]
    return [build_op_plan(scenario, choice) for choice in choices if reject_choice(scenario, choice) is None]


SAME = [
    (6, torus(6), ring()),
    (5, torus(1, 5), ring()),
    (4, graph(*combinations(range(4), 2)), full_mesh()),
    (8, fat_tree(8, 1), Fabric(switch().topology, fat_tree(8, 1).link, fat_tree(8, 1).switch)),
    (8, rails(8), Fabric(switch().topology, rails(8).link, rails(8).switch)),
    (5, graph((0, 1), (1, 2), (2, 3), (3, 4), (4, 0)), ring()),
]


@pytest.mark.parametrize(("num_ranks", "one", "other"), SAME)
@pytest.mark.parametrize("make", first([ag_gemm, gemm_rs], 1))
def test_the_same_network_has_the_same_times(make, num_ranks: int, one: Fabric, other: Fabric) -> None:  # type: ignore[no-untyped-def]
    found = []
    for fabric in (one, other):
        scenario = make(64 * num_ranks, 64 * num_ranks, 512, ranks=num_ranks, fabric=fabric)
        results = [simulate_op(scenario, schedule, unit_bytes=UNIT) for schedule in schedules(scenario)]
        found.append(
            [(r.makespan_ticks, r.compute_ticks, r.comm_ticks, r.traffic, r.timeline.of_rank(0)) for r in results]
        )

    assert found[0] == found[1]
    assert len(found[0]) >= 3


@pytest.mark.quick(2)
@pytest.mark.parametrize("case", thinned(product(UNEVEN, (ag_gemm, gemm_rs)), 5))
def test_folded_equals_every_rank(case: tuple[str, Callable[..., OpCase]]) -> None:
    (num_ranks, fabric), make = UNEVEN[case[0]], case[1]
    scenario = make(64 * num_ranks, 64 * num_ranks, 512, ranks=num_ranks, fabric=fabric)
    for schedule in some(schedules(scenario)):
        folded, every = (
            simulate_op(scenario, schedule, unit_bytes=UNIT, options=RunOptions(fold)) for fold in (True, False)
        )

        assert folded.outcome is every.outcome is RunOutcome.DONE
        for rank in range(num_ranks):
            own, like = every.timeline.of_rank(rank), folded.timeline.of_rank(rank)
            assert own == tuple(replace(interval, rank=rank) for interval in like)
        assert folded.line_hops_represented == every.line_hops


@pytest.mark.parametrize("name", UNEVEN)
def test_lowered_programs_agree_with_the_oracle(name: str) -> None:
    num_ranks, fabric = UNEVEN[name]
    scenario = lone_gather(num_ranks * 16, 256, ranks=num_ranks, fabric=fabric)
    schedule = build_op_plan(scenario, OpChoice("serial", num_ranks, SM))
    program = lower_op(scenario, schedule, unit_bytes=1024).program

    assert differences(program, run(program), Oracle(program).run()) == []


FOLDED = [name for name, (num_ranks, fabric) in UNEVEN.items() if 1 < network_of(fabric, num_ranks).period < num_ranks]


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", thinned(FOLDED, 3))
def test_relative_plans_fold_by_shifts_alone(name: str) -> None:
    num_ranks, fabric = UNEVEN[name]
    scenario = ag_gemm(64 * num_ranks, 64 * num_ranks, 512, ranks=num_ranks, fabric=fabric)
    for schedule in some(schedules(scenario)):
        program = lower_op(scenario, schedule, unit_bytes=UNIT).program
        classes = detect(program)

        assert 1 < program.ranks_simulated < num_ranks
        if isinstance(classes, Classes):  # what it finds alike does not spare a rank
            assert quotient(program, classes).num_rank_classes == program.ranks_simulated
        assert simulate_op(scenario, schedule, unit_bytes=UNIT).ranks_simulated == program.ranks_simulated


def test_plans_that_leave_links_idle_fold_further() -> None:
    alone = replace(lone_gemm(1024, 1024, 512), system=replace(lone_gather(64, 64, fabric=rails(4)).system))
    num_ranks, chords = UNEVEN["circle with chords"]
    ringed = lone_gather(64 * num_ranks, 256, ranks=num_ranks, fabric=chords)
    around = build_op_plan(ringed, OpChoice("ring", num_ranks, SM))

    for scenario, schedule in ((alone, build_op_plan(alone, OpChoice("serial", 8, DMA))), (ringed, around)):
        assert 1 < lower_op(scenario, schedule, unit_bytes=UNIT).program.ranks_simulated < scenario.num_ranks
        assert simulate_op(scenario, schedule, unit_bytes=UNIT).ranks_simulated == 1


def test_traffic_around_a_torus_folds_to_two_of_its_last_sides() -> None:
    scenario = lone_gather(64 * 16, 512, ranks=16, fabric=torus(4, 4))
    schedule = build_op_plan(scenario, OpChoice("serial", 16, DMA))

    assert simulate_op(scenario, schedule, unit_bytes=UNIT).ranks_simulated == 2 * 4


@pytest.mark.parametrize("fabric", [full_mesh(), ring(), ring(both_ways=False), switch()])
def test_distances_are_those_of_the_graph(fabric: Fabric) -> None:
    scenario = lone_gather(64, 64, ranks=8, fabric=fabric)
    network = network_of(fabric, 8)

    for rank in range(8):
        for peer in range(1, 8):
            assert distance_ticks(scenario, peer, rank) == sum(
                edge.latency_ticks for edge in network.route(rank, (rank + peer) % 8)
            )


def test_the_slowest_link_of_a_chain_is_the_one_in_the_middle() -> None:
    num_ranks, fabric = UNEVEN["chain"]
    scenario = lone_gather(4096, 4096, ranks=num_ranks, fabric=fabric)
    engines = EngineChoice(EngineKind.DMA, 3)  # which send no flags
    found = simulate_op(scenario, build_op_plan(scenario, OpChoice("serial", num_ranks, engines)), unit_bytes=UNIT)
    busiest = max((load for load in found.servers if load.name.startswith("link")), key=lambda load: load.comm_ticks)

    assert busiest.units == 4 * (4096 // num_ranks * 4096 * 2) // UNIT  # two shards of either side of the middle
    assert busiest.rank in (1, 2)
    assert found.makespan_ticks > 4 * (4096 // num_ranks * 4096 * 2) * 10**14 // xgmi().achieved_bytes_per_s
