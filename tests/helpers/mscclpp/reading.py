"""Reading execution plans of MSCCL++ on scenarios that they fit, for tests."""

from collections.abc import Callable
from typing import Any

import pytest

from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import OpCase, OpPlan, WrittenPlan
from magus.compiler.planfile.mscclpp.read import read_mscclpp
from magus.compiler.planning.build import build_op_plan
from magus.compiler.text.diagnostics import CompileError, Report, Source, Span
from magus.compiler.text.json_forms import Item, JsonPlace
from tests.helpers.mscclpp import programs as mscclpp_programs
from tests.helpers.mscclpp.builder import Block, Program, here

Json = dict[str, Any]
BODIES = {
    "allgather": "x = tensor bf16[512, 64] shard rows; y = all_gather(x)",
    "allreduce": "x = tensor bf16[512, 64]; y = all_reduce(x)",
    "reducescatter": "x = tensor bf16[512, 64]; y = reduce_scatter(x)",
    "alltoall": "x = tensor bf16[512, 64]; y = all_to_all(x)",
}
LOOPS: dict[str, Callable[[int], Program]] = {
    "all_reduce in loops": mscclpp_programs.all_reduce_in_loops,
    "all_to_all in loops": mscclpp_programs.all_to_all_in_loops,
    "all_to_all in loops by ports": lambda n: mscclpp_programs.all_to_all_in_loops(n, kind="port"),
    "all_reduce round in loops": mscclpp_programs.all_reduce_round_in_loops,
}
PROGRAMS: dict[str, Callable[[int], Program]] = {
    "all_gather": mscclpp_programs.all_gather,
    "all_gather by ports": lambda n: mscclpp_programs.all_gather(n, kind="port"),
    "all_gather by groups": lambda n: mscclpp_programs.all_gather(n, group=2),
    "reduce_scatter": mscclpp_programs.reduce_scatter,
    "all_reduce": mscclpp_programs.all_reduce,
    "all_reduce by reading": mscclpp_programs.all_reduce_by_reading,
    "all_reduce by packets": mscclpp_programs.all_reduce_by_packets,
    "all_reduce by switch": mscclpp_programs.all_reduce_by_switch,
    "all_to_all": mscclpp_programs.all_to_all,
    "all_gather round": mscclpp_programs.all_gather_round,
    "all_reduce round": mscclpp_programs.all_reduce_round,
    **LOOPS,
}


def text_of(collective: str, n: int) -> str:
    system = f'use "nvidia/h100"\nsystem s {{ gpus {n} x H100; fabric switch(nvswitch, link=nvlink) }}\n'
    return system + f"workload w on s {{ {BODIES[collective]} }}\n"


def scenario_of(collective: str, n: int) -> OpCase:
    return compile_text(text_of(collective, n)).scenario().case


def read(scenario: OpCase, document: object) -> tuple[WrittenPlan, Report]:
    report = Report()
    with report.attempt():
        span = Span(Source("a.mgs", ""), 0, 0)
        return read_mscclpp(scenario, Item(document, "", JsonPlace("m.json", span, report))), report
    raise CompileError(report.diagnostics)


def schedule_of(program: Program) -> tuple[OpCase, OpPlan]:
    scenario = scenario_of(program.collective, program.n)
    return scenario, build_op_plan(scenario, read(scenario, program.document())[0], "imported")


def refused(program: Program | Json, scenario: OpCase | None = None) -> tuple[Code, str]:
    document = program.document() if isinstance(program, Program) else program
    n = len(document["gpus"])
    with pytest.raises(CompileError) as caught:
        read(scenario or scenario_of(document["collective"], n), document)
    (found,) = caught.value.diagnostics
    return found.code, found.message


def by_barrier(release: str) -> Program:
    """An all_reduce in which one threadblock moves and another sums, joined by a barrier or a semaphore."""
    program = Program("allreduce", 4, (4, 4, 4))
    for gpu in program.gpus:
        gpu.semaphores = [0]
        moving, summing = Block(gpu), Block(gpu)
        moving.handshake(*gpu.others)
        for peer in gpu.others:
            moving.do("put", [here("i", peer)], [moving.remote(peer, "s", gpu.rank)], channel_type="memory")
        moving.handshake(*gpu.others)
        if release == "barrier":
            for block in (moving, summing):
                block.ops.append({"name": "barrier", "barrier_id": 0, "num_threadblocks": 2})
        elif release:
            moving.ops.append({"name": "sem_release", "semaphore_ids": [0]})
            summing.ops.append({"name": "sem_acquire", "semaphore_ids": [0]})
        parts = [here("i", gpu.rank), *(here("s", peer) for peer in gpu.others)]
        targets = [summing.remote(peer, "i", gpu.rank) for peer in gpu.others]
        summing.do("res", parts, [here("i", gpu.rank), *targets], channel_type="memory", reduce_op="sum")
    return program
