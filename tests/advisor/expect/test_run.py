"""Expectations: figures of schedules compared as a file says."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

import magus.simcore
from magus.advisor import Advisor
from magus.advisor.expect.run import CheckResult, ExpectationRunner, Standing
from magus.compiler import CompileError, compile_text
from magus.compiler.ir import TICKS_PER_US, OpCase, OpPlan, Plan, System
from magus.simcore import Result, simulate, simulate_op

HEAD = """
use "amd/mi300x"
param M = 512 in 16..4096
system quad { gpus 4 x MI300X; fabric full_mesh(xgmi) }
workload up on quad {
  x = tensor bf16[M, 512] shard rows
  w = tensor bf16[512, 1024] shard cols
  y = gemm(all_gather(x), w)
}
schedule mine for up = hetero_fused_1d(chunks=8, engine=dma(3))
schedule shards for up = shard_p2p()
explore up { schedules serial, hetero_fused_1d; chunks 8; engine dma }
"""


def no_advisor() -> Advisor:
    raise AssertionError("nobody asked for advice")


def results(statements: str, given: str = "", *, advised: bool = False) -> list[CheckResult]:
    text = HEAD + f"expect up {given} {{ {statements} }}\n"
    advisor = Advisor.load if advised else no_advisor
    return list(ExpectationRunner(lambda settings: compile_text(text, settings=settings), advisor).run())


@pytest.mark.parametrize(
    ("statement", "holds"),
    [
        ("mine.makespan > 1 us", True),
        ("mine.makespan < 1 us", False),
        ("mine.makespan >= bound.makespan", True),
        ("mine.makespan in 1 us..1 s", True),
        ("mine.makespan in 1 us..2 us", False),
        ("mine.makespan == mine.makespan +- 1 us", True),
        ("mine.exposed < 100 %", True),
        ("mine.exposed_time < mine.makespan", True),
        ("mine.dil > 1", True),
        ("mine.cil >= 0.99", True),
        ("mine.staging < 1 GiB", True),
        ("mine.compute_time < mine.makespan", True),
        ("mine.comm_time > 0 us", True),
        ("mine.overlap_efficiency <= 1", True),
        ("speedup(serial, serial) == 1 +- 1 %", True),
        ("speedup(mine, serial) == serial.makespan / mine.makespan +- 0 %", True),
        ("mine.makespan - mine.compute_time == mine.exposed_time +- 0 us", True),
        ("mine.exposed * mine.makespan == mine.exposed_time +- 0 us", True),
        ("max(mine.makespan, bound.makespan) == mine.makespan +- 0 us", True),
        ("min(mine.makespan, 1 us) == 1 us +- 0 us", True),
        ("-mine.makespan < 0 us", True),
        ("mine.hbm_bytes == mine.hbm_read_bytes + mine.hbm_write_bytes", True),
        ("mine.hbm_write_bytes >= M / 4 * 1024 B * 2", True),
        ("mine.link_bytes >= 3 * M / 4 * 512 B * 2", True),
        ("mine.l2_bytes > 0 B", True),
        ("mine.flag_reads >= 0", True),
        ("mine.flag_bytes >= 0 B", True),
        ("mine.link_bytes / mine.makespan < 10 TB/s", True),
    ],
)
def test_a_statement_holds_or_not(statement: str, holds: bool) -> None:
    (result,) = results(statement)

    assert result.passed is holds, result.found


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("statement", "holds"),
    [
        ("speedup(best, serial) >= 1", True),
        ("best.makespan <= serial.makespan", True),
        ("verdict == serial", True),
        ("verdict == overlap", False),
    ],
)
def test_a_statement_about_advice(statement: str, holds: bool) -> None:
    (result,) = results(statement, advised=True)

    assert result.passed is holds, result.found


def test_every_statement_is_run_and_said() -> None:
    found = results("mine.makespan > 1 us; mine.makespan < 1 us")

    assert [result.passed for result in found] == [True, False]
    assert all(result.found.startswith("left is ") for result in found)


def test_the_bound_has_no_other_figures() -> None:
    with pytest.raises(CompileError, match="the lower bound has a makespan and nothing else"):
        results("bound.dil > 1")


def test_a_division_by_zero_is_reported() -> None:
    (result,) = results("1 us / (mine.staging / 1 B - mine.staging / 1 B) > 1 us")

    assert not result.passed
    assert result.found.endswith("divides by zero")
    assert result.check.text in result.found


def test_numbers_that_are_too_large_are_reported() -> None:
    huge = " * ".join(["mine.dil", *["1e39"] * 8])
    (one,) = results(f"show {huge}")
    (all_of_it,) = results(f"show {huge} * " + " * ".join(["1e39"] * 40))

    assert (one.passed, one.found) == (False, "a value of 300 digits or more")
    assert (all_of_it.passed, all_of_it.found) == (False, "a computed number is too large")


def test_what_is_shown_checks_nothing() -> None:
    (result,) = results('show speedup(mine, serial) published "1.3x"')

    assert (result.standing, result.check.published) == (Standing.SHOWN, "1.3x")
    assert [(each.name, each.unit) for each in result.values] == [("value", "")]


def test_a_number_follows_the_setting_of_its_block() -> None:
    (result,) = results("M == mine.makespan / mine.makespan * 1024 +- 0 %", "with M = 1024")

    assert result.passed, result.found


def test_a_sweep_compares_at_every_point() -> None:
    statements = "mine.makespan > M / 512 * 10 us; mine.makespan > 1 us; somewhere mine.makespan < 1 us"
    first, second, third = results(f"sweep M in 512..2048 x2 {{ {statements} }}")

    assert [first.passed, second.passed, third.passed] == [False, True, False]
    assert first.found.startswith("fails at ") and "first at M = " in first.found
    assert second.found == "holds at all 3 points"
    assert third.found == "holds at none of 3 points"
    assert [point.setting for point in second.points] == ["512", "1024", "2048"]


def test_shapes_of_a_sweep() -> None:
    statements = """
      mine.makespan rising
      mine.staging linear r2 >= 1
      mine.makespan flat +- 1000 %
      mine.makespan falling
      mine.makespan minimum inside
      winner(mine, shards) changes
      winner(mine, bound) changes
      show mine.staging
    """
    found = results(f"sweep M in 512..2048 x2 {{ {statements} }}")

    assert [result.passed for result in found[:5]] == [True, True, True, False, False]
    assert {value.number for point in found[5].points for value in point.values} <= {"mine", "shards"}
    assert (found[6].passed, found[6].found) == (False, "M: bound at 512..2048")
    sizes = [value.number for point in found[7].points for value in point.values]
    assert sizes == [sizes[0], 2 * sizes[0], 4 * sizes[0]]


def test_a_crossover_of_a_sweep() -> None:
    # The staging is three quarters of M KiB, which passes 768 KiB at M = 1024.
    inside, outside = results(
        "sweep M in 512..2048 step 512 { "
        "crossover(mine.staging, mine.staging / mine.staging * 800 KiB) in 1024..1536;"
        "crossover(mine.staging, mine.staging / mine.staging * 800 KiB) in 512..1024 }"
    )

    assert (inside.passed, outside.passed) == (True, False)
    assert inside.found == outside.found


def test_what_does_not_fit_a_point_is_reported() -> None:
    (result,) = results("sweep M in 16, 512 { mine.makespan > 1 us }", "")
    assert result.passed

    (result,) = results("sweep M in 20, 512 { mine.makespan > 1 us }", "")
    assert not result.passed
    assert result.found == "at M = 20: mine does not fit these sizes and was left out"


def test_a_point_too_many_to_be_checked_before_is_reported_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magus.compiler.pipeline.MAX_CHECKED_BINDINGS", 0)
    first, second = results("sweep M in 512, 18 { mine.makespan > 1 us }; mine.makespan > 1 us")

    assert not first.passed and second.passed
    assert first.found == "at M = 18: MGS304: 18 rows do not divide among 4 ranks"


def test_somewhere_names_the_first_point() -> None:
    (result,) = results("sweep M in 512..2048 x2 { somewhere mine.staging >= 1536 KiB }")

    assert (result.passed, result.found) == (True, "holds at 1 of 3 points, first at M = 2048")


@pytest.mark.parametrize(("slack", "differ"), [("0 %", True), ("100 %", False)])
def test_unequal_is_beyond_the_slack(slack: str, differ: bool) -> None:
    (result,) = results(f"mine.makespan != mine.makespan * 1.5 +- {slack}")

    assert result.passed is differ, result.found


def test_a_figure_that_a_schedule_does_not_have_is_reported() -> None:
    text = HEAD.replace("gemm(all_gather(x), w)", "all_gather(x)").replace("hetero_fused_1d(chunks=8", "serial(")
    text = text.replace("serial(, ", "serial(").replace("schedule shards for up = shard_p2p()", "").split("explore")[0]
    text += "expect up { mine.dil > 1 }\n"

    (result,) = ExpectationRunner(lambda settings: compile_text(text, settings=settings), no_advisor).run()

    assert (result.passed, result.found) == (False, "serial(engine=dma(3)) has no dil")


def test_each_schedule_is_simulated_once_at_each_point(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[str] = []

    def counted(scenario: OpCase, schedule: OpPlan, **options: int) -> Result:
        requested.append(schedule.expression)
        return simulate_op(scenario, schedule, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("magus.advisor.expect.simulations.simulate_op", counted)
    results("sweep M in 512, 1024 { mine.makespan > 1 us; mine.dil > 1; shards.makespan > 1 us }; mine.exposed > 0")

    assert len(requested) == 5


def later(system: System, plan: Plan, seeds: Sequence[int], *, name: str, unit_bytes: int) -> tuple[Result, ...]:
    """A variability that delays by a microsecond for each seed."""
    result = simulate(system, plan, name=name, unit_bytes=unit_bytes)
    return tuple(replace(result, makespan_ticks=seed * TICKS_PER_US) for seed in seeds)


@pytest.mark.parametrize(
    "statement",
    [
        "p5(mine.makespan) == 0 us +- 0 us",
        "p50(mine.makespan) == 9 us +- 0 us",
        "p95(mine.makespan) == 18 us +- 0 us",
        "p99(mine.makespan) == 19 us +- 0 us",
        "percentile(mine.makespan, 90) == 17 us +- 0 us",
        "mean(mine.makespan) == 9500 ns +- 0 us",
        "smallest(mine.makespan) == 0 us +- 0 us",
        "largest(serial.makespan) == 19 us +- 0 us",
        "largest(serial.makespan + mine.makespan) == 38 us +- 0 us",
        "largest(mine.makespan) - smallest(mine.makespan) > bound.makespan - bound.makespan",
    ],
)
def test_seeds_are_reduced(statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(magus.simcore, "simulate_seeds", later, raising=False)

    (result,) = results(f"seeds 20; {statement}")

    assert result.passed, result.found


def test_a_sweep_under_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(magus.simcore, "simulate_seeds", later, raising=False)

    (result,) = results("sweep M in 512..2048 x2 { seeds 4; largest(mine.makespan) flat }")

    assert (result.passed, result.found) == (True, "between 3.00 us and 3.00 us")


def test_the_seeds_of_a_system_with_variability_are_the_same_each_time() -> None:
    varied = HEAD.replace("full_mesh(xgmi) }", "full_mesh(xgmi); variability { skew uniform(0 us, 9 us) } }")
    text = varied + "expect up { seeds 6; smallest(mine.makespan) < p50(mine.makespan); show mean(mine.makespan) }\n"

    def found() -> list[CheckResult]:
        return list(ExpectationRunner(lambda settings: compile_text(text, settings=settings), no_advisor).run())

    assert found() == found()
    assert found()[0].passed
