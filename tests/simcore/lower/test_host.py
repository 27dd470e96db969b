"""The host issues kernels and copies one after the other, and runs ahead of the GPU."""

from dataclasses import replace

import pytest

from magus.compiler.ir import (
    TICKS_PER_US,
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Kernels,
    LaunchMode,
    OpCase,
    OpChoice,
    OpPlan,
    Wait,
)
from magus.compiler.planning.build import build_op_plan
from magus.simcore.lower.machine import Idealization
from magus.simcore.program.program import OpKind
from tests.helpers.oracle.lowering import differs_from_oracle, lower_op, makespan, on_gpu
from tests.helpers.scenarios.scenarios import ag_gemm

PERSISTENT = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
ASYNC_TP = ExecutionOptions(Direction.GET)


def issued(us: int, tactics: ExecutionOptions = ASYNC_TP, kind: EngineKind = EngineKind.DMA) -> tuple[OpCase, OpPlan]:
    """A GEMM and a copy for each rank, on a machine whose host takes ``us`` to issue one."""
    scenario = ag_gemm(512, 1024, 1024, ranks=4)
    launch = replace(scenario.gpu.launch, host_ticks=us * TICKS_PER_US)
    scenario = on_gpu(scenario, replace(scenario.gpu, launch=launch))
    choice = OpChoice("hetero_unfused_1d", 4, EngineChoice(kind, 2), 2, tactics)
    return scenario, build_op_plan(scenario, choice)


def releases(scenario: OpCase, schedule: OpPlan, kind: OpKind) -> list[int]:
    """When the first op of each step of rank 0 is issued, in steps of the host."""
    program = lower_op(scenario, schedule, unit_bytes=8192).program
    ticks = [
        int(program.op_release_ticks[op]) for op in range(len(program.op_kind)) if program.op_kind[op] == kind.value
    ]
    return [each // TICKS_PER_US for each in ticks]


def test_each_step_is_issued_after_the_one_before() -> None:
    scenario, schedule = issued(10)

    kernels, copies = (releases(scenario, schedule, kind) for kind in (OpKind.LAUNCH, OpKind.TRANSFER))

    assert sorted({*kernels, *copies}) == [10, 20, 30, 40, 50, 60, 70]


def test_a_slow_host_decides_and_a_fast_one_is_hidden() -> None:
    none, fast, slow = (makespan(*issued(us)) for us in (0, 1, 100))

    assert slow >= 700 * TICKS_PER_US > fast
    assert fast - none < 4 * TICKS_PER_US


def test_a_persistent_kernel_is_one_step_and_copies_by_sms_are_none() -> None:
    launched = releases(*issued(10, PERSISTENT), OpKind.LAUNCH)
    copied = releases(*issued(10, PERSISTENT, EngineKind.SM), OpKind.TRANSFER)

    assert len(launched) == 2 and set(copied) == {0}


def test_a_graph_is_issued_once() -> None:
    quick = replace(ASYNC_TP, launch=LaunchMode.GRAPH)

    assert set(releases(*issued(10, quick), OpKind.LAUNCH)) == {0}


def test_launches_that_are_free_are_issued_at_once() -> None:
    scenario, schedule = issued(10)
    program = lower_op(scenario, schedule, unit_bytes=8192, ideal=Idealization.FREE_LAUNCH).program

    assert not program.op_release_ticks.any()


@pytest.mark.parametrize("fold", [True, False])
def test_what_a_host_issues_equals_the_oracle(fold: bool) -> None:
    scenario, schedule = issued(10)

    assert differs_from_oracle(scenario, schedule, 8192, fold=fold) == []
