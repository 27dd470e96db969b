"""Scenarios of every pattern and every schedule that templates write for them, for tests of plans as files."""

from collections.abc import Iterator
from functools import cache
from itertools import product

from magus.compiler import compile_text
from magus.compiler.ir import Direction, EngineChoice, EngineKind, ExecutionOptions, OpCase, OpChoice, OpPlan
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.templates import ALL_TEMPLATES

HEAD = 'use "amd/mi300x"\nsystem quad { gpus 4 x MI300X; fabric full_mesh(xgmi) }\n'
GEMM = "x = tensor bf16[512, 1024]; w = tensor bf16[1024, 2048]; y = gemm(x, w)"
BODIES = {
    "AG+GEMM": (
        "x = tensor bf16[512, 1024] shard rows; w = tensor bf16[1024, 2048] shard cols; y = gemm(all_gather(x), w)"
    ),
    "GEMM+RS": (
        "h = tensor bf16[512, 1024] shard cols; w = tensor bf16[1024, 2048] shard rows; y = reduce_scatter(gemm(h, w))"
    ),
    "GEMM+AR": "h = tensor bf16[512, 256] shard cols; w = tensor bf16[256, 64] shard rows; y = all_reduce(gemm(h, w))",
    "A2A+GEMM": "x = tensor bf16[512, 1024]; w = tensor bf16[1024, 64]; y = gemm(all_to_all(x), w)",
    "uneven A2A+GEMM": (
        "x = tensor bf16[512, 1024]; w = tensor bf16[1024, 64]; y = gemm(all_to_all(x, rows=[192, 64, 192, 64]), w)"
    ),
    "all_gather": "x = tensor bf16[512, 1024] shard rows; y = all_gather(x)",
    "reduce_scatter": "x = tensor bf16[512, 1024]; y = reduce_scatter(x)",
    "all_reduce": "x = tensor bf16[512, 1024]; y = all_reduce(x)",
    "all_to_all": "x = tensor bf16[512, 1024]; y = all_to_all(x)",
    "uneven": "x = tensor bf16[512, 1024]; y = all_to_all(x, rows=[256, 128, 0, 128])",
    "broadcast": "x = tensor bf16[512, 1024]; y = broadcast(x)",
    "send_recv": "x = tensor bf16[512, 1024]; y = send_recv(x)",
    "GEMM || all_gather": f"{GEMM}; v = tensor bf16[512, 64] shard rows; g = all_gather(v)",
    "GEMM || all_to_all": f"v = tensor bf16[512, 64]; t = all_to_all(v); {GEMM}",
    "AG+attention": (
        "q = tensor bf16[512, 4 * 64] shard rows; kv = tensor bf16[512, 2 * 2 * 64] shard rows;"
        " o = attention(q, all_gather(kv), heads=4, kv_heads=2)"
    ),
    "A2A+grouped_gemm": (
        "x = tensor bf16[512, 256]; w = tensor bf16[2 * 256, 64]; y = grouped_gemm(all_to_all(x), w, rows=[256, 256])"
    ),
    "GEMM+A2A": "h = tensor bf16[512, 256]; w = tensor bf16[256, 64]; y = all_to_all(gemm(h, w))",
    "GEMM+A2A+GEMM": (
        "x = tensor bf16[512, 256]; w = tensor bf16[256, 64]; v = tensor bf16[64, 128]; "
        "y = gemm(all_to_all(gemm(x, w), rows=[192, 64, 192, 64]), v)"
    ),
    "side by side": (
        "x = tensor bf16[512, 256]; w = tensor bf16[256, 512] shard cols; v = tensor bf16[512, 128]; "
        "y = gemm(all_to_all(gemm(x, w)), v)"
    ),
    "kernel": "x = tensor bf16[512, 1024]; y = tensor bf16[512, 1024]; z = add(x, y)",
}
ENGINES = (EngineChoice(EngineKind.DMA, 3), EngineChoice(EngineKind.SM, 8))


def text_of(body: str) -> str:
    """A file with the workload ``w`` of that name."""
    return HEAD + f"workload w on quad {{ {BODIES[body]} }}\n"


@cache
def scenario_of(body: str) -> OpCase:
    """Its scenario."""
    return compile_text(text_of(body)).scenario().case


def schedules_of(body: str) -> Iterator[OpPlan]:
    """Every template, put and got, by copy engines and by SMs."""
    scenario = scenario_of(body)
    for template in ALL_TEMPLATES:
        for chunks, direction, engine in product((4, 8), Direction, ENGINES):
            choice = OpChoice(template.name, chunks, engine, template.default_streams, ExecutionOptions(direction))
            if reject_choice(scenario, choice) is None:
                yield build_op_plan(scenario, choice)


@cache
def all_schedules(body: str) -> tuple[OpPlan, ...]:
    """The same, made once."""
    return tuple(schedules_of(body))
