"""Workloads, schedules, spaces, expectations and plans."""

from fractions import Fraction

import pytest

from magus.compiler import Compiled, CompileError, compile_text
from magus.compiler.ir import (
    Direction,
    EngineChoice,
    EngineKind,
    FigureKind,
    IndexRange,
    Metric,
    MetricOf,
    OpCase,
    OpChoice,
    Pattern,
    Reduction,
    Shard,
    Speedup,
    TileGroup,
    Transfer,
    Value,
    WrittenPlan,
)
from magus.compiler.resolve.expect.expectation import Comparison, Relation, Verdict, VerdictIs
from magus.compiler.resolve.file import resolve
from magus.compiler.text.diagnostics import Report, Source
from magus.compiler.text.load import load

HARDWARE = 'use "amd/mi300x"\nsystem node { gpus 8 x MI300X; fabric full_mesh(xgmi) }\n'
GATHER = (
    "x = tensor bf16[8192, 4096] shard rows; w = tensor bf16[4096, 1024] shard cols; "
    "xg = all_gather(x); y = gemm(xg, w)"
)
A, B = "a = tensor bf16[64, 32]", "b = tensor bf16[32, 16]"
DMA_7, SM_8 = EngineChoice(EngineKind.DMA, 7), EngineChoice(EngineKind.SM, 8)
SCATTER = (
    "h = tensor bf16[8192, 4096] shard cols; w = tensor bf16[4096, 1024] shard rows; y = reduce_scatter(gemm(h, w))"
)


def compiled(body: str, more: str = "", before: str = "") -> Compiled:
    return compile_text(f"{before}{HARDWARE}workload w on node {{ {body} }}\n{more}")


def scenario(body: str, more: str = "") -> OpCase:
    return compiled(body, more).scenario().case


@pytest.mark.parametrize(
    ("body", "pattern", "shape", "moved", "output"),
    [
        (f"{A}; {B}; y = gemm(a, b)", Pattern.GEMM, (64, 16, 32), None, "y"),
        (f"{A} shard rows; {B}; y = gemm(a, b)", Pattern.GEMM, (8, 16, 32), None, "y"),
        (f"{A}; {B} shard cols; y = gemm(a, b)", Pattern.GEMM, (64, 2, 32), None, "y"),
        ("x = tensor fp8[64, 32] shard rows; y = all_gather(x)", Pattern.ALL_GATHER, None, "y", "y"),
        ("x = tensor bf16[64, 32]; y = reduce_scatter(x)", Pattern.REDUCE_SCATTER, None, "x", "y"),
        (GATHER, Pattern.AG_GEMM, (8192, 128, 4096), "xg", "y"),
        (GATHER.replace(" shard cols", ""), Pattern.AG_GEMM, (8192, 1024, 4096), "xg", "y"),
        (GATHER.replace("xg = all_gather(x); y = gemm(xg, w)", "y = gemm(all_gather(x), w)"), Pattern.AG_GEMM,
         (8192, 128, 4096), "x_gathered", "y"),
        (SCATTER, Pattern.GEMM_RS, (8192, 1024, 512), "y_partial", "y_partial"),
        (SCATTER.replace("y = reduce_scatter(gemm(h, w))", "p = gemm(h, w); y = reduce_scatter(p)"), Pattern.GEMM_RS,
         (8192, 1024, 512), "p", "p"),
    ],
)  # fmt: skip
def test_patterns(
    body: str, pattern: Pattern, shape: tuple[int, int, int] | None, moved: str | None, output: str
) -> None:
    workload = scenario(body).shape
    assert workload.pattern is pattern
    assert (workload.gemm and (workload.gemm.m, workload.gemm.n, workload.gemm.k)) == shape
    assert (workload.moved and workload.moved.name) == moved
    assert workload.moved is None or workload.moved.shard is Shard.ROWS
    assert workload.output == output
    assert output in {tensor.name for tensor in workload.tensors}


def test_a_tensor_that_is_not_used_warns() -> None:
    assert [found.code.name for found in compiled(f"{GATHER}; z = tensor bf16[8, 8]").warnings] == ["MGS212"]


@pytest.mark.parametrize(
    ("expression", "choice"),
    [
        ("serial()", OpChoice("serial", 8, DMA_7)),
        ("serial", OpChoice("serial", 8, DMA_7)),
        (
            "uniform_fused_1d(chunks=2 * 16, engine=sm(8))",
            OpChoice("uniform_fused_1d", 32, EngineChoice(EngineKind.SM, 8)),
        ),
        ("uniform_fused_2d(engine=dma)", OpChoice("uniform_fused_2d", 64, EngineChoice(EngineKind.DMA, 7))),
        ("hetero_unfused_1d()", OpChoice("hetero_unfused_1d", 64, DMA_7, streams=4)),
        ("hetero_unfused_1d(streams=2)", OpChoice("hetero_unfused_1d", 64, DMA_7, streams=2)),
    ],
)
def test_choices(expression: str, choice: OpChoice) -> None:
    assert scenario(GATHER, f"schedule s for w = {expression}").schedules[0].body == choice


def test_explore() -> None:
    text = (
        "explore w { schedules serial, shard_p2p; chunks 8..100 step 8; engine dma, sm(16), dma(7); staging <= 2 GiB }"
    )
    explore = scenario(GATHER, text).explore
    assert explore.values("schedules") == ("serial", "shard_p2p")
    assert explore.values("chunks") == tuple(range(8, 100, 8))
    assert explore.values("engine") == (EngineChoice(EngineKind.DMA, 7), EngineChoice(EngineKind.SM, 16))
    assert explore.staging_limit_bytes == 2 << 30


def test_expectations() -> None:
    more = """schedule mine for w = serial()
expect w with M = 2 * 8 {
  mine.makespan < 900 us
  mine.exposed < 15 %
  speedup(best, serial) in 1.05..1.70
  mine.makespan == 800 us +- 5 %
  best.makespan != 1 ms +- 2 us
  mine.staging == 2 MiB
  900 us > bound.makespan
  verdict == serial
}
"""
    (expectation,) = compiled(GATHER, more, "param M = 16 in 16..64\n").expectations
    assert (expectation.workload, expectation.bindings) == ("w", (("M", "2 * 8"),))
    bodies = [check.body for check in expectation.checks]
    makespan, time = MetricOf("mine", Metric.MAKESPAN), FigureKind.TIME
    assert bodies[0] == Comparison(makespan, Relation.LT, Value(Fraction(9 * 10**10), time))
    assert bodies[1] == Comparison(
        MetricOf("mine", Metric.EXPOSED), Relation.LT, Value(Fraction(15, 100), FigureKind.RATIO)
    )
    within = bodies[2]
    assert isinstance(within, Comparison) and within.left == Speedup("best", "serial")
    assert within.high == Value(Fraction(17, 10), FigureKind.RATIO)
    relative, absolute = bodies[3], bodies[4]
    assert isinstance(relative, Comparison) and relative.relative
    assert relative.tolerance == Value(Fraction(5, 100), FigureKind.RATIO)
    assert isinstance(absolute, Comparison) and not absolute.relative
    assert absolute.tolerance == Value(Fraction(2 * 10**8), time)
    assert bodies[7] == VerdictIs(Verdict.SERIAL)
    assert expectation.checks[2].text == "speedup(best, serial) in 1.05..1.70"
    assert expectation.checks[0].span.location.line == 7


def test_a_setting_that_cannot_work_is_reported_at_compile_time() -> None:
    body = GATHER.replace("8192", "M")
    with pytest.raises(CompileError) as caught:
        compiled(body, "expect w with M = 20 { best.dil < 2 }", "param M = 16 in 16..64\n")
    (found,) = caught.value.diagnostics
    assert found.code.name == "MGS304"
    assert found.message == "with M = 20: 20 rows do not divide among 8 ranks"


def plan(body: str, workload: str = GATHER) -> WrittenPlan:
    """A plan as it is read; whether it moves every byte is checked behind this."""
    text, report = f"{HARDWARE}workload w on node {{ {workload} }}\nschedule p for w {{\n{body}\n}}", Report()
    found = resolve(load(Source("<text>", text), report), {}, report).scenarios[0].schedules[0].body
    assert isinstance(found, WrittenPlan) and not report.has_errors
    return found


def test_a_plan() -> None:
    found = plan("""plan by dma(6)
t1 = put xg.shard(0)[0:512, 0:4096] to 1 signal s7
t2 = get xg.shard(2)[512:1024] from 2 signal s2 after t1 lane 3
g0 = compute y.shard(0)[0:1024]
g1 = compute y.shard(7), y.shard(-6)[0:256] k 0:2048 after s7, s2 stream 1
g2 = compute y.shard(7) k 2048:4096 after g1 accumulate
override rank 3 { t1 = put xg.shard(0)[0:256] to -1 signal s7 }""")
    t1, t2, g0, g1, g2 = found.steps
    assert found.engine == EngineChoice(EngineKind.DMA, 6)
    assert isinstance(t1, Transfer) and (t1.direction, t1.peer, t1.signal) == (Direction.PUT, 1, "s7")
    assert (t1.region.rows, t1.region.cols) == (IndexRange(0, 512), IndexRange(0, 4096))
    assert isinstance(t2, Transfer) and (t2.direction, t2.lane, t2.after) == (Direction.GET, 3, ("t1",))
    assert t2.region.cols == IndexRange(0, 4096)
    assert isinstance(g0, TileGroup) and (g0.k, g0.stream, g0.accumulate) == (IndexRange(0, 4096), 0, False)
    assert g0.regions[0].cols == IndexRange(0, 128)
    assert isinstance(g1, TileGroup) and [region.owner for region in g1.regions] == [7, 2]
    assert (g1.after, g1.stream, g1.k) == (("s7", "s2"), 1, IndexRange(0, 2048))
    assert isinstance(g2, TileGroup) and g2.accumulate
    (override,) = found.overrides
    assert override.rank == 3 and isinstance(override.step, Transfer) and override.step.peer == 7


def test_a_plan_that_reduces() -> None:
    found = plan(
        """plan by sm(8)
g = compute y_partial.shard(1)
t = put y_partial.shard(1) to 1 signal s after g reduce
r = reduce y_partial.shard(0) parts 2 after s stream 1""",
        SCATTER,
    )
    group, transfer, reduction = found.steps
    assert isinstance(group, TileGroup) and group.regions[0].cols == IndexRange(0, 1024)
    assert isinstance(transfer, Transfer) and transfer.reduce
    assert isinstance(reduction, Reduction) and (reduction.num_parts, reduction.stream) == (2, 1)


def test_scenarios_are_found_by_name() -> None:
    found = compiled(GATHER)
    assert found.scenario("w") is found.scenario()
    with pytest.raises(CompileError, match=r"(?s)MGS203.*unknown workload 'v'"):
        found.scenario("v")
    with pytest.raises(CompileError, match="MGS122"):
        compile_text("let a = 1").scenario()
