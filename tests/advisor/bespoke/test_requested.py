"""Of a knob that a file names only its values are tried by the search."""

import pytest

from magus.advisor.bespoke import optimize
from magus.advisor.bespoke.neighbours import is_explored, usual_options
from magus.advisor.bespoke.result import SearchBudget, SearchOptions
from magus.compiler.ir import (
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Explore,
    Kernels,
    LaunchMode,
    OpChoice,
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
BASE = OpChoice("bespoke", 4, DMA3, 2)


@pytest.mark.parametrize(
    ("explore", "requested"),
    [
        (Explore(), True),
        (Explore.of(streams=(1, 3)), False),
        (Explore.of(streams=(2,)), True),
        (Explore.of(engine=(EngineChoice(EngineKind.SM, 8),)), False),
        (Explore.of(kernel=(Kernels.PERSISTENT,)), False),
        (Explore.of(wait=(Wait.POLL,)), False),
        (Explore.of(per=(WaitPer.TILE,)), False),
        (Explore.of(launch=(LaunchMode.GRAPH,)), False),
        (Explore.of(transfer=(Direction.GET,)), False),
        (Explore.of(protocol=(CopyProtocol.LL,)), False),
        (Explore.of(order=(PeerOrder.REVERSED,)), False),
        # bespoke has neither.
        (Explore.of(chunks=(16,), algorithm=("ring",)), True),
    ],
)
def test_what_is_named_binds(explore: Explore, requested: bool) -> None:
    assert is_explored(explore, BASE) is requested


def test_chunks_and_algorithms_bind_templates_that_have_them() -> None:
    explore = Explore.of(chunks=(16,), algorithm=("ring", "double_ring"))
    legal = [OpChoice("pipelined", 16, DMA3), OpChoice("pipelined", 16, DMA3, algorithm="ring")]
    others = [OpChoice("pipelined", 8, DMA3), OpChoice("pipelined", 16, DMA3, algorithm="direct")]

    assert all(is_explored(explore, choice) for choice in some(legal))
    assert not any(is_explored(explore, choice) for choice in some(others))


def test_usual_tactics_are_among_those_that_are_named() -> None:
    assert usual_options(Explore()) == ExecutionOptions()
    assert usual_options(Explore.of(kernel=(Kernels.PERSISTENT,))) == PERSISTENT
    assert usual_options(Explore.of(kernel=(Kernels.PERSISTENT, Kernels.LAUNCHED))) == ExecutionOptions()
    assert usual_options(Explore.of(protocol=(CopyProtocol.LL,))).protocol is CopyProtocol.LL


@pytest.mark.slow
@pytest.mark.parametrize("explore", [Explore.of(kernel=(Kernels.PERSISTENT,)), Explore.of(streams=(1,))])
def test_a_search_keeps_to_it(explore: Explore) -> None:
    scenario = exploring(scenario_of(Pattern.GEMM_RS, SYSTEMS[1], 4, 1024, 2048, 4096), explore)

    found = optimize(scenario, SearchBudget(24, 4, 0.0), SearchOptions(lambda schedule: 65536)).plans

    proposed = [each.choice for each in found if each.choice.parts]
    assert proposed and all(is_explored(explore, choice) for choice in proposed)
