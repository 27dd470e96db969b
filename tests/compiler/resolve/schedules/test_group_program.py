"""Programs of work-groups: which plan they are, that it is exact, and what is refused, where and why."""

from collections.abc import Mapping

import pytest

from magus.compiler import CompileError, compile_text, format_text
from magus.compiler.codes import Code
from magus.compiler.ir import GroupEngine, OpCase, Reduction, Transfer, WrittenPlan
from magus.compiler.planfile.write import plan_text
from magus.compiler.planning.build import build_op_plan
from magus.compiler.resolve.schedules.from_text import read_choice
from magus.compiler.resolve.schedules.group_program import ProgramReader
from magus.compiler.text import syntax as ast
from magus.runtime import carry_out
from magus.runtime.run import job_of_op

GATHER = "for p in 1..ranks - 1 { copy output.shard(0)[self] to p; signal p }; for p in 1..ranks - 1 { wait p }"
SCATTER = """for p in 1..ranks - 1 { load input.shard(p)[self]; store scratch.shard(0)[self] to p; signal p }
    load input.shard(0)[self]
    for p in 1..ranks - 1 { wait p; load scratch.shard(p)[self] }
    reduce; store output.shard(0)[self]"""


def text(program: str, op: str = "y = all_gather(x)", groups: int = 2, chunks: int = 2, loops: str = "") -> str:
    shard = " shard rows" if "gather" in op else ""
    loops = loops or "put { load 4; store }; get { load 4; waitcnt 0; store }"
    return f"""use "nvidia/h100"
system s {{ gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }}
kernel k {{
  groups {groups}; chunks {chunks}; {loops}
  program {{
    {program}
  }}
}}
workload w on s {{ x = tensor bf16[64, 128]{shard}; {op} }}
schedule mine for w = program(k)
"""


def case_of(written: str) -> OpCase:
    return compile_text(written).scenario("w").case


def plan_of(written: str) -> WrittenPlan:
    body = case_of(written).schedules[0].body
    assert isinstance(body, WrittenPlan)
    return body


def refused(written: str) -> tuple[Code, str, str]:
    with pytest.raises(CompileError) as caught:
        compile_text(written)
    first = caught.value.diagnostics[0]
    return first.code, first.message, first.span.text


def test_a_program_is_the_plan_of_its_work_groups() -> None:
    plan = plan_of(text(GATHER))
    copies = [step for step in plan.steps if isinstance(step, Transfer)]

    assert isinstance(plan.engine, GroupEngine) and plan.engine.count == 2
    assert len(copies) == len(plan.steps) == 6, "two groups put a chunk to three peers each"
    assert {copy.lane for copy in copies} == {0, 1}, "each by its group"
    assert {(copy.region.rows.start, copy.lane) for copy in copies} == {(0, 0), (8, 1)}


def test_a_sum_waits_for_what_its_work_group_waited_for() -> None:
    plan = plan_of(text(SCATTER, "y = reduce_scatter(x)"))
    sums = [step for step in plan.steps if isinstance(step, Reduction)]

    assert {(each.stream, each.num_parts, len(each.after)) for each in sums} == {(0, 4, 3), (1, 4, 3)}


PROGRAMS = {
    "gather by puts": (GATHER, "y = all_gather(x)"),
    "gather in a ring": (
        "for s in 0..ranks - 2 { copy output.shard(-s)[self] to 1; signal 1; wait -1 }",
        "y = all_gather(x)",
    ),
    "gather by gets": ("for p in 1..ranks - 1 { copy output.shard(p)[self] from p }", "y = all_gather(x)"),
    "gather with barriers": (
        "for p in 1..ranks - 1 { copy output.shard(0)[self] to p }; barrier; "
        "groups 0..0 { signal 1, 2, 3; wait 1, 2, 3 }; barrier",
        "y = all_gather(x)",
    ),
    "sum of what was put": (SCATTER, "y = reduce_scatter(x)"),
    "sum of gets": (
        "load input.shard(0)[self]; for p in 1..ranks - 1 { load input.shard(0)[self] from p }; reduce; "
        "store output.shard(0)[self]",
        "y = reduce_scatter(x)",
    ),
    "one puts and another sums": (
        """groups 0..0 { for c in 0..1 { for p in 1..ranks - 1 {
          load input.shard(p)[c]; store scratch.shard(0)[c] to p; signal p group 1 } } }
        groups 1..1 { for c in 0..1 {
          load input.shard(0)[c]
          for p in 1..ranks - 1 { wait p group 0; load scratch.shard(p)[c] }
          reduce; store output.shard(0)[c] } }""",
        "y = reduce_scatter(x)",
    ),
    "sum for all": (
        SCATTER + "; for p in 1..ranks - 1 { store output.shard(0)[self] to p }; signal 1, 2, 3; wait 1, 2, 3",
        "y = all_reduce(x)",
    ),
    "exchange": (
        """load input.shard(0)[self]; store output.shard(0)[self]
        for p in 1..ranks - 1 { load input.shard(p)[self]; store output.shard(0)[self] to p; signal p }
        for p in 1..ranks - 1 { wait p }""",
        "y = all_to_all(x)",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_exact_with_real_data(name: str) -> None:
    program, op = PROGRAMS[name]
    case = case_of(text(program, op))
    plan = build_op_plan(case, case.schedules[0].body)

    assert carry_out(*job_of_op(case, plan)).exact


def test_a_program_is_printed_as_it_is_read() -> None:
    printed = format_text(text(SCATTER, "y = reduce_scatter(x)"))

    assert "for p in 1..ranks - 1 {" in printed
    assert plan_of(printed) == plan_of(text(SCATTER, "y = reduce_scatter(x)"))


def test_copies_at_a_rank_are_said_to_take_no_time() -> None:
    program, op = PROGRAMS["exchange"]
    warnings = compile_text(text(program, op)).warnings

    assert [(each.code, each.message) for each in warnings] == [
        (Code.MGS527, "8 copies inside a GPU take no time here")
    ]


REFUSED = [
    ("copy output.shard(0)[2] to 1", Code.MGS504, "chunks 2 do not exist, a block has 2"),
    ("copy output.shard(4)[0] to 1", Code.MGS504, "a block is from 0 to 3, counted from this rank; got 4"),
    ("copy output.shard(0)[0] to 5", Code.MGS504, "a peer is from 0 to 3, counted from this rank; got 5"),
    ("copy input.shard(1)[0] to 1", Code.MGS504, "a rank has its own block alone in its input"),
    ("copy result.shard(0)[0] to 1", Code.MGS204, "unknown buffer 'result'"),
    ("copy output to 1", Code.MGS116, "chunks of a buffer are expected here"),
    ("store output.shard(0)[0]", Code.MGS508, "this has nothing to store"),
    ("load output.shard(0)[0]; reduce; store scratch.shard(0)[0]", Code.MGS508, "this adds up one chunk"),
    (
        "load output.shard(0)[0]; load output.shard(0)[1]; store scratch.shard(0)[0]",
        Code.MGS116,
        "2 chunks are loaded, and one is stored",
    ),
    ("load output.shard(0)[0]", Code.MGS501, "work-group 0 stores nowhere what it has loaded"),
    (
        "load output.shard(1)[0] from 1; store output.shard(1)[0] to 2",
        Code.MGS526,
        "this store passes on what comes from a peer",
    ),
    ("signal 0", Code.MGS504, "the work-group itself, of 2"),
    ("signal 1 group 2", Code.MGS504, "there is no work-group 2, of 2"),
    ("put output.shard(0)[0] to 1", Code.MGS201, "a program has no property 'put'"),
    ("for c in 0..1", Code.MGS116, "for says numbers, and what is done"),
    ("groups 1 { barrier }", Code.MGS116, "groups says numbers, and what is done"),
    ("for self in 0..1 { barrier }", Code.MGS206, "'self' is a number of the program already"),
    ("for c in 0..1 { for c in 0..1 { barrier } }", Code.MGS206, "'c' is a number of the program already"),
    ("barrier { barrier }", Code.MGS116, "barrier opens no block"),
    ("for c in 0..chunks / 4 { barrier }", Code.MGS304, "a whole number is expected here, got chunks / 4"),
    ("for c in 0..1000000000 { }", Code.MGS411, "the work-groups of a rank go through more than 16384 statements"),
    ("for c in 0..3000 { barrier }", Code.MGS411, "the work-groups of all ranks do 24008 things, at most 16384 are"),
    ("copy output.shard(1)[0] to 2", Code.MGS508, "nobody has written"),
    ("barrier", Code.MGS501, "output chunk 2 of GPU 0 does not end as it should"),
]


@pytest.mark.parametrize(("program", "code", "message"), REFUSED)
def test_what_is_wrong_is_told_where_it_stands(program: str, code: Code, message: str) -> None:
    found, said, _ = refused(text(program))

    assert found is code
    assert message in said


def test_a_wait_for_what_nobody_sends_is_named() -> None:
    code, message, place = refused(text(GATHER.replace("wait p }", "wait p }; wait 1")))

    assert code is Code.MGS502
    assert message == "work-group 0 of rank 0: wait waits for what never comes: no signal of rank 1 is left"
    assert place == "wait 1"


def test_a_barrier_that_some_work_groups_never_reach_is_named() -> None:
    code, message, place = refused(text(f"{GATHER}; groups 0..0 {{ barrier }}"))

    assert (code, place) == (Code.MGS502, "barrier")
    assert message == "work-group 0 of rank 0: barrier waits for what never comes"


def test_work_groups_that_wait_for_each_other_are_named() -> None:
    """Each waits for the rank before it, and only then puts."""
    code, message, place = refused(
        text("for s in 0..ranks - 2 { wait -1; copy output.shard(-s)[self] to 1; signal 1 }")
    )

    ring = " -> ".join(f"work-group 0 of rank {rank}" for rank in (0, 3, 2, 1, 0))
    assert (code, place) == (Code.MGS503, "wait -1")
    assert message == f"work-group 0 of rank 0: these wait for each other: {ring}"


def test_two_work_groups_of_a_rank_can_wait_for_each_other() -> None:
    code, message, _ = refused(text(f"{GATHER}; wait 0 group 1 - self; signal 0 group 1 - self"))

    assert code is Code.MGS503
    assert message.endswith("work-group 0 of rank 0 -> work-group 1 of rank 0 -> work-group 0 of rank 0")


@pytest.mark.parametrize(
    ("written", "code", "message"),
    [
        (text(GATHER).replace("program(k)", "program()"), Code.MGS116, "program names a kernel"),
        (text(GATHER).replace("program(k)", "program(other)"), Code.MGS203, "other"),
        (text(GATHER, loops="get { load 4; store }"), Code.MGS411, "k does not say what its work-groups do to put"),
        (text(GATHER, "y = gemm(x, x)"), Code.MGS310, ""),
        (text(GATHER, chunks=3), Code.MGS512, ""),
        (text("barrier").replace("program {\n    barrier\n  }", ""), Code.MGS209, "kernel k says no program"),
        (text(GATHER, groups=200), Code.MGS401, ""),
    ],
)
def test_a_kernel_that_cannot_be_a_schedule_is_refused(written: str, code: Code, message: str) -> None:
    found, said, _ = refused(written)

    assert found is code and message in said


def test_a_program_is_for_a_collective_alone() -> None:
    written = text(GATHER).replace(
        "y = all_gather(x)", "v = tensor bf16[128, 64] shard cols; y = gemm(all_gather(x), v)"
    )

    code, message, place = refused(written)

    assert (code, place) == (Code.MGS411, "k")
    assert message == "a program is for a collective of equal blocks alone, and w is AG+GEMM"


def test_the_plan_of_a_program_can_be_written_out() -> None:
    case = case_of(text(SCATTER, "y = reduce_scatter(x)"))
    plan = build_op_plan(case, case.schedules[0].body)
    again = text(SCATTER, "y = reduce_scatter(x)") + plan_text(case, plan, "again")

    assert build_op_plan(case, case_of(again).schedules[1].body).steps == plan.steps


def test_a_program_is_no_expression() -> None:
    with pytest.raises(CompileError, match="unknown template 'program'") as caught:
        read_choice(case_of(text(GATHER)), "program(k)")

    hint = caught.value.diagnostics[0].hint
    assert hint.startswith("a program is a schedule of a file: schedule mine for w = program(NAME)")


WRONG_NAMES = "load nosuch.shard(0)[0]; for p in 1..3 { store nope.shard(0) to p }; copy neither.shard(1)[0] to 1; put"


@pytest.mark.parametrize("schedule", ["schedule mine for w = program(k)", ""])
def test_all_unknown_names_of_a_program_are_told_whoever_uses_it(schedule: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_text(text(WRONG_NAMES).replace("schedule mine for w = program(k)", schedule))

    assert [each.message for each in caught.value.diagnostics] == [
        "unknown buffer 'nosuch'",
        "unknown buffer 'nope'",
        "unknown buffer 'neither'",
        "a program has no property 'put'",
    ]


def test_a_sum_is_stored_in_all_its_places_at_once() -> None:
    """A signal between two stores of one sum was lost."""
    program = SCATTER + "; signal 1; wait -1; store scratch.shard(0)[self] to 1"

    code, message, place = refused(text(program, "y = reduce_scatter(x)"))

    assert (code, place) == (Code.MGS526, "store scratch.shard(0)[self] to 1")
    assert message == "this stands behind wait, and a sum is stored in all its places at once"


def test_an_expression_is_evaluated_once_for_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated, evaluate = list[str](), ProgramReader._evaluated

    def counting(reader: ProgramReader, expression: ast.Expression, values: Mapping[str, int]) -> int:
        evaluated.append(expression.span.text)
        return evaluate(reader, expression, values)

    monkeypatch.setattr(ProgramReader, "_evaluated", counting)
    plan_of(text(GATHER))

    assert evaluated.count("0") == 1, "of 3 rounds of 2 work-groups"
    assert evaluated.count("self") == 2, "once for each work-group"
    assert evaluated.count("p") == 3 * 3, "once for each number, where it stands thrice"
