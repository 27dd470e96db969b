"""An MLP whose rows may be computed in two batches."""

from magus.compiler import compile_text
from magus.compiler.ir import Scenario

TEXT = """
use "nvidia/h100"
system hgx { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload mlp on hgx {
  x  = tensor bf16[1024, 256] shard rows
  wu = tensor bf16[256, 1024] shard cols
  wd = tensor bf16[1024, 256] shard rows
  u = gemm(all_gather(norm(x)), wu)
  y = add(x, reduce_scatter(gemm(gelu(u), wd)))
  repeat 8 y as x
  batch x by 512
}
schedule domino for mlp {
  batches 2
  separate u, y by dma(3)
  order u[0], u[1], y[0], y[1]
}
schedule mixed for mlp {
  batches 2
  u[0] = hetero_fused_1d(chunks=8)
  separate y by dma(3)
}
"""


def two_batches() -> Scenario:
    """The scenario, with schedules ``domino`` and ``mixed``."""
    (scenario,) = compile_text(TEXT).workloads
    return scenario
