"""Systems as descriptions of InfraGraph: what ``magus import`` reads back, and what they cannot say."""

import json
from typing import Any

import pytest

from magus.advisor.targets import Refused
from magus.advisor.targets.infragraph import INFRAGRAPH
from magus.compiler import compile_text
from magus.compiler.ir import OpCase
from tests.helpers.machines import imported, routes

WORKLOAD = "workload w on node { x = tensor bf16[12288, 64] shard rows; y = all_gather(x) }\n"
NIC = 'link nic { bandwidth 50 GB/s; achieved 45 GB/s; latency 2 us; source nominal "a test" }\n'
LEAF = 'switch leaf { ports 64; bandwidth 50 GB/s; latency 0 ns; source nominal "a test" }\n'
SYSTEMS = {
    "mesh": ("amd/mi300x", "8 x MI300X", "full_mesh(xgmi)"),
    "switch": ("nvidia/h100", "8 x H100", "switch(nvswitch, link=nvlink)"),
    "ring": ("amd/mi300x", "8 x MI300X", "ring(xgmi)"),
    "torus": ("amd/mi300x", "16 x MI300X", "torus(xgmi, shape=[4, 4])"),
    "edges": (
        "amd/mi300x",
        "6 x MI300X",
        "edges(switches=1, xgmi=[[0, 1], [1, 2], [0, 2], [3, 4], [4, 5], [3, 5], [0, 6], [3, 6]])",
    ),
    "rails": ("nvidia/h100", "32 x H100", "rails(nvswitch, link=nvlink, node=8, nic=nic)"),
    "tree": ("nvidia/h100", "16 x H100", "fat_tree(leaf, link=nic, leaf=4, spines=2)"),
}


def case(name: str) -> OpCase:
    library, gpus, fabric = SYSTEMS[name]
    text = f'use "{library}"\n{NIC}{LEAF}system node {{ gpus {gpus}; fabric {fabric} }}\n{WORKLOAD}'
    found = compile_text(text).scenario().case
    assert isinstance(found, OpCase)
    return found


def written(name: str) -> str:
    return INFRAGRAPH.text([case(name)], {})


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_that_is_read_back_has_the_same_routes(name: str) -> None:
    _, text, _ = imported(written(name))
    place = "cluster" if "system cluster" in text else "node"
    again = compile_text(text + WORKLOAD.replace("node", place)).scenario().case

    assert isinstance(again, OpCase) and again.gpu.name == case(name).gpu.name
    assert routes(again) == routes(case(name))


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(written(name))
    return found


def test_hosts_that_are_alike_are_instances_of_one_device() -> None:
    rails = document("rails")

    assert [(each["device"], each["count"]) for each in rails["instances"]] == [("host", 4), ("switch", 8)]
    assert rails["edges"][3]["ep1"] == {"instance": "host[0:4]", "component": "gpu[3]"}
    assert rails["edges"][3]["ep2"] == {"instance": "switch[3]", "component": "switch[0]"}


def test_what_the_file_has_no_place_for_is_in_words() -> None:
    host = document("switch")["devices"][0]

    assert host["components"][1]["description"] == "nvswitch: 450 GB/s a port, 250 ns"
    assert host["links"][0]["description"] == "375 GB/s of it are reached"


def refused(system: str, workload: str = WORKLOAD) -> str:
    found = compile_text(f'use "nvidia/h100"\n{NIC}{system}\n{workload}').scenario().case
    assert isinstance(found, OpCase)
    with pytest.raises(Refused) as caught:
        INFRAGRAPH.text([found], {})
    assert caught.value.rejection.code.name == "MGS550"
    return str(caught.value)


def test_links_that_lead_one_way_are_refused() -> None:
    ways = "edges(nvlink=[0 -> 1, 1 -> 2, 2 -> 3, 3 -> 0])"

    assert "links of InfraGraph lead both ways, 0 -> 1 of node does not" in refused(
        f"system node {{ gpus 4 x H100; fabric {ways} }}"
    )


def test_a_group_is_refused() -> None:
    mesh = "system node { gpus 32 x H100; fabric rails(nvswitch, link=nvlink, node=8, nic=nic); mesh tp 4, dp 8 }"

    assert "node.dp, 8 of 32 x H100 is a group of a system" in refused(mesh, WORKLOAD.replace("node", "node.dp"))


def test_links_that_would_take_too_many_lines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magus.advisor.targets.infragraph.MAX_PAIRS", 5)

    assert "node has more than 5 links that are written one by one" in refused(
        "system node { gpus 8 x H100; fabric ring(nvlink) }"
    )
