"""Layers of attention between two all_to_alls: a graph in which attention stands behind a collective and before one."""

from magus.compiler import compile_text
from magus.compiler.ir import Scenario

TEXT = """
use "nvidia/h100"
system hgx {{ gpus {ranks} x H100; fabric switch(nvswitch, link=nvlink) }}
workload ulysses on hgx {{
  x   = tensor bf16[{m}, {inner}]
  w   = tensor bf16[{inner}, 2 * {inner}]
  wq  = tensor bf16[{inner}, {inner}]
  wk  = tensor bf16[{inner}, {inner} / 2]
  wo  = tensor bf16[{ranks} * {inner}, {inner}]
  a   = attention(all_to_all(norm(gemm(x, w))), heads=8, kv_heads=4)
  qkv = gemm(a, w)
  q   = gemm(a, wq)
  kv  = gemm(a, wq)
  k   = gemm(a, wk)
  v   = gemm(a, wk)
  t   = all_to_all(attention({operands}, heads=8, kv_heads=4))
  o   = gemm(t, wo)
  y   = all_gather(o)
  repeat 4 y as x
}}
schedule chunked for ulysses {{
  a = uniform_fused_2d(chunks={fine}, engine=dma(3))
  t = hetero_fused_1d(chunks={fine}, engine=dma(3))
}}
schedule by_sms for ulysses {{
  a = uniform_fused_2d(chunks={fine}, engine=sm(8))
  t = uniform_fused_2d(chunks={fine}, engine=sm(8))
}}
schedule apart_ for ulysses {{ separate a, t by dma(3) }}
"""
OPERANDS = ("qkv", "q, kv", "q, k, v", "q, k, k")


def ulysses(operands: str = "q, kv", m: int = 256, inner: int = 256, ranks: int = 4) -> Scenario:
    """The scenario, with schedules ``chunked``, ``by_sms`` and ``apart_``."""
    unused = {"qkv", "q", "kv", "k", "v"} - set(operands.split(", "))
    text = TEXT.format(operands=operands, m=m, inner=inner, ranks=ranks, fine=2 * ranks)
    lines = (line for line in text.splitlines() if line.split("=")[0].strip() not in unused)
    (scenario,) = compile_text("\n".join(lines)).workloads
    return scenario
