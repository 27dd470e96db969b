"""Ranks that send differently: exact on every core, with the bytes and the operations that the table says."""

import random

import numpy as np
import pytest

from magus.compiler import compile_text
from magus.compiler.ir import OpMode, Schedule, TileGroup
from magus.compiler.planning.build import build_op_plan
from magus.compiler.planning.plan import build_plan
from magus.simcore import simulate, simulate_op
from magus.simcore.cores.engine import Core, run
from magus.simcore.fold.refine import Classes, detect
from magus.simcore.fold.run import expand, quotient
from magus.simcore.kernels.dispatch import compute_shape
from magus.simcore.lower.plan import lower
from magus.simcore.program.program import TrafficClass
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.lowering import lower_op
from tests.helpers.oracle.oracle import Oracle
from tests.helpers.scenarios.loads import KINDS, drawn, legal_choices, scenario_of, text_of
from tests.helpers.some import some


@pytest.mark.parametrize("kind", KINDS)
def test_all_cores_agree_with_the_oracle(kind: str) -> None:
    scenario = scenario_of(kind, drawn(random.Random(kind)))
    for choice in some(legal_choices(scenario)):
        program = lower_op(scenario, build_op_plan(scenario, choice), unit_bytes=1024, fold=True).program
        oracle = Oracle(program).run()
        for core in Core:
            assert differences(program, run(program, core=core), oracle) == [], (core, choice)
        classes = detect(program)
        if isinstance(classes, Classes):
            folded = quotient(program, classes)
            assert differences(program, expand(folded, run(folded.program)), oracle) == [], choice


@pytest.mark.parametrize("kind", ["alone", "GEMM", "experts"])
def test_all_cores_agree_with_a_row_wise_kernel_behind_them(kind: str) -> None:
    table = drawn(random.Random(kind))
    (found,) = compile_text(text_of(kind, table).replace("\n}\n", "\n  n = norm(y)\n}\n")).workloads
    for choice in some(list(legal_choices(scenario_of(kind, table)))[::3]):
        plan = build_plan(found.system, found.workload, Schedule("p", (OpMode("y", choice),)))
        program = lower(found.system, plan, unit_bytes=1024, fold=True).program
        oracle = Oracle(program).run()
        assert [differences(program, run(program, core=core), oracle) for core in Core] == [[]] * len(Core), choice


def test_a_row_wise_kernel_of_the_hot_rank_takes_longest() -> None:
    table = ((256, 256, 15872),) * 3
    (found,) = compile_text(text_of("GEMM", table).replace("\n}\n", "\n  n = norm(y)\n}\n")).workloads
    times = simulate(found.system, build_plan(found.system, found.workload, Schedule("p")), unit_bytes=1024).timeline
    ends = {one.rank: one.end_ticks - one.start_ticks for one in times.intervals if one.name.startswith("n")}

    assert sorted(ends) == [0, 1, 2]
    assert ends[2] > 2 * max(ends[0], ends[1])


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_of_the_table_pass_the_links(kind: str) -> None:
    table = drawn(random.Random(kind))
    scenario = scenario_of(kind, table)
    moved = sum(rows for rank, sent in enumerate(table) for to, rows in enumerate(sent) if to != rank)
    for choice in some(legal_choices(scenario)):
        program = lower_op(scenario, build_op_plan(scenario, choice), unit_bytes=128, fold=False).program
        links = np.array([name.startswith("link") for name in program.server_names])
        data = program.flow_traffic[program.hop_flow] != TrafficClass.FLAGS
        passed = data & links[program.hop_server // program.ranks_simulated]
        assert int(program.flow_units[program.hop_flow[passed]].sum()) * 128 == moved * 64 * 2, choice


@pytest.mark.parametrize("kind", ["GEMM", "experts"])
def test_every_rank_computes_the_rows_that_it_gets(kind: str) -> None:
    table = drawn(random.Random(kind))
    scenario = scenario_of(kind, table)
    for choice in some(legal_choices(scenario)):
        schedule = build_op_plan(scenario, choice)
        for rank, steps in some(enumerate(schedule.by_rank)):
            groups = [step for step in steps if isinstance(step, TileGroup)]
            flops = sum(compute_shape(scenario.at(rank), group).flops for group in groups)
            assert flops == 2 * 64 * 64 * sum(sent[rank] for sent in table), (choice, rank)


def test_a_hot_rank_takes_longer_than_a_cold_one() -> None:
    even, hot = ((64,) * 4,) * 4, ((32, 32, 32, 160),) * 4
    times = []
    for table in (even, hot):
        scenario = scenario_of("GEMM", table)
        choice = next(each for each in legal_choices(scenario) if each.template == "serial")
        times.append(simulate_op(scenario, build_op_plan(scenario, choice)).makespan_ticks)

    assert times[0] < times[1]


def test_an_expert_without_rows_costs_nothing() -> None:
    """Neither a tile nor a read of its weights, wherever it lies; one with all rows takes longer than two with half."""

    def time_of(experts: int, loads: list[int]) -> int:
        (found,) = compile_text(
            f"""use "amd/mi300x"
system s {{ gpus 2 x MI300X; fabric full_mesh(xgmi) }}
workload w on s {{
  x = tensor bf16[512, 512] shard rows
  w = tensor bf16[{512 * experts}, 1024] shard rows
  t = dispatch(x, experts={experts}, top=1, routing=loads({loads}))
  y = grouped_gemm(t, w)
}}
"""
        ).workloads
        return simulate(found.system, build_plan(found.system, found.workload, Schedule("p"))).makespan_ticks

    assert time_of(4, [256, 0, 256, 0]) == time_of(2, [256, 256]) < time_of(4, [512, 0, 0, 0])
