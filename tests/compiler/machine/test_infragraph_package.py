"""Descriptions that InfraGraph's own package writes, of its blueprints and of a mesh made by its API."""

import pytest

pytest.importorskip("infragraph", reason="the extra peers is not installed")

from infragraph import Component, Device, DeviceEdge, Infrastructure
from infragraph.blueprints.devices.amd.mi300x import MI300X
from infragraph.blueprints.devices.nvidia.dgx import NvidiaDGX

from magus.compiler import compile_text
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
