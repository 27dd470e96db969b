"""Execution plans written for MSCCL++, read back, checked and simulated."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from magus.compiler import compile_text
from magus.compiler.ir import OpCase, OpPlan, Transfer
from magus.compiler.planfile.mscclpp.threadblocks import MAX_BLOCK_OPS
from magus.compiler.planfile.mscclpp.write import mscclpp_document
from magus.compiler.planning.build import ScheduleError, build_op_plan
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.verify.check import check_plan
from magus.simcore import simulate_op
from tests.helpers import paths
from tests.helpers.commands import magus
from tests.helpers.mscclpp.reading import read, text_of

SAME_TIME = [
    ("allgather", 4, "direct(chunks=16, engine=sm(12))", "sm(12)"),
    ("allgather", 8, "direct(chunks=8, engine=sm(4))", "sm(4)"),
    ("allgather", 8, "direct(engine=dma(7))", "dma(7)"),
    ("allgather", 8, "ring(chunks=16, engine=sm(4))", "sm(4)"),
    ("allgather", 8, "ring(chunks=8, engine=sm(16))", "sm(16)"),
    ("allgather", 8, "double_ring(engine=sm(16))", "sm(16)"),
    ("allgather", 8, "double_ring(chunks=16, engine=sm(8))", "sm(8)"),
    ("allgather", 4, "serial(engine=sm(12))", "sm(12)"),
    ("allgather", 8, "direct(chunks=8, engine=sm(32))", "sm(28)"),
    ("allgather", 8, "halving_doubling(engine=sm(6))", "sm(6)"),
    ("alltoall", 4, "direct(chunks=16, engine=dma(3))", "dma(3)"),
    ("alltoall", 8, "direct(engine=sm(16))", "sm(14)"),
    ("allreduce", 4, "direct(chunks=4, engine=sm(12))", "sm(12)"),
    ("allreduce", 8, "direct(engine=sm(28))", "sm(28)"),
    ("allreduce", 8, "direct(engine=dma(7))", "dma(7)"),
    ("reducescatter", 4, "direct(engine=sm(2))", "sm(2)"),
    ("reducescatter", 8, "direct(chunks=16, engine=sm(14))", "sm(14)"),
    ("allreduce", 4, "direct(chunks=8, engine=sm(12), protocol=ll)", "sm(12)"),
]
SAME_TICKS = [
    ("allreduce", 8, "ring(engine=dma(7))", "dma(7)"),
    ("allreduce", 4, "ring(chunks=8, engine=dma(4))", "dma(4)"),
    ("allreduce", 8, "nvls(engine=sm(16))", "sm(16)"),
    ("allreduce", 4, "nvls(chunks=8, engine=sm(8))", "sm(8)"),
    ("allgather", 8, "nvls(engine=sm(16))", "sm(16)"),
    ("allgather", 8, "direct(engine=sm(14), protocol=ll)", "sm(14)"),
    ("allgather", 8, "ring(chunks=16, engine=sm(4), protocol=ll)", "sm(4)"),
    ("allreduce", 8, "direct(engine=sm(14), protocol=ll)", "sm(14)"),
    ("alltoall", 8, "direct(engine=sm(14), protocol=ll)", "sm(14)"),
    ("reducescatter", 8, "direct(engine=sm(14), protocol=ll)", "sm(14)"),
]
OTHERS = [
    # Block by block here; a kernel of its own exchanges all blocks at once (simcore/lower/one_kernel.py).
    ("allreduce", 8, "one_shot(engine=sm(14))", "sm(14)"),
    ("allgather", 8, "double_ring(chunks=32, engine=sm(7))", "sm(6)"),
    ("allreduce", 8, "direct(chunks=32, engine=sm(28))", "sm(28)"),
]
TOP_LEVEL = {
    *("name", "collective", "protocol", "inplace", "reuse_resources", "gpus", "num_threads_per_block"),
    *("use_double_scratch_buffer", "buffer_alignment", "min_message_size", "max_message_size"),
}


def written(collective: str, n: int, expression: str) -> tuple[OpCase, OpPlan, dict[str, Any]]:
    scenario = compile_text(text_of(collective, n).replace("[512, 64]", "[4096, 1024]")).scenario().case
    schedule = resolve_schedule(scenario, expression, lambda warnings: None)
    return scenario, schedule, json.loads(json.dumps(mscclpp_document(scenario, schedule)))


@pytest.mark.quick(3)
@pytest.mark.parametrize(("collective", "n", "expression", "engine"), [*SAME_TIME, *SAME_TICKS, *OTHERS])
def test_read_back_it_does_the_same_by_the_same_engines(collective: str, n: int, expression: str, engine: str) -> None:
    scenario, _, document = written(collective, n, expression)

    plan, _ = read(scenario, document)
    again = build_op_plan(scenario, plan, "again")

    assert not check_plan(scenario, again)
    assert str(again.engine) == engine
    assert again.symmetric or expression.startswith("halving_doubling"), "ranks that do the same are read as alike"


@pytest.mark.quick(3)
@pytest.mark.parametrize(("collective", "n", "expression", "engine"), SAME_TIME)
def test_read_back_it_takes_as_long(collective: str, n: int, expression: str, engine: str) -> None:
    scenario, schedule, document = written(collective, n, expression)

    again = build_op_plan(scenario, read(scenario, document)[0], "again")

    ticks = [simulate_op(scenario, each, unit_bytes=1024).makespan_ticks for each in (schedule, again)]
    assert ticks[1] == pytest.approx(ticks[0], rel=0.01)


@pytest.mark.quick(3)
@pytest.mark.parametrize(("collective", "n", "expression", "engine"), SAME_TICKS)
def test_read_back_it_takes_the_same_ticks(collective: str, n: int, expression: str, engine: str) -> None:
    scenario, schedule, document = written(collective, n, expression)

    again = build_op_plan(scenario, read(scenario, document)[0], "again")

    for unit_bytes in (1024, 8192):
        results = [simulate_op(scenario, each, unit_bytes=unit_bytes) for each in (schedule, again)]
        assert results[0].makespan_ticks == results[1].makespan_ticks


@pytest.mark.quick(5)
@pytest.mark.parametrize(("collective", "n", "expression", "engine"), [*SAME_TIME, *SAME_TICKS, *OTHERS])
def test_the_form_is_what_the_loader_takes(collective: str, n: int, expression: str, engine: str) -> None:
    document = written(collective, n, expression)[2]

    assert set(document) >= TOP_LEVEL, "a plan that lacks one ends the loader"
    sent, heard = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for gpu in document["gpus"]:
        channels, *switches = gpu["channels"]
        assert all(each["channel_type"] == "switch" for each in switches)
        for block in gpu["threadblocks"]:
            assert 0 < len(block["ops"]) <= MAX_BLOCK_OPS
            own = block["channels"][0]
            for op in block["ops"]:
                for channel in op.get("channel_ids", ()):
                    peer = channels["connected_to"][own["channel_ids"][channel]]
                    sent[gpu["id"], peer] += op["name"] == "signal"
                    heard[peer, gpu["id"]] += op["name"] == "wait"
    for gpu in document["gpus"]:
        ops = [op for block in gpu["threadblocks"] for op in block["ops"]]
        numbers = {
            name: sorted(number for op in ops if op["name"] == name for number in op["semaphore_ids"])
            for name in ("sem_release", "sem_acquire")
        }
        assert numbers["sem_release"] == numbers["sem_acquire"] == list(range(len(gpu["semaphores"])))
    assert sent == heard, "a signal that nobody waits for would end a wait of the next launch"


def test_it_says_what_it_was_written_from() -> None:
    _, schedule, document = written("allgather", 4, "direct(engine=dma(3))")

    assert document["magus"]["schedule"] == schedule.expression
    assert document["magus"]["plan"].startswith("sha256:")


@pytest.mark.parametrize(
    ("collective", "expression", "reason"),
    [
        ("reducescatter", "nvls(engine=sm(16))", "is a sum for one rank"),
        ("allgather", "nvls(engine=sm(66))", "threadblocks, more than the 64"),
        ("allreduce", "ring(engine=sm(8))", "adds where it lands"),
        ("reducescatter", "ring(engine=dma(7))", "sums a part of the result of another rank"),
        ("allgather", "direct(engine=sm(16), transfer=get)", "is a get"),
        ("allgather", "direct(engine=sm(16), protocol=ll128)", "packets of 128 bytes"),
        ("allgather", "direct(engine=dma(3))", "fewer engines than peers"),
        ("allgather", "serial(engine=sm(16, library))", "engines of a plan"),
        ("allgather", "direct(chunks=512, engine=sm(7))", "operations, at most 64"),
        ("allgather", "ring(engine=sm(64))", "threadblocks, more than the 64"),
    ],
)
def test_what_no_execution_plan_does_is_refused(collective: str, expression: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason) as error:
        written(collective, 8, expression)

    assert error.value.rejection.code.name == "MGS550"
    assert error.value.rejection.hint


def test_a_broadcast_is_refused() -> None:
    text = text_of("allreduce", 4).replace("all_reduce(x)", "broadcast(x)")
    scenario = compile_text(text).scenario().case

    with pytest.raises(ScheduleError, match="no execution plan of MSCCL"):
        mscclpp_document(scenario, resolve_schedule(scenario, "direct(engine=dma(3))", lambda warnings: None))


def test_uneven_parts_are_no_reason_where_no_plan_exists_at_all() -> None:
    workload = "x = tensor bf16[5, 6144] shard cols; v = tensor bf16[6144, 4096] shard rows; y = all_reduce(gemm(x, v))"
    system = "system s { gpus 6 x H100; fabric switch(nvswitch, link=nvlink) }"
    scenario = compile_text(f'use "nvidia/h100"\n{system}\nworkload w on s {{ {workload} }}').scenario().case

    with pytest.raises(ScheduleError, match=r"no execution plan of MSCCL\+\+ does GEMM\+AR"):
        mscclpp_document(scenario, resolve_schedule(scenario, "serial(engine=sm(16))", lambda warnings: None))


def test_the_command_writes_a_file_that_the_command_reads(tmp_path: Any) -> None:
    file, out = paths.ROOT / "examples/all_gather_h100.mgs", tmp_path / "plan.json"

    done = magus("plan", file, "--schedule", "direct(engine=dma(7))", "--format", "mscclpp", "-o", out)
    assert done.exit_code == 0, done.output
    again = magus("simulate", file, "--schedule", out, "--json")
    assert again.exit_code == 0, again.output


def test_the_command_refuses_with_a_hint() -> None:
    file = paths.ROOT / "examples/gemm_rs_h100.mgs"

    done = magus("plan", file, "--schedule", "shard_p2p(engine=dma(1))", "--format", "mscclpp")

    assert done.exit_code == 1
    assert "MGS550 error: no execution plan of MSCCL++ does GEMM+RS\n  help: it does a lone" in done.stderr


def test_two_rings_wait_for_each_other_nowhere() -> None:
    """A threadblock that sent one way and waited for what comes the other way would make them one."""
    scenario, _, document = written("allgather", 8, "double_ring(engine=sm(16))")

    steps = [step for step in read(scenario, document)[0].steps if isinstance(step, Transfer)]
    ways = {step.signal: step.peer for step in steps}
    assert set(ways.values()) == {1, 7}
    assert all(ways.get(name) == step.peer for step in steps for name in step.after)


def test_a_difference_of_time_is_reported(tmp_path: Path) -> None:
    file, out = tmp_path / "a.mgs", tmp_path / "plan.json"
    file.write_text(text_of("allgather", 8).replace("[512, 64]", "[4096, 1024]"))
    words = ("plan", file, "--format", "mscclpp", "-o", out, "--schedule")

    same = magus(*words, "double_ring(engine=sm(16))")
    times = json.loads(out.read_text())["magus"]
    assert "MGS561" not in same.output and times["read_back_us"] == pytest.approx(times["us"], rel=0.02)

    other = magus(*words, "double_ring(chunks=32, engine=sm(7))")
    times = json.loads(out.read_text())["magus"]
    assert other.exit_code == 0 and "MGS561 warning: read back, the plan takes" in other.stderr
    assert "has sm(6) for sm(7)" in other.stderr and times["read_back_us"] > 1.02 * times["us"]
