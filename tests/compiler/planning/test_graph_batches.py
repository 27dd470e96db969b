"""Batches of graphs: sums over rows have a part in each, and ranks add them up once."""

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import Awaited, OpMode, Part, PartWait, Pattern, Read, Scenario, Schedule, Transfer, WorkloadCut
from magus.compiler.planning.groups import labels_of
from magus.compiler.planning.parts import in_batches
from magus.compiler.planning.plan import build_plan

TEXT = """
use "nvidia/h100"
system hgx {{ gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }}
workload back on hgx {{
  x  = tensor bf16[4096, 1024] shard rows
  dy = tensor bf16[4096, 512] shard rows
  w  = tensor bf16[1024, 512]
  d_w = {sum}(gemm(x.t, dy))
  dx  = gemm(dy, w.t)
  batch x, dy by 512
}}
schedule mine for back {{ batches 2; {said} }}
"""


def scenario(said: str = "", *, sum: str = "all_reduce") -> Scenario:
    (found,) = compile_text(TEXT.format(said=said, sum=sum)).workloads
    return found


def parts(found: Scenario) -> dict[str, Part]:
    return {part.name: part for part in build_plan(found.system, found.workload, found.schedules[0]).parts}


def test_a_batch_keeps_the_clock_of_the_whole_gemm() -> None:
    workload = scenario().workload
    whole = {op.name: op.shape.gemm for op in workload.ops}

    parts = [(op.shape.gemm, whole[op.name.partition("[")[0]]) for op in in_batches(workload, 4).ops]

    assert len(parts) == 4 * len(whole)
    for gemm, of in parts:
        assert gemm is not None and of is not None
        assert (4 * gemm.flops, gemm.whole_flops) == (of.flops, of.flops)


@pytest.mark.parametrize("sum", ["all_reduce", "reduce_scatter"])
def test_ranks_add_up_behind_the_last_batch(sum: str) -> None:
    graph = in_batches(scenario(sum=sum).workload, 4)
    *before, last = (graph.op(f"d_w[{k}]") for k in range(4))

    assert [op.shape.pattern for op in before] == [Pattern.GEMM] * 3
    assert last.shape.pattern is (Pattern.GEMM_AR if sum == "all_reduce" else Pattern.GEMM_RS)
    assert {op.shape.gemm for op in before} == {last.shape.gemm}
    assert [read for read in last.reads if read.adds] == [
        Read(f"d_w_partial[{k}]", f"d_w[{k}]", adds=True) for k in range(3)
    ]
    assert labels_of(scenario().workload, WorkloadCut(2)) == {
        "d_w[0]": "GEMM",
        "d_w[1]": "GEMM+AR",
        "dx[0]": "GEMM",
        "dx[1]": "GEMM",
    }


def test_the_last_waits_for_the_others_and_moves_as_much_as_in_one_batch() -> None:
    found = scenario()
    made = parts(found)
    (one,) = (part for part in build_plan(found.system, found.workload, Schedule("one")).parts if part.op == "d_w")

    assert PartWait("d_w[0]", Awaited.END) in made["d_w[1]"].waits
    moved = [
        sum(isinstance(step, Transfer) for step in part.schedule.steps)
        for part in (made["d_w[0]"], made["d_w[1]"], one)
    ]
    assert moved[0] == 0 and moved[1] == moved[2] > 0


def test_what_is_said_of_all_batches_is_said_of_the_last() -> None:
    assert [mode.op for mode in scenario("separate d_w by dma(3)").schedules[0].modes] == ["d_w[1]"]
    assert list(parts(scenario("separate d_w by dma(3)"))) == [
        "d_w[0]",
        "d_w[1]",
        "d_w[1].all_reduce",
        "dx[0]",
        "dx[1]",
    ]
    listed = parts(scenario("separate d_w by dma(3); order d_w, dx, d_w.all_reduce"))
    assert list(listed) == ["d_w[0]", "d_w[1]", "dx[0]", "dx[1]", "d_w[1].all_reduce"]
    (template,) = scenario("d_w = pipelined(chunks=4, engine=dma(3))").schedules[0].modes
    assert isinstance(template, OpMode) and template.op == "d_w[1]"


def test_a_batch_without_a_collective_has_none_to_plan() -> None:
    with pytest.raises(CompileError) as caught:
        scenario("separate d_w[0] by dma(3)")
    assert caught.value.diagnostics[0].code is Code.MGS509
