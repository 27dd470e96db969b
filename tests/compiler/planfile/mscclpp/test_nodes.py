"""Execution plans of MSCCL++ that use threads inside nodes and ports between them."""

import json
from random import Random

import pytest

from magus import examples
from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import EngineChoice, EngineKind, EngineMode, OpCase, Transfer
from magus.compiler.planfile.write import plan_text
from magus.compiler.planning.build import build_op_plan
from magus.compiler.verify.check import check_plan
from magus.simcore import simulate_op
from tests.helpers.mscclpp.builder import Block, Program, here
from tests.helpers.mscclpp.programs import (
    all_gather,
    all_gather_over_nodes,
    all_reduce_over_nodes,
    reduce_scatter_over_nodes,
)
from tests.helpers.mscclpp.reading import BODIES, read, refused
from tests.helpers.plans.symbolic_executor import Ranks

PROGRAMS = {
    "all_gather": all_gather_over_nodes,
    "all_reduce": all_reduce_over_nodes,
    "reduce_scatter": reduce_scatter_over_nodes,
}


def text_on(collective: str, n: int, tensor: str = "[512, 64]") -> str:
    link = 'link nic { source assumed "a test"; bandwidth 50 GB/s; achieved 48 GB/s; latency 1.5 us }'
    fabric = f"rails(nvswitch, link=nvlink, node={n // 2}, nic=nic)"
    body = BODIES[collective].replace("[512, 64]", tensor)
    return f'use "nvidia/h100"\n{link}\nsystem s {{ gpus {n} x H100; fabric {fabric} }}\nworkload w on s {{ {body} }}\n'


def on_nodes(program: Program, tensor: str = "[512, 64]") -> OpCase:
    return compile_text(text_on(program.collective, program.n, tensor)).scenario().case


@pytest.mark.parametrize("n", [4, 8])
@pytest.mark.parametrize("name", PROGRAMS)
def test_ports_lead_out_of_the_nodes_in_which_threads_copy(name: str, n: int) -> None:
    program = PROGRAMS[name](n)
    scenario = on_nodes(program)
    plan, _ = read(scenario, program.document())
    schedule = build_op_plan(scenario, plan, "imported")

    sms = {"all_gather": n // 2 - 1, "all_reduce": n // 2, "reduce_scatter": 2}[name]
    assert plan.engine == EngineChoice(EngineKind.SM, sms, EngineMode.PORTS)
    assert not check_plan(scenario, schedule)
    found = simulate_op(scenario, schedule, unit_bytes=1024).timeline.intervals
    by_card = {each.name for each in found if each.rank == 0 and each.lane.startswith("port")}
    steps = [step for step in schedule.steps_of(0) if isinstance(step, Transfer)]
    assert by_card == {step.name for step in steps if step.peer >= n // 2} != {step.name for step in steps}


@pytest.mark.parametrize("n", [4, 8])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PROGRAMS)
def test_in_any_order_its_waits_allow_it_does_the_collective(name: str, seed: int, n: int) -> None:
    program = PROGRAMS[name](n)
    scenario = on_nodes(program, f"[{4 * n}, 4]")
    plan, _ = read(scenario, program.document())

    ranks = Ranks(scenario.shape.pattern, plan.by_rank or (plan.steps,) * n, rows=4, cols=4)
    ranks.run(Random(seed))
    ranks.check()


def test_the_shipped_plan_is_the_one_of_these_programs() -> None:
    shipped = examples.path("papers/mscclpp").with_name("mscclpp_16.json")

    assert json.loads(shipped.read_text(encoding="utf-8")) == all_reduce_over_nodes(16).document()


@pytest.mark.parametrize("name", PROGRAMS)
def test_written_as_text_it_is_the_same_plan(name: str) -> None:
    program = PROGRAMS[name](4)
    scenario = on_nodes(program)
    schedule = build_op_plan(scenario, read(scenario, program.document())[0], "written")

    again = compile_text(text_on(program.collective, 4) + plan_text(scenario, schedule, "written")).scenario().case

    assert build_op_plan(again, again.schedules[0].body, "written") == schedule


def test_threads_that_reach_out_of_a_node_are_named() -> None:
    program = all_gather_over_nodes(4)
    block = Block(program.gpus[0])
    block.do("put", [here("o", 0)], [block.remote(3, "o", 0)], channel_type="memory")

    code, message = refused(program, on_nodes(program))

    assert code is Code.MGS526 and message.startswith("m.json: gpus[0].threadblocks[2].ops[0]: put is not in the reach")
    assert message.endswith("it goes out of a node, where ports copy too, and a plan has one pool for that")


def test_a_wait_that_nothing_over_the_network_ends_is_named() -> None:
    program = all_gather_over_nodes(4)
    port = program.gpus[2].blocks[0]
    port.ops = [op for op in port.ops if op["name"] != "signal"]

    code, message = refused(program, on_nodes(program))

    assert code is Code.MGS502
    assert message.endswith("threadblocks[0].ops[3]: wait waits for what never comes: no signal of rank 2 is left")


@pytest.mark.parametrize("group", [3, 7])
def test_threadblocks_that_do_not_divide_a_chunk_share_one_transfer(group: int) -> None:
    whole, shared = all_gather(2), all_gather(2, group=group)
    scenario = compile_text(
        text_on("allgather", 2).replace("rails(nvswitch, link=nvlink, node=1, nic=nic)", "ring(nvlink)")
    )
    case = scenario.scenario().case
    (one,), (other,) = (read(case, each.document())[0].steps for each in (whole, shared))

    assert isinstance(one, Transfer) and isinstance(other, Transfer)
    assert (one.region, one.peer) == (other.region, other.peer)
    assert read(case, shared.document())[0].engine == EngineChoice(EngineKind.SM, group)


def test_fewer_pieces_than_threadblocks_are_refused() -> None:
    program = all_gather(2, group=7)

    code, message = refused(program, on_nodes_of_two())

    assert code is Code.MGS512 and "do not divide" in message


def on_nodes_of_two() -> OpCase:
    text = 'use "nvidia/h100"\nsystem s { gpus 2 x H100; fabric ring(nvlink) }\n'
    return (
        compile_text(text + "workload w on s { x = tensor bf16[2, 4] shard rows; y = all_gather(x) }\n").scenario().case
    )
