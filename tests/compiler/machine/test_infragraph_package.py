"""Descriptions that InfraGraph's own package writes, of its blueprints and of a mesh made by its API."""

import pytest

pytest.importorskip("infragraph", reason="the extra peers is not installed")

from infragraph import Component, Device, DeviceEdge, Infrastructure
from infragraph.blueprints.devices.amd.mi300x import MI300X
from infragraph.blueprints.devices.nvidia.dgx import NvidiaDGX
from infragraph.infragraph_service import InfraGraphService

from magus.advisor.targets.infragraph import INFRAGRAPH
from magus.compiler import compile_text
from magus.compiler.ir import OpCase
from tests.helpers.machines import imported


def described(device: Device) -> str:
    """The JSON of one node of the device."""
    whole = Infrastructure(name="node", description="one node")
    whole.devices.append(device)
    whole.instances.add(name="node", device=device.name, count=1)
    return str(whole.serialize(Infrastructure.JSON))


def mesh() -> Device:
    device = Device(name="mi300x_node")
    device.components.add(name="xpu", count=8).choice = Component.XPU
    device.links.add(name="xgmi").physical.bandwidth.gigabytes_per_second = 64
    edge = device.edges.add(scheme=DeviceEdge.MANY2MANY, link="xgmi")
    edge.ep1.component = edge.ep2.component = "xpu[0:8]"
    return device


@pytest.mark.parametrize("device", [mesh(), MI300X()], ids=["made", "blueprint"])
def test_a_mesh(device: Device) -> None:
    machine, text, _ = imported(described(device), "MI300X")

    assert len(machine.gpus) == 8 and len(machine.direct) == 28
    assert "fabric full_mesh(xgmi" in text and compile_text(workload_on(text)).scenario().case.num_ranks == 8


def test_a_node_with_switches() -> None:
    machine, text, _ = imported(described(NvidiaDGX("dgx_h100")), "H100")

    assert len(machine.gpus) == 8 and machine.switched[0].links == (18,) * 8
    assert compile_text(workload_on(text)).scenario().case.gpu.name == "H100"


def workload_on(system: str) -> str:
    return system + "\nworkload w on node { x = tensor bf16[1024, 64] shard rows; y = all_gather(x) }\n"


@pytest.mark.parametrize(
    ("system", "nodes", "links"),
    [
        ("8 x H100; fabric switch(nvswitch, link=nvlink)", 9, 8),
        ("8 x H100; fabric full_mesh(nvlink)", 8, 28),
        ("16 x H100; fabric rails(nvswitch, link=nvlink, node=4, nic=nvlink)", 16 + 4 + 4, 32),
    ],
)
def test_what_is_written_is_one_graph_of_the_package(system: str, nodes: int, links: int) -> None:
    case = compile_text(workload_on(f'use "nvidia/h100"\nsystem node {{ gpus {system} }}')).scenario().case
    assert isinstance(case, OpCase)
    service = InfraGraphService()
    service.set_graph(Infrastructure().deserialize(INFRAGRAPH.text([case], {})))
    graph = service.get_networkx_graph()

    assert (len(graph.nodes), len(graph.edges)) == (nodes, links)
