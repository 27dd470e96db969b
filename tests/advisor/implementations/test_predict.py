"""Predicted times of implementations: what their numbers change on the machine, and when there is no prediction."""

from dataclasses import replace
from fractions import Fraction

import pytest

from magus.advisor.implementations.predict import about_kernels, library_us, machine_of, predict_us
from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import TICKS_PER_US, Implementation, Method, OpCase, Pattern, Rejection
from magus.compiler.planning.build import ScheduleError
from magus.compiler.resolve.schedules.implementation import shipped_implementations

TEXT = """use "nvidia/{library}"
system s {{ gpus 8 x {gpu}; fabric switch(nvswitch, link=nvlink) }}
workload w on s {{
  x = tensor bf16[{m}, 4096] shard rows
  w = tensor bf16[4096, 16384] shard cols
  y = gemm(all_gather(x), w)
}}
"""


def gather(m: int = 2048, gpu: str = "H100") -> OpCase:
    return compile_text(TEXT.format(library=gpu.lower(), gpu=gpu, m=m)).scenario("w").case


def shipped(scenario: OpCase, name: str) -> tuple[Implementation, Method]:
    (found,) = [each for each in shipped_implementations(scenario.system) if each.name == name]
    method = found.method(Pattern.AG_GEMM)
    assert method is not None
    return found, method


def us_of(scenario: OpCase, method: Method) -> float:
    us = predict_us(scenario, Implementation("one", (), (), (method,)))
    assert not isinstance(us, Rejection), us.message
    return us


def test_the_machine_has_the_numbers_of_the_implementation() -> None:
    scenario = gather()
    _, method = shipped(scenario, "torch_async_tp")
    slower = replace(method, rate=Fraction(1, 2), limit_bytes_per_s=None)

    machine = machine_of(scenario, slower)

    assert machine.gpu.launch.host_ticks == 10 * TICKS_PER_US
    assert machine.gpu.gemm.tiles == ((128, 256),) and not machine.gpu.gemm.splits_k
    assert machine.system.fabric.link.achieved_bytes_per_s == scenario.system.fabric.link.achieved_bytes_per_s // 2
    limited = machine_of(scenario, replace(slower, limit_bytes_per_s=10**11))
    assert limited.system.fabric.link.achieved_bytes_per_s == 10**11


def test_operands_that_are_read_again_slow_memory_by_their_share() -> None:
    scenario = gather(2048)
    _, method = shipped(scenario, "kraken")
    m, n, k = 2048, 2048, 4096
    once, again = m * k + k * n + m * n, (Fraction(16) / method.rows_per_read - 1) * k * n

    machine = machine_of(scenario, method)

    assert scenario.gpu.gemm.hbm_fraction / machine.gpu.gemm.hbm_fraction == 1 + again / once
    many = gather(4096)
    assert machine_of(many, method).gpu.gemm.hbm_fraction == many.gpu.gemm.hbm_fraction


def test_calls_and_barriers_are_added_and_nothing_else_is() -> None:
    scenario = gather()
    _, method = shipped(scenario, "flux")
    plain = us_of(scenario, replace(method, call_ticks=0))

    costly = replace(method, call_ticks=30 * TICKS_PER_US, barrier_ticks=5 * TICKS_PER_US)

    assert us_of(scenario, costly) == pytest.approx(plain + 35)


def test_a_slower_path_is_hidden_where_the_gemm_is_longer() -> None:
    scenario = gather(4096)
    _, method = shipped(scenario, "flux")
    fast, half, tenth = (us_of(scenario, replace(method, rate=Fraction(1, part))) for part in (1, 2, 10))

    assert fast <= half < tenth
    assert half - fast < (tenth - fast) / 4


def test_the_library_is_its_gemm_and_its_collective_and_a_call() -> None:
    scenario = gather()
    torch, method = shipped(scenario, "torch_nccl")
    forms = library_us(scenario)

    assert predict_us(scenario, torch) == pytest.approx(forms + method.call_ticks / TICKS_PER_US)


def test_small_gemms_are_left_to_the_library() -> None:
    scenario, gemm = gather(), gather().shape.gemm
    torch, _ = shipped(scenario, "torch_nccl")
    _, flux = shipped(scenario, "flux")
    assert gemm is not None
    above, below = (replace(flux, library_below_flops=gemm.flops + more) for more in (0, 1))

    assert us_of(scenario, above) == us_of(scenario, flux) and not about_kernels(scenario, above)
    assert us_of(scenario, below) == predict_us(scenario, torch) != us_of(scenario, flux)
    assert about_kernels(scenario, below) == "below 34 GFLOP of a GPU it calls the library"


def test_without_numbers_there_is_no_prediction() -> None:
    scenario = gather()
    unknown, _ = shipped(scenario, "triton_distributed")

    found = predict_us(scenario, unknown)

    assert isinstance(found, Rejection) and found.code is Code.MGS209
    assert found.message == "triton_distributed: rate, call, step not known"


def test_what_it_does_not_do_is_not_predicted() -> None:
    scenario = gather()
    (mkernel,) = [each for each in shipped_implementations(scenario.system) if each.name == "mkernel"]

    found = predict_us(scenario, mkernel)

    assert isinstance(found, Rejection) and found.code is Code.MGS530


def test_a_schedule_that_does_not_fit_the_sizes_is_said() -> None:
    scenario = gather(8)  # one row for each rank, where flux cuts into four
    flux, _ = shipped(scenario, "flux")

    found = predict_us(scenario, flux)

    assert isinstance(found, Rejection) and found.code is Code.MGS512


def test_what_is_too_large_to_simulate_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = gather()
    flux, _ = shipped(scenario, "flux")
    monkeypatch.setattr("magus.simcore.lower.budget.MAX_LINE_HOPS", 1000)

    found = predict_us(scenario, flux)

    assert isinstance(found, Rejection) and found.code is Code.MGS406
    assert found.message.startswith("hetero_unfused_1d(") and "line-hops, the limit is" in found.message


def test_a_profile_without_collectives_has_no_library() -> None:
    scenario = gather()
    without = replace(scenario, system=replace(scenario.system, gpu=replace(scenario.gpu, collectives=None)))

    with pytest.raises(ScheduleError, match="the profile of H100 has no collectives"):
        library_us(without)
