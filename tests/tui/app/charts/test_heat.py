"""The fabric with its loads: places of nodes, windows of time, pairs of ranks."""

import numpy as np
import pytest

from magus.compiler.ir import OpCase
from magus.compiler.ir.topologies import TOPOLOGIES
from magus.compiler.pipeline import compile_text
from magus.compiler.planning.build import build_op_plan
from magus.compiler.resolve.schedules.from_text import read_choice
from magus.compiler.text.units import rate_text
from magus.simcore import simulate_op
from magus.simcore.figures.result import LoadKind
from magus.simcore.program.arrays import FloatArray
from magus.tui.app.charts.heat import RAMP, HeatModel, fabric_map, level_of, shrunk
from magus.tui.app.charts.sweep_plot import Canvas, line_dots
from tests.helpers.scenarios import scenarios
from tests.helpers.tui import real

FABRICS = {
    "full_mesh": (8, "mi300x", "MI300X", "full_mesh(xgmi)"),
    "ring": (8, "mi300x", "MI300X", "ring(xgmi)"),
    "switch": (8, "h100", "H100", "switch(nvswitch, link=nvlink)"),
    "torus": (16, "mi300x", "MI300X", "torus(xgmi, shape=[4, 4])"),
    "fat_tree": (16, "h100", "H100", "fat_tree(nvswitch, link=nvlink, leaf=4, spines=4)"),
    "rails": (8, "h100", "H100", "rails(nvswitch, link=nvlink, node=4, nic=nvlink)"),
    "edges": (4, "mi300x", "MI300X", "edges(switches=1, xgmi=[[0, 1], [1, 2], [2, 3], [0, 4], [2, 4]])"),
}


def scenario_on(name: str) -> OpCase:
    ranks, library, gpu, fabric = FABRICS[name]
    vendor = "amd" if library == "mi300x" else "nvidia"
    text = f"""use "{vendor}/{library}"
system node {{ gpus {ranks} x {gpu}; fabric {fabric} }}
workload up on node {{
  x = tensor bf16[{ranks * 128}, 512] shard rows
  w = tensor bf16[512, {ranks * 128}] shard cols
  xg = all_gather(x)
  y = gemm(xg, w)
}}
"""
    return compile_text(text, "t.mgs", ()).workloads[0].case


def model_of(scenario: OpCase, expression: str = real.SERIAL) -> HeatModel:
    schedule = build_op_plan(scenario, read_choice(scenario, expression))
    return HeatModel(scenario, simulate_op(scenario, schedule, unit_bytes=real.UNIT).loads)


def test_every_topology_is_drawn_here() -> None:
    assert list(FABRICS) == [topology.name for topology in TOPOLOGIES]


@pytest.mark.parametrize("name", FABRICS)
def test_nodes_have_places_of_their_own_and_links_their_loads(name: str) -> None:
    model = model_of(scenario_on(name))
    network = model.scenario.network
    assert model.map is not None
    places = {(round(place.x, 6), round(place.y, 6)) for place in model.map.places}

    assert len(places) == len(model.map.places) == network.num_nodes
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in places)
    assert len(model.map.wires) * 2 == len(network.edges)
    shares = model.shares()
    for rows, wire in zip(model.wire_rows, model.map.wires, strict=True):
        joined = {model.loads.each[row].name for row in rows}
        assert joined <= {edge.name for edge in network.edges if set(edge.ends) == {wire.a, wire.b}}
    assert 0 <= shares.min() <= shares.max() <= 1
    assert any(rows for rows in model.wire_rows)
    assert "of" in model.busiest(shares, 1)[0]


@pytest.mark.parametrize("name", ["full_mesh", "rails", "torus", "fat_tree"])
def test_a_pair_is_as_busy_as_the_busiest_link_on_its_way(name: str) -> None:
    model = model_of(scenario_on(name))
    shares, network = model.shares(), model.scenario.network
    rows, matrix = model.loads.links(network), model.matrix(model.shares())
    for source, target in ((0, 1), (1, 5), (6, 2), (7, 0)):
        way = [edge.ends for edge in network.route(source, target)]
        assert matrix[source, target] == max(shares[rows[ends]] if ends in rows else 0 for ends in way)
    assert (np.diag(matrix) == 0).all()


def test_windows_add_up_to_the_run() -> None:
    model = model_of(real.gather())
    whole, parts = model.shares(), list[FloatArray]()
    model.scrub(1)
    while not parts or model.window.end_ticks < model.loads.span_ticks:
        parts.append(model.shares())
        model.scrub(1)
        if len(parts) == 31:
            parts.append(model.shares())
            break

    assert len(parts) == 32
    assert np.mean(parts, axis=0) == pytest.approx(whole, abs=1e-6)
    model.look_at(5, 5)
    assert model.is_whole
    model.scrub(-1)
    assert model.window.end_ticks == model.loads.span_ticks
    links = [row for row, load in enumerate(model.loads.each) if load.kind is LoadKind.LINK]
    assert model.shares()[links].max() == 0, "serial: nothing moves at the end"


def test_a_large_fabric_is_a_matrix_of_some_ranks() -> None:
    scenario = scenarios.ag_gemm(65536, 1024, 512, ranks=512)
    model = model_of(scenario, "serial(engine=dma(7))")
    matrix = model.matrix(model.shares())

    assert fabric_map(scenario) is None
    assert model.shown_ranks == tuple(range(0, 512, 2))
    assert matrix.shape == (256, 256)
    small, block = shrunk(matrix, 100)
    assert (small.shape, block) == ((86, 86), 3)
    assert small.max() == matrix.max()


TWO_TRIANGLES = "edges(xgmi=[[0, 1], [1, 2], [2, 0], [3, 4], [4, 5], [5, 3], [2, 3]])"


def two_triangles() -> OpCase:
    text = f"""use "amd/mi300x"
system box {{ gpus 6 x MI300X; fabric {TWO_TRIANGLES} }}
workload up on box {{
  x = tensor bf16[768, 512] shard rows
  w = tensor bf16[512, 768] shard cols
  xg = all_gather(x)
  y = gemm(xg, w)
}}
"""
    return compile_text(text, "t.mgs", ()).workloads[0].case


def test_the_narrowest_cut_is_the_bridge_between_two_triangles() -> None:
    case = two_triangles()
    loads = model_of(case).loads
    model = HeatModel(case, loads, case)
    assert model.map is not None

    assert [(model.map.wires[idx].a, model.map.wires[idx].b) for idx in model.cut_wires] == [(2, 3)]
    rate = rate_text(next(edge.bytes_per_s for edge in case.network.edges if edge.ends == (2, 3)))
    assert model.cut_text in (f"out of ranks 0-2, {rate}", f"out of ranks 3-5, {rate}")
    assert HeatModel(case, loads).cut_text == "", "of a run of several ops no cut is known"
    assert HeatModel(scenario_on("full_mesh"), loads, scenario_on("full_mesh")).cut_text == ""


@pytest.mark.parametrize(("share", "sign"), [(0, " "), (0.005, "·"), (0.5, "▒"), (0.99, "█"), (1, "█")])
def test_shares_have_signs(share: float, sign: str) -> None:
    assert RAMP[level_of(share)] == sign


def test_dots_make_lines() -> None:
    canvas = Canvas(4, 1)
    canvas.draw(*line_dots(0, 3, 7, 3), 2)
    canvas.draw(*line_dots(-5, 0, -1, 0), 1)

    assert "".join(canvas.character(x, 0) for x in range(4)) == "⣀⣀⣀⣀"
    assert canvas.levels.tolist() == [[2, 2, 2, 2]]
