"""The rule of every answer: what two schedules do alike is no part of their difference."""

from dataclasses import replace
from fractions import Fraction

import pytest

from magus.advisor.answer.rule import alike_us, promise_of, ratio_of
from magus.advisor.candidates.candidate import Candidate, ScheduleOrigin, joint_candidate
from magus.advisor.layers.declared import simulated_candidate
from magus.compiler import compile_text
from magus.compiler.ir import TICKS_PER_US, Beside, EngineChoice, EngineKind, OpCase, OpChoice, Scenario, Schedule
from magus.compiler.ir.stopping import never
from magus.compiler.planning.build import build_op_plan
from magus.compiler.planning.knobs.library import library_serial
from magus.compiler.request.request import Request
from magus.compiler.request.scenario import scenario_of
from magus.compiler.resolve.schedules.from_text import SERIAL
from magus.simcore.kernels.dispatch import whole_works
from tests.helpers.scenarios.scenarios import ag_gemm, mi300x

pytestmark = pytest.mark.usefixtures("compiled_core")

LAYER = """
use "nvidia/h100"
system node { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload layer on node {
  x  = tensor bf16[2048, 1024] shard rows
  wu = tensor bf16[1024, 4096] shard cols
  wd = tensor bf16[2048, 1024] shard rows
  y = reduce_scatter(gemm(swiglu(gemm(all_gather(x), wu)), wd))
  repeat 2 y as x
  batch x by 512
}
"""


def test_kernels_without_a_collective_are_alike_in_batches_too() -> None:
    scenario = compile_text(LAYER).workloads[0]
    choices = (SERIAL, Schedule("halves", batches=2))
    one, other = (
        simulated_candidate(scenario, joint_candidate(choice, ScheduleOrigin.KNOWN), never) for choice in choices
    )
    assert one.result is not None and other.result is not None

    alike = alike_us(scenario, one, other)
    kernel = one.result.op("y_swiglu").compute_ticks  # two halves take longer

    assert alike == pytest.approx(2 * kernel / TICKS_PER_US)
    assert abs(ratio_of(scenario, one, other) - 1) > abs(one.best_us / other.best_us - 1)


def candidate(case: OpCase, template: str, engine: EngineChoice, us: float) -> Candidate:
    choice = OpChoice(template, case.num_ranks * (1 if template == "serial" else 2), engine)
    origin = ScheduleOrigin.SERIAL if template == "serial" else ScheduleOrigin.TEMPLATE
    return Candidate(template, choice, build_op_plan(case, choice), origin, predicted_us=us)


def test_a_promise_is_less_where_gemms_beside_copies_were_not_measured() -> None:
    gpu = replace(mi300x(), beside=Beside(dma=Fraction(1, 5), sm=Fraction(2, 5)))
    known, unknown = (ag_gemm(8192, 4096, 8192, ranks=8, gpu=each) for each in (mi300x(), gpu))
    kernel_us = sum(work.alone_ticks for work in whole_works(unknown)) / TICKS_PER_US
    copies, sms = EngineChoice(EngineKind.DMA, 7), EngineChoice(EngineKind.SM, 16)

    def slower(case: OpCase, engine: EngineChoice, serial_us: float, us: float = 1000.0) -> float:
        pair = candidate(case, "serial", engine, serial_us), candidate(case, "uniform_fused_1d", engine, us)
        promise = promise_of(Scenario.of_one(case), pair, *pair)
        assert promise is not None
        return promise.slower

    assert slower(known, copies, kernel_us + 300) == 0
    assert slower(unknown, copies, kernel_us + 300) == pytest.approx(0.2 * 0.3)
    assert slower(unknown, sms, kernel_us + 300) == pytest.approx(0.4 * 0.3)
    assert slower(unknown, copies, kernel_us + 3000) == pytest.approx(0.2)  # all of its time is beside copies


def test_a_promise_is_wider_where_the_librarys_collectives_were_not_measured() -> None:
    known = scenario_of(Request("AG+GEMM", m=8192, n=4096, k=8192, gpu="H800", ranks=8)).case
    kernel_us = sum(work.alone_ticks for work in whole_works(known)) / TICKS_PER_US

    def error(validated: bool, moving_us: float) -> float:
        library = replace(known.gpu.collectives, validated=validated, error=Fraction(3, 10))  # type: ignore[type-var]
        system = replace(known.system, gpu=replace(known.gpu, collectives=library))
        case, us = replace(known, system=system), kernel_us + moving_us
        choice = library_serial(case)
        serial = Candidate("serial", choice, build_op_plan(case, choice), ScheduleOrigin.SERIAL, predicted_us=us)
        assert serial.is_library
        copies = candidate(case, "uniform_fused_1d", EngineChoice(EngineKind.DMA, 7), kernel_us)
        promise = promise_of(Scenario.of_one(case), (serial, copies), serial, copies)
        assert promise is not None and promise.error is not None
        return promise.error

    assert error(True, kernel_us) == error(True, 3 * kernel_us)
    assert 1 + error(False, kernel_us) == pytest.approx((1 + error(True, kernel_us)) * 1.15)
    assert 1 + error(False, 3 * kernel_us) == pytest.approx((1 + error(True, kernel_us)) * 1.225)
