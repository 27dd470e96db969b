"""The four schedules among which FiCCO's rule chooses."""

from dataclasses import replace

from magus.advisor.policy.distill import FOUR, HETERO_UNFUSED, four_choices
from magus.compiler.ir import Kernels
from magus.compiler.planning.build import reject_choice
from tests.helpers.oracle.lowering import on_gpu
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs


def test_the_four_schedules_have_a_piece_for_each_rank() -> None:
    scenario = ag_gemm(4096, 8192, 8192)

    choices = four_choices(scenario)

    assert tuple(choice.template for choice in choices) == FOUR
    assert {choice.chunks for choice in choices} == {scenario.num_ranks**2}
    assert len({choice.engine for choice in choices}) == 1
    assert all(reject_choice(scenario, choice) is None for choice in choices)
    assert four_choices(gemm_rs(4096, 8192, 8192)) == ()
    assert four_choices(ag_gemm(8 * 9, 8192, 8192)) == ()  # 9 rows of a shard are not 8 pieces


def test_kernels_of_one_slice_share_the_sms_where_the_gpu_permits() -> None:
    scenario = ag_gemm(4096, 8192, 8192)
    gpu = scenario.gpu
    permits = on_gpu(scenario, replace(gpu, gemm=replace(gpu.gemm, fewest_sms=8)))

    assert not scenario.gpu.gemm.fewest_sms
    plain, unfused = (four_choices(each)[FOUR.index(HETERO_UNFUSED)] for each in (scenario, permits))
    assert plain.tactics.kernel is not Kernels.SHARING
    assert (unfused.streams, unfused.tactics.kernel) == (7, Kernels.SHARING)
    assert reject_choice(permits, unfused) is None
