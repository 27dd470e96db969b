"""Collectives whose rows do not divide among the ranks: parts of columns, uneven parts, and plans that fit them."""

from dataclasses import replace
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler import CompileError, compile_text
from magus.compiler.codes import Code
from magus.compiler.collectives import ALGORITHMS
from magus.compiler.ir import (
    DType,
    EngineChoice,
    EngineKind,
    OpCase,
    OpChoice,
    Override,
    Scenario,
    Shard,
    Tensor,
    Transfer,
    rank_parts,
)
from magus.compiler.planfile.write import op_plan_document, plan_text
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.targets.triton import reject_triton
from magus.compiler.templates import ALL_TEMPLATES
from magus.compiler.verify.check import check_plan
from tests.helpers.marks import examples
from tests.helpers.plans.documents import plan_from_document
from tests.helpers.scenarios.rank_parts import KINDS, scenario_of, text_of
from tests.helpers.some import some

ENGINES = (EngineChoice(EngineKind.DMA, 3), EngineChoice(EngineKind.SM, 4))


def legal_choices(scenario: OpCase) -> list[OpChoice]:
    n = scenario.num_ranks
    algorithms = ("", *(algorithm.name for algorithm in ALGORITHMS))
    choices = (
        OpChoice(template.name, n * pieces, engine, template.default_streams, algorithm=algorithm)
        for template, engine, pieces, algorithm in product(ALL_TEMPLATES, ENGINES, (1, 2, 3), algorithms)
        if pieces == 1 or template.cuts_shards
    )
    return [choice for choice in choices if reject_choice(scenario, choice) is None]


@pytest.mark.parametrize(
    ("rows", "cols", "ranks", "by_columns", "blocks"),
    [
        (16, 100, 8, False, (2,) * 8),
        (4, 8192, 8, True, (1024,) * 8),
        (1, 8192, 8, True, (1024,) * 8),
        (4096, 3000, 6, True, (500,) * 6),
        (4096, 1000, 6, False, (683,) * 4 + (682,) * 2),
        (4096, 8192, 6, True, (1368,) * 4 + (1360,) * 2),  # units of 8 elements, which are 16 bytes
        (4, 50, 6, True, (9, 9, 8, 8, 8, 8)),  # 50 elements are no whole units
    ],
)
def test_parts_of(rows: int, cols: int, ranks: int, by_columns: bool, blocks: tuple[int, ...]) -> None:
    parts = rank_parts(Tensor("y", DType.BF16, rows, cols, Shard.NONE), ranks)

    assert parts is not None
    assert parts.by_columns is by_columns
    assert (parts.loads[0] if parts.loads else (parts.moved.rows // ranks,) * ranks) == blocks


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(2, 16), st.sampled_from(DType))
def test_each_rank_has_a_part_and_the_parts_are_all(rows: int, cols: int, ranks: int, dtype: DType) -> None:
    parts = rank_parts(Tensor("y", dtype, rows, cols, Shard.NONE), ranks)

    if parts is None:
        assert max(rows, cols) < ranks
        return
    blocks = parts.loads[0] if parts.loads else (parts.moved.rows // ranks,) * ranks
    assert sum(blocks) == parts.moved.rows and min(blocks) > 0
    assert blocks == tuple(sorted(blocks, reverse=True))
    assert parts.moved.num_bytes == dtype.bytes_of(rows * cols)


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "cols", "ranks"), [(1, 512, 4), (3, 384, 4), (4, 50, 3), (50, 7, 3)])
def test_every_template_that_fits_has_a_right_plan(kind: str, rows: int, cols: int, ranks: int) -> None:
    scenario = scenario_of(kind, rows, cols, ranks)
    choices = some(legal_choices(scenario))

    assert "serial" in {choice.template for choice in choices}
    for choice in choices:
        schedule = build_op_plan(scenario, choice)
        assert not check_plan(scenario, schedule), schedule.expression


@examples(20)
@given(st.integers(1, 40), st.integers(1, 300), st.integers(2, 7), st.sampled_from(KINDS), st.randoms())
def test_any_number_of_rows_has_right_plans(rows: int, cols: int, ranks: int, kind: str, rng: Random) -> None:
    if max(rows, cols) < ranks:
        return
    scenario = scenario_of(kind, rows, cols, ranks)
    choices = legal_choices(scenario)
    for choice in some(rng.sample(choices, min(3, len(choices)))):
        assert not check_plan(scenario, build_op_plan(scenario, choice))


@pytest.mark.parametrize(("rows", "cols", "ranks"), [(3, 512, 4), (4, 50, 3)])
def test_a_plan_with_a_wrong_region_is_found_out(rows: int, cols: int, ranks: int) -> None:
    scenario = scenario_of("GEMM+AR", rows, cols, ranks)
    schedule = build_op_plan(scenario, OpChoice("serial", ranks, ENGINES[1]))
    step = next(step for step in schedule.steps_of(1) if isinstance(step, Transfer) and step.name.startswith("y"))
    shorter = replace(step.region, rows=replace(step.region.rows, stop=step.region.rows.stop - 1))
    steps = tuple(replace(step, region=shorter) if each is step else each for each in schedule.steps_of(1))
    broken = replace(schedule, by_rank=tuple(steps if rank == 1 else schedule.steps_of(rank) for rank in range(ranks)))

    assert not check_plan(scenario, schedule)
    assert Code.MGS507 in {fault.code for fault in check_plan(scenario, broken)}
    if schedule.by_rank:
        return
    overridden = replace(schedule, overrides=(Override(1, replace(step, region=shorter)),))
    assert check_plan(scenario, overridden)


@pytest.mark.parametrize(("rows", "cols", "ranks"), [(3, 512, 4), (4, 50, 3)])
@pytest.mark.parametrize("template", ["serial", "pipelined"])
def test_plans_are_written_and_read_back(rows: int, cols: int, ranks: int, template: str) -> None:
    scenario = scenario_of("GEMM+AR", rows, cols, ranks)
    schedule = build_op_plan(scenario, OpChoice(template, ranks, ENGINES[1]))
    again = plan_from_document(scenario, op_plan_document(scenario, schedule))
    text = text_of("GEMM+AR", rows, cols, ranks) + plan_text(scenario, schedule, "plan_1")
    body = compile_text(text).scenario().case.schedules[0].body

    assert (again.steps, again.by_rank) == (schedule.steps, schedule.by_rank)
    assert build_op_plan(scenario, body, "plan_1").steps == schedule.steps
    assert build_op_plan(scenario, body, "plan_1").by_rank == schedule.by_rank


def test_chunks_of_columns_keep_to_tiles() -> None:
    scenario = scenario_of("GEMM+AR", 4, 8192, 8)

    assert reject_choice(scenario, OpChoice("uniform_fused_1d", 128, ENGINES[0])) is None
    rejection = reject_choice(scenario, OpChoice("uniform_fused_1d", 256, ENGINES[0]))
    assert rejection is not None and rejection.code is Code.MGS512


@pytest.mark.parametrize("types", [{"dtype": DType.NVFP4}, {"weights": DType.FP8}])
def test_a_triton_kernel_of_blocks_with_scales_or_of_two_types_is_refused(types: dict[str, DType]) -> None:
    scenario = scenario_of("GEMM+AR", 8192, 8192, 8)
    assert scenario.shape.gemm is not None
    gemm = replace(scenario.shape.gemm, **types)  # type: ignore[arg-type]
    scenario = replace(scenario, shape=replace(scenario.shape, gemm=gemm))
    rejection = reject_triton(scenario, build_op_plan(scenario, OpChoice("serial", 8, ENGINES[0])))

    assert rejection is not None and "has scales or two types" in rejection.message


def test_a_triton_kernel_of_such_parts_is_refused_for_what_it_is() -> None:
    scenario = scenario_of("GEMM+AR", 4, 8192, 8)
    rejection = reject_triton(scenario, build_op_plan(scenario, OpChoice("serial", 8, ENGINES[0])))

    assert rejection is not None and "columns" in rejection.message and "multiple of 8" in rejection.hint


@pytest.mark.parametrize(
    ("call", "shard", "message", "hint"),
    [
        ("all_gather(x)", " shard rows", "12 rows do not divide among 8 ranks", "use 16 or 8, a multiple of 8"),
        ("reduce_scatter(x)", "", "12 rows do not divide among 8 ranks", "all_reduce takes any number of rows"),
        ("all_to_all(x)", "", "12 rows do not divide among 8 ranks", "rows=[...] says how many each rank gets"),
    ],
)
def test_where_each_rank_gets_rows_the_refusal_says_how_many_would_do(
    call: str, shard: str, message: str, hint: str
) -> None:
    text = text_of("all_reduce", 12, 64, 8).replace("bf16[12, 64]", f"bf16[12, 64]{shard}")
    with pytest.raises(CompileError) as caught:
        compile_text(text.replace("all_reduce(x)", call)).scenario()
    (found,) = caught.value.diagnostics

    assert (found.code, found.message) == (Code.MGS304, message)
    assert hint in found.hint


def test_too_few_elements_are_refused() -> None:
    with pytest.raises(CompileError) as caught:
        scenario_of("all_reduce", 3, 5, 8)
    (found,) = caught.value.diagnostics

    assert (found.code, found.hint) == (Code.MGS304, "8 or more rows or columns")


def test_rows_of_a_layer_that_are_columns_of_a_sum_are_no_seam() -> None:
    text = text_of("all_reduce", 12, 512, 8).split("workload")[0] + (
        "workload w on s {\n  x = tensor bf16[4, 512]\n  w = tensor bf16[4096, 512] shard rows\n"
        "  v = tensor bf16[512, 4096] shard cols\n  y = add(x, all_reduce(gemm(gelu(gemm(norm(x), v)), w)))\n}\n"
    )
    graph = compile_text(text).scenario()

    assert isinstance(graph, Scenario)
    op = next(op for op in graph.workload.ops if op.shape.moved is not None)
    assert op.shape.by_columns
    assert not any(read.by_rows for read in op.reads)
