"""The bound of a graph holds for every plan, and is what its ops need together."""

import random

from magus.advisor.bounds.graph_bound import graph_bound
from magus.advisor.bounds.lower_bound import lower_bound
from magus.compiler import compile_text
from magus.compiler.ir import Graph, GraphOp, Pattern, Repeat, Scenario
from magus.simcore.program.outcome import RunOutcome
from magus.simcore.simulate_graph import simulate_graph
from tests.helpers.oracle.drawn_graphs import draw_graph_plan
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of


def test_no_plan_is_faster() -> None:
    done = 0
    for seed in range(12):
        system, graph, plan = draw_graph_plan(random.Random(f"bound {seed}"), 4)
        result = simulate_graph(system, plan, unit_bytes=4096)
        if result.whole.outcome is RunOutcome.DONE:
            done += 1
            bound = graph_bound(system, graph)
            assert bound.ticks <= result.whole.makespan_ticks, (seed, bound.binding)
    assert done > 7


def test_ops_add_up() -> None:
    one = scenario_of(Pattern.GEMM, SYSTEMS[0], 4, 4096, 4096, 4096)
    single, double = (
        graph_bound(one.system, Graph("g", "", tuple(GraphOp(f"op{n}", one.workload) for n in range(count))))
        for count in (1, 2)
    )
    repeated = graph_bound(one.system, Graph("g", "", (GraphOp("op", one.workload),), repeat=Repeat(10, "y", "x")))

    work = {term.name: term.ticks for term in single.terms}["work"]
    assert (double.binding, double.ticks) == ("work", 2 * work)
    assert abs(repeated.ticks - 10 * work) < 10


def test_what_waits_for_a_whole_op_comes_behind_it() -> None:
    text = """
use "nvidia/h100"
system hgx { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload w on hgx {
  x = tensor bf16[4096, 1024] shard rows
  n = norm(x)
  g = all_gather(n)
  m = norm(g)
}
"""
    (found,) = compile_text(text).graphs
    alone = sum(lower_bound(Scenario(op.name, found.system, op.workload)).ticks for op in found.graph.ops[1:])

    assert {term.name: term.ticks for term in graph_bound(found.system, found.graph).terms}["path"] >= alone
