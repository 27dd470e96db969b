"""Two rings at once, lowered: equal to the oracle, and twice as fast as one where each has links of its own."""

from dataclasses import replace
from itertools import product

import pytest

from magus.advisor.bounds.lower_bound import lower_bound
from magus.compiler.ir import EngineChoice, EngineKind, Fabric, OpCase, OpChoice, Pattern
from magus.compiler.planning.build import build_op_plan
from magus.compiler.verify.check import check_plan
from tests.helpers.marks import thinned
from tests.helpers.oracle.lowering import differs_from_oracle, makespan
from tests.helpers.scenarios.fabrics import rails
from tests.helpers.scenarios.scenarios import h100, lone_gather, lone_scatter, ring

pytestmark = pytest.mark.usefixtures("compiled_core")
DMA, SM = EngineChoice(EngineKind.DMA, 4), EngineChoice(EngineKind.SM, 4)
KINDS = (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER, Pattern.ALL_REDUCE)


def scenario_of(kind: Pattern, fabric: Fabric, rows: int, ranks: int) -> OpCase:
    make = lone_gather if kind is Pattern.ALL_GATHER else lone_scatter
    made = make(rows, 1024, ranks=ranks, gpu=h100(), fabric=fabric)
    return replace(made, shape=replace(made.shape, pattern=kind))


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", thinned(KINDS, 2), ids=lambda kind: kind.name)
@pytest.mark.parametrize("fabric", [ring(), rails(2)], ids=["ring", "rails"])
def test_every_core_equals_the_oracle(kind: Pattern, fabric: Fabric) -> None:
    scenario = scenario_of(kind, fabric, 64, 4)
    for engine, pieces in product((DMA, SM), (1, 2)):
        schedule = build_op_plan(scenario, OpChoice("double_ring", 4 * pieces, engine))
        assert check_plan(scenario, schedule) == ()
        assert differs_from_oracle(scenario, schedule, 1024, fold=False) == [], schedule.expression


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_both_directions_of_a_ring_of_links_bring_twice_as_much(kind: Pattern) -> None:
    """Of 64 MiB 7 / 8 pass the link from one neighbour, or half of that those from both."""
    scenario = scenario_of(kind, ring(), 32768, 8)

    one, both = (
        makespan(scenario, build_op_plan(scenario, OpChoice(name, 32, DMA)), 1 << 16)
        for name in ("ring", "double_ring")
    )

    assert 0.45 < both / one < 0.65


def test_blocks_half_around_a_ring_go_both_ways() -> None:
    """A link each way has 1 + 2 blocks and half of 3; straight copies take the right for all that is half around."""
    scenario = scenario_of(Pattern.ALL_TO_ALL, ring(), 6 * 6144, 6)
    for engine in (DMA, SM):
        small, schedule = scenario_of(Pattern.ALL_TO_ALL, ring(), 144, 6), OpChoice("double_ring", 12, engine)
        plan = build_op_plan(small, schedule)
        assert check_plan(small, plan) == () and differs_from_oracle(small, plan, 1024, fold=False) == []

    straight, both = (
        makespan(scenario, build_op_plan(scenario, OpChoice(name, chunks, EngineChoice(EngineKind.DMA, 5))), 1 << 16)
        for name, chunks in (("direct", 6), ("double_ring", 48))
    )
    bound = lower_bound(scenario).ticks
    assert bound <= both < 1.06 * bound and both < 0.8 * straight


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_in_nodes_the_links_across_pass_a_share_of_each_node_once(kind: Pattern) -> None:
    """As many bytes across as hierarchical, and a fraction of a ring through all ranks, which has one way across."""
    scenario = scenario_of(kind, rails(4), 32768, 8)

    def ticks(name: str) -> int:
        return makespan(scenario, build_op_plan(scenario, OpChoice(name, 32, EngineChoice(EngineKind.DMA, 8))), 1 << 18)

    assert ticks("double_ring") < 0.4 * ticks("ring")
    assert ticks("double_ring") == pytest.approx(ticks("hierarchical"), rel=0.25)
