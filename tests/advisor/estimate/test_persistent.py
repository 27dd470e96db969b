"""Persistent kernels in the step-level estimate: shares of one kernel, near what is simulated."""

from dataclasses import replace

import pytest

from magus.advisor.estimate.graph import persistent_parts
from magus.advisor.estimate.makespan import estimate_ticks
from magus.advisor.estimate.step_costs import copy_setup_ticks
from magus.compiler.ir import (
    CopyProtocol,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    Kernels,
    OpCase,
    OpChoice,
    Pattern,
    Wait,
)
from magus.compiler.planning.build import build_op_plan
from magus.simcore import simulate_op
from magus.simcore.kernels.gemm import gemm_work
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of

PERSISTENT = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
DMA3 = EngineChoice(EngineKind.DMA, 3)
PRELAUNCHED = replace(DMA3, mode=EngineMode.PRELAUNCHED)


def scenario(pattern: Pattern, system: int = 0) -> OpCase:
    return scenario_of(pattern, SYSTEMS[system], 4, 2048, 2048, 2048)


def test_groups_share_the_units_of_the_whole_kernel() -> None:
    for pattern in (Pattern.AG_GEMM, Pattern.GEMM_RS):
        one = scenario(pattern)
        schedule = build_op_plan(one, OpChoice("hetero_fused_1d", 16, DMA3, tactics=PERSISTENT))

        parts = persistent_parts(one, schedule, schedule.steps)

        assert one.shape.gemm is not None
        whole = gemm_work(one.gpu, one.shape.gemm, schedule.compute_sms, static_order=True)
        assert set(parts) == {"own", "g0", "g1", "g2", "g3"}
        assert sum(part.num_units for part in parts.values()) == whole.num_units
        assert sum(part.hbm_read_bytes for part in parts.values()) == whole.hbm_read_bytes
        assert {part.unit_ticks for part in parts.values()} == {whole.unit_ticks}


def test_launched_kernels_have_no_shares() -> None:
    one = scenario(Pattern.AG_GEMM)
    schedule = build_op_plan(one, OpChoice("hetero_fused_1d", 16, DMA3))

    assert persistent_parts(one, schedule, schedule.steps) == {}


@pytest.mark.parametrize("pattern", [Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.A2A_GEMM])
@pytest.mark.parametrize("system", [0, 1])
def test_the_estimate_is_near_the_simulation(pattern: Pattern, system: int) -> None:
    one = scenario(pattern, system)
    for template, engine in (("hetero_fused_1d", DMA3), ("uniform_fused_1d", DMA3), ("hetero_fused_1d", PRELAUNCHED)):
        schedule = build_op_plan(one, OpChoice(template, 8, engine, tactics=PERSISTENT))

        simulated = simulate_op(one, schedule, unit_bytes=16384).makespan_ticks

        assert estimate_ticks(one, schedule) == pytest.approx(simulated, rel=0.1)


def test_what_a_copy_costs_before_its_first_byte() -> None:
    gpu, sms = scenario(Pattern.AG_GEMM).gpu, EngineChoice(EngineKind.SM, 8)

    assert copy_setup_ticks(gpu, DMA3) == gpu.dma.setup_ticks > 0
    assert copy_setup_ticks(gpu, PRELAUNCHED) == gpu.dma.prelaunch_ticks
    assert copy_setup_ticks(gpu, sms) == gpu.sm_copy.setup_ticks > 0
    assert copy_setup_ticks(gpu, sms, CopyProtocol.LL128) == 0
