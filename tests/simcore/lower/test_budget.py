"""What is too large is refused before it is begun, on fabrics of any kind, without looking at all of it."""

from dataclasses import replace
from itertools import chain, repeat

import pytest

from magus.compiler.ir import (
    Cancelled,
    EngineChoice,
    EngineKind,
    Fabric,
    Network,
    OpChoice,
    System,
    checkpoint,
    heeding,
)
from magus.compiler.ir.topologies.levels import FatTree
from magus.compiler.planning.build import build_op_plan
from magus.simcore import RunOptions, RunOutcome, RunTooLarge, WhatIf, simulate_op
from magus.simcore.lower import budget
from magus.simcore.lower.budget import MAX_UNLIKE, check_budget, check_routes, check_unlike, cost_of
from magus.simcore.lower.plan import plan_of
from tests.helpers.marks import thinned
from tests.helpers.scenarios.fabrics import UNEVEN, crossbar, graph, rails, torus
from tests.helpers.scenarios.scenarios import ag_gemm, lone_gather

RANKS = 1024
CHAIN = graph(*((rank, (rank + 1) % RANKS) for rank in range(RANKS)))
LARGE: dict[str, Fabric] = {
    "torus": torus(RANKS),
    "torus 32 x 32": torus(32, 32),
    "torus 16 x 8 x 8": torus(16, 8, 8),
    "fat tree": replace(UNEVEN["fat tree"][1], switch=crossbar(), layout=FatTree(32, 8)),
    "rails": rails(8),
    "edges": CHAIN,
}
DMA = EngineChoice(EngineKind.DMA, 4)


@pytest.mark.parametrize("name", thinned(LARGE, 2))
def test_a_run_of_many_ranks_is_refused(name: str) -> None:
    scenario = ag_gemm(1 << 20, 4096, 1 << 17, ranks=RANKS, fabric=LARGE[name])
    schedule = build_op_plan(scenario, OpChoice("serial", RANKS, DMA))

    with pytest.raises(RunTooLarge, match=r"about .* the limit is"):
        simulate_op(scenario, schedule, unit_bytes=1024)


@pytest.mark.quick(1)
@pytest.mark.parametrize("fabric", [torus(RANKS), CHAIN], ids=["torus", "edges"])
def test_long_ways_are_refused_however_little_goes_there(fabric: Fabric) -> None:
    """A quarter of a billion links on the ways of a million copies, of a line each, is more than memory holds."""
    scenario = lone_gather(RANKS, 64, ranks=RANKS, fabric=fabric)
    schedule = build_op_plan(scenario, OpChoice("serial", RANKS, DMA))

    with pytest.raises(RunTooLarge, match="links on the ways"):
        check_budget(scenario.system, plan_of(scenario, schedule), 1024, RANKS)


def test_fabrics_without_an_order_are_refused_by_the_links_between_all_pairs() -> None:
    def system(ranks: int) -> System:
        """A line with shortcuts: no shift maps it onto itself."""
        line = ((rank, rank + 1) for rank in range(ranks - 1))
        shortcuts = ((rank, rank + 2 + rank % 7) for rank in range(0, ranks - 10, 5))
        return lone_gather(ranks, 64, ranks=ranks, fabric=graph(*line, *shortcuts)).system

    check_routes(system(64))
    with pytest.raises(RunTooLarge, match="between all pairs of the 1,024 GPUs"):
        check_routes(system(1024))
    check_routes(lone_gather(RANKS, 64, ranks=RANKS, fabric=CHAIN).system)  # shifts map a ring onto itself


def test_what_is_said_of_all_is_what_all_cost() -> None:
    scenario = ag_gemm(4096, 4096, 4096, ranks=8, fabric=torus(8))
    schedule = build_op_plan(scenario, OpChoice("serial", 8, DMA))
    one, all_of_them = (cost_of(scenario, schedule, range(count)) for count in (1, 8))

    assert all_of_them == (8 * one.byte_hops, 8 * one.ops, 8 * one.routed, 8 * one.packets)
    assert one.routed == 1 + 2 + 3 + 4 + 3 + 2 + 1


def test_layers_that_share_a_plan_count_each(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = ag_gemm(4096, 4096, 4096, ranks=8, fabric=torus(8))
    plan = plan_of(scenario, build_op_plan(scenario, OpChoice("serial", 8, DMA)))
    both = replace(plan, parts=(*plan.parts, *(replace(part, name="y@2", layer=2) for part in plan.parts)))
    monkeypatch.setattr(budget, "MAX_OPS", 2 * cost_of(scenario, plan.parts[0].schedule, range(1)).ops - 1)

    check_budget(scenario.system, plan, 1024, 1)
    with pytest.raises(RunTooLarge, match="tiles and transfers"):
        check_budget(scenario.system, both, 1024, 1)


def test_copies_with_the_same_ends_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of many chunks sends all of them to one neighbour: of thousands of ranks that is a square of look-ups."""
    scenario = lone_gather(96, 64, ranks=6, fabric=UNEVEN["two triangles"][1])
    seen, num_links = list[tuple[int, int]](), Network.num_links

    def counted(self: Network, source: int, destination: int) -> int:
        seen.append((source, destination))
        return num_links(self, source, destination)

    monkeypatch.setattr(Network, "num_links", counted)
    one, many = (build_op_plan(scenario, OpChoice("ring", chunks, DMA)) for chunks in (6, 48))
    costs = [cost_of(scenario, plan, range(6)) for plan in (one, many)]

    assert len(seen) == 12 and costs[1].routed == 8 * costs[0].routed > 0
    assert costs[1].byte_hops == costs[0].byte_hops


def test_a_stop_is_heard_before_anything_is_simulated() -> None:
    scenario = ag_gemm(4096, 4096, 4096, ranks=8, fabric=torus(8))
    schedule = build_op_plan(scenario, OpChoice("serial", 8, DMA))

    with pytest.raises(Cancelled):
        simulate_op(scenario, schedule, options=RunOptions(should_stop=lambda: True))


def test_a_stop_during_the_what_if_runs_keeps_the_run_itself() -> None:
    """Whether it comes while one of them is lowered, or while it runs."""
    scenario = ag_gemm(256, 256, 256, ranks=2)
    schedule = build_op_plan(scenario, OpChoice("serial", 2, DMA))
    explained = WhatIf(4096)
    requested: list[int] = []

    def never() -> bool:
        requested.append(1)
        return False

    simulate_op(scenario, schedule, options=RunOptions(should_stop=never))
    of_run = len(requested)
    whole = simulate_op(scenario, schedule, what_if=explained, options=RunOptions(should_stop=never))
    in_all = len(requested) - of_run
    assert in_all > of_run + 8 and whole.waterfall is not None
    for heard in range(of_run, in_all):
        answers = chain(repeat(False, heard), repeat(True))
        options = RunOptions(should_stop=answers.__next__)
        found = simulate_op(scenario, schedule, what_if=explained, options=options)

        assert (found.outcome, found.makespan_ticks) == (RunOutcome.DONE, whole.makespan_ticks)
        assert found.waterfall is None and found.cil is None


def test_a_stop_is_heard_while_ranks_are_lowered() -> None:
    scenario = ag_gemm(4096, 4096, 4096, ranks=8, fabric=torus(1, 2, 4))
    schedule = build_op_plan(scenario, OpChoice("serial", 8, DMA))
    requested: list[int] = []

    def later() -> bool:
        requested.append(1)
        return len(requested) > 40

    with pytest.raises(Cancelled):
        simulate_op(scenario, schedule, options=RunOptions(should_stop=later))
    assert len(requested) == 41


def test_who_is_requested_is_whoever_began_the_stage() -> None:
    with heeding(lambda: True):
        with pytest.raises(Cancelled), heeding(None):
            checkpoint()
        with heeding(lambda: False):
            checkpoint()
    checkpoint()


def test_an_answer_simulates_few_of_the_ranks_that_are_all_unlike() -> None:
    """A circle looks alike from all ranks, and one with a chord from none: then each copy is lowered by itself."""
    circle, chord = [(rank, (rank + 1) % 150) for rank in range(150)], (0, 5)
    choice = OpChoice("direct", 150, DMA)
    alike, unlike = (lone_gather(150 * 16, 64, ranks=150, fabric=graph(*more)) for more in (circle, [*circle, chord]))
    few = lone_gather(20 * 16, 64, ranks=20, fabric=graph(*((rank, (rank + 1) % 20) for rank in range(20)), chord))

    check_unlike(alike, build_op_plan(alike, choice))
    check_unlike(few, build_op_plan(few, OpChoice("direct", 20, DMA)))
    plan = build_op_plan(unlike, choice)
    assert (
        sum(cost.ops + cost.routed for cost in (cost_of(unlike, plan, (rank,)) for rank in (0, 75))) * 75 > MAX_UNLIKE
    )
    with pytest.raises(RunTooLarge, match="no ranks are alike; an answer simulates"):
        check_unlike(unlike, plan)
