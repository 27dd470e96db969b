"""A small graph under schedules that differ, simulated: layers that repeat, and a single one without."""

from functools import cache

from magus.compiler.ir import Scenario
from magus.compiler.pipeline import compile_text
from magus.compiler.resolve.schedules.from_text import choice_named
from magus.simcore import ShownRun, run_of
from magus.simcore.simulate_layers import simulate_layers

TEXT = """mgs 1

use "nvidia/h100"

param M = 1024 in 512..4096 x2

system hgx { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }

workload mlp on hgx {
  about "an MLP"
  x  = tensor bf16[M, 1024] shard rows
  wu = tensor bf16[1024, 4096] shard cols
  wd = tensor bf16[4096, 1024] shard rows
  u = gemm(all_gather(norm(x)), wu)
  y = add(x, reduce_scatter(gemm(gelu(u), wd)))
  repeat 40 y as x
}

schedule pairs for mlp {
  u = hetero_fused_1d(chunks=8)
  y = hetero_fused_1d(chunks=8)
}

schedule whole for mlp { separate y by dma(3); handoff whole }
"""
ONE_LAYER = TEXT.replace("  repeat 40 y as x\n", "")
SCHEDULES = ("serial", "pairs", "whole")


@cache
def small_graph(text: str = TEXT) -> Scenario:
    return compile_text(text, "mlp.mgs").workloads[0]


@cache
def graph_run(schedule: str, text: str = TEXT) -> ShownRun:
    """The graph under one of ``SCHEDULES``, in packets."""
    scenario = small_graph(text)
    choice = choice_named(scenario, schedule)
    return run_of(scenario, simulate_layers(scenario.system, scenario.workload, choice, name=scenario.name), choice)
