"""The least time of an all_to_all by any ways is that of a flow from each rank, and holds for fabrics of any kind."""

import pytest
from ortools.linear_solver import pywraplp

from magus.advisor.solver.cuts import exchange_us
from magus.advisor.solver.forest import FEW_RANKS
from magus.compiler import compile_text
from magus.compiler.ir import Fabric, network_of

FABRICS = {
    "a broken link": (5, "edges(xgmi=[[0, 1], [0, 2], [0, 3], [0, 4], [1, 2], [1, 3], [2, 3], [2, 4], [3, 4]])"),
    "two rates": (6, "edges(xgmi=[[0, 1], [0, 2], [1, 2], [3, 4], [3, 5], [4, 5], [1, 4]], slow=[[2, 3], [0, 5]])"),
    "switches in a circle": (
        4,
        "edges(switches=4, xgmi=[[0, 4], [1, 5], [2, 6], [3, 7]], slow=[[4, 5], [5, 6], [6, 7], [7, 4]])",
    ),
    "one way": (3, "edges(xgmi=[[0, 1], 1 -> 2, 2 -> 0])"),
    "torus": (6, "torus(xgmi, shape=[2, 3])"),
    "torus of 16": (16, "torus(xgmi, shape=[4, 4])"),
    "ring": (6, "ring(xgmi)"),
    "ring of 18": (18, "ring(xgmi)"),
}


def fabric_of(name: str) -> tuple[int, Fabric]:
    ranks, fabric = FABRICS[name]
    text = f"""use "amd/mi300x"
link slow extends xgmi {{ bandwidth 32 GB/s; achieved 24 GB/s }}
system s {{ gpus {ranks} x MI300X; fabric {fabric} }}
workload one on s {{ x = tensor bf16[{ranks * 8}, 64]; y = all_to_all(x) }}
"""
    return ranks, compile_text(text).scenario().case.system.fabric


def flow_us(ranks: int, fabric: Fabric) -> float:
    """The same by another program: on each edge the data of each rank, which leave 1 MB at each other."""
    network = network_of(fabric, ranks)
    solver = pywraplp.Solver.CreateSolver("GLOP")
    time = solver.NumVar(0, solver.infinity(), "")
    solver.Minimize(time)
    flows = [[solver.NumVar(0, solver.infinity(), "") for _ in network.edges] for _ in range(ranks)]
    for source, flow in enumerate(flows):
        for node in (each for each in range(network.num_nodes) if each != source):
            into = sum(each for each, edge in zip(flow, network.edges, strict=True) if edge.target == node)
            out = sum(each for each, edge in zip(flow, network.edges, strict=True) if edge.source == node)
            solver.Add(into - out == int(node < ranks))
    for place, edge in enumerate(network.edges):
        solver.Add(sum(flow[place] for flow in flows) <= time * (edge.bytes_per_s / 1e12))
    assert solver.Solve() == solver.OPTIMAL
    return float(time.solution_value())


@pytest.mark.parametrize("name", FABRICS)
def test_it_is_the_time_of_the_least_flow_within_what_packings_are_off(name: str) -> None:
    ranks, fabric = fabric_of(name)
    known = flow_us(ranks, fabric)

    assert 0.997 * known <= exchange_us(fabric, ranks) <= known * (1 + 1e-7)


def test_it_is_not_looked_for_of_two_ranks_nor_of_many() -> None:
    _, fabric = fabric_of("torus")
    assert exchange_us(fabric, 2) == exchange_us(fabric, FEW_RANKS + 1) == 0
