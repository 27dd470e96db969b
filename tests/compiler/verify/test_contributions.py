"""Sums made on the way: a plan that loses, doubles or reads a part too early is refused, and the step named."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.collectives import ALGORITHM_BY_NAME
from magus.compiler.ir import (
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    OpCase,
    OpChoice,
    OpPlan,
    Override,
    PlanFault,
    Reach,
    Reduction,
    Step,
    Transfer,
)
from magus.compiler.planning.build import build_op_plan, declared, expression_of, reject_choice
from magus.compiler.verify.check import check_plan

HEAD = """use "nvidia/h100"
switch summing extends nvswitch { multicast yes; reduces yes }
switch plain extends nvswitch { multicast no; reduces no }
"""
ALL_REDUCE = "x = tensor bf16[1024, 512]; y = all_reduce(x)"
BROADCAST = "x = tensor bf16[1024, 512]; y = broadcast(x)"
RING = """plan by sm(8)
a0 = put x.shard(-1) to 1 signal sa0 reduce
a1 = put x.shard(-2) to 1 signal sa1 after sa0 reduce
a2 = put x.shard(-3) to 1 signal sa2 after sa1 reduce
b0 = put x.shard(0) to 1 signal sb0 after sa2
b1 = put x.shard(-1) to 1 signal sb1 after sb0
b2 = put x.shard(-2) to 1 signal sb2 after sb1"""
SMALL = "x = tensor bf16[768, 512]; y = all_reduce(x)"
TWO_SUMS = """plan by dma(2)
a = put x.shard(1) to 1 signal sa
b = put x.shard(2) to 2 signal sb
r1 = reduce x.shard(0) parts 2 after sa
r2 = reduce x.shard(0) parts 2 after sb, r1
c = put x.shard(0) to 1 signal sc after {}
d = put x.shard(0) to 2 signal sd after {}"""
"""Of three ranks."""
IN_SWITCH = """plan by sm(8)
a = get x.shard(0) from all signal sa reduce
b = put x.shard(0) to all signal sb after sa"""
SM, DMA = EngineChoice(EngineKind.SM, 8), EngineChoice(EngineKind.DMA, 3)


def text_of(body: str, plan: str = "", ranks: int = 4, fabric: str = "switch(summing, link=nvlink)") -> str:
    text = f"{HEAD}system s {{ gpus {ranks} x H100; fabric {fabric} }}\nworkload w on s {{ {body} }}\n"
    return text + (f"schedule p for w {{\n{plan}\n}}\n" if plan else "")


def scenario(body: str, ranks: int = 4, fabric: str = "switch(summing, link=nvlink)") -> OpCase:
    return compile_text(text_of(body, ranks=ranks, fabric=fabric)).scenario().case


def found(plan: str, body: str = ALL_REDUCE, ranks: int = 4) -> list[tuple[str, str]]:
    """(code, message) of each fault of a plan."""
    try:
        compile_text(text_of(body, plan, ranks))
    except CompileError as error:
        return [(each.code.name, each.message) for each in error.diagnostics]
    return []


def edited(pattern: str, instead: str) -> str:
    changed, count = re.subn(pattern, instead, RING, flags=re.MULTILINE)
    assert count == 1
    return changed


def test_a_ring_written_by_hand_is_an_all_reduce() -> None:
    again = compile_text(text_of(ALL_REDUCE, RING)).scenario().case
    schedule = declared(again, again.schedules[0])

    assert check_plan(again, schedule) == ()
    assert schedule.staging_bytes == 0


def test_a_dropped_transfer_of_the_ring() -> None:
    lost = [("MGS507", "rows 0:256, columns 0:512 of block 1 at rank 0 lack the part of rank 1")]

    assert found(edited("\nb2 = .*", "")) == lost
    assert found(edited("^a1 = .*\n", "")) == [("MGS502", "nobody does 'sa1'")]


def test_a_doubled_transfer_of_the_ring() -> None:
    added = RING + "\na9 = put x.shard(-1) to 1 signal sa9 reduce"
    stored = RING + "\nb9 = put x.shard(-2) to 1 signal sb9 after sb2, b2, sb1"

    late = "\na9 = put x.shard(-1) to 1 signal sa9 after b0 reduce"
    again = "rows 0:256, columns 0:512 of block 1 at rank 0 a second time"

    assert [message.split()[0] for _, message in found(added)] == ["a9"]
    assert found(stored) == [("MGS501", f"b9 brings {again}")]
    assert all("a9" in message for _, message in found(RING + late))


def test_a_wrong_block() -> None:
    faults = found(edited(r"a1 = put x.shard\(-2\)", "a1 = put x.shard(-1)"))

    assert faults and any("a1" in message for _, message in faults)


@pytest.mark.parametrize("step", ["a1", "a2", "b0", "b1", "b2"])
def test_a_wait_that_is_removed_names_the_transfer(step: str) -> None:
    faults = found(edited(rf"^({step} = .*?) after \w+", r"\1"))

    assert faults[0][0] == "MGS508" and faults[0][1].startswith(f"{step} takes ")
    assert "may still be writing" in faults[0][1]


def test_a_sum_in_the_switch_written_by_hand() -> None:
    assert found(IN_SWITCH) == []
    assert found(IN_SWITCH.replace(" after sa", ""))[0][0] == "MGS508"
    assert found(IN_SWITCH.replace("\nb = put x.shard(0) to all signal sb after sa", ""))[0] == (
        "MGS507",
        "rows 0:256, columns 0:512 of block 1 at rank 0 lack the parts of ranks 1, 2, 3",
    )


def cases() -> Iterator[Any]:
    """Each algorithm for each workload, once as it is and once in pieces."""
    products = "x = tensor bf16[1024, 512] shard cols; w = tensor bf16[512, 1024] shard rows; "
    bodies = [ALL_REDUCE.replace("all_reduce", kind) for kind in ("all_reduce", "reduce_scatter", "send_recv")]
    for body in (*bodies, BROADCAST, f"{products}y = all_reduce(gemm(x, w))"):
        where = scenario(body)
        for name, engine in product(ALGORITHM_BY_NAME, (SM, DMA)):
            for choice in (OpChoice("serial", 4, engine, algorithm=name), OpChoice(name, 16, engine)):
                if reject_choice(where, choice) is None:
                    label = f"{where.shape.pattern.value} {expression_of(choice)}"
                    yield pytest.param(where, choice, id=label)


@pytest.mark.parametrize(("where", "choice"), list(cases()))
def test_every_algorithm_brings_every_part_once(where: OpCase, choice: OpChoice) -> None:
    """And each of its transfers is needed."""
    schedule = build_op_plan(where, choice)

    assert check_plan(where, schedule) == ()
    for rank, steps in enumerate(schedule.by_rank or (schedule.steps,)):
        for step in steps[:6]:
            if isinstance(step, Transfer):
                less = tuple(each for each in steps if each is not step)
                assert check_plan(where, with_steps(schedule, rank, less)) != (), step.name


def with_steps(schedule: OpPlan, rank: int, steps: tuple[Step, ...]) -> OpPlan:
    if not schedule.by_rank:
        return replace(schedule, steps=steps)
    ranks = list(schedule.by_rank)
    ranks[rank] = steps
    return replace(schedule, steps=ranks[0], by_rank=tuple(ranks))


@pytest.mark.parametrize("kind", ["all_reduce", "reduce_scatter"])
@pytest.mark.parametrize("engine", [SM, DMA], ids=str)
def test_sums_within_nodes_and_across(kind: str, engine: EngineChoice) -> None:
    where = scenario(ALL_REDUCE.replace("all_reduce", kind), 8, "rails(nvswitch, link=nvlink, node=4, nic=nvlink)")

    schedule = build_op_plan(where, OpChoice("hierarchical", 8, engine))

    assert check_plan(where, schedule) == ()


def test_overrides_are_looked_at_rank_by_rank() -> None:
    where = scenario(ALL_REDUCE)
    schedule = build_op_plan(where, OpChoice("ring", 4, SM))
    last = schedule.steps[-1]
    assert isinstance(last, Transfer)

    late = replace(schedule, overrides=(Override(2, replace(last, after=(*last.after, schedule.steps[0].name))),))
    early = replace(schedule, overrides=(Override(2, replace(last, after=())),))

    assert check_plan(where, late) == ()
    (fault,) = check_plan(where, early)
    assert (fault.code.name, fault.step) == ("MGS508", last.name) and "at rank 2" in fault.message


def test_a_kernel_that_sums_too_few_parts() -> None:
    where = scenario(ALL_REDUCE)
    schedule = build_op_plan(where, OpChoice("direct", 4, DMA))
    sums = [replace(step, num_parts=3) if isinstance(step, Reduction) else step for step in schedule.steps]

    faults = check_plan(where, replace(schedule, steps=tuple(sums)))

    assert [fault.code.name for fault in faults] == ["MGS509"] and "4 are there" in faults[0].message


@pytest.mark.parametrize(("first", "then"), [("r1", "r2"), ("r2", "r1")])
def test_a_sum_is_not_sent_while_the_next_one_may_overwrite_it(first: str, then: str) -> None:
    """Each rank sums twice; what reads the result of the first sum races with the second."""
    assert found(TWO_SUMS.format("r2", "r2"), SMALL, 3) == []

    ((code, message),) = found(TWO_SUMS.format(first, then), SMALL, 3)

    early = "c" if first == "r1" else "d"
    assert (code, message.partition(" takes")[0]) == ("MGS508", early)
    assert message.endswith("of block 0 at rank 0 while r2 may still be writing them")


def test_sums_side_by_side_write_in_no_order() -> None:
    apart = TWO_SUMS.format("r2", "r2").replace("2 after sb, r1", "2 stream 1 after sb")

    assert ("MGS508", "r2 and r1 write") in [
        (code, message.partition(" rows")[0]) for code, message in found(apart, SMALL, 3)
    ]


def test_partial_sums_are_not_sent_before_they_are_computed() -> None:
    body = "x = tensor bf16[1024, 512] shard cols; w = tensor bf16[512, 1024] shard rows; y = all_reduce(gemm(x, w))"
    where = scenario(body)
    schedule = build_op_plan(where, OpChoice("serial", 4, DMA))
    first = next(step for step in schedule.steps if isinstance(step, Transfer))
    steps = tuple(replace(step, after=()) if step is first else step for step in schedule.steps)

    fault = check_plan(where, replace(schedule, steps=steps))[0]

    assert fault.step == first.name and "before they are computed" in fault.message


def test_a_switch_that_cannot() -> None:
    where, able = scenario(ALL_REDUCE, fabric="switch(plain, link=nvlink)"), scenario(ALL_REDUCE)
    schedule = build_op_plan(able, OpChoice("nvls", 4, SM))

    assert {fault.code.name for fault in check_plan(where, schedule)} == {"MGS409"}
    assert check_plan(able, schedule) == ()


def test_one_reach_for_one_thing() -> None:
    where = scenario(ALL_REDUCE)
    schedule = build_op_plan(where, OpChoice("nvls", 4, SM))
    got, put = schedule.steps
    assert isinstance(got, Transfer) and isinstance(put, Transfer) and got.reach is put.reach is Reach.ALL

    stored = replace(schedule, steps=(replace(got, reduce=False), put))

    assert [(fault.code.name, fault.step) for fault in check_plan(where, stored)] == [("MGS509", got.name)]


def test_gets_are_checked_like_puts() -> None:
    where = scenario(ALL_REDUCE)
    schedule = build_op_plan(where, OpChoice("one_shot", 4, SM, tactics=ExecutionOptions(Direction.GET)))

    assert check_plan(where, schedule) == ()
    less = replace(schedule, steps=schedule.steps[1:])
    faults: tuple[PlanFault, ...] = check_plan(where, less)
    assert faults and faults[0].code.name in ("MGS502", "MGS509")
