"""Files of Python that are no CommPlan, or none for the workload: each is refused at its place, and nothing is run."""

import re

import pytest

from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.planfile.file import plan_in_text
from magus.compiler.planfile.syncopate.python import MAX_PYTHON_BYTES
from magus.compiler.text.diagnostics import CompileError
from tests.compiler.planfile.syncopate.test_round_trip import ROWS, text_of, written

PYTHON = [
    ("plan = CommPlan(", "line 1: no Python"),
    ("import os\nos.system('true')", "line 2: a call of os.system is not read"),
    ("plan = CommPlan({r: DevicePlan(dev=r) for r in range(4)})", "line 1: an expression that is no call"),
    ("for i in range(4):\n    pass", "line 1: a statement that is no assignment"),
    ("x = [1]\ny = [x, x]", "line 1: a name for what is no region"),
    ("plan = CommPlan({})\nplan = CommPlan({})", "line 2: a name for what is no region and no first CommPlan"),
    ("plan = CommPlan({0: 1, '0': 2})", "line 1: a key that stands twice"),
    ("plan = CommPlan({**{}})", "line 1: a key that stands twice, or is no number"),
    ("plan = CommPlan({}, {}, {}, {}, {})", "line 1: 5 arguments of CommPlan"),
    ("plan = CommPlan({}, device_plans={})", "an argument of CommPlan that is given twice"),
    ("plan = CommPlan(" + "[" * 40 + "]" * 40 + ")", "line 1: brackets more than 24 deep"),
    ("plan = " + "-" * 100_000 + "1", "no Python that can be read"),
    ("plan = a" + ".a" * 100_000, "no Python that can be read"),
    ("plan = a" + ".a" * 900 + "()", "line 1: a call of an expression"),
    ("plan = CommPlan({0x" + "f" * 6000 + ": 1})", "line 1: a number of more than 64 bits"),
    ("plan = CommPlan(-0x" + "f" * 6000 + ")", "line 1: a number of more than 64 bits"),
    ("plan = CommPlan({b'0': 1})", "line 1: an expression that is no call"),
    ("plan = CommPlan(**{'device_plans': {}})", "line 1: arguments behind **"),
    ("plan = CommPlan()", "there is no CommPlan"),
    ("plan = CommPlan({'\\d': 1if 1else 2})", "line 1: an expression"),
    ("plan = lambda: CommPlan({})", "line 1: an expression"),
    ("plan = CommPlan({})()", "line 1: a call of an expression"),
    ("plan = (yield)", "line 1: an expression"),
    ("", "there is no CommPlan"),
    ("#" * (MAX_PYTHON_BYTES + 1), "more than 4 MiB"),
    ("plan = CommPlan(7)", "device_plans: an object is expected here"),
    ("plan = CommPlan({})", "plans of no device are here"),
    ("plan = CommPlan({'x': 1})", "plans of devices x are here"),
    (
        "plan = CommPlan({0: DevicePlan(dev=1), 1: DevicePlan(dev=1), 2: DevicePlan(dev=2), 3: DevicePlan(dev=3)})",
        "plan of device 1",
    ),
]


@pytest.mark.parametrize(("text", "message"), PYTHON)
def test_other_python_is_refused(text: str, message: str) -> None:
    scenario, _, _ = written("gather", 4, "direct(engine=dma(3))")

    with pytest.raises(CompileError) as caught:
        plan_in_text(scenario, text, "plan.py")

    (found,) = caught.value.diagnostics
    assert message in found.message


CHANGED = [
    ("peer=1", "peer=9", Code.MGS307, "a number from 0 to 3"),
    ("peer=1", "peer=0", Code.MGS137, "rank 0 is no peer of itself"),
    ("peer=1", "peer=None", Code.MGS137, "have a peer"),
    ("peer=1", "peer=2", Code.MGS526, "hears nothing"),
    ("chunk_idx=0, ", "", Code.MGS137, "'chunk_idx' is missing"),
    ("slices=((0, 16), (0, 16))", "slices=((0, 17), (0, 16))", Code.MGS526, "rows of several ranks"),
    ("slices=((0, 16), (0, 16))", "slices=((5, 5), (0, 16))", Code.MGS137, "5:5 is empty"),
    ("slices=((0, 16), (0, 16))", "slices=((0, 16),)", Code.MGS137, "1 axes"),
    ("slices=((0, 16), (0, 16))", "slices=((1 << 40, 16), (0, 16))", Code.MGS137, "line "),
    ("slices=((0, 16), (0, 16))", "slices=((999, 1015), (0, 16))", Code.MGS526, "rows of several ranks"),
    ("elem_size=2", "elem_size=4", Code.MGS526, "rows of several ranks"),
    ("strides=(16, 1)", "strides=(32, 1)", Code.MGS526, "no rows of 16 elements"),
    ("op=TransferOp.PUSH", "op=TransferOp.PULL", Code.MGS526, "hears nothing"),
    ("op=TransferOp.PUSH", "op=TransferOp.SHOVE", Code.MGS137, "unknown word"),
    ("Transfer(op=TransferOp.PUSH", "Transfer(color=1, op=TransferOp.PUSH", Code.MGS137, "there is no key 'color'"),
    ('dst_buf="y"', 'dst_buf="z"', Code.MGS501, "does not copy its own block"),
    ("chunk_idx=0, peer=1", "chunk_idx=0, peer=1, reduce_op=ReduceOp.MAX", Code.MGS526, "is no sum"),
    ("chunk_idx=0, peer=1", "chunk_idx=0, peer=1, src_buf=7", Code.MGS137, "given twice"),
    ("XferDependency(depend_rank=3", "XferDependency(depend_rank=7", Code.MGS502, "is not there"),
    ("depend_xfer_idx=0", "depend_xfer_idx=1", Code.MGS508, ""),
    ("XferDependency(depend_rank=3", "XferDependency(depend_rank=2", Code.MGS526, "hears nothing"),
    ("'count': 3", "'count': 0", Code.MGS307, "a number from 1"),
]


@pytest.mark.parametrize(("old", "new", "code", "message"), CHANGED)
def test_a_changed_plan_is_refused(old: str, new: str, code: Code, message: str) -> None:
    scenario, _, text = written("gather", 4, "ring(engine=dma(1))")
    text = text.replace("'count': 1", "'count': 3")
    assert old in text

    with pytest.raises(CompileError) as caught:
        plan_in_text(scenario, text.replace(old, new, 1), "plan.py")

    found = caught.value.diagnostics[0]
    assert found.code is code and message in found.message
    assert found.message.startswith("plan.py") or not message


def test_copies_that_wait_for_each_other_are_refused() -> None:
    scenario, _, text = written("gather", 4, "ring(engine=dma(1))")
    late = re.sub(r"depend_xfer_idx=\d", "depend_xfer_idx=2", text)

    with pytest.raises(CompileError, match="operations wait for each other") as caught:
        plan_in_text(scenario, late, "plan.py")

    assert caught.value.diagnostics[0].code is Code.MGS503


def test_who_adds_says_how_many_sms_copy() -> None:
    scenario, _, text = written("scatter", 4, "ring(engine=sm(8))")
    silent = re.sub(r"MAGUS = \{.*?\n\}\n", "", text, flags=re.DOTALL)

    assert silent != text
    with pytest.raises(CompileError, match="how many SMs copy"):
        plan_in_text(scenario, silent, "plan.py")


def test_the_own_block_must_come_too() -> None:
    scenario, _, text = written("exchange", 4, "direct(engine=dma(3))")
    lines = [line for line in text.splitlines() if "LOCAL_COPY" not in line]

    with pytest.raises(CompileError, match="does not copy its own block"):
        plan_in_text(scenario, "\n".join(lines), "plan.py")


def test_a_call_of_a_library_is_refused() -> None:
    scenario, _, text = written("gather", 4, "direct(engine=dma(3))")
    one = 'Collective(op=CollectiveOp.ALL_GATHER, src_buf="y", src_region=r0, dst_buf="y", dst_region=r0)'
    lines = [f"{one}," if "chunk_idx" in line else line for line in text.splitlines()]

    with pytest.raises(CompileError, match="moves everything in one call"):
        plan_in_text(scenario, "\n".join(lines), "plan.py")


def test_a_plan_for_another_workload_is_refused() -> None:
    _, _, text = written("gather", 4, "direct(engine=dma(3))")

    with pytest.raises(CompileError, match="plans of devices 0, 1, 2, 3 are here, there are 8 ranks"):
        plan_in_text(written("gather", 8, "direct(engine=dma(7))")[0], text, "plan.py")


OTHERS = [
    ("gather", "scatter", "what arrives is gathered, and nothing is summed"),
    ("gather", "reduce", "what arrives is gathered, and nothing is summed"),
    ("gather", "exchange", "all_to_all brings them elsewhere"),
    ("scatter", "gather", "nothing is gathered"),
    ("exchange", "up", "nothing is gathered"),
    ("scatter", "down", "no transfer waits for a kernel"),
]


@pytest.mark.parametrize(("of", "workload", "reason"), OTHERS)
def test_a_plan_for_another_collective_is_refused_once(of: str, workload: str, reason: str) -> None:
    _, _, text = written(of, 4, "direct(engine=dma(3))")
    scenario = compile_text(text_of(workload, 4)).scenario().case

    with pytest.raises(CompileError) as caught:
        plan_in_text(scenario, text, "plan.py")
    (found,) = caught.value.diagnostics
    assert found.code is Code.MGS524 and "the plan of another workload" in found.message and reason in found.message


@pytest.mark.parametrize("of", ["gather", "scatter", "reduce", "exchange", "up", "down"])
@pytest.mark.parametrize("rows", [32, 128])
def test_a_plan_for_other_sizes_is_refused_once(of: str, rows: int) -> None:
    template = {"up": "hetero_fused_1d(chunks=4, engine=dma(3))", "down": "hetero_fused_1d(chunks=4, engine=dma(3))"}
    expression = template.get(of, "ring(engine=sm(8))" if of == "reduce" else "direct(engine=dma(3))")
    _, _, text = written(of, 4, expression)
    scenario = (
        compile_text(text_of(of, 4).replace(f"x = tensor bf16[{ROWS}, ", f"x = tensor bf16[{rows}, ")).scenario().case
    )

    with pytest.raises(CompileError) as caught:
        plan_in_text(scenario, text, "plan.py")
    (found,) = caught.value.diagnostics
    assert found.code is Code.MGS524
    assert f"a tensor of 2 KiB, and here one of {rows * 32 // 1024} KiB is moved" in found.message
