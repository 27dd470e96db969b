"""Expectations about graphs: declared schedules, serial, and the best that is searched, with all layers."""

import pytest

from magus.advisor import Advisor
from magus.advisor.expect.run import ExpectationRunner
from magus.compiler import CompileError, compile_text

TEXT = """
use "nvidia/h100"
system hgx {{ gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }}
workload mlp on hgx {{
  x  = tensor bf16[1024, 1024] shard rows
  wu = tensor bf16[1024, 4096] shard cols
  wd = tensor bf16[4096, 1024] shard rows
  u = gemm(all_gather(norm(x)), wu)
  y = add(x, reduce_scatter(gemm(gelu(u), wd)))
  repeat 40 y as x
}}
schedule pairs for mlp {{ u = hetero_fused_1d(chunks=8); y = hetero_fused_1d(chunks=8) }}
expect mlp {{ granularity packet; {statements} }}
"""


def verdicts(statements: str) -> list[tuple[bool, str]]:
    text = TEXT.format(statements=statements)
    runner = ExpectationRunner(lambda settings: compile_text(text, settings=settings), Advisor.load)
    return [(result.passed, result.found) for result in runner.run()]


@pytest.mark.slow
def test_makespans_are_those_of_all_layers() -> None:
    found = verdicts("bound.makespan <= pairs.makespan; pairs.makespan > 40 * 40 us; speedup(pairs, serial) > 0.5")

    assert [passed for passed, _ in found] == [True, True, True]


def test_figures_of_one_op() -> None:
    found = verdicts("pairs.u.makespan < pairs.makespan; serial.u.comm_time > 1 us; pairs.y.exposed_time >= 0 us")

    assert [passed for passed, _ in found] == [True, True, True]


@pytest.mark.parametrize(
    ("statement", "message"),
    [("pairs.v.makespan < 1 s", "unknown op 'v'"), ("pairs.u.dil < 2", "an op has no metric 'dil'")],
)
def test_what_no_op_has(statement: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        verdicts(statement)


@pytest.mark.slow
def test_the_best_is_searched() -> None:
    found = verdicts("best.makespan <= pairs.makespan; verdict == worth_trying; best.u.makespan < best.makespan")

    assert [passed for passed, _ in found] == [True, True, True], found
