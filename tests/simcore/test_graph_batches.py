"""Graphs in batches: exact on every core, and as long as their halves where nothing runs beside anything."""

import random
from dataclasses import replace

import pytest

from magus.compiler import compile_text
from magus.compiler.ir import Batch, HandOff, OpChoice, OpMode, Read, Schedule, Workload
from magus.compiler.planning.knobs.engine import default_engine
from magus.compiler.planning.parts import op_names
from magus.compiler.planning.plan import build_plan, choice_of_layers, layers_of, written_out
from magus.simcore import RunOptions
from magus.simcore.cores.engine import Core, run
from magus.simcore.lower.plan import lower
from magus.simcore.simulate_layers import simulate_layers
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.drawn_graphs import draw_graph_plan
from tests.helpers.oracle.oracle import Oracle

TEXT = """
use "nvidia/h100"
system hgx { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload mlp on hgx {
  x  = tensor bf16[ROWS, 1024] shard rows
  wu = tensor bf16[1024, 4096] shard cols
  wd = tensor bf16[4096, 1024] shard rows
  u = gemm(all_gather(norm(x)), wu)
  y = add(x, reduce_scatter(gemm(gelu(u), wd)))
  repeat 40 y as x
  batch x by 1024
}
schedule halves for mlp {
  batches 2
  order u_norm[0], u[0], y[0], y_add[0], u_norm[1], u[1], y[1], y_add[1]
  handoff whole
}
schedule mixed for mlp {
  batches 2
  u = hetero_fused_1d(chunks=8)
  separate y by dma(3)
  order u_norm[0], u[0], u_norm[1], y[0], u[1], y[0].reduce_scatter, y[1]
}
"""


def scenario(rows: int = 2048) -> tuple[Workload, dict[str, Schedule]]:
    (found,) = compile_text(TEXT.replace("ROWS", str(rows)), as_written=False).workloads
    return found.workload, {choice.name: choice for choice in found.schedules}


def makespan(graph: Workload, choice: Schedule) -> int:
    (found,) = compile_text(TEXT.replace("ROWS", "2048")).workloads
    options = RunOptions(observe=True)
    return simulate_layers(found.system, graph, choice, unit_bytes=4096, options=options).total_ticks


def drawn(seed: int) -> tuple[int, bool]:
    """The ops of a drawn graph in two batches, and whether it was small enough to be compared with the oracle."""
    rng = random.Random(f"batches {seed}")
    system, one, _ = draw_graph_plan(rng, most_ops=3)
    ops = tuple(replace(op, reads=op.reads if rng.random() < 0.3 else (*op.reads, Read("x"))) for op in one.ops)
    cut = replace(one, ops=ops)
    graph = replace(cut, batch=Batch(("x",), 1, ((2, cut),)))
    names = op_names(graph, 2)
    modes = tuple(
        OpMode(name, separate=OpChoice("serial", system.num_ranks, default_engine(system)))
        for op in graph.ops
        for name in names[op.name]
        if op.is_pair and op.shape.then is None and rng.random() < 0.5
    )
    choice = Schedule("drawn", modes, handoff=rng.choice(list(HandOff)), sums_first=rng.random() < 0.5, batches=2)
    plan = build_plan(system, graph, choice)
    whole = lower(system, plan, unit_bytes=8192, fold=False).program
    if whole.num_line_hops > 12_000:
        return len(plan.parts), False
    expected = Oracle(whole).run()
    for core in Core:
        assert differences(whole, run(whole, core=core), expected) == [], (seed, core)
    folded = lower(system, plan, unit_bytes=8192).program
    assert not folded.folded or run(folded).makespan_ticks == expected.makespan, seed
    return len(plan.parts), True


@pytest.mark.quick(1)
@pytest.mark.parametrize("seeds", [range(12), range(12, 24)], ids=str)
def test_drawn_graphs_in_batches_equal_the_oracle(seeds: range) -> None:
    found = [drawn(seed) for seed in seeds]

    assert sum(compared for _, compared in found) >= 4
    assert max(parts for parts, _ in found) >= 4


def test_batches_in_turn_take_as_long_as_their_halves() -> None:
    """Each layer of both is a layer of half of the rows, twice: nothing of one is there for the other to run beside."""
    graph, schedules = scenario()
    half, _ = scenario(1024)
    serial = Schedule("serial", handoff=HandOff.WHOLE)

    assert graph.batch is not None and dict(graph.batch.cuts)[2].ops == half.ops
    twice = makespan(layers_of(half, 2), choice_of_layers(serial, 2))
    assert makespan(replace(graph, repeat=None), schedules["halves"]) == twice


@pytest.mark.slow
@pytest.mark.parametrize("name", ["halves", "mixed"])
def test_layers_in_batches_repeat_to_the_tick(name: str) -> None:
    graph, schedules = scenario()
    assert graph.repeat is not None
    by_period = makespan(graph, schedules[name])
    written, choice = written_out(graph, schedules[name], 40)

    assert makespan(written, choice) == by_period
