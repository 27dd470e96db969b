"""Why nothing is feasible where a file asks for ways to carry schedules out, and when an enumeration ends."""

import pytest

from magus.advisor.solver import NoFeasibleSchedule, enumerate_space
from magus.advisor.solver.enumerate import explain
from magus.compiler.ir import (
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Explore,
    Kernels,
    LaunchMode,
    OpCase,
    PeerOrder,
    Wait,
    WaitPer,
)
from magus.compiler.planning.build import template_named
from magus.compiler.resolve.schedules.explore import opened
from tests.helpers.scenarios.scenarios import MIB, ag_gemm, exploring, gemm_rs, h100, lone_gather

AG, RS, GATHER = ag_gemm(8192, 28672, 8192), gemm_rs(8192, 8192, 28672), lone_gather(8192, 8192)
DMA = EngineChoice(EngineKind.DMA, 7)


@pytest.mark.parametrize(
    ("scenario", "explore", "reasons"),
    [
        (
            RS,
            Explore.of(transfer=(Direction.GET,)),
            ("transfer is get", "partial sums of GEMM+RS are put by the rank that computes them"),
        ),
        (
            AG,
            Explore.of(protocol=(CopyProtocol.LL,), engine=(DMA,)),
            ("protocol is ll", "protocol ll is one of copies by SMs, not of dma(7)"),
        ),
        (AG, Explore.of(wait=(Wait.POLL,)), ("wait is poll", "only a persistent kernel waits by poll")),
        (
            AG,
            Explore.of(kernel=(Kernels.PERSISTENT,), wait=(Wait.EVENT,)),
            (
                "kernel is persistent",
                "a persistent kernel is launched once and cannot wait for events in between",
            ),
        ),
        (
            AG,
            Explore.of(kernel=(Kernels.PERSISTENT,), wait=(Wait.MONITOR,)),
            ("wait is monitor", "MI300X has no monitors that kernels could wait with"),
        ),
        (AG, Explore.of(per=(WaitPer.TILE,)), ("per is tile", "only a persistent kernel looks again for each tile")),
        (
            GATHER,
            Explore.of(kernel=(Kernels.PERSISTENT,)),
            ("kernel is persistent", "a persistent kernel walks through the tiles of one GEMM, all_gather has none"),
        ),
        (
            AG,
            Explore.of(launch=(LaunchMode.GRAPH,)),
            ("launch is graph", "the profile of MI300X has no graph_launch: a graph is launched like a stream"),
        ),
    ],
)
def test_a_minimal_set_of_rules(scenario: OpCase, explore: Explore, reasons: tuple[str, ...]) -> None:
    requested = exploring(scenario, explore)

    with pytest.raises(NoFeasibleSchedule) as caught:
        enumerate_space(requested)

    assert set(caught.value.reasons) == set(reasons)
    assert set(explain(requested)) == set(reasons)


@pytest.mark.parametrize(
    ("explore", "template", "reasons"),
    [
        (
            Explore.of(order=(PeerOrder.LARGE_FIRST,)),
            "shard_p2p",
            {"order is large_first", "order large_first goes by sizes, and all transfers are alike"},
        ),
        (
            Explore.of(staging_limit_bytes=30 * MIB, depth=(1, 2)),
            "hetero_fused_1d",
            {
                "staging <= 30 MiB: hetero_fused_1d needs 3.5 MiB to 112 MiB",
                "a put cannot wait until the buffer at its destination is free",
            },
        ),
        (
            Explore.of(algorithm=("hierarchical",)),
            "pipelined",
            {"hierarchical needs ranks that are grouped into nodes of two or more"},
        ),
    ],
)
def test_why_a_template_is_not_there(explore: Explore, template: str, reasons: set[str]) -> None:
    scenario = exploring(AG, explore.asking("schedules", (template,)))

    found = explain(scenario, template_named(template))

    assert set(found) == reasons


def test_parts_along_k_are_tried_beside_whole_tiles_and_launched_kernels() -> None:
    """Where persistent kernels are all that is named, only in the parts that are named too."""
    scenario = exploring(AG, Explore.of(split_k=(2, 4), engine=(DMA,), chunks=(8,)))
    both = {(each.tactics.kernel, each.tactics.split_k) for each in enumerate_space(scenario).choices}
    alone = exploring(scenario, scenario.explore.asking("kernel", (Kernels.PERSISTENT,)))

    assert both == {(Kernels.LAUNCHED, 1), *((Kernels.PERSISTENT, split) for split in (1, 2, 4))}
    assert {each.tactics.split_k for each in enumerate_space(alone).choices} == {2, 4}
    short = exploring(ag_gemm(8192, 28672, 1024), alone.explore.asking("split_k", (16,)))
    assert "16 parts of an inner dimension of 1,024 are none that kernels have on MI300X" in explain(short)


def test_less_is_staged_where_less_is_held() -> None:
    explore = Explore.of(
        schedules=("hetero_fused_1d",),
        transfer=tuple(Direction),
        depth=(1, 2, 4),
        chunks=(64,),
        engine=(DMA,),
        staging_limit_bytes=30 * MIB,
    )

    choices = enumerate_space(exploring(AG, explore)).choices

    assert {(each.template, each.depth) for each in choices} == {("hetero_fused_1d", 1), ("hetero_fused_1d", 2)}
    assert {each.tactics for each in choices} == {ExecutionOptions(Direction.GET)}


def test_templates_without_a_knob_stand_still() -> None:
    explore = Explore.of(order=(PeerOrder.REVERSED,), depth=(2,), streams=(2,), transfer=(Direction.GET,))

    choices = enumerate_space(exploring(AG, explore)).choices

    serial = {(each.order, each.depth, each.streams) for each in choices if each.template == "serial"}
    unfused = {(each.order, each.depth, each.streams) for each in choices if each.template == "hetero_unfused_1d"}
    assert serial == {(PeerOrder.ROTATED, 0, 1)}
    assert unfused == {(PeerOrder.REVERSED, 0, 2), (PeerOrder.REVERSED, 2, 2)}


def test_two_ranks_have_one_order() -> None:
    scenario = exploring(
        ag_gemm(1024, 2048, 1024, ranks=2, gpu=h100()), Explore.of(order=tuple(PeerOrder), dominance=False)
    )

    assert {each.order for each in enumerate_space(scenario).choices} == {PeerOrder.ROTATED}


def test_a_request_ends_it_with_what_was_found() -> None:
    scenario = exploring(AG, opened(Explore()))

    stopped = enumerate_space(scenario, generated=False, should_stop=lambda: True)

    assert not stopped.complete and len(stopped.choices) == 0 and stopped.size is None
