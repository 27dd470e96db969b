"""The bound of a graph holds for every plan, and is what its ops need together."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magus.advisor.bounds.copy_modes import served_ticks
from magus.advisor.bounds.lower_bound import Bound, lower_bound, workload_bound
from magus.compiler import compile_text
from magus.compiler.ir import (
    EngineChoice,
    EngineKind,
    Op,
    OpCase,
    OpChoice,
    OpMode,
    Pattern,
    Repeat,
    Scenario,
    Schedule,
    Workload,
)
from magus.compiler.planning.build import options_from
from magus.compiler.planning.plan import build_plan
from magus.simcore import simulate
from magus.simcore.program.program import RunOutcome
from tests.helpers.marks import first
from tests.helpers.oracle.drawn_graphs import draw_graph_plan
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of


@pytest.mark.parametrize("seeds", first((range(4), range(4, 12)), 1))
def test_no_plan_is_faster(seeds: range) -> None:
    done = 0
    for seed in seeds:
        system, graph, plan = draw_graph_plan(random.Random(f"bound {seed}"), 4)
        result = simulate(system, plan, unit_bytes=4096)
        if result.outcome is RunOutcome.DONE:
            done += 1
            bound = workload_bound(Scenario("g", system, graph).covering(plan))
            assert bound.ticks <= result.makespan_ticks, (seed, bound.binding)
    assert done > len(seeds) / 2


def test_ops_add_up() -> None:
    one = scenario_of(Pattern.GEMM, SYSTEMS[0], 4, 4096, 4096, 4096)
    once = Workload("g", "", (Op("op0", one.shape),))
    single, double, repeated = (
        workload_bound(Scenario("g", one.system, each))
        for each in (
            once,
            replace(once, ops=(*once.ops, Op("op1", one.shape))),
            replace(once, repeat=Repeat(10, "y", "x")),
        )
    )

    work, added = terms(single)["work"], double.ticks - terms(single)["work"]
    assert double.binding == "work" and work > added > 0.95 * work  # it is launched once
    assert abs(repeated.ticks - work - 9 * added) < 10


CHAIN = """
use "nvidia/h100"
system hgx { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload w on hgx {
  x  = tensor bf16[4 * 4096, 1024] shard rows
  w1 = tensor fp8[8 * 1024, 4096] shard rows
  w2 = tensor fp8[8 * 2048, 1024] shard rows
  t = dispatch(x, experts=8, top=2, type=fp8)
  h = grouped_gemm(t, w1)
  y = combine(grouped_gemm(swiglu(h), w2), type=bf16)
}
"""


FORMS = (
    ("shard rows", "shard rows", "t = dispatch(x, {dealt})", "combine"),
    ("shard rows", "shard rows", "t = dispatch(all_gather(x), {dealt})", "reduce_scatter(combine"),
    ("", "shard rows", "t = dispatch(x, {dealt})", "all_reduce(combine"),
    ("", "shard cols", "t = dispatch(x, {dealt}, ep=1)", "all_reduce(combine"),
)


SPLIT = """
use "nvidia/h100"
system hgx {{ gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }}
workload w on hgx {{
  x = tensor bf16[{rows}, 1024] shard rows
  w = tensor bf16[1024, 1024] shard cols
  v = tensor bf16[{inner}, 512] shard rows
  h = gemm(all_gather(x), w)
  z = tensor bf16[{rows}, {inner}] shard cols
  y = reduce_scatter(gemm(z, v))
}}
"""


@pytest.mark.parametrize("split", [2, 4])
@pytest.mark.parametrize(("rows", "inner"), [(128, 16384), (512, 8192)])
def test_the_bound_of_a_plan_holds_for_what_it_splits_along_k(rows: int, inner: int, split: int) -> None:
    """Also where the file explores and declares no such parts."""
    found = compile_text(SPLIT.format(rows=rows, inner=inner)).scenario("w")
    tactics = options_from({"kernel": "persistent", "split_k": split})
    choice = OpChoice("serial", 4, EngineChoice(EngineKind.SM, 16), tactics=tactics)
    name = found.workload.ops[-1].name
    plan = build_plan(found.system, found.workload, Schedule("split", (OpMode(name, choice),)))
    result = simulate(found.system, plan, unit_bytes=4096)
    bound = workload_bound(found.covering(plan))

    assert not found.splits_k and found.covering(plan).splits_k
    assert result.outcome is RunOutcome.DONE
    assert bound.ticks <= result.makespan_ticks
    assert bound.ticks <= workload_bound(found).ticks


@pytest.mark.quick(2)
@pytest.mark.parametrize("form", FORMS, ids=["sent", "gathered", "whole", "columns"])
@settings(max_examples=4, deadline=None, derandomize=True)
@given(st.sampled_from([4, 8]), st.sampled_from([64, 512, 2048]), st.sampled_from([8, 16, 32]), st.integers(1, 4))
def test_no_layer_of_experts_is_faster(
    form: tuple[str, str, str, str], ranks: int, rows: int, experts: int, top: int
) -> None:
    shard, first, sent, back = form
    lines = (
        *('use "nvidia/h100"', f"system s {{ gpus {ranks} x H100; fabric switch(nvswitch, link=nvlink) }}"),
        *("workload w on s {", f"x = tensor bf16[{ranks * rows}, 512] {shard}"),
        f"w1 = tensor bf16[{experts} * 512, 512] {first}",
        f"w2 = tensor bf16[{experts} * 256, 512] shard rows",
        sent.format(dealt=f"experts={experts}, top={top}"),
        f"y = {back}(grouped_gemm(swiglu(grouped_gemm(t, w1)), w2)){')' * back.count('(')}",
        "}",
    )
    found = compile_text("\n".join(lines)).scenario("w")
    for engine in (EngineChoice(EngineKind.SM, 32), EngineChoice(EngineKind.DMA, 3)):
        moving = tuple(OpMode(each.name, OpChoice("serial", ranks, engine)) for each in found.moving)
        plan = build_plan(found.system, found.workload, Schedule("each", moving))
        result = simulate(found.system, plan, unit_bytes=4096)
        assert result.outcome is RunOutcome.DONE
        assert workload_bound(found).ticks <= result.makespan_ticks


def test_ops_that_can_be_cut_do_not_add_up_along_a_path() -> None:
    """Experts, rows and tiles of a layer may be fused: exchanges, products and row-wise kernels then overlap."""
    (found,) = compile_text(CHAIN).workloads
    bound = workload_bound(found)
    alone = [lower_bound(OpCase(op.name, found.system, op.shape)).ticks for op in found.workload.ops]

    assert bound.ticks < 0.6 * sum(alone)
    assert max(terms(bound)["work"], terms(bound)["links"], terms(bound)["op"]) == bound.ticks


def test_what_ops_hand_to_each_other_need_not_pass_memory() -> None:
    (found,) = compile_text(CHAIN).workloads
    tensors = {tensor.name: tensor.num_bytes // 4 for tensor in found.workload.tensors}
    inputs_and_result = tensors["x"] + tensors["w1"] + tensors["w2"] + tensors["x"]
    gpu = found.system.gpu

    bound = workload_bound(found)
    assert terms(bound)["hbm"] == served_ticks(inputs_and_result, gpu.hbm.achieved_bytes_per_s, gpu.line_bytes)


def test_experts_without_rows_are_not_read() -> None:
    text = """
use "nvidia/h100"
system one { gpus 1 x H100; fabric switch(nvswitch, link=nvlink) }
workload w on one {
  x = tensor bf16[256, 1024]
  w = tensor bf16[4 * 1024, 4096]
  y = norm(grouped_gemm(x, w, rows=[128, 0, 0, 128]))
}
"""
    (found,) = compile_text(text).workloads
    gpu, num_bytes = found.system.gpu, 2 * (256 * 1024 + 2 * 1024 * 4096 + 256 * 4096)

    bound = workload_bound(found)
    assert terms(bound)["hbm"] == served_ticks(num_bytes, gpu.hbm.achieved_bytes_per_s, gpu.line_bytes)


def terms(bound: Bound) -> dict[str, int]:
    return {term.name: term.ticks for term in bound.terms}
