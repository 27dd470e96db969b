"""Schedules that differ in their engines share a graph, and are estimated as each alone."""

from dataclasses import replace

import pytest

from magus.advisor.estimate import makespan
from magus.advisor.estimate.graph import graph_of
from magus.advisor.estimate.makespan import estimate_ticks, makespans
from magus.compiler.ir import CopyProtocol, EngineChoice, EngineKind, ExecutionOptions, Kernels, OpCase, OpChoice, Wait
from magus.compiler.planning.build import build_schedules
from tests.helpers.scenarios import scenarios as make
from tests.helpers.some import some

ENGINES = (
    EngineChoice(EngineKind.DMA, 7),
    *(EngineChoice(EngineKind.SM, count) for count in (8, 32)),
)
PERSISTENT = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)


@pytest.mark.parametrize(
    ("scenario", "choice"),
    [
        (make.ag_gemm(4096, 4096, 4096), OpChoice("hetero_unfused_1d", 32, ENGINES[0], streams=2)),
        (make.gemm_rs(4096, 4096, 4096, fabric=make.ring()), OpChoice("uniform_fused_1d", 32, ENGINES[0])),
        (make.ag_gemm(4096, 4096, 4096), OpChoice("uniform_fused_1d", 32, ENGINES[0], tactics=PERSISTENT)),
        (make.lone_gather(4096, 4096), OpChoice("serial", 8, ENGINES[0])),
    ],
)
def test_estimates_of_one_plan_are_those_of_each_schedule(scenario: OpCase, choice: OpChoice) -> None:
    choices = [replace(choice, engine=engine) for engine in ENGINES]
    if choice.tactics.protocol is CopyProtocol.SIMPLE and scenario.shape.is_collective:
        choices.append(replace(choices[-1], tactics=ExecutionOptions(protocol=CopyProtocol.LL)))
    schedules = list(build_schedules(scenario, choices))

    together = list(makespans(scenario, schedules))

    assert together == [estimate_ticks(scenario, schedule) for schedule in some(schedules)]
    assert len(set(together)) > 1


def test_a_plan_has_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, built = make.ag_gemm(4096, 4096, 4096), []

    def counted(*arguments: object) -> object:
        built.append(arguments)
        return graph_of(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(makespan, "graph_of", counted)
    choices = [OpChoice("hetero_fused_1d", chunks, engine) for chunks in (16, 32) for engine in ENGINES]

    assert len(list(makespans(scenario, build_schedules(scenario, choices)))) == 6
    assert len(built) == 2
