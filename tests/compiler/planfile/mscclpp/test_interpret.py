"""What is wrong with an execution plan of MSCCL++, or beyond what plans say, is told with its place."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.codes import Code
from magus.compiler.ir import Transfer
from magus.compiler.planning.build import ScheduleError, build_op_plan
from magus.compiler.text.diagnostics import CompileError
from magus.compiler.verify.check import check_plan
from tests.helpers.marks import examples
from tests.helpers.mscclpp import programs as mscclpp_programs
from tests.helpers.mscclpp.builder import Block, Program, here
from tests.helpers.mscclpp.reading import PROGRAMS, Json, by_barrier, read, refused, scenario_of
from tests.helpers.plans.documents import places


def test_a_sum_that_nothing_waits_for_is_reported() -> None:
    code, message = refused(by_barrier(""))

    assert code is Code.MGS508
    assert "gpus[0].threadblocks[1].ops[0]: res reads chunk 1 of buffer s of GPU 0, which" in message


def op_of(program: Program, name: str) -> Json:
    return next(op for op in program.gpus[0].blocks[0].ops if op["name"] == name)


def with_op(op: Json) -> Program:
    program = mscclpp_programs.all_gather(4)
    program.gpus[0].blocks[0].ops.insert(0, op)
    return program


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ({"name": "hop"}, "hop is not in the reach of plans: it is no operation that Magus knows"),
        ({"name": "put", "src_buff": [here("o", 0)], "dst_buff": [here("o", 0)]}, "it puts to its own GPU"),
        ({"name": "get", "src_buff": [here("o", 0)], "dst_buff": [here("o", 0)]}, "it reads what this GPU holds"),
        ({"name": "re", "src_buff": [], "dst_buff": []}, "or leaves out the part of this GPU"),
        ({"name": "rre", "src_buff": [], "dst_buff": []}, "it reads one chunk here and those of peers"),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else "",
)
def test_what_is_beyond_plans_is_reported_with_its_place(op: Json, message: str) -> None:
    code, found = refused(with_op(op))

    assert code is Code.MGS526
    assert found.startswith("m.json: gpus[0].threadblocks[0].ops[0]: ") and message in found


def reads_sums(*, told: bool = True, over_all: bool = False) -> Program:
    """An all_reduce of two GPUs by gets: of the part of the peer, and then of its sum."""
    program = Program("allreduce", 2, (2, 2, 0))
    for gpu in program.gpus:
        (peer,) = gpu.others
        block = Block(gpu)
        parts = [here("i", gpu.rank), block.remote(peer, "i", gpu.rank)]
        block.do("rre", parts, [here("i", gpu.rank)], channel_type="memory")
        if told:
            block.handshake(peer)
        if over_all:
            block.do("glre", [block.switch("i", peer)], [here("i", peer)], channel_type="switch")
        else:
            block.do("get", [block.remote(peer, "i", peer)], [here("i", peer)], channel_type="memory")
    return program


def test_a_get_of_what_a_peer_has_summed_waits_for_the_peer() -> None:
    plan, report = read(scenario_of("allreduce", 2), reads_sums().document())

    added, got = plan.steps
    assert isinstance(added, Transfer) and isinstance(got, Transfer)
    assert (added.peer_after, got.after, got.peer_after) == ((), (added.signal,), (added.signal,))
    assert not report.diagnostics, "the wait brings something"


def test_a_get_that_nothing_told_of_what_it_reads_is_refused() -> None:
    code, message = refused(reads_sums(told=False))

    assert code is Code.MGS508 and "rre reads chunk 1 of buffer i of GPU 0, which may not be there yet" in message


def test_a_switch_sums_only_what_is_there_from_the_start() -> None:
    code, message = refused(reads_sums(over_all=True))

    assert code is Code.MGS526 and message.endswith("is not there from the start, and a switch cannot know when it is")


def test_a_signal_that_is_missing_is_reported() -> None:
    program = mscclpp_programs.all_gather(4)
    program.gpus[2].blocks[1].ops.remove(op_of(program, "signal") | {"channel_ids": [0]})

    code, message = refused(program)

    assert code is Code.MGS502 and message.endswith("wait waits for what never comes: no signal of rank 2 is left")


def test_a_wait_that_names_a_channel_twice_needs_two_signals() -> None:
    program = mscclpp_programs.all_gather(4)
    wait = op_of(program, "wait")
    wait["channel_ids"] = wait["channel_ids"] * 2

    code, message = refused(program)

    assert code is Code.MGS502 and message.endswith("wait waits for what never comes: no signal of rank 1 is left")


def test_a_result_in_the_wrong_place_is_reported() -> None:
    program = mscclpp_programs.all_gather(4)
    op_of(program, "put")["dst_buff"][0]["index"] = 3

    assert refused(program)[0] is Code.MGS501


def test_a_part_that_is_added_twice_is_reported() -> None:
    program = mscclpp_programs.reduce_scatter(4)
    op_of(program, "re")["src_buff"][1] = here("s", 2)

    assert refused(program)[0] is Code.MGS507


def test_ports_and_threads_do_not_mix() -> None:
    document = mscclpp_programs.all_gather(2, kind="port").document()
    document["gpus"][1] = mscclpp_programs.all_gather(2).document()["gpus"][1]
    for block in document["gpus"][0]["threadblocks"] + document["gpus"][1]["threadblocks"]:
        block["ops"] = [op for op in block["ops"] if op["name"] not in ("signal", "wait")]

    code, message = refused(document)

    assert code is Code.MGS526
    assert message.endswith("it goes inside a node, where threads copy too, and a plan has one pool for that")


@pytest.mark.parametrize(
    ("collective", "n", "code", "message"),
    [
        ("allreduce", 4, Code.MGS524, "the plan is an allgather, w is all_reduce"),
        ("allgather", 8, Code.MGS524, "the plan is for 4 GPUs, here are 8"),
    ],
)
def test_a_plan_for_something_else_is_refused(collective: str, n: int, code: Code, message: str) -> None:
    assert refused(mscclpp_programs.all_gather(4), scenario_of(collective, n)) == (code, f"m.json: {message}")


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("collective", "broadcast", Code.MGS526),
        ("max_message_size", 1024, Code.MGS524),
        ("protocol", "LL256", Code.MGS137),
        ("inplace", 1, Code.MGS137),
        ("gpus", [], Code.MGS137),
    ],
)
def test_a_head_that_does_not_fit_is_refused(key: str, value: object, code: Code) -> None:
    document = mscclpp_programs.all_gather(4).document() | {key: value}
    scenario = scenario_of("allgather", 4)

    assert refused(document if key != "gpus" else document | {"gpus": []}, scenario)[0] is code


def test_rows_that_a_chunk_does_not_fill_are_refused() -> None:
    program = Program("allreduce", 2, (6, 6, 0))

    assert refused(program)[0] is Code.MGS512


odd: st.SearchStrategy[object] = (
    st.none() | st.booleans() | st.integers(-2, 1 << 70) | st.text(max_size=3) | st.just([]) | st.just({})
)


@given(st.sampled_from(sorted(PROGRAMS)), st.data())
@examples(60)
def test_a_file_changed_anywhere_is_read_or_refused(name: str, data: st.DataObject) -> None:
    program = PROGRAMS[name](2)
    document = copy.deepcopy(program.document())
    path = data.draw(st.sampled_from(places(document)[1:]))
    inner: Any = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = data.draw(odd | st.integers(0, 3))
    scenario = scenario_of(program.collective, 2)
    try:
        schedule = build_op_plan(scenario, read(scenario, document)[0], "changed")
    except (CompileError, ScheduleError) as error:
        assert str(error)
        return
    assert "" not in {fault.message for fault in check_plan(scenario, schedule)}


def test_operations_that_move_too_much_are_refused() -> None:
    program = Program("allreduce", 2, (4096, 4096, 4096))
    block = Block(program.gpus[0])
    for _ in range(200):
        block.do("put", [here("i", 0, 4096)], [block.remote(1, "s", 0, 4096)], channel_type="memory")

    code, message = refused(program)

    assert code is Code.MGS137 and "the operations move 1638400 pieces, at most 1048576 are followed" in message
