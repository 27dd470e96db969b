"""A layer of 32 experts on 4 ranks, with a shared one, whose rows may be computed in two batches."""

from magus.compiler import compile_text
from magus.compiler.ir import Scenario

HEAD = """
use "nvidia/h100"
system node {{ gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }}
workload moe on node {{
  x  = tensor bf16[4 * 64, 256] shard rows
  w1 = tensor fp8[32 * 256, 256] shard rows
  w2 = tensor fp8[32 * 128, 256] shard rows
  s1 = tensor bf16[256, 256]
  t = dispatch(norm(x), experts=32, top=2, type=fp8)
  h = grouped_gemm(t, w1)
  s = gemm(x, s1)
  z = combine(grouped_gemm(swiglu(h), w2), type=bf16)
  y = add(z, s)
  batch x by 32
}}
{said}
"""


def experts(said: str = "", *, layers: int = 1, routed: str = "") -> Scenario:
    """The scenario, with a schedule that says so much where it says anything, and rows ``routed`` so."""
    schedule = f"schedule mine for moe {{ {said} }}" if said else ""
    text = HEAD.format(said=schedule)
    text = text.replace("type=fp8)", f"type=fp8, {routed})") if routed else text
    if layers > 1:
        text = text.replace("  batch x", f"  repeat {layers} y as x\n  batch x")
    (scenario,) = compile_text(text).workloads
    return scenario
