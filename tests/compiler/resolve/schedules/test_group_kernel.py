"""Kernels by what their work-groups do: what is read, and what is refused, where and why."""

import pytest

from magus.compiler import CompileError, compile_text, format_text
from magus.compiler.codes import Code
from magus.compiler.ir import Arbitration, GroupKernel, OpChoice, WaveLoop, WithLoaded, WrittenPlan
from magus.compiler.planning.build import ScheduleError, build_op_plan, declared
from magus.compiler.resolve.schedules.from_text import read_choice

PULL = """kernel pull {
  groups 24
  waves 4
  request 16 B
  arbitration fair
  put { load 8; store }
  get { load 16; waitcnt 8; reduce }
}
"""


def text(
    kernel: str, op: str = "y = reduce_scatter(x)", schedule: str = "= direct(engine=sm(pull), transfer=get)"
) -> str:
    shard = " shard rows" if "gather" in op else ""
    return f"""use "nvidia/h100"
param U = 16 in 8..32 x2
system s {{ gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }}
{kernel}
workload w on s {{ x = tensor bf16[64, 128]{shard}; {op} }}
schedule mine for w {schedule}
"""


def named(written: str) -> GroupKernel:
    body = compile_text(written).scenario("w").case.schedules[0].body
    assert isinstance(body, OpChoice | WrittenPlan)
    assert body.engine.kernel is not None
    assert body.engine.count == body.engine.kernel.groups
    return body.engine.kernel


def test_all_statements_are_read() -> None:
    loops = WaveLoop(8), WaveLoop(16, 8, WithLoaded.REDUCE)

    assert named(text(PULL)) == GroupKernel("pull", 24, *loops, 4, 16, Arbitration.FAIR)


def test_what_is_not_said_has_its_usual_value() -> None:
    assert named(text("kernel pull { groups 24; get { load U; reduce } }")) == GroupKernel(
        "pull", 24, None, WaveLoop(16, 0, WithLoaded.REDUCE)
    )


def test_a_plan_and_an_outline_name_a_kernel_too() -> None:
    kernel = named(text(PULL))
    steps = "; ".join(f"x{k} = get y.shard({k}) from {k} signal s{k}" for k in (1, 2, 3))
    plan = f"{{ plan by sm(pull) alone; {steps} }}"

    assert named(text(PULL.replace("reduce", "store"), "y = all_gather(x)", plan)).name == kernel.name


def test_an_expression_finds_kernels_that_schedules_name() -> None:
    case = compile_text(text(PULL)).scenario("w").case

    assert read_choice(case, "direct(engine=sm(pull))").engine.kernel == named(text(PULL))
    assert str(read_choice(case, "direct(engine=sm(pull))").engine) == "sm(pull)"


def test_a_kernel_is_printed_as_it_is_read() -> None:
    printed = format_text(text(PULL))

    assert "get { load 16; waitcnt 8; reduce }" in printed
    assert named(printed) == named(text(PULL))


@pytest.mark.parametrize(
    ("kernel", "code", "place", "reason"),
    [
        ("kernel pull { get { load 8; reduce } }", Code.MGS209, "kernel pull", "groups"),
        ("kernel pull { groups 8 }", Code.MGS209, "kernel pull", "put or get"),
        ("kernel pull { groups 100; get { load 8; reduce } }", Code.MGS401, "pull", "at most 66 of H100's 132"),
        ("kernel pull { groups 0; get { load 8; reduce } }", Code.MGS307, "0", "from 1"),
        ("kernel pull { groups 8; gruops 8; get { load 8; reduce } }", Code.MGS201, "gruops", "groups"),
        ("kernel pull { groups 8; groups 9; get { load 8; reduce } }", Code.MGS206, "groups 9", "twice"),
        ("kernel pull { groups 8; get { load 8; waitcnt 8; reduce } }", Code.MGS508, "waitcnt 8", "none of the 8"),
        ("kernel pull { groups 8; get { load 8; waitcnt 3; reduce } }", Code.MGS304, "waitcnt 3", "turns of 5"),
        ("kernel pull { groups 8; get { load 8 } }", Code.MGS116, "get", "store or reduce"),
        ("kernel pull { groups 8; get { reduce; load 8 } }", Code.MGS116, "get", "store or reduce"),
        ("kernel pull { groups 8; get { load 8; store; reduce } }", Code.MGS116, "get", "store or reduce"),
        ("kernel pull { groups 8; put { load 8; waitcnt 0; store } }", Code.MGS201, "waitcnt", "put has"),
        ("kernel pull { groups 8; get }", Code.MGS116, "get", "opens a block"),
        ("kernel pull { groups 8 { load 8 }; get { load 8; reduce } }", Code.MGS116, "groups 8", "no block"),
        ("kernel pull { groups 8; arbitration fare; get { load 8; reduce } }", Code.MGS204, "fare", "arbitration"),
        ("kernel pull { x = 8 }", Code.MGS202, "x = 8", "defines no names"),
        ("kernel push { groups 8; get { load 8; reduce } }", Code.MGS203, "pull", "unknown kernel"),
        ("link pull extends nvlink { }", Code.MGS210, "pull", "is a link"),
    ],
)
def test_a_mistake_is_told_in_its_place(kernel: str, code: Code, place: str, reason: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_text(text(kernel))

    found = next(each for each in caught.value.diagnostics if each.code is code)
    assert found.span is not None
    assert found.span.text.startswith(place)
    assert reason in f"{found.message} {found.hint}"


@pytest.mark.parametrize(
    ("kernel", "op", "expression", "reason"),
    [
        ("kernel pull { groups 8; get { load 8; store } }", "y = all_gather(x)", "direct(engine=sm(pull))", "to put"),
        (PULL, "y = all_gather(x)", "direct(engine=sm(pull), transfer=get)", "sums nothing"),
        (PULL, "y = reduce_scatter(x)", "direct(engine=sm(pull), protocol=ll)", "protocol simple"),
    ],
)
def test_a_schedule_asks_no_more_than_the_kernel_does(kernel: str, op: str, expression: str, reason: str) -> None:
    with pytest.raises((CompileError, ScheduleError)) as caught:
        case = compile_text(text(kernel, op, f"= {expression}")).scenario("w").case
        body = case.schedules[0].body
        assert isinstance(body, OpChoice)
        build_op_plan(case, body)

    assert Code.MGS411.name in str(caught.value)
    assert reason in str(caught.value)


def test_steps_of_a_plan_ask_no_more_than_the_kernel_does() -> None:
    plan = "{ plan by sm(pull) alone; x1 = put y.shard(0) to 1 signal s1 }"
    with pytest.raises(CompileError, match="to put"):
        compile_text(text("kernel pull { groups 8; get { load 8; store } }", "y = all_gather(x)", plan))


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ("x1 = put y.shard(0) to 1 signal s1 after s9", Code.MGS502),
        ("x1 = put y.shard(0) to 1 signal s1 after s2; x2 = put y.shard(0) to 2 signal s2 after s1", Code.MGS503),
    ],
)
def test_waits_that_never_end_are_told_at_the_step(steps: str, code: Code) -> None:
    plan = f"{{ plan by sm(pull) alone; {steps} }}"
    with pytest.raises((CompileError, ScheduleError)) as caught:
        case = (
            compile_text(text("kernel pull { groups 8; put { load 8; store } }", "y = all_gather(x)", plan))
            .scenario("w")
            .case
        )
        declared(case, case.schedules[0])

    assert code.name in str(caught.value)
    assert "x1" in str(caught.value) or "s9" in str(caught.value)
