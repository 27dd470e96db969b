"""Estimates of the ranks that stand for all are those of all ranks."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from magus.advisor.estimate import fluid
from magus.advisor.estimate.fluid import WholeFabric
from magus.advisor.estimate.graph import graph_of
from magus.advisor.estimate.makespan import EstimateRun, estimate_ticks
from magus.compiler import compile_text
from magus.compiler.ir import EngineChoice, EngineKind, OpCase, OpChoice, OpPlan, network_of
from magus.compiler.planning.build import build_op_plan
from magus.simcore.lower.steps import period_of
from tests.helpers.marks import thinned
from tests.helpers.scenarios.fabrics import UNEVEN, graph
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs

DMA, SM = EngineChoice(EngineKind.DMA, 3), EngineChoice(EngineKind.SM, 8)
FOLDED = ("torus 3 x 4", "fat tree of four leaves", "rails of three nodes", "rails of single links")


def ends_of(scenario: OpCase, schedule: OpPlan, num_ranks: int) -> list[list[float]]:
    """When each step of each of the first ranks is done, if so many are followed."""
    graph = graph_of(scenario, schedule, num_ranks)
    fabric = WholeFabric(scenario, schedule.engine.kind is EngineKind.SM, num_ranks)
    run = EstimateRun(scenario, schedule, graph, fabric)
    run.loop()
    return [[end for end, at in zip(run.done, graph.rank, strict=True) if at == rank] for rank in range(num_ranks)]


@pytest.mark.parametrize("name", thinned(FOLDED, 3))
@pytest.mark.parametrize("make", [ag_gemm, gemm_rs])
@pytest.mark.parametrize("body", ["serial", "hetero_unfused_1d", "shard_p2p", "pipelined"])
def test_a_period_of_ranks_ends_as_all_do(name: str, make: Callable[..., OpCase], body: str) -> None:
    num_ranks, fabric = UNEVEN[name]
    scenario = make(256 * num_ranks, 256 * num_ranks, 512, ranks=num_ranks, fabric=fabric)
    choices = [OpChoice(body, num_ranks, engine) for engine in (DMA, SM)]
    if body in ("serial", "pipelined") and scenario.system.fabric.node_size:
        choices.append(replace(choices[0], algorithm="hierarchical"))
    assert len(choices) >= 2
    for choice in choices:
        schedule = build_op_plan(scenario, choice)
        period = period_of(scenario, schedule)
        few, every = ends_of(scenario, schedule, period), ends_of(scenario, schedule, num_ranks)

        assert period < num_ranks
        assert estimate_ticks(scenario, schedule) > 0
        for rank, ends in enumerate(every):
            assert ends == pytest.approx(few[rank % period], rel=1e-9)


def test_of_many_ranks_some_at_equal_distances_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a line of 40 with one chord: as many links are passed, on average, as by all."""
    line = [[rank, rank + 1] for rank in range(39)]
    text = f"""use "amd/mi300x"
system s {{ gpus 40 x MI300X; fabric edges(xgmi={[*line, [0, 20]]}) }}
workload w on s {{ x = tensor bf16[40, 64] shard rows; y = all_gather(x) }}
"""
    network = compile_text(text).scenario().case.network
    assert network.period == 40
    whole = fluid._passes(network).sum(axis=1)
    monkeypatch.setattr(fluid, "MOST_WAYS", 800)
    part = fluid._passes(network).sum(axis=1)

    assert part == pytest.approx(whole, rel=0.7) and sum(part) == pytest.approx(sum(whole), rel=0.1)
    assert (part != whole).any()


def test_no_link_is_passed_twice_to_one_rank() -> None:
    """A torus of 6 by 8 link by link repeats every 8 ranks: ways are counted in time that grows with their links."""
    ends = [pair for a in range(48) for pair in ((a, a // 8 * 8 + (a + 1) % 8), (a, (a + 8) % 48))]
    plain, steps = network_of(graph(*ends), 48), Counter[tuple[int, int]]()

    def counted(node: int, destination: int) -> int:
        steps[node, destination] += 1
        return plain.step(node, destination)

    passes = fluid._passes(replace(plain, step=counted))

    assert plain.period == 8 and steps.total() == 8 * 47
    assert passes.sum() == sum(len(plain.path(rank, other)) - 1 for rank in range(8) for other in range(48))
