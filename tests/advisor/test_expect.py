"""Expectations: figures of schedules compared as a file says."""

import pytest

from magus.advisor import Advisor
from magus.advisor.expect import CheckResult, ExpectationRunner
from magus.compiler import compile_text

HEAD = """
use "amd/mi300x"
system quad { gpus 4 x MI300X; fabric full_mesh(xgmi) }
workload up on quad {
  x = tensor bf16[512, 512] shard rows
  w = tensor bf16[512, 1024] shard cols
  y = gemm(all_gather(x), w)
}
schedule mine for up = hetero_fused_1d(chunks=8, engine=dma(3))
explore up { schedules serial, hetero_fused_1d; chunks 8; engine dma }
"""


def results(statements: str) -> tuple[CheckResult, ...]:
    compiled = compile_text(HEAD + f"expect up {{ {statements} }}\n")
    (expectation,) = compiled.expectations
    return ExpectationRunner(compiled.scenario(), Advisor.load).run(expectation)


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
        ("speedup(best, serial) >= 1", True),
        ("speedup(serial, serial) == 1 +- 1 %", True),
        ("best.makespan <= serial.makespan", True),
        ("verdict == serial", True),
        ("verdict == overlap", False),
    ],
)
def test_a_statement_holds_or_not(statement: str, holds: bool) -> None:
    (result,) = results(statement)

    assert result.passed is holds, result.found


def test_every_statement_is_run_and_said() -> None:
    found = results("mine.makespan > 1 us; mine.makespan < 1 us")

    assert [result.passed for result in found] == [True, False]
    assert all(result.found.startswith("left is ") for result in found)


def test_the_bound_has_no_other_figures() -> None:
    (result,) = results("bound.dil > 1")

    assert not result.passed
    assert "lower bound" in result.found
