"""CommPlans of Syncopate: written, carried out by other code than Magus's, and read back."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import OpCase, OpPlan, Pattern, TileGroup, Transfer
from magus.compiler.planfile.file import plan_in_text
from magus.compiler.planfile.syncopate.write import syncopate_text
from magus.compiler.planning.build import ScheduleError
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.text.diagnostics import CompileError
from magus.simcore import simulate_op
from tests.helpers.commands import magus
from tests.helpers.marks import examples
from tests.helpers.syncopate.stand_in import Buffers, CommPlan, carried_out, executed

pytestmark = pytest.mark.usefixtures("compiled_core")
ROWS, COLS = 64, 16
WORKLOADS = {
    "gather": f"x = tensor bf16[{ROWS}, {COLS}] shard rows\n y = all_gather(x)",
    "scatter": f"x = tensor bf16[{ROWS}, {COLS}]\n y = reduce_scatter(x)",
    "reduce": f"x = tensor bf16[{ROWS}, {COLS}]\n y = all_reduce(x)",
    "exchange": f"x = tensor bf16[{ROWS}, {COLS}]\n y = all_to_all(x)",
    "up": f"x = tensor bf16[{ROWS}, {COLS}] shard rows\n w = tensor bf16[{COLS}, 32]\n y = gemm(all_gather(x), w)",
    "wide": f"x = tensor bf16[{ROWS}, 1024] shard rows\n w = tensor bf16[1024, 32]\n y = gemm(all_gather(x), w)",
    "down": f"x = tensor bf16[{ROWS}, 64] shard cols\n w = tensor bf16[64, {COLS}] shard rows\n"
    " y = reduce_scatter(gemm(x, w))",
}
LONE = ("direct", "ring", "double_ring", "halving_doubling")
TEMPLATES = {
    **dict.fromkeys(("gather", "scatter", "reduce", "exchange"), LONE),
    **dict.fromkeys(("up", "down"), ("serial", "shard_p2p", "hetero_fused_1d", "hetero_unfused_1d")),
}


def text_of(workload: str, n: int) -> str:
    system = f'mgs 1\nuse "nvidia/h100"\nsystem s {{ gpus {n} x H100; fabric switch(nvswitch, link=nvlink) }}\n'
    return f"{system}workload w on s {{\n {WORKLOADS[workload]}\n}}\n"


def written(workload: str, n: int, expression: str) -> tuple[OpCase, OpPlan, str]:
    scenario = compile_text(text_of(workload, n)).scenario().case
    schedule = resolve_schedule(scenario, expression)
    return scenario, schedule, syncopate_text(scenario, schedule)


def expected(scenario: OpCase, plan: CommPlan, seed: int) -> None:
    """Fill buffers by chance, carry the plan out, and compare what each rank holds with what the collective is."""
    n, pattern, rng = scenario.num_ranks, scenario.shape.pattern, np.random.default_rng(seed)
    per_rank = ROWS // n
    source, *others = plan.device_plans[0].tensors_involved
    terms = rng.integers(0, 1000, (n, ROWS, COLS))
    buffers: Buffers = {
        (rank, name): np.zeros(ROWS * COLS, np.int64) for rank in range(n) for name in (source, *others)
    }
    for rank in range(n):
        own = slice(rank * per_rank, (rank + 1) * per_rank)
        if pattern.gathers:
            buffers[rank, source].reshape(ROWS, COLS)[own] = terms[rank, own]
        else:
            buffers[rank, source][:] = terms[rank].reshape(-1)
    carried_out(plan, buffers, seed)
    for rank in range(n):
        own = slice(rank * per_rank, (rank + 1) * per_rank)
        held = {name: buffers[rank, name].reshape(ROWS, COLS) for name in (source, *others)}
        blocks = np.concatenate([terms[sender, own] for sender in range(n)])
        if pattern.gathers:
            assert np.array_equal(
                held[source], np.concatenate([terms[each, each * per_rank :][:per_rank] for each in range(n)])
            )
        elif others:
            assert np.array_equal(held[others[0]], blocks), "the blocks of all senders, one behind the other"
        elif pattern.reduces:
            assert np.array_equal(held[source][own], terms.sum(axis=0)[own])
        else:
            assert np.array_equal(held[source], terms.sum(axis=0))


def moves(schedule: OpPlan, n: int) -> Counter[Any]:
    """What is moved by whom to whom, in no order."""
    steps = [(rank, step) for rank in range(n) for step in schedule.steps_of(rank) if isinstance(step, Transfer)]
    return Counter((rank, step.direction, step.region, step.peer, step.reduce) for rank, step in steps)


CASES = st.sampled_from([(workload, template) for workload, names in TEMPLATES.items() for template in names])


@examples(60)
@given(
    CASES,
    st.sampled_from([2, 4, 8]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(["dma({})", "sm({})"]),
    st.sampled_from(["put", "get"]),
    st.integers(0, 99),
)
def test_what_is_written_does_it_and_is_read_back(
    case: tuple[str, str], n: int, pieces: int, engine: str, transfer: str, seed: int
) -> None:
    workload, template = case
    chunks = "" if template in ("serial", "shard_p2p") else f"chunks={n * pieces}, "
    put = "" if transfer == "put" or template not in ("direct", "serial") else ", transfer=get"
    expression = f"{template}({chunks}engine={engine.format(n - 1)}{put})"
    try:
        scenario, schedule, text = written(workload, n, expression)
    except (ScheduleError, CompileError):
        assume(False)

    expected(scenario, executed(text), seed)
    again = plan_in_text(scenario, text, "plan.py")

    assert moves(again, n) == moves(schedule, n)
    assert again.engine == schedule.engine and again.tactics == schedule.tactics
    if schedule.engine.copy_engines:
        assert executed(syncopate_text(scenario, again)) == executed(text), "it is written as it was read"


WRITTEN = [
    *(("gather", f"{each}(chunks=16, engine=dma(7))") for each in ("direct", "ring", "double_ring")),
    ("gather", "direct(chunks=16, engine=dma(7), transfer=get)"),
    *((each, "ring(engine=sm(16))") for each in ("scatter", "reduce")),
    ("scatter", "direct(chunks=16, engine=dma(7))"),
    ("exchange", "direct(chunks=16, engine=dma(7))"),
    *(
        (each, f"{name}(engine=dma(7))")
        for each in ("up", "down")
        for name in ("shard_p2p", "hetero_fused_1d(chunks=16, ")
    ),
]
WRITTEN = [(each, expression.replace("(chunks=16, (", "(chunks=16, ")) for each, expression in WRITTEN]


@pytest.mark.parametrize(("workload", "expression"), WRITTEN)
def test_read_back_it_takes_as_long(workload: str, expression: str) -> None:
    scenario, schedule, text = written(workload, 8, expression)

    again = plan_in_text(scenario, text, "plan.py")

    ticks = [simulate_op(scenario, each, unit_bytes=1024).makespan_ticks for each in (schedule, again)]
    assert ticks[1] == pytest.approx(ticks[0], rel=0.02)


def test_kernels_go_wave_by_wave() -> None:
    for workload, name in (("up", "own"), ("down", "g0")):
        scenario, schedule, text = written(workload, 4, "hetero_fused_1d(chunks=8, engine=dma(3))")

        kernels = [step for step in plan_in_text(scenario, text, "plan.py").steps if isinstance(step, TileGroup)]

        ours = [step for step in schedule.steps if isinstance(step, TileGroup)]
        assert kernels[0].name == name
        assert [set(each.regions) for each in kernels] == [set(each.regions) for each in ours]


def shown(plan: CommPlan) -> str:
    """A plan as Python shows it, members of enumerations as they are written."""
    return re.sub(r"<(\w+\.\w+): [^>]+>", r"\1", repr(plan))


def test_what_repr_shows_of_a_plan_is_read() -> None:
    scenario, _, text = written("gather", 4, "ring(chunks=8, engine=dma(3))")

    again = plan_in_text(scenario, shown(executed(text)), "plan.py")

    assert again.steps == plan_in_text(scenario, text, "plan.py").steps
    assert str(again.engine) == "dma(3)", "an engine for each stream"


def test_regions_may_have_more_axes() -> None:
    scenario, _, text = written("exchange", 4, "direct(engine=dma(3))")
    one = re.compile(r"strides=\(16, 1\), slices=\(\((\d+), \d+\), \(0, 16\)\)")

    three = one.sub(
        lambda at: f"strides=(256, 16, 1), slices=(({int(at[1]) // 16}, {int(at[1]) // 16 + 1}), (0, 16), (0, 16))",
        text,
    )

    assert "strides=(256, 16, 1)" in three
    assert plan_in_text(scenario, three, "plan.py").steps == plan_in_text(scenario, text, "plan.py").steps


REFUSED = [
    ("reduce", "direct(engine=dma(7))", "sums what is sent on, and a copy that is written waits for products"),
    ("gather", "nvls(engine=sm(16))", "goes to all by a switch"),
    ("gather", "direct(engine=sm(16), protocol=ll)", "carry no flags"),
    ("gather", "direct(engine=dma(7, channels))", "one after the other"),
    ("wide", "uniform_fused_2d(chunks=16, engine=dma(7))", "some columns"),
    (
        "down",
        "pipelined(engine=dma(7), algorithm=ring)",
        "sums what is sent on, and a copy that is written waits for products",
    ),
]


@pytest.mark.parametrize(("workload", "expression", "reason"), REFUSED)
def test_what_no_comm_plan_does_is_refused(workload: str, expression: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason) as caught:
        written(workload, 8, expression)

    assert caught.value.rejection.code is Code.MGS550
    assert caught.value.rejection.hint


def test_a_broadcast_is_refused() -> None:
    text = text_of("gather", 4).replace("shard rows", "").replace("all_gather", "broadcast")
    scenario = compile_text(text).scenario().case
    assert scenario.shape.pattern is Pattern.BROADCAST

    with pytest.raises(ScheduleError, match="no CommPlan"):
        syncopate_text(scenario, resolve_schedule(scenario, "ring(engine=sm(8))"))


def test_the_command_writes_a_file_that_the_command_and_a_file_read(tmp_path: Path) -> None:
    file, out = tmp_path / "w.mgs", tmp_path / "plan.py"
    file.write_text(text_of("up", 4).replace(f"{ROWS}, {COLS}", "1024, 1024").replace(f"[{COLS}, 32]", "[1024, 1024]"))
    schedule = "hetero_unfused_1d(chunks=8, engine=sm(16))"

    done = magus("plan", str(file), "--schedule", schedule, "--format", "syncopate", "-o", str(out))

    assert done.exit_code == 0
    assert "MGS561" in done.stderr and "wave by wave" in done.stderr
    assert "'us': " in out.read_text() and "'read_back_us': " in out.read_text()
    assert magus("simulate", str(file), "--schedule", str(out)).exit_code == 0
    file.write_text(f'{file.read_text()}schedule theirs for w = import "plan.py"\n')
    assert magus("check", str(file)).exit_code == 0
