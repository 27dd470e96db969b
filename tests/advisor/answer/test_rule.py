"""The rule of every answer: what two schedules do alike is no part of their difference."""

import pytest

from magus.advisor.answer.rule import alike_us, ratio_of
from magus.advisor.candidates.candidate import ScheduleOrigin, joint_candidate
from magus.advisor.layers.declared import simulated_candidate
from magus.compiler import compile_text
from magus.compiler.ir import TICKS_PER_US, Schedule
from magus.compiler.ir.stopping import never
from magus.compiler.resolve.schedules.from_text import SERIAL

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
