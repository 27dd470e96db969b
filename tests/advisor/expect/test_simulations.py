"""The simulations behind expectations: each once, and what goes wrong is told in a sentence."""

from dataclasses import replace

import pytest

from magus.advisor import Advisor
from magus.advisor.expect.simulations import ExpectationError, Runs
from magus.compiler import compile_text
from magus.simcore import RunOutcome, RunTooLarge

TEXT = """
use "amd/mi300x"
param M = 512
system quad { gpus 4 x MI300X; fabric full_mesh(xgmi) }
workload up on quad {
  x = tensor bf16[M, 512] shard rows
  w = tensor bf16[512, 1024] shard cols
  y = gemm(all_gather(x), w)
}
schedule mine for up = hetero_fused_1d(chunks=8, engine=dma(3))
"""


def no_advisor() -> Advisor:
    raise AssertionError("nobody asked for advice")


def runs(*settings: tuple[str, str]) -> Runs:
    return Runs(compile_text(TEXT, settings=settings).scenario(), no_advisor)


def test_a_schedule_is_simulated_in_lines_and_once() -> None:
    found = runs()

    assert found.result("mine").granularity == "line"
    assert found.result("mine") is found.result("mine")


def test_only_what_asks_for_it_is_explained() -> None:
    found = runs()

    assert found.result("mine").cil is None
    assert found.result("mine", explained=True).cil is not None


def test_serial_needs_no_advice() -> None:
    assert runs().result("serial").schedule.expression.startswith("serial(")


def test_the_bound_is_no_schedule() -> None:
    assert runs().bound_ticks() > 0
    with pytest.raises(ExpectationError, match="makespan and nothing else"):
        runs().result("bound")


def test_a_schedule_that_does_not_fit_is_reported() -> None:
    with pytest.raises(ExpectationError, match="mine does not fit these sizes"):
        runs(("M", "4")).result("mine")


def test_a_run_that_is_too_large_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*_: object, **__: object) -> None:
        raise RunTooLarge("beyond the limit")

    monkeypatch.setattr("magus.advisor.expect.simulations.simulate_op", too_large)
    with pytest.raises(ExpectationError, match="beyond the limit"):
        runs().result("mine")


def test_a_run_that_does_not_finish_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    found = runs().result("mine")
    stopped = replace(found, outcome=RunOutcome.MEMORY)
    monkeypatch.setattr("magus.advisor.expect.simulations.simulate_op", lambda *_, **__: stopped)

    with pytest.raises(ExpectationError, match=f"mine does not finish: {RunOutcome.MEMORY.value}"):
        runs().result("mine")


def test_seeds_that_are_too_large_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*_: object, **__: object) -> None:
        raise RunTooLarge("beyond the limit")

    monkeypatch.setattr("magus.simcore.simulate_seeds", too_large, raising=False)
    with pytest.raises(ExpectationError, match="beyond the limit"):
        runs().seeded("mine", 3)


def test_no_feasible_schedule_is_reported_with_what_conflicts() -> None:
    text = TEXT + "explore up { staging <= 1 KiB }\n"

    with pytest.raises(ExpectationError, match="staging <= 1 KiB"):
        Runs(compile_text(text).scenario(), Advisor.load).advice()


def test_packets_in_place_of_lines() -> None:
    scenario = compile_text(TEXT).scenario()
    fine, coarse = runs().result("mine"), Runs(scenario, no_advisor, packets=True).result("mine")
    assert (fine.unit_bytes, coarse.unit_bytes) == (128, 1024)
    assert coarse.line_hops < fine.line_hops / 4
    assert coarse.makespan_ticks == pytest.approx(fine.makespan_ticks, rel=0.02)
