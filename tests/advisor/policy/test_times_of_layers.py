"""Times of layers that repeat are those of all layers, wherever schedules are compared by them."""

import pytest

from magus.advisor.candidates.candidate import ScheduleOrigin, joint_candidate
from magus.advisor.policy.layer_rules import across
from magus.advisor.sensitivity.several import UNIT_BYTES, coarse_ticks
from magus.compiler import compile_text
from magus.compiler.ir import Scenario, Schedule, never
from magus.compiler.resolve.schedules.from_text import SERIAL
from magus.simcore import PACKET_BYTES, Result
from magus.simcore.simulate_layers import simulate_layers
from tests.helpers.layer_advice import advice_by_hand

pytestmark = pytest.mark.usefixtures("compiled_core")

LAYERS = 40
TEXT = f"""
use "nvidia/h100"
system s {{ gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }}
workload layer on s {{
  x = tensor bf16[1024, 512] shard rows
  up = tensor bf16[512, 1024] shard cols
  down = tensor bf16[1024, 512] shard rows
  u = gemm(all_gather(x), up)
  y = reduce_scatter(gemm(u, down))
  repeat {LAYERS} y as x
}}
"""


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return compile_text(TEXT).scenario()


def run_of_layers(scenario: Scenario, unit_bytes: int) -> Result:
    result = simulate_layers(scenario.system, scenario.workload, SERIAL, unit_bytes=unit_bytes)
    assert result.num_simulated < result.layers == LAYERS and result.total_ticks > result.makespan_ticks
    return result


def test_a_sweep_compares_all_layers(scenario: Scenario) -> None:
    advice = advice_by_hand(scenario, Schedule("mine"), 1000, 1000)
    unit = advice.recommended.unit_bytes or PACKET_BYTES

    assert across(never)(scenario, SERIAL, advice) == run_of_layers(scenario, unit).total_ticks


def test_sensitivity_and_threshold_compare_all_layers(scenario: Scenario) -> None:
    serial = joint_candidate(SERIAL, ScheduleOrigin.SERIAL)

    assert coarse_ticks(scenario, serial, never) == run_of_layers(scenario, UNIT_BYTES).total_ticks
