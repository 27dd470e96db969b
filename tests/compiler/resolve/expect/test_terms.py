"""Terms of expectations: arithmetic over figures of schedules, with dimensions."""

from fractions import Fraction

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.ir import (
    Chain,
    End,
    Extreme,
    FigureKind,
    Metric,
    MetricOf,
    Negation,
    Operator,
    OverSeeds,
    Speedup,
    Term,
    Value,
)
from magus.compiler.resolve.expect.expectation import Comparison, Shown
from magus.compiler.resolve.expect.terms import dimension_of, figures_of

HEAD = """
use "amd/mi300x"
param M = 256 in 8..4096 x2
let K = 512
system quad { gpus 4 x MI300X; fabric full_mesh(xgmi) }
workload up on quad {
  x = tensor bf16[M, K] shard rows
  w = tensor bf16[K, 1024] shard cols
  y = gemm(all_gather(x), w)
}
schedule mine for up = uniform_fused_1d(chunks=16, engine=dma(3))
"""
MAKESPAN = MetricOf("mine", Metric.MAKESPAN)


def shown(term: str, before: str = "") -> Term:
    (check,) = compile_text(HEAD + f"expect up {{ {before} show {term} }}\n").expectations[0].checks
    assert isinstance(check.body, Shown)
    return check.body.term


def error_of(statement: str) -> str:
    with pytest.raises(CompileError) as caught:
        compile_text(HEAD + f"expect up {{ {statement} }}\n")
    return caught.value.diagnostics[0].code.name


@pytest.mark.parametrize(
    ("term", "dimension"),
    [
        ("mine.makespan + 1 us", FigureKind.TIME),
        ("mine.makespan - serial.makespan", FigureKind.TIME),
        ("2 * mine.makespan", FigureKind.TIME),
        ("mine.makespan * mine.dil", FigureKind.TIME),
        ("mine.makespan / 2", FigureKind.TIME),
        ("mine.makespan / serial.makespan", FigureKind.RATIO),
        ("mine.staging / serial.makespan", FigureKind.RATE),
        ("mine.link_bytes / mine.hbm_bytes", FigureKind.RATIO),
        ("mine.link_bytes / (64 GB/s)", FigureKind.TIME),
        ("mine.flag_reads * 64 B", FigureKind.BYTES),
        ("-mine.exposed", FigureKind.RATIO),
        ("max(mine.makespan, serial.makespan, 1 us)", FigureKind.TIME),
        ("speedup(mine, serial) - 1", FigureKind.RATIO),
        ("mine.makespan * M / K", FigureKind.TIME),
    ],
)
def test_the_dimension_of_a_term(term: str, dimension: FigureKind) -> None:
    assert dimension_of(shown(term)) is dimension


@pytest.mark.parametrize(
    "term",
    [
        "mine.makespan + mine.staging",
        "mine.makespan + 1",
        "mine.makespan * mine.makespan",
        "mine.makespan / mine.staging",
        "1 / mine.makespan",
        "min(mine.makespan, mine.dil)",
        "mine.makespan + 1 GFLOP",
    ],
)
def test_units_that_do_not_fit(term: str) -> None:
    assert error_of(f"show {term}") == "MGS303"


def test_what_a_term_is_read_as() -> None:
    term = shown("(serial.makespan - mine.makespan) / max(serial.compute_time, -mine.comm_time)")

    saved = Chain(MetricOf("serial", Metric.MAKESPAN), ((Operator.SUBTRACT, MAKESPAN),), FigureKind.TIME)
    longest = Extreme(
        End.GREATEST, (MetricOf("serial", Metric.COMPUTE_TIME), Negation(MetricOf("mine", Metric.COMM_TIME)))
    )
    assert term == Chain(saved, ((Operator.DIVIDE, longest),), FigureKind.RATIO)
    assert len(list(figures_of(term))) == 4


def test_params_and_lets_are_values() -> None:
    term = shown("mine.makespan - M * K * 1 ns")

    assert isinstance(term, Chain)
    assert term.rest == ((Operator.SUBTRACT, Value(Fraction(256 * 512 * 10**5), FigureKind.TIME)),)


def test_reductions_over_seeds() -> None:
    assert shown("p95(mine.makespan)", "seeds 8;") == OverSeeds(MAKESPAN, Fraction(95))
    assert shown("percentile(mine.makespan, 90)", "seeds 8;") == OverSeeds(MAKESPAN, Fraction(90))
    assert shown("mean(speedup(mine, serial))", "seeds 8;") == OverSeeds(Speedup("mine", "serial"), None)
    assert shown("smallest(mine.makespan)", "seeds 8;") == OverSeeds(MAKESPAN, Fraction(0))
    assert shown("largest(mine.makespan)", "seeds 8;") == OverSeeds(MAKESPAN, Fraction(100))


def test_the_bound_is_the_same_under_every_seed() -> None:
    term = shown("p50(mine.makespan) / bound.makespan", "seeds 8;")

    assert [figure.schedule for figure in figures_of(term) if isinstance(figure, MetricOf)] == ["mine", "bound"]


@pytest.mark.parametrize("statement", ["mine.flag_reads == 8", "mine.link_bytes == 2 * mine.staging"])
def test_counts_may_be_exactly_equal(statement: str) -> None:
    (check,) = compile_text(HEAD + f"expect up {{ {statement} }}\n").expectations[0].checks

    assert isinstance(check.body, Comparison) and check.body.tolerance is None


@pytest.mark.parametrize("statement", ["mine.link_bytes / mine.makespan == 1 GB/s", "mine.exposed == 1"])
def test_what_is_like_a_measurement_needs_a_tolerance(statement: str) -> None:
    assert error_of(statement) == "MGS323"


def test_a_long_sum_is_read_and_not_nested() -> None:
    term = shown(" + ".join(["mine.makespan"] * 3000))

    assert isinstance(term, Chain) and len(term.rest) == 2999
