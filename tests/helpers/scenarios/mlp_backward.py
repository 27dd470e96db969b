"""The backward pass of a small MLP: a graph with pairs, lone kernels, a lone collective and layers."""

from magus.compiler import compile_text
from magus.compiler.ir import Plan, Scenario, Schedule, Workload
from magus.compiler.planning.plan import build_plan, written_out

TEXT = """
use "nvidia/h100"
system hgx {{ gpus {ranks} x H100; fabric switch(nvswitch, link=nvlink) }}
workload back on hgx {{
  dy  = tensor bf16[{m}, {width}] shard rows
  x   = tensor bf16[{m}, {width}] shard rows
  u   = tensor bf16[{m}, {both}] shard cols
  h   = tensor bf16[{m}, {inner}] shard cols
  wdn = tensor bf16[{inner}, {width}] shard rows
  wup = tensor bf16[{width}, {both}] shard cols
  dyg   = all_gather(dy)
  dh    = gemm(dyg, wdn.t)
  d_wdn = gemm(h.t, dyg)
  du    = swiglu_back(u, dh)
  dx    = reduce_scatter(gemm(du, wup.t))
  xg    = all_gather(x)
  d_wup = gemm(xg.t, du)
  repeat {layers} dx as dy
}}
schedule pairs for back {{
  dh = hetero_fused_1d(chunks=8); dx = hetero_fused_1d(chunks=8); start xg with dx
}}
schedule late for back {{
  dh = hetero_fused_1d(chunks=8, engine=dma(3))
  separate dx, xg by dma(3)
  order dh, du, dx, d_wdn, d_wup
  start xg with dx
  stream 1 d_wdn
  priority sums, d_wup low
}}
schedule ring for back {{
  dh = pipelined(chunks=4, engine=dma(3), algorithm=ring)
  separate dx by sm(8)
  handoff whole
}}
"""

PLAIN = """
use "nvidia/h100"
system hgx {{ gpus {ranks} x H100; fabric switch(nvswitch, link=nvlink) }}
workload back on hgx {{
  dy  = tensor bf16[{m}, {width}] shard rows
  x   = tensor bf16[{m}, {width}] shard rows
  h   = tensor bf16[{m}, {inner}] shard cols
  wdn = tensor bf16[{inner}, {width}] shard rows
  wup = tensor bf16[{width}, {inner}] shard cols
  dyg   = all_gather(dy)
  dh    = gemm(dyg, wdn.t)
  d_wdn = gemm(h.t, dyg)
  dx    = reduce_scatter(gemm(dh, wup.t))
  xg    = all_gather(x)
  d_wup = gemm(xg.t, dh)
  {more}
}}
{schedules}
"""


def plain_text(m: int, more: str, schedules: str = "", **sizes: int) -> str:
    """The same without its activation; ``more`` are further statements, ``sizes`` other ranks, width and inner."""
    return PLAIN.format(m=m, more=more, schedules=schedules, **({"ranks": 4, "width": 1024, "inner": 4096} | sizes))


def plain_backward(m: int, more: str, schedules: str = "", **sizes: int) -> Scenario:
    """The scenario of ``plain_text``."""
    return compile_text(plain_text(m, more, schedules, **sizes)).workloads[0]


def backward(m: int = 1024, ranks: int = 4, layers: int = 8, width: int = 256) -> Scenario:
    """The scenario, with schedules ``pairs``, ``late`` and ``ring``."""
    (scenario,) = compile_text(
        TEXT.format(m=m, ranks=ranks, layers=layers, width=width, inner=4 * width, both=8 * width)
    ).workloads
    return scenario


def plan_of_layers(scenario: Scenario, choice: Schedule, layers: int) -> tuple[Workload, Plan]:
    """So many layers, and the plan of ``choice`` for them."""
    plan = build_plan(scenario.system, scenario.workload, choice, layers)
    return written_out(scenario.workload, choice, layers)[0], plan


def rows_of(scenario: Scenario) -> int:
    """The rows of the gradient that comes in."""
    return scenario.workload.tensor("dy").rows
