"""A step of small layers for tests: 8 GPUs in tensor, data and pipeline parallel groups of two."""

from magus.compiler import compile_text
from magus.compiler.ir.step import StepScenario
from magus.runtime.report import Outcome
from magus.runtime.steps.run import carry_out_step
from magus.runtime.steps.work import StepWork

TEXT = """
use "nvidia/h100"
param TP = 2 in 1, 2, 4
param PP = 2 in 1, 2, 4
param ROWS = 2048
link ib {{ source nominal "400 Gb/s"; bandwidth 50 GB/s; achieved 45 GB/s @assumed; latency 2 us @assumed }}
system pod {{
  gpus 8 x H100
  fabric rails(nvswitch, link=nvlink, node=4, nic=ib)
  mesh tp TP, dp 8 / (TP * PP), pp PP
}}
workload layer on pod.tp {{
  x = tensor bf16[ROWS, 1024] shard rows
  w = tensor bf16[1024, 4096] shard cols
  v = tensor bf16[4096, 1024] shard rows
  u = gemm(all_gather(norm(x)), w)
  y = add(x, reduce_scatter(gemm(gelu(u), v)))
  repeat 8 y as x
}}
workload train on pod {{
  step layer
  sequences 16 x 1024
  head 8192
}}
{more}
"""


def small_step(more: str = "", **settings: int) -> StepScenario:
    """Return the step, with ``more`` statements in its file and parameters set."""
    given = tuple((name, str(value)) for name, value in settings.items())
    found = compile_text(TEXT.format(more=more), "small.mgs", given).step()
    assert found is not None
    return found


def ended(of: StepWork, seed: int = 0) -> tuple[Outcome, str]:
    """How a step that is carried out ends, and its first sentence."""
    (run,) = carry_out_step(of, (seed,)).runs
    return run.outcome, next(iter(run.sentences), "")
