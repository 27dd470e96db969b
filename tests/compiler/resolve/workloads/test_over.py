"""Workloads on several groups: what their parts are, and what is refused."""

import pytest

from magus.compiler import CompileError
from magus.compiler.ir import Partition, Shard
from magus.compiler.pipeline import Compiled, compile_text
from magus.compiler.text.diagnostics import Severity

HEAD = """use "nvidia/h100"
param TP = 4 in 1, 2, 4
system node { gpus 8 x H100; fabric switch(nvswitch, link=nvlink); mesh tp TP, dp 8 / TP; mesh ep 8 over tp, dp }
"""
WEIGHTS_TP = """
  wup = tensor bf16[256, 512] shard cols{tp}
  wdn = tensor bf16[512, 256] shard rows{tp}
"""
WEIGHTS_EP = """
  eup = tensor bf16[16 * 256, 2 * 128] shard rows{ep}
  edn = tensor bf16[16 * 128, 256] shard rows{ep}
"""
DENSE = "r = add(x, reduce_scatter(gemm(gelu(gemm(all_gather(norm(x){tp}), wup)), wdn){tp}))"
EXPERTS = """
  u = grouped_gemm(dispatch(norm(r), experts=16, top=2{ep}), eup)
  y = add(r, combine(grouped_gemm(swiglu(u), edn){ep}))
"""


def of_both(dense: str = DENSE, experts: str = EXPERTS, x: str = "shard rows", rest: str = "repeat 4 y as x") -> str:
    tensors = f"x = tensor bf16[1024, 256] {x} over tp" + (WEIGHTS_TP + WEIGHTS_EP).format(tp=" over tp", ep=" over ep")
    return f"{HEAD}workload moe on node {{\n{tensors}\n{dense.format(tp=', over=tp')}\n" + (
        f"{experts.format(ep=', over=ep')}\n{rest}\n}}\n"
    )


APART = (
    f"{HEAD}workload moe_tp on node.tp {{ x = tensor bf16[1024, 256] shard rows{WEIGHTS_TP.format(tp='')}"
    f"{DENSE.format(tp='')}; repeat 4 r as x }}\n"
    f"workload moe_ep on node.ep {{ r = tensor bf16[1024 * 8 / TP, 256] shard rows{WEIGHTS_EP.format(ep='')}"
    f"{EXPERTS.format(ep='')}; repeat 4 y as r }}\n"
)
STEP = "workload train on node {{ step {}; sequences 32 x 1024 }}\n"


def layers(compiled: Compiled) -> list[object]:
    (step,) = compiled.steps
    return [
        (part.forward.system, part.forward.workload, part.back("all").workload, part.copies, part.stage)
        for block in step.step.blocks
        for part in block.parts
    ]


@pytest.mark.parametrize("tp", ["1", "2", "4"])
def test_the_parts_are_the_workloads_that_one_would_write_for_each_group(tp: str) -> None:
    settings = (("TP", tp),)
    one = compile_text(of_both() + STEP.format("moe"), settings=settings)
    apart = compile_text(APART + STEP.format("moe_tp then moe_ep"), settings=settings)
    assert one.partitions == (Partition("moe", ("moe_tp", "moe_ep"), 4, repeats=True),)
    assert layers(one) == layers(apart)
    assert layers(compile_text(of_both() + STEP.format("moe_tp then moe_ep"), settings=settings)) == layers(apart)
    for part, written in zip(one.workloads, apart.workloads, strict=True):
        assert part.system == written.system
        assert part.workload.repeat is None
        assert [op.shape for op in part.workload.ops] == [op.shape for op in written.workload.ops]


def test_what_is_handed_over_has_as_many_rows_of_each_rank_in_either_group() -> None:
    one = compile_text(of_both())
    rows = [
        next((each.rows / part.num_ranks, each.shard) for each in part.workload.tensors if each.name == "r")
        for part in one.workloads
    ]
    assert rows == [(256, Shard.ROWS), (256, Shard.ROWS)]


def test_a_group_that_comes_again_is_a_part_of_its_own() -> None:
    again = "z = add(y, reduce_scatter(gemm(gelu(gemm(all_gather(norm(y), over=tp), wup)), wdn), over=tp))"
    one = compile_text(of_both(experts=EXPERTS + again, rest="repeat 4 z as x"))
    assert one.partitions == (Partition("moe", ("moe_tp", "moe_ep", "moe_tp2"), 4, repeats=True),)
    first, _, last = one.workloads
    assert [op.shape.gemm for op in first.workload.ops] == [op.shape.gemm for op in last.workload.ops]


def test_what_the_text_deals_to_other_ranks_is_taken_as_these_have_it() -> None:
    experts = EXPERTS.replace("add(r, ", "add(x, ")
    one = compile_text(of_both(experts=experts))
    taken = {each.name: each.rows for each in one.workloads[1].workload.tensors}
    assert (taken["x"], taken["r"]) == (2048, 2048)
    assert not one.partitions[0].repeats, "a layer hands on two tensors"


def test_batches_are_of_what_each_part_takes() -> None:
    one = compile_text(of_both(rest="batch x by 128\nrepeat 4 y as x"))
    batches = [part.workload.batch for part in one.workloads]
    assert [(each.inputs, each.rows) for each in batches if each is not None] == [(("x",), 128), (("r",), 128)]


def test_schedules_are_of_parts_and_the_step_has_them() -> None:
    named = "schedule mine for moe_tp { separate r }\nschedule all for train { moe_tp = mine }\n"
    one = compile_text(of_both() + named.replace("separate r", "handoff whole") + STEP.format("moe"))
    assert [[each.name for each in part.schedules] for part in one.workloads] == [["mine"], []]
    assert [part.forward.schedules[0].name for part in one.steps[0].step.blocks[0].parts[:1]] == ["mine"]
    assert one.steps[0].schedules[0].parts == (("moe_tp", "mine"),)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (of_both("r = gemm(all_gather(norm(x){tp}), wup)"), "MGS520", "r is shard cols over tp"),
        (of_both("r = all_reduce(gemm(gelu(gemm(all_gather(x{tp}), wup)), wdn){tp})"), "MGS520", "whole on each rank"),
        (of_both("r = x", "y = reduce_scatter(all_gather(r, over=tp), over=ep)"), "MGS520", "y is over ep and over tp"),
        (of_both("s = all_gather(x{tp})\nr = x"), "MGS520", "r is no tensor of its own"),
        (of_both(experts=EXPERTS.replace("grouped_gemm(dispatch(norm(r)", "grouped_gemm(dispatch(norm(wup)")),
         "MGS520", "wup is shard cols over tp"),
        (of_both().replace("over=ep", "over=pp"), "MGS203", "no axis 'pp'"),
        (of_both().replace("over=ep", "over=4"), "MGS116", "over names an axis"),
        (of_both().replace("workload moe on node", "workload moe on node.tp"), "MGS520", "moe is on node.tp"),
        (of_both() + "workload moe_ep on node { x = tensor bf16[64, 64] shard rows; y = all_gather(x) }",
         "MGS206", "moe_ep"),
        (of_both() + "explore moe { chunks 8 }", "MGS574", "moe is on several groups"),
        (of_both() + "expect { speedup(best, serial) >= 1 }", "MGS203", "which workload"),
        (of_both(rest="") + STEP.format("moe"), "MGS570", "do not repeat"),
        (of_both() + STEP.format("moe, moe_tp"), "MGS574", "so is its backward pass"),
        (of_both(rest="repeat 4 u as x"), "MGS310", "u cannot be the next layer's x"),
        (of_both(rest="repeat 4 r as y"), "MGS310", "'y' is no input of a layer"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_its_reason(text: str, code: str, message: str) -> None:
    with pytest.raises(CompileError) as refused:
        compile_text(text)
    errors = [each for each in refused.value.diagnostics if each.severity is Severity.ERROR]
    assert [each.code.name for each in errors] == [code], "consequences are not reported"
    assert message in errors[0].message


def test_commands_about_one_workload_name_the_parts() -> None:
    one = compile_text(of_both())
    for name in (None, "moe"):
        with pytest.raises(CompileError, match="MGS574"):
            one.scenario(name)
    assert one.scenario("moe_ep").num_ranks == 8
