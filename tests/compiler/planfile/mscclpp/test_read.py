"""Execution plans of MSCCL++ become chunk plans that do the same."""

import json
from dataclasses import replace
from random import Random

import pytest

from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import CopyProtocol, Direction, EngineChoice, EngineKind, Reach, Reduction, Transfer
from magus.compiler.planfile.write import plan_text
from magus.compiler.planning.build import build_op_plan
from magus.compiler.verify.check import check_plan
from magus.simcore import simulate_op
from tests.helpers import paths
from tests.helpers.mscclpp import programs as mscclpp_programs
from tests.helpers.mscclpp.builder import Block, Program, here
from tests.helpers.mscclpp.reading import PROGRAMS, by_barrier, read, scenario_of, schedule_of, text_of
from tests.helpers.plans.symbolic_executor import Ranks

GOLDEN = paths.GOLDEN / "mscclpp"


@pytest.mark.quick(9)
@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_becomes_a_plan_that_does_the_collective(name: str, n: int) -> None:
    scenario, schedule = schedule_of(PROGRAMS[name](n))

    assert not check_plan(scenario, schedule)
    assert simulate_op(scenario, schedule, unit_bytes=1024).makespan_ticks > 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PROGRAMS)
def test_in_any_order_its_waits_allow_it_does_the_collective(name: str, seed: int) -> None:
    program = PROGRAMS[name](4)
    scenario = compile_text(text_of(program.collective, 4).replace("[512, 64]", "[16, 4]")).scenario().case
    plan, _ = read(scenario, program.document())

    ranks = Ranks(scenario.shape.pattern, plan.by_rank or (plan.steps,) * 4, rows=4, cols=4)
    ranks.run(Random(seed))
    ranks.check()


@pytest.mark.parametrize("name", PROGRAMS)
def test_written_as_text_it_is_the_same_plan(name: str) -> None:
    program = PROGRAMS[name](4)
    scenario, schedule = schedule_of(program)

    again = compile_text(text_of(program.collective, 4) + plan_text(scenario, schedule, "written")).scenario().case

    assert replace(build_op_plan(again, again.schedules[0].body), expression="imported") == schedule


@pytest.mark.parametrize("name", ["all_gather", "all_reduce"])
def test_golden_files(name: str) -> None:
    document = json.loads((GOLDEN / f"{name}_4.json").read_text(encoding="utf-8"))
    scenario = scenario_of(document["collective"], 4)

    schedule = build_op_plan(scenario, read(scenario, document)[0])

    assert plan_text(scenario, schedule, "imported") == (GOLDEN / f"{name}_4.plan").read_text(encoding="utf-8")


def test_who_copies_and_in_which_protocol() -> None:
    found = {name: schedule_of(program(4))[1] for name, program in PROGRAMS.items()}

    assert found["all_gather"].engine == EngineChoice(EngineKind.SM, 3)
    assert found["all_gather by groups"].engine == EngineChoice(EngineKind.SM, 6)
    assert found["all_gather by ports"].engine == EngineChoice(EngineKind.DMA, 3)
    assert found["all_reduce"].engine == EngineChoice(EngineKind.SM, 1)
    packets = [name for name, each in found.items() if each.tactics.protocol is CopyProtocol.LL]
    assert packets == ["all_reduce by packets"]


def test_programs_that_are_the_same_for_every_gpu_are_plans_for_rank_r() -> None:
    found = {name for name, program in PROGRAMS.items() if schedule_of(program(4))[1].symmetric}

    rings = {"all_gather round", "all_reduce round", "all_reduce round in loops"}
    assert found == rings | {"all_reduce by switch", "all_reduce in loops"}


def test_a_sum_waits_for_what_it_sums_and_its_result_is_put_after_it() -> None:
    steps = schedule_of(mscclpp_programs.all_reduce(4))[1].by_rank[1]

    first, total, then = steps[:3], steps[3], steps[4:]
    assert isinstance(total, Reduction) and total.num_parts == 4
    assert all(isinstance(step, Transfer) and step.after == () for step in first)
    assert len(total.after) == 3 and all(name.startswith("s") for name in total.after)
    assert [step.after for step in then] == [(total.name,)] * 3


def test_sums_that_read_are_gets_that_add() -> None:
    steps = schedule_of(mscclpp_programs.all_reduce_by_reading(4))[1].by_rank[0]

    gets = [step for step in steps if isinstance(step, Transfer) and step.direction is Direction.GET]
    assert len(gets) == 3 and all(step.reduce for step in gets)
    assert [step.after for step in steps[3:]] == [tuple(step.signal for step in gets)] * 3


def test_a_switch_sums_and_copies_for_all() -> None:
    steps = schedule_of(mscclpp_programs.all_reduce_by_switch(4))[1].steps_of(2)

    assert [(step.direction, step.reach, step.reduce) for step in steps if isinstance(step, Transfer)] == [
        (Direction.GET, Reach.ALL, True),
        (Direction.PUT, Reach.ALL, False),
    ]
    assert isinstance(steps[0], Transfer) and steps[1].after == (steps[0].signal,)


def test_what_takes_no_time_is_reported() -> None:
    program = mscclpp_programs.all_to_all(4)
    _, report = read(scenario_of("alltoall", 4), program.document())

    (found,) = report.diagnostics
    assert found.code is Code.MGS527 and not report.has_errors
    assert found.message == "m.json: 4 copies inside a GPU and 12 waits that bring no data take no time here"


def test_chunks_are_cut_where_ranks_share_one() -> None:
    program = Program("allreduce", 4, (1, 1, 4))
    for gpu in program.gpus:
        block = Block(gpu)
        block.handshake(*gpu.others)
        for peer in gpu.others:
            block.do("put", [here("i", 0)], [block.remote(peer, "s", gpu.rank)], channel_type="memory")
        block.handshake(*gpu.others)
        block.do("re", [here("i", 0), *(here("s", peer) for peer in gpu.others)], [here("i", 0)], reduce_op="sum")

    scenario, schedule = schedule_of(program)

    assert not check_plan(scenario, schedule)
    assert len([step for step in schedule.by_rank[0] if isinstance(step, Reduction)]) == 4


@pytest.mark.parametrize("release", ["barrier", "semaphore"])
def test_threadblocks_of_a_gpu_wait_for_each_other(release: str) -> None:
    scenario, schedule = schedule_of(by_barrier(release))

    assert schedule.engine.count == 2
    assert not check_plan(scenario, schedule)
