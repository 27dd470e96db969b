"""Rows of several ranks in one command: written, checked, carried out and simulated."""

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import OpCase, OpPlan, regions_of
from magus.compiler.planfile.mscclpp.lone_collective import LoneCollective
from magus.compiler.planfile.syncopate.write import syncopate_text
from magus.compiler.planfile.write import op_plan_document, plan_text
from magus.compiler.planning.build import ScheduleError, declared
from magus.runtime import carry_out
from magus.runtime.run import job_of_op
from magus.simcore import simulate_op
from magus.simcore.cores.engine import Core, run
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.lowering import lower_op
from tests.helpers.oracle.oracle import Oracle
from tests.helpers.plans.documents import plan_from_document

RING = """
use "amd/mi300x"
system ring4 { gpus 4 x MI300X; fabric edges(xgmi=[[0, 1], [1, 2], [2, 3], [3, 0]]) }
"""
GATHER = "workload w on ring4 { x = tensor bf16[64, 256] shard rows; y = all_gather(x) }"
SUM = "workload w on ring4 { x = tensor bf16[64, 256]; y = all_reduce(x) }"
PAIRS = {
    "a": "put y.shard(0) to 1 signal sa",
    "b": "put y.shard(0, -1) to 2 signal sb after sa",
}
"""Each rank to the next, and with what came from there to the one across."""
HALVES = {
    "a": "put x.shard(2, 3) to 2 signal sa",
    "r": "reduce x.shard(0, 1) parts 2 after sa",
    "b": "put x.shard(1) to 1 signal sb after r",
    "q": "reduce x.shard(0) parts 2 after r, sb",
    "c": "put x.shard(0) to 1 signal sc after q",
    "d": "put x.shard(0, -1) to 2 signal sd after q, sc",
}
"""Two of the sums of four go halfway around, then one to the next; what a rank has summed comes to all as above."""


def compiled(workload: str = GATHER, engine: str = "dma(4)", **steps: str) -> tuple[OpCase, OpPlan]:
    plan = "; ".join(f"{name} = {text}" for name, text in (PAIRS | steps).items() if text)
    case = compile_text(f"{RING}{workload}\nschedule some for w {{ plan by {engine}; {plan} }}\n").scenario().case
    return case, declared(case, case.schedules[0])


@pytest.mark.parametrize("engine", ["dma(4)", "sm(8)"])
def test_one_put_brings_the_rows_of_several_ranks(engine: str) -> None:
    case, plan = compiled(engine=engine)

    assert [region.owner for region in regions_of(plan.steps[1])] == [0, 3]
    assert carry_out(*job_of_op(case, plan), range(3)).exact


def test_a_put_of_several_shards_costs_one_setup_and_the_bytes_of_all() -> None:
    case, plan = compiled()
    _, apart = compiled(b="put y.shard(0) to 2 signal sb after sa", c="put y.shard(-1) to 2 signal sc after sa")
    once, twice = (simulate_op(case, each, unit_bytes=128).total_ticks for each in (plan, apart))
    rows = [sum(region.rows.size for step in each.steps for region in regions_of(step)) for each in (plan, apart)]

    assert rows[0] == rows[1]
    assert once != twice and abs(once - twice) <= case.gpu.dma.setup_ticks


WRONG = [
    ({"b": "put y.shard(0, 3) to 2 signal sb"}, Code.MGS508, "b uses rows 0:16, columns 0:256 of rank 3's shard"),
    ({"b": "put y.shard(0, 1) to 2 signal sb after sa"}, Code.MGS508, "b uses rows 0:16"),
    ({"b": "put y.shard(0, -1, 3) to 2 signal sb after sa"}, Code.MGS504, "this shard is named twice"),
    ({"b": "put y.shard(-1) to 2 signal sb after sa"}, Code.MGS501, "from rank 2 never reach rank 0"),
    ({"c": "put y.shard(0, -1) to 2 signal sc after sa"}, Code.MGS501, "from rank 1 reach rank 0 twice"),
    ({"b": "put y.shard(0, -1)[0:17] to 2 signal sb after sa"}, Code.MGS504, "rows 0:17 do not exist"),
    (
        {"c": "get y.shard(2, 3) from 2 signal sc"},
        Code.MGS509,
        "c names rows of several ranks, and a get has those of one",
    ),
]


@pytest.mark.parametrize(("steps", "code", "message"), WRONG)
def test_what_one_put_takes_must_be_there_once(steps: dict[str, str], code: Code, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        compiled(**steps)

    found = caught.value.diagnostics
    assert code in [each.code for each in found] and any(message in each.message for each in found), found


def test_blocks_of_an_exchange_are_put_one_by_one() -> None:
    exchange = "workload w on ring4 { x = tensor bf16[64, 256]; y = all_to_all(x) }"
    with pytest.raises(CompileError, match="b names rows of several ranks, and a copy of all_to_all has those of one"):
        compiled(exchange, a="put x.shard(1) to 1 signal sa", b="put x.shard(2, -1) to 2 signal sb")


def test_a_kernel_takes_several_shards_as_a_list_of_regions() -> None:
    text = f"""{RING}workload w on ring4 {{ x = tensor bf16[64, 256] shard rows; w = tensor bf16[256, 128] shard cols
      y = gemm(all_gather(x), w) }}
    schedule some for w {{ plan by dma(4); a = put x_gathered.shard(0) to 1 signal sa
      b = put x_gathered.shard(0) to 2 signal sb
      c = put x_gathered.shard(0) to 3 signal sc; g = compute y.shard(0, 1, 2, 3) after sa, sb, sc }}
    """
    case = compile_text(text).scenario().case

    assert [region.owner for region in regions_of(declared(case, case.schedules[0]).steps[-1])] == [0, 1, 2, 3]


def test_a_plan_of_several_owners_is_the_same_from_its_text_and_from_its_file() -> None:
    case, plan = compiled()
    again = compile_text(RING + GATHER + "\n" + plan_text(case, plan, "written")).scenario().case
    document = op_plan_document(case, plan)

    assert declared(again, again.schedules[0]).steps == plan.steps
    assert document["plans"][0]["steps"][1]["region"]["also"] == [3]
    assert plan_from_document(case, document).steps == plan.steps


def test_other_programs_have_no_form_for_rows_of_several_ranks() -> None:
    case, plan = compiled()

    with pytest.raises(ScheduleError, match="b takes rows of several ranks"):
        LoneCollective.of(case, plan)
    with pytest.raises(ScheduleError, match="b moves rows of several ranks"):
        syncopate_text(case, plan)


@pytest.mark.parametrize("engine", ["dma(4)", "sm(8)"])
def test_cores_and_oracle_take_as_long_for_rows_of_several_ranks(engine: str) -> None:
    case, plan = compiled(engine=engine)
    program = lower_op(case, plan, unit_bytes=128, fold=False).program

    oracle = Oracle(program).run()
    assert [differences(program, run(program, core=core), oracle) for core in Core] == [[]] * len(Core)


@pytest.mark.parametrize("engine", ["dma(4)", "sm(8)"])
def test_one_kernel_sums_the_rows_of_several_ranks(engine: str) -> None:
    case, plan = compiled(SUM, engine, **HALVES)

    assert carry_out(*job_of_op(case, plan), range(3)).exact
