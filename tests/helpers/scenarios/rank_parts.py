"""Collectives of tensors that ranks hold in full, of any number of rows."""

from magus.compiler import compile_text
from magus.compiler.ir import OpCase

KINDS = ("GEMM+AR", "all_reduce", "broadcast", "send_recv")


def text_of(kind: str, rows: int, cols: int, ranks: int, inner: int = 64) -> str:
    """A file with a workload ``w`` of that kind, of a tensor of so many rows and columns."""
    head = f"""mgs 1

use "nvidia/h100"

system s {{ gpus {ranks} x H100; fabric switch(nvswitch, link=nvlink) }}

"""
    if kind == "GEMM+AR":
        k = inner * ranks
        body = f"x = tensor bf16[{rows}, {k}] shard cols\n  w = tensor bf16[{k}, {cols}] shard rows\n"
        return f"{head}workload w on s {{\n  {body}  y = all_reduce(gemm(x, w))\n}}\n"
    return f"{head}workload w on s {{\n  x = tensor bf16[{rows}, {cols}]\n  y = {kind}(x)\n}}\n"


def scenario_of(kind: str, rows: int, cols: int, ranks: int, inner: int = 64) -> OpCase:
    """The scenario of ``text_of``."""
    return compile_text(text_of(kind, rows, cols, ranks, inner)).scenario().case
