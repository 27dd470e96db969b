"""The serial baseline is the one that advice names, found without its candidates."""

from dataclasses import replace

import pytest

from magus.advisor import AdviceOptions, Advisor
from magus.advisor.expect.simulations import serial_baseline
from magus.advisor.solver import NoFeasibleSchedule, enumerate_space
from magus.compiler import compile_text
from magus.compiler.ir import ExecutionOptions, OpCase, Scenario
from magus.compiler.planning.knobs.engine import default_engine
from tests.helpers.marks import thinned

OVERLAPPING = """
use "amd/mi300x"
system quad { gpus 4 x MI300X; fabric full_mesh(xgmi) }
workload up on quad {
  x = tensor bf16[512, 512] shard rows
  w = tensor bf16[512, 1024] shard cols
  y = gemm(all_gather(x), w)
}
"""
# Sends so little that the options of the copies decide.
DECODE = OVERLAPPING.replace("bf16[512, 512]", "bf16[16, 512]")
COLLECTIVE = """
use "amd/mi300x"
system quad { gpus 4 x MI300X; fabric full_mesh(xgmi) }
workload up on quad {
  x = tensor bf16[512, 512] shard rows
  y = all_gather(x)
}
"""


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "text",
    thinned(
        [
            OVERLAPPING,
            OVERLAPPING + "explore up { schedules hetero_fused_1d; chunks 8; engine sm(8), sm(32) }\n",
            OVERLAPPING + "schedule mine for up = serial(engine=sm(64))\nexplore up { schedules serial; engine dma }\n",
            DECODE,
            COLLECTIVE,
            COLLECTIVE + "explore up { chunks 8; engine dma(1), sm(16) }\n",
        ],
        2,
    ),
)
def test_it_is_the_baseline_of_the_advice(text: str) -> None:
    scenario = compile_text(text).scenario().case

    advice = Advisor.load().recommend(Scenario.of_one(scenario), AdviceOptions(bespoke=0))
    assert serial_baseline(scenario).expression == advice.serial.expression


def without_library(text: str) -> OpCase:
    scenario = compile_text(text).scenario().case
    gpu = replace(scenario.gpu, collectives=None)
    return replace(scenario, system=replace(scenario.system, gpu=gpu))


def test_without_a_library_it_has_the_options_that_pay() -> None:
    found = serial_baseline(without_library(DECODE))

    assert found.tactics != ExecutionOptions()


def test_where_the_space_leaves_nothing_it_is_the_usual_one() -> None:
    scenario = without_library(OVERLAPPING + "explore up { staging <= 1 KiB }\n")
    with pytest.raises(NoFeasibleSchedule):
        enumerate_space(scenario)

    assert serial_baseline(scenario).engine == default_engine(scenario.system)
