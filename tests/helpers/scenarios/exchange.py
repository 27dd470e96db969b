"""A GEMM behind a kernel and its all_to_all, as ops of a graph: blocks below each other, or side by side."""

from functools import cache

from magus.compiler import compile_text
from magus.compiler.ir import EngineChoice, EngineKind, OpCase, OpChoice, OpMode, Scenario, Schedule, Workload
from magus.compiler.planning.build import expression_of

RANKS = 4
DMA, SM = EngineChoice(EngineKind.DMA, 3), EngineChoice(EngineKind.SM, 16)

SYSTEM = """
use "nvidia/h100"
system hgx { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload layer on hgx {
"""
TENSORS = {
    "below": """
  x = tensor bf16[2048, 512]; w = tensor bf16[512, 1024]; v = tensor bf16[1024, 512]
""",
    "beside": """
  q = tensor bf16[2048, 768]; x = tensor bf16[512, 1024]; v = tensor bf16[1024, 1024]
""",
}
PAIR = {
    "below": "  y = gemm(all_to_all(gemm(x, w)), v)\n",
    "beside": "  y = gemm(all_to_all(attention(q, heads=2, kv_heads=2)), v)\n",
}
REST = {"below": "  z = norm(y)\n  repeat 3 z as x\n", "beside": "  z = norm(y)\n"}

CHOICES = (
    OpChoice("uniform_fused_1d", 16, DMA),
    OpChoice("uniform_fused_1d", 8, SM),
    OpChoice("hetero_fused_1d", 8, DMA),
    OpChoice("hetero_unfused_1d", 8, DMA, streams=1),
    OpChoice("hetero_unfused_1d", 8, DMA, streams=4),
    OpChoice("shard_p2p", 4, SM),
    OpChoice("pipelined", 16, DMA),
)
SLICED = OpChoice("uniform_fused_2d", 8, DMA)
"""Slices of the inner dimension: of blocks side by side, as heads are, a kernel takes one of each."""

CASES = tuple((kind, choice) for kind in ("below", "beside") for choice in (*CHOICES, SLICED))
ADDED_BESIDE = tuple((kind, choice) for kind, choice in CASES if kind == "beside" and choice.streams > 1)
"""A pair has no plan in which kernels of several streams add to the same tiles."""


def named(value: object) -> str:
    """A case in the name of its test."""
    return expression_of(value) if isinstance(value, OpChoice) else str(value)


@cache
def exchange(kind: str) -> Scenario:
    """The graph: ``y`` is the pair, ``y_gemm`` the GEMM behind it, and ``z`` is made of its rows."""
    return compile_text(f"{SYSTEM}{TENSORS[kind]}{PAIR[kind]}{REST[kind]}}}\n").workloads[0]


def as_pair(kind: str) -> OpCase:
    """Both kernels and the all_to_all between them as one workload."""
    return compile_text(f"{SYSTEM}{TENSORS[kind]}{PAIR[kind]}}}\n").workloads[0].case


def both(kind: str) -> Workload:
    """The two ops alone."""
    graph = exchange(kind).workload
    return Workload("both", "", graph.ops[:2])


def along(choice: OpChoice) -> Schedule:
    """The pair by a template, and the GEMM cut along it."""
    return Schedule("along", (OpMode("y", choice),), chained=("y_gemm",))
