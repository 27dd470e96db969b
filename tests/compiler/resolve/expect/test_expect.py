"""Statements of an ``expect`` block: sweeps, shapes, seeds and published figures."""

from fractions import Fraction

import pytest

from magus.compiler import CompileError, compile_text, format_text
from magus.compiler.ir import End, Metric, MetricOf
from magus.compiler.resolve.expect.expectation import (
    Body,
    Check,
    CheckedSweep,
    Comparison,
    Crossover,
    Expectation,
    Inside,
    Linear,
    Shown,
    Somewhere,
    Trend,
    TrendDirection,
    WinnerChanges,
)
from magus.compiler.text import syntax as ast
from magus.compiler.text.diagnostics import Report, Source
from magus.compiler.text.parsing.parse import parse_file
from magus.compiler.text.units import TIME

HEAD = """
use "amd/mi300x"
param M = 256 in 8..65536 x2
param N = 1024
param delay = 1 us in 0 us..20 us
system quad { gpus 4 x MI300X; fabric full_mesh(xgmi) }
workload up on quad {
  x = tensor bf16[M, 512] shard rows
  w = tensor bf16[512, N] shard cols
  y = gemm(all_gather(x), w)
}
schedule mine for up = uniform_fused_1d(chunks=16, engine=dma(3))
schedule other for up = shard_p2p()
"""
MAKESPAN = MetricOf("mine", Metric.MAKESPAN)
EVERYTHING = """expect up with N = 2048 {
  granularity packet
  (serial.makespan - mine.makespan) / (serial.makespan - max(serial.compute_time,
    serial.comm_time)) > 60 % published "93 %, a paper"
  show -mine.link_bytes / mine.makespan published "48 GB/s"

  sweep M in 1024..65536 x2 {
    mine.makespan rising +- 1 %
    mine.flag_reads flat
    mine.makespan linear r2 >= 0.98
    mine.makespan minimum inside
    crossover(mine.makespan, other.makespan) in 4096..16384
    somewhere speedup(mine, serial) > 3
    winner(mine, other, serial) changes published "the best schedule changes"
  }
  sweep delay in 0 us, 10 us, 20 us { seeds 64; p95(mine.makespan) / percentile(mine.makespan, 5) > 1.1 }
}
"""


def expectation(text: str) -> Expectation:
    (found,) = compile_text(HEAD + text + "\n").expectations
    return found


def sweep(statements: str, domain: str = "M in 1024..65536 x2") -> CheckedSweep:
    (found,) = expectation(f"expect up {{ sweep {domain} {{ {statements} }} }}").statements
    assert isinstance(found, CheckedSweep)
    return found


@pytest.mark.parametrize(
    ("statement", "body"),
    [
        ("mine.makespan rising", Trend(MAKESPAN, TrendDirection.RISING, Fraction(1, 100))),
        ("mine.makespan falling +- 3 %", Trend(MAKESPAN, TrendDirection.FALLING, Fraction(3, 100))),
        ("mine.makespan flat +- 0.5", Trend(MAKESPAN, TrendDirection.FLAT, Fraction(1, 2))),
        ("mine.makespan linear", Linear(MAKESPAN, Fraction(98, 100))),
        ("mine.makespan linear r2 >= 0.9", Linear(MAKESPAN, Fraction(9, 10))),
        ("mine.makespan minimum inside", Inside(MAKESPAN, End.LEAST)),
        ("mine.makespan maximum inside", Inside(MAKESPAN, End.GREATEST)),
        ("winner(mine, serial) changes", WinnerChanges(("mine", "serial"))),
        (
            "crossover(mine.makespan, other.makespan) in 2048..N * 4",
            Crossover(MAKESPAN, MetricOf("other", Metric.MAKESPAN), Fraction(2048), Fraction(4096)),
        ),
        ("show mine.makespan", Shown(MAKESPAN)),
    ],
)
def test_statements_of_a_sweep(statement: str, body: Body) -> None:
    (check,) = sweep(statement).checks

    assert check.body == body
    assert check.text == statement


def test_somewhere() -> None:
    (check,) = sweep("somewhere mine.makespan < 1 us").checks

    assert isinstance(check.body, Somewhere) and isinstance(check.body.body, Comparison)


@pytest.mark.parametrize(
    ("domain", "points"),
    [
        ("M in 1024..4096 x2", ["1024", "2048", "4096"]),
        ("M in 1024..4096 step 1024", ["1024", "2048", "3072", "4096"]),
        ("delay in 20 us, 0 us, 1500 ns, 20 us", ["0 us", "1500 ns", "20 us"]),
        ("M in 4 * 256, N", ["1024"]),
    ],
)
def test_the_points_of_a_sweep_are_in_rising_order(domain: str, points: list[str]) -> None:
    found = sweep("mine.dil > 1", domain)

    assert [point.text for point in found.points] == points
    assert list(found.points) == sorted(found.points, key=lambda point: point.amount)


def test_a_sweep_in_units() -> None:
    found = sweep("mine.dil > 1", "delay in 5 us..20 us step 5 us")

    assert found.unit == TIME
    assert [point.amount for point in found.points] == [Fraction(n, 200_000) for n in range(1, 5)]


def test_a_block_asks_about_its_bindings_and_about_every_point() -> None:
    found = expectation("expect up with N = 512 { mine.dil > 1; sweep M in 1024..2048 x2 { mine.dil > 1 } }")

    bound = ("N", "512")
    assert found.settings == ((bound,), (bound, ("M", "1024")), (bound, ("M", "2048")))


def test_a_point_that_cannot_work_is_reported_at_compile_time() -> None:
    with pytest.raises(CompileError) as caught:
        expectation("expect up { sweep M in 1022..1026 step 2 { mine.dil > 1 } }")

    assert {each.message for each in caught.value.diagnostics} == {
        "with M = 1022: 1022 rows do not divide among 4 ranks",
        "with M = 1026: 1026 rows do not divide among 4 ranks",
    }


def test_seeds_hold_for_the_block_and_its_sweeps_unless_they_say_other() -> None:
    text = "seeds 8; sweep M in 1024..2048 x2 { p5(mine.dil) > 1 }; sweep N in 512, 1024 { seeds 16; p5(mine.dil) > 1 }"
    found = expectation(f"expect up {{ {text} }}")

    assert found.seeds == 8
    assert [each.seeds for each in found.statements if isinstance(each, CheckedSweep)] == [8, 16]


def test_what_was_published_stands_beside_the_statement() -> None:
    found = expectation('expect up { mine.makespan < 1 s published "fast, they say"; verdict == serial }')

    assert [(check.text, check.published) for check in found.checks] == [
        ("mine.makespan < 1 s", "fast, they say"),
        ("verdict == serial", ""),
    ]


def test_everything_stands_in_its_order_and_prints_to_itself() -> None:
    found = expectation(EVERYTHING)
    assert [type(each) for each in found.statements] == [Check, Check, CheckedSweep, CheckedSweep]

    formatted = format_text(EVERYTHING)
    assert format_text(formatted) == formatted
    assert parse(formatted) == parse(EVERYTHING)


def parse(text: str) -> ast.File:
    report = Report()
    with report.attempt():
        return parse_file(Source("a.mgs", text), report)
    raise AssertionError(report.diagnostics)


def test_granularity_is_said_once_for_a_block() -> None:
    fine, coarse = (
        compile_text(f"{HEAD}expect up {{ {said}; mine.makespan < 1 ms }}").expectations[0]
        for said in ("granularity line", "granularity packet")
    )
    assert (fine.packets, coarse.packets) == (False, True)
    assert len(coarse.statements) == 1
    with pytest.raises(CompileError, match="granularity is said twice"):
        compile_text(f"{HEAD}expect up {{ granularity line; granularity packet; mine.makespan < 1 ms }}")
