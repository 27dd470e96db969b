"""Each dominance rule against the simulator: what it leaves out is not faster than what it keeps instead."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from magus.advisor.solver import enumerate_space
from magus.advisor.solver.domains import RULES, domains_of, dominated, knobs_of, left_out
from magus.advisor.solver.enumerate import generate
from magus.compiler.ir import (
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Explore,
    Kernels,
    OpCase,
    OpChoice,
    PeerOrder,
    Wait,
    WaitPer,
)
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.resolve.schedules.explore import opened
from magus.simcore import simulate_op
from tests.helpers.scenarios.scenarios import ag_gemm, exploring, gemm_rs, h100, ring

TOLERANCE = 0.002
"""Of the time. What is left of it are ties that units of different ranks break differently."""

SCENARIOS = {
    "mesh": ag_gemm(1024, 2048, 1024, ranks=4),
    "mesh of 8": ag_gemm(1024, 4096, 1024),
    "switch": ag_gemm(1024, 2048, 2048, ranks=4, gpu=h100()),
    "switch, sums": gemm_rs(1024, 2048, 2048, ranks=4, gpu=h100()),
    "mesh, sums": gemm_rs(1024, 1024, 2048, ranks=4),
    "ring": ag_gemm(1024, 2048, 1024, ranks=4, fabric=ring()),
}
PERSISTENT = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
# What each rule prefers: the values that stand in for those that it leaves out.
KEPT: dict[str, Callable[[OpChoice], OpChoice]] = {
    "mirror": lambda choice: replace(choice, order=PeerOrder.ROTATED),
    "one_target": lambda choice: replace(choice, order=PeerOrder.ROTATED),
    "look_again": lambda choice: replace(choice, tactics=replace(choice.tactics, per=WaitPer.CHUNK)),
    "asked_first": lambda choice: replace(choice, tactics=replace(choice.tactics, direction=Direction.PUT)),
}


def left_out_by(name: str, scenario: OpCase) -> Iterator[OpChoice]:
    """Schedules of every kind of kernel and engine that the rule leaves out."""
    n = scenario.num_ranks
    engines = EngineChoice(EngineKind.DMA, n - 1), EngineChoice(EngineKind.SM, 16)
    for template, chunks in (("shard_p2p", n), ("hetero_fused_1d", 4 * n), ("uniform_fused_2d", 4 * n)):
        for engine in engines:
            for tactics in (ExecutionOptions(), PERSISTENT):
                base = OpChoice(template, chunks, engine, 1, tactics)
                yield from {
                    "mirror": [replace(base, order=PeerOrder.REVERSED)],
                    "one_target": [replace(base, order=PeerOrder.ABSOLUTE)],
                    "look_again": [replace(base, tactics=replace(tactics, per=WaitPer.TILE))],
                    "asked_first": [replace(base, tactics=replace(tactics, direction=Direction.GET))],
                }[name]


def is_left_out(name: str, scenario: OpCase, choice: OpChoice) -> bool:
    requested = exploring(scenario, opened(Explore.of(chunks=(choice.chunks,), engine=(choice.engine,))))
    domains = domains_of(requested)
    knobs = knobs_of(requested, domains)
    rule = next(rule for rule in RULES if rule.name == name)
    codes = generate(requested, domains)
    removed = codes[dominated(left_out(rule, requested, domains, knobs), knobs, codes)]
    return choice in {knobs.choice_of(code) for code in removed.tolist()}


@pytest.mark.slow
@pytest.mark.parametrize("label", SCENARIOS)
@pytest.mark.parametrize("name", [rule.name for rule in RULES])
def test_what_is_left_out_is_not_faster(name: str, label: str) -> None:
    scenario, compared = SCENARIOS[label], 0
    for choice in left_out_by(name, scenario):
        if reject_choice(scenario, choice) is None and is_left_out(name, scenario, choice):
            kept = KEPT[name](choice)
            times = [simulate_op(scenario, build_op_plan(scenario, each), unit_bytes=2048) for each in (kept, choice)]
            assert times[0].makespan_ticks <= (1 + TOLERANCE) * times[1].makespan_ticks, choice
            compared += 1
    sums_by_get = name == "asked_first" and label.endswith("sums")
    assert compared or sums_by_get or (name, label) == ("mirror", "ring")


def test_they_leave_out_only_what_has_its_better_in_the_space() -> None:
    scenario = SCENARIOS["mesh"]

    def removed(explore: Explore) -> dict[str, int]:
        return {rule.name: rule.removed for rule in enumerate_space(exploring(scenario, explore)).assumed}

    assert removed(Explore()) == {}
    assert removed(Explore.of(order=(PeerOrder.REVERSED, PeerOrder.ABSOLUTE))) == {}
    assert removed(Explore.of(transfer=(Direction.GET,))) == {}
    assert set(removed(Explore.of(order=tuple(PeerOrder)))) == {"mirror", "one_target"}


def test_switched_off_they_leave_out_nothing_and_what_they_leave_out_is_counted() -> None:
    explore = Explore.of(order=(PeerOrder.ROTATED, PeerOrder.REVERSED), transfer=tuple(Direction), chunks=(16,))
    some = enumerate_space(exploring(SCENARIOS["mesh"], explore))
    every = enumerate_space(exploring(SCENARIOS["mesh"], replace(explore, dominance=False)))

    gone = set(every.choices) - set(some.choices)
    counts = {rule.name: rule.removed for rule in some.assumed}
    assert set(some.choices) < set(every.choices) and every.assumed == ()
    assert counts["mirror"] == sum(choice.order is PeerOrder.REVERSED for choice in every.choices)
    by_engines = (each for each in every.choices if each.engine.kind is EngineKind.DMA)
    assert counts["asked_first"] == sum(each.tactics.direction is Direction.GET for each in by_engines)
    assert len(gone) < sum(counts.values()), "some are left out by two rules"


def test_each_has_a_name_and_a_sentence() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES) == len(KEPT)
    assert all(len(rule.sentence.split()) > 5 and not rule.sentence.endswith(".") for rule in RULES)
