"""Of a knob that a file names only its values are tried by the search."""

import pytest

from magus.advisor.bespoke import optimize
from magus.advisor.bespoke.explore_limits import is_asked_for, usual_tactics
from magus.advisor.bespoke.result import SearchBudget
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
    PeerOrder,
    Wait,
    WaitPer,
)
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.scenarios.scenarios import exploring
from tests.helpers.some import some

DMA3 = EngineChoice(EngineKind.DMA, 3)
PERSISTENT = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
BASE = Choice("bespoke", 4, DMA3, 2)


@pytest.mark.parametrize(
    ("explore", "asked"),
    [
        (Explore(), True),
        (Explore(streams=(1, 3)), False),
        (Explore(streams=(2,)), True),
        (Explore(engines=(EngineChoice(EngineKind.SM, 8),)), False),
        (Explore(kernels=(Kernels.PERSISTENT,)), False),
        (Explore(waits=(Wait.POLL,)), False),
        (Explore(waits_per=(WaitPer.TILE,)), False),
        (Explore(launches=(LaunchMode.GRAPH,)), False),
        (Explore(directions=(Direction.GET,)), False),
        (Explore(protocols=(CopyProtocol.LL,)), False),
        (Explore(orders=(PeerOrder.REVERSED,)), False),
        # bespoke has neither.
        (Explore(chunks=(16,), algorithms=("ring",)), True),
    ],
)
def test_what_is_named_binds(explore: Explore, asked: bool) -> None:
    assert is_asked_for(explore, BASE) is asked


def test_chunks_and_algorithms_bind_templates_that_have_them() -> None:
    explore = Explore(chunks=(16,), algorithms=("ring", "double_ring"))
    legal = [Choice("pipelined", 16, DMA3), Choice("pipelined", 16, DMA3, algorithm="ring")]
    others = [Choice("pipelined", 8, DMA3), Choice("pipelined", 16, DMA3, algorithm="direct")]

    assert all(is_asked_for(explore, choice) for choice in some(legal))
    assert not any(is_asked_for(explore, choice) for choice in some(others))


def test_usual_tactics_are_among_those_that_are_named() -> None:
    assert usual_tactics(Explore()) == ExecutionOptions()
    assert usual_tactics(Explore(kernels=(Kernels.PERSISTENT,))) == PERSISTENT
    assert usual_tactics(Explore(kernels=(Kernels.PERSISTENT, Kernels.LAUNCHED))) == ExecutionOptions()
    assert usual_tactics(Explore(protocols=(CopyProtocol.LL,))).protocol is CopyProtocol.LL


@pytest.mark.parametrize("explore", [Explore(kernels=(Kernels.PERSISTENT,)), Explore(streams=(1,))])
def test_a_search_keeps_to_it(explore: Explore) -> None:
    scenario = exploring(scenario_of(Pattern.GEMM_RS, SYSTEMS[1], 4, 1024, 2048, 4096), explore)

    found = optimize(scenario, SearchBudget(80, 10, 0.0), lambda schedule: 65536).found

    proposed = [each.choice for each in found if each.choice.parts]
    assert proposed and all(is_asked_for(explore, choice) for choice in proposed)
