"""An all_to_all whose ranks send differently: what each rank has, plans that fit it, and other ways to say it."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from magus.compiler import CompileError, compile_text, format_text
from magus.compiler.codes import Code
from magus.compiler.ir import GemmShape, GroupedGemmShape, OpCase, OpPlan, PeerOrder, TileGroup, Transfer
from magus.compiler.planfile.write import op_plan_document, plan_text
from magus.compiler.planning.build import build_op_plan, declared, reject_choice
from magus.compiler.verify.check import check_plan
from tests.helpers.plans.documents import plan_from_document
from tests.helpers.scenarios.loads import KINDS, drawn, legal_choices, scenario_of, text_of
from tests.helpers.some import some


def schedules(kind: str, seed: int) -> Iterator[tuple[OpCase, OpPlan]]:
    scenario = scenario_of(kind, drawn(random.Random(seed)))
    return ((scenario, build_op_plan(scenario, choice)) for choice in legal_choices(scenario))


def test_a_rank_has_the_rows_that_it_gets() -> None:
    table = ((8, 16, 40), (24, 24, 16), (0, 8, 56))
    workload = scenario_of("GEMM", table).shape

    assert workload.rank == 2
    assert [workload.at(rank).gemm for rank in range(3)] == [
        GemmShape(rows, 64, 64, workload.tensors[0].dtype) for rows in (32, 48, 112)
    ]


def test_experts_are_those_of_each_rank() -> None:
    table = ((8, 16, 40), (24, 24, 16), (0, 8, 56))
    workload = scenario_of("experts", table).shape
    kernels = [workload.at(rank).kernel for rank in range(3)]

    assert all(isinstance(kernel, GroupedGemmShape) for kernel in kernels)
    assert [sum(kernel.rows) for kernel in kernels if isinstance(kernel, GroupedGemmShape)] == [32, 48, 112]


@pytest.mark.parametrize("kind", ["alone", "GEMM", "experts"])
def test_row_wise_kernels_behind_it_have_the_rows_that_the_rank_gets(kind: str) -> None:
    table = ((8, 16, 40), (24, 24, 16), (0, 8, 56))
    text = text_of(kind, table).replace("\n}\n", "\n  n = norm(y)\n  z = add(n, y)\n}\n")
    behind = [op.shape for op in compile_text(text).workloads[0].workload.ops if op.shape.moved is None]
    kernels = [[shape.at(rank).kernel for rank in range(3)] for shape in behind]

    assert [[kernel and kernel.output_bytes for kernel in each] for each in kernels] == [
        [rows * 64 * 2 for rows in (32, 48, 112)]
    ] * 2
    assert [kernel and kernel.operand_bytes for kernel in kernels[0]] == [rows * 64 * 2 for rows in (32, 48, 112)]


@pytest.mark.parametrize("more", ["z = add(x, x)", "n = norm(y); z = gemm(n, v)", "z = add(y, u)"])
def test_other_ops_beside_it_are_refused(more: str) -> None:
    table = ((8, 16, 40), (24, 24, 16), (0, 8, 56))
    tensors = "v = tensor bf16[64, 64]; u = tensor bf16[112, 64]"
    text = text_of("GEMM", table).replace("\n}\n", f"\n  {tensors}; {more}\n}}\n")
    with pytest.raises(CompileError) as caught:
        compile_text(text)

    assert Code.MGS520 in [each.code for each in caught.value.diagnostics]


def test_a_matrix_of_ranks_that_send_alike_is_what_each_sends_in_turn() -> None:
    turned = ((8, 16, 40), (40, 8, 16), (16, 40, 8))
    text = text_of("GEMM", turned)
    again = text.replace(text[text.index("rows=") : text.index("]]") + 2], "rows=[8, 16, 40]")

    assert compile_text(text).scenario().case.shape == compile_text(again).scenario().case.shape


def test_rows_to_is_a_matrix_of_one_list() -> None:
    table = ((8, 16, 40),) * 3
    text = text_of("alone", table)
    short = text[: text.index("rows=")] + "rows_to=[8, 16, 40])\n}\n"

    assert compile_text(short).scenario().case.shape == compile_text(text).scenario().case.shape
    assert format_text(format_text(short)) == format_text(short)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_every_template_moves_every_row_once(kind: str, seed: int) -> None:
    count = 0
    for scenario, schedule in schedules(kind, seed):
        assert check_plan(scenario, schedule) == (), schedule.expression
        assert schedule.by_rank
        count += 1
    assert count >= 4


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_written_out_is_the_same_plan(kind: str) -> None:
    for scenario, schedule in some(schedules(kind, 1)):
        text = text_of(kind, scenario.shape.loads) + plan_text(scenario, schedule, "written")
        again = compile_text(text).scenario().case
        assert replace(declared(again, again.schedules[0]), expression=schedule.expression) == schedule
        plan = plan_from_document(scenario, op_plan_document(scenario, schedule))
        assert plan.by_rank == schedule.by_rank


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_is_left_out_is_missed(kind: str) -> None:
    for scenario, schedule in some(schedules(kind, 2)):
        cases = [(rank, steps, step) for rank, steps in enumerate(schedule.by_rank) for step in steps[:3]]
        for rank, steps, step in some(case for case in cases if isinstance(case[2], Transfer | TileGroup)):
            rest = tuple(other for other in steps if other is not step)
            by_rank = (*schedule.by_rank[:rank], rest, *schedule.by_rank[rank + 1 :])
            broken = replace(schedule, by_rank=by_rank, steps=by_rank[0])
            assert check_plan(scenario, broken), (schedule.expression, rank, step.name)


def test_a_plan_of_one_rank_does_not_fit_all() -> None:
    scenario, schedule = next(schedules("GEMM", 0))

    assert check_plan(scenario, replace(schedule, by_rank=()))


def test_peers_are_served_by_the_size_of_what_each_rank_has_for_them() -> None:
    scenario = scenario_of("GEMM", ((8, 16, 40), (24, 24, 16), (0, 8, 56)))
    choice = next(each for each in legal_choices(scenario) if each.template == "hetero_fused_1d")
    schedule = build_op_plan(scenario, replace(choice, order=PeerOrder.LARGE_FIRST, chunks=3))

    peers = [[step.peer for step in steps if isinstance(step, Transfer)] for steps in schedule.by_rank]
    assert peers == [[2, 1], [2, 1], [2]]


def test_what_is_the_same_for_all_ranks_says_why_it_does_not_fit() -> None:
    scenario = scenario_of("GEMM", ((8, 16, 40), (24, 24, 16), (0, 8, 56)))
    choice = next(iter(legal_choices(scenario)))

    error = reject_choice(scenario, replace(choice, template="bespoke", chunks=3))

    assert error is not None and error.code.name == "MGS515"
