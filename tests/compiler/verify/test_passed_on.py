"""Blocks of an all_to_all that ranks pass on: written, checked, carried out and simulated."""

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import OpCase, OpPlan
from magus.compiler.planfile.mscclpp.lone_collective import LoneCollective
from magus.compiler.planfile.write import op_plan_document, plan_text
from magus.compiler.planning.build import ScheduleError, declared
from magus.runtime import carry_out
from magus.runtime.run import job_of_op
from magus.simcore.cores.engine import Core, run
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.lowering import lower_op
from tests.helpers.oracle.oracle import Oracle

RING = """
use "amd/mi300x"
system ring4 { gpus 4 x MI300X; fabric edges(xgmi=[[0, 1], [1, 2], [2, 3], [3, 0]]) }
"""
EXCHANGE = "workload w on ring4 { x = tensor bf16[64, 256]; y = all_to_all(x) }"
STEPS = {
    "a": "put x.shard(1) to 1 signal sa",
    "b": "put x.shard(-1) to -1 signal sb",
    "c": "put x.shard(2) to 1 signal sc",
    "d": "put x.shard(1) of -1 to 1 signal sd after sc",
}
"""To the neighbours, and by the next one to the rank across."""


def compiled(workload: str = EXCHANGE, **steps: str) -> tuple[OpCase, OpPlan]:
    plan = "; ".join(f"{name} = {text}" for name, text in (STEPS | steps).items() if text)
    case = compile_text(f"{RING}{workload}\nschedule relayed for w {{ plan by dma(4); {plan} }}\n").scenario().case
    return case, declared(case, case.schedules[0])


UNEVEN = EXCHANGE.replace("all_to_all(x)", "all_to_all(x, rows=[8, 24, 16, 16])")


@pytest.mark.parametrize("workload", [EXCHANGE, UNEVEN])
def test_every_rank_ends_with_the_blocks_that_are_for_it(workload: str) -> None:
    case, plan = compiled(workload)

    assert carry_out(*job_of_op(case, plan), range(2)).exact
    assert plan.staging_bytes == 16 * 256 * 2  # the block that it passes on


WRONG = [
    ({"d": "put x.shard(1) of -1 to 1 signal sd"}, Code.MGS508, "d passes on rows 0:16, columns 0:256 from rank 3 for"),
    ({"d": ""}, Code.MGS501, "rows 0:16, columns 0:256 of x from rank 2 never reach rank 0"),
    ({"e": "put x.shard(2) to 1 signal se"}, Code.MGS501, "from rank 3 for rank 1 reach rank 0 twice"),
    ({"e": "put x.shard(1) of -1 to -1 signal se after sc"}, Code.MGS509, "e moves block +1 to a rank that it is not"),
    ({"d": "put x.shard(1)[0:17] of -1 to 1 signal sd after sc"}, Code.MGS504, "rows 0:17 do not exist"),
    ({"d": "put x.shard(1) of 0 to 1 signal sd after sc"}, Code.MGS504, "is this rank itself"),
]


@pytest.mark.parametrize(("steps", "code", "message"), WRONG)
def test_what_is_passed_on_must_be_there_once(steps: dict[str, str], code: Code, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        compiled(**steps)

    found = caught.value.diagnostics
    assert code in [each.code for each in found] and any(message in each.message for each in found), found


def test_a_gather_passes_on_without_saying_whose_block_it_is() -> None:
    gather = "workload w on ring4 { x = tensor bf16[64, 256] shard rows; y = all_gather(x) }"
    with pytest.raises(CompileError, match="as puts to one rank in an all_to_all alone do"):
        compiled(gather.replace("x =", "z =").replace("(x)", "(z)").replace("y =", "x ="))


def test_a_plan_that_passes_on_is_the_same_from_its_text_and_has_no_form_in_mscclpp() -> None:
    case, plan = compiled()
    again = compile_text(RING + EXCHANGE + "\n" + plan_text(case, plan, "written")).scenario().case
    puts = op_plan_document(case, plan)["plans"][0]["steps"]

    assert declared(again, again.schedules[0]).steps == plan.steps
    assert [put.get("origin") for put in puts] == [None, None, None, 3]
    with pytest.raises(ScheduleError, match="to a rank that passes it on"):
        LoneCollective.of(case, plan)


def test_the_cores_agree_with_the_oracle() -> None:
    case, plan = compiled()
    program = lower_op(case, plan, unit_bytes=1024, fold=False).program

    oracle = Oracle(program).run()
    assert [differences(program, run(program, core=core), oracle) for core in Core] == [[]] * len(Core)
