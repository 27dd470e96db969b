"""Loops of execution plans of MSCCL++ are read as the executor runs them."""

from collections.abc import Callable
from random import Random

import pytest

from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import Transfer
from magus.compiler.verify.check import check_plan
from magus.simcore import simulate_op
from tests.helpers.mscclpp import programs as mscclpp_programs
from tests.helpers.mscclpp.builder import Block, Program, here
from tests.helpers.mscclpp.reading import LOOPS, Json, read, refused, schedule_of, text_of
from tests.helpers.plans.symbolic_executor import Ranks

TENSOR_BYTES = 512 * 64 * 2


@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_takes_as_long_as_its_operations_one_by_one(name: str, n: int) -> None:
    program = LOOPS[name](n)
    scenario, looped = schedule_of(program)
    _, one_by_one = schedule_of(mscclpp_programs.without_loops(program, TENSOR_BYTES // n))

    assert looped == one_by_one
    ticks = {
        unit_bytes: [simulate_op(scenario, each, unit_bytes=unit_bytes).makespan_ticks for each in (looped, one_by_one)]
        for unit_bytes in (512, 4096)
    }
    assert all(one == other > 0 for one, other in ticks.values())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "make",
    [
        mscclpp_programs.all_reduce_in_loops,
        mscclpp_programs.all_to_all_in_loops,
        mscclpp_programs.all_reduce_round_in_loops,
    ],
)
def test_in_any_order_its_waits_allow_it_does_the_collective(make: Callable[[int, int], Program], seed: int) -> None:
    program = make(4, 16)
    text = text_of(program.collective, 4).replace("[512, 64]", "[16, 8]")
    scenario = compile_text(text).scenario().case
    plan, _ = read(scenario, program.document())

    transfers = [step for steps in (plan.by_rank or (plan.steps,)) for step in steps if isinstance(step, Transfer)]
    assert {step.region.rows.size for step in transfers} == {1}, "of 64 bytes, 16 at a time"
    ranks = Ranks(scenario.shape.pattern, plan.by_rank or (plan.steps,) * 4, rows=4, cols=8)
    ranks.run(Random(seed))
    ranks.check()


def test_the_last_time_may_be_shorter() -> None:
    program = mscclpp_programs.all_to_all_in_loops(2, unit_bytes=12288)

    scenario, schedule = schedule_of(program)

    rows = [step.region.rows.size for step in schedule.steps_of(0) if isinstance(step, Transfer)]
    assert rows == [96, 96, 64] and not check_plan(scenario, schedule)


def test_a_unit_above_a_chunk_is_no_cut() -> None:
    _, looped = schedule_of(mscclpp_programs.all_to_all_in_loops(4, unit_bytes=1 << 20))

    assert len([step for step in looped.steps_of(0) if isinstance(step, Transfer)]) == 3


def looped(**context: object) -> Json:
    document = mscclpp_programs.all_to_all_in_loops(2).document()
    document["gpus"][0]["threadblocks"][0]["ops"][0]["iter_context"] |= context
    return document


@pytest.mark.parametrize(
    ("context", "code", "message"),
    [
        ({"unit_size": 1000}, Code.MGS512, ".iter_context.unit_size: 1000 bytes do not divide into the 16 that"),
        ({"unit_size": 0}, Code.MGS307, ".iter_context.unit_size: a number from 1 to"),
        ({"num_chunks": 2}, Code.MGS512, ".ops[0]: put has 32768 bytes, and its loop comes to byte 32768"),
        ({"num_chunks": 0}, Code.MGS502, "sem_acquire waits for what never comes"),
        ({"unit_size": 8192}, Code.MGS502, "sem_acquire waits for what never comes"),
    ],
    ids=str,
)
def test_a_loop_that_does_not_fit_is_refused_with_its_place(context: Json, code: Code, message: str) -> None:
    found, text = refused(looped(**context))

    assert found is code and message in text, text


def test_units_that_cut_chunks_too_finely_are_refused() -> None:
    program = Program("alltoall", 2, (2, 2, 2))
    block = Block(program.gpus[0])
    with block.loop(16 * 3):
        block.do("put", [here("i", 1)], [block.remote(1, "s", 0)], channel_type="memory")
    text = text_of("alltoall", 2).replace("[512, 64]", "[1024, 64]")

    code, message = refused(program, compile_text(text).scenario().case)

    assert code is Code.MGS512
    assert "ops[0].ops[0]: 65536 elements do not divide into 2 chunks of 4096 parts, at most 4096 together" in message


def test_a_loop_in_a_loop_is_refused() -> None:
    document = looped()
    ops = document["gpus"][0]["threadblocks"][0]["ops"]
    ops[0]["ops"].insert(1, ops[0] | {"ops": []})

    code, message = refused(document)

    assert code is Code.MGS526
    assert message == "m.json: gpus[0].threadblocks[0].ops[0].ops[1]: a loop in a loop is not in the reach of plans"


def test_packets_in_a_loop_are_refused() -> None:
    program = Program("allreduce", 2, (2, 2, 4))
    block = Block(program.gpus[0])
    with block.loop(4096):
        block.do("ppkt", [here("i", 0, 2)], [block.remote(1, "s", 0, 2)], channel_type="memory")

    code, message = refused(program)

    assert code is Code.MGS526 and "ops[0].ops[0]: ppkt is not in the reach of plans: a loop repeats" in message


def test_a_loop_that_waits_for_what_nobody_sends_is_refused() -> None:
    program = mscclpp_programs.all_to_all_in_loops(2)
    ops = program.gpus[1].blocks[0].ops[0]["ops"]
    ops[:] = [op for op in ops if op["name"] != "signal"]

    code, message = refused(program)

    assert code is Code.MGS502
    assert "gpus[0].threadblocks[1].ops[0].ops[2]: wait waits for what never comes" in message


def test_loops_that_never_end_are_refused() -> None:
    code, message = refused(looped(unit_size=16, num_chunks=4096))

    assert code is Code.MGS137 and message.endswith("operations, at most 16384 are read")
