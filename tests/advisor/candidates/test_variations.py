"""Which other ways are tried for the schedules that won."""

from dataclasses import replace

from magus.advisor.candidates.advice import Candidate
from magus.advisor.candidates.variations import MAX_VARIANTS, single_change_variants
from magus.compiler.ir import (
    Choice,
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Explore,
    Kernels,
    LaunchMode,
    Pattern,
    Scenario,
    Wait,
)
from magus.compiler.planning.build import build_schedule, reject_choice
from magus.compiler.planning.expression import expression_of
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.scenarios.scenarios import exploring

SM, DMA = EngineChoice(EngineKind.SM, 16), EngineChoice(EngineKind.DMA, 3)
GEMM = scenario_of(Pattern.AG_GEMM, SYSTEMS[0], 4, 256, 256, 256)
CHOICES = [Choice("hetero_fused_1d", 8, SM), Choice("shard_p2p", 4, DMA), Choice("uniform_fused_1d", 8, SM)]
SERIAL = Choice("serial", 4, DMA)
PERSISTENT = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)


def candidates(scenario: Scenario, choices: list[Choice]) -> list[Candidate]:
    """Simulated in the order given."""
    built = [(choice, build_schedule(scenario, choice)) for choice in choices]
    return [
        Candidate(schedule.expression, choice, schedule, choice.template == "serial", float(at), at + 1, 128)
        for at, (choice, schedule) in enumerate(built)
    ]


def ways(explore: Explore) -> list[Choice]:
    scenario = exploring(GEMM, explore)
    return single_change_variants(scenario, candidates(scenario, [*CHOICES, SERIAL]))


def differs(way: Choice, name: str) -> bool:
    return getattr(way.tactics, name) is not getattr(ExecutionOptions(), name)


def test_the_fastest_are_varied_and_nothing_is_tried_twice() -> None:
    known = candidates(GEMM, [*CHOICES, SERIAL])
    found = single_change_variants(GEMM, known)

    assert 0 < len(found) <= MAX_VARIANTS
    assert {way.template for way in found} == {"hetero_fused_1d", "shard_p2p"}, "neither the third nor the baseline"
    assert not {expression_of(way) for way in found} & {each.expression for each in known}
    assert len(set(found)) == len(found)
    assert all(reject_choice(GEMM, way) is None for way in found)
    again = candidates(GEMM, found)
    assert not set(found) & set(single_change_variants(GEMM, [*known, *again]))


def test_each_changes_one_knob() -> None:
    found = ways(Explore())

    assert replace(CHOICES[0], tactics=PERSISTENT) in found and replace(CHOICES[1], tactics=PERSISTENT) in found
    assert replace(CHOICES[0], tactics=ExecutionOptions(Direction.GET)) in found
    assert replace(CHOICES[1], tactics=ExecutionOptions(Direction.GET)) not in found, (
        "a rule of dominance, for copy engines"
    )
    assert all(sum(differs(way, name) for name in ("kernel", "direction", "protocol")) == 1 for way in found)


def test_only_what_the_file_leaves_to_be_tried() -> None:
    nothing = Explore.of(kernel=(Kernels.LAUNCHED,), transfer=(Direction.PUT,), protocol=(CopyProtocol.SIMPLE,))

    assert ways(nothing) == []
    assert all(differs(way, "kernel") for way in ways(nothing.asking("kernel", tuple(Kernels))))
    both = ways(replace(nothing.asking("transfer", tuple(Direction)), dominance=False))
    assert replace(CHOICES[1], tactics=ExecutionOptions(Direction.GET)) in both
    assert not any(differs(way, "kernel") for way in ways(Explore.of(wait=(Wait.EVENT,))))


def test_graphs_are_tried_where_they_are_asked_for_and_then_of_the_baseline_too() -> None:
    sync = replace(GEMM.gpu.sync, graph_launch_ticks=50_000_000)
    system = replace(GEMM.system, gpu=replace(GEMM.gpu, sync=sync))
    explore = Explore.of(launch=tuple(LaunchMode), kernel=(Kernels.LAUNCHED,))
    scenario = replace(GEMM, system=system, explore=explore)

    found = single_change_variants(scenario, candidates(scenario, [*CHOICES, SERIAL]))

    assert {way.template for way in found if differs(way, "launch")} == {"hetero_fused_1d", "shard_p2p", "serial"}
    unasked = replace(scenario, explore=Explore())
    assert not any(
        differs(way, "launch") for way in single_change_variants(unasked, candidates(unasked, [*CHOICES, SERIAL]))
    )


def test_without_simulations_there_is_nothing_to_vary() -> None:
    predicted = [replace(each, simulated_ticks=None) for each in candidates(GEMM, CHOICES)]

    assert single_change_variants(GEMM, predicted) == []
