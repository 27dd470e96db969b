"""SMs that copy are taken from the kernels that may run meanwhile, and from no others."""

import pytest

from magus.compiler import compile_text
from magus.compiler.ir import EngineChoice, EngineKind, OpChoice, OpMode, Scenario, Schedule
from magus.compiler.planning.build import build_op_plan
from magus.compiler.planning.plan import build_plan
from magus.simcore import simulate, simulate_op
from magus.simcore.lower.part_waits import sms_of_parts

TEXT = """
use "amd/mi300x"
system node { gpus 8 x MI300X; fabric full_mesh(xgmi) }
workload w on node {
  x = tensor bf16[2048, 1024] shard rows
  u = tensor bf16[1024, 1024] shard cols
  v = tensor bf16[1024, 1024] shard cols
  before = norm(x)
  y = gemm(all_gather(before), u)
  behind = norm(y)
  other = gemm(all_gather(x), v)
}
"""
SMS, COPYING = 304, 14
SERIAL = OpChoice("serial", 8, EngineChoice(EngineKind.SM, COPYING))
FUSED = OpChoice("hetero_fused_1d", 8, EngineChoice(EngineKind.SM, COPYING))
IN_TURN = TEXT.replace("  other = gemm(all_gather(x), v)\n", "")


def graph(text: str) -> Scenario:
    (found,) = compile_text(text).workloads
    return found


def sms(text: str, *modes: OpMode, streams: tuple[tuple[str, int], ...] = ()) -> dict[str, int]:
    found = graph(text)
    plan = build_plan(found.system, found.workload, Schedule("p", modes, streams=streams))
    return dict(zip((part.name for part in plan.parts), sms_of_parts(found.system, plan), strict=True))


@pytest.mark.parametrize(("mode", "of_y"), [(SERIAL, SMS), (FUSED, SMS - COPYING)])
def test_kernels_before_and_behind_the_copies_keep_theirs(mode: OpChoice, of_y: int) -> None:
    assert sms(IN_TURN, OpMode("y", mode)) == {"before": SMS, "y": of_y, "behind": SMS}


def test_copies_that_wait_for_nothing_take_sms_of_all_kernels_before_their_own() -> None:
    found = sms(TEXT, OpMode("y", SERIAL), OpMode("other", SERIAL))

    assert found == {"before": SMS - COPYING, "y": SMS - COPYING, "behind": SMS - COPYING, "other": SMS}


def test_a_collective_takes_sms_of_kernels_that_run_beside_it() -> None:
    """That of the other op is called behind that of the first, which waits for the norm."""
    found = sms(TEXT, OpMode("y", separate=SERIAL), OpMode("other", separate=SERIAL))

    assert (found["before"], found["y"], found["behind"], found["other"]) == (SMS, SMS - COPYING, SMS - COPYING, SMS)


def test_kernels_that_share_sms_have_as_many() -> None:
    """The kernel of the other op may run beside all others, so that what is taken from one is taken from all."""
    found = sms(TEXT, OpMode("y", SERIAL), streams=(("other", 1),))

    assert set(found.values()) == {SMS - COPYING}


def test_ops_in_turn_take_as_long_as_each_alone() -> None:
    found = graph(IN_TURN)
    plan = build_plan(found.system, found.workload, Schedule("p", (OpMode("y", SERIAL),)))
    result = simulate(found.system, plan)
    alone = [simulate_op(case, build_op_plan(case, SERIAL)) for case in found.cases if case.name == "y"]

    assert result.op("y").makespan_ticks == pytest.approx(alone[0].makespan_ticks, rel=0.001)
