"""Descriptions of InfraGraph: what maps to a system, what is in doubt, and what is refused."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from magus.compiler import compile_text
from magus.compiler.ir.topologies.base import network_of
from magus.compiler.ir.topologies.network import Network
from magus.compiler.text.diagnostics import CompileError
from tests.helpers.machines import MACHINES, imported

Document = dict[str, Any]


def document(name: str) -> Document:
    found: Document = json.loads((MACHINES / name).read_text())
    return found


def refused(text: str, gpu: str = "") -> tuple[str, str]:
    """Code and message of the one error."""
    with pytest.raises(CompileError) as caught:
        imported(text, gpu)
    (found,) = caught.value.diagnostics
    return found.code.name, found.message


def test_a_mesh_and_its_rates() -> None:
    machine, text, _ = imported(json.dumps(document("mi300x_infragraph.json")))

    assert len(machine.direct) == 28 and not machine.switched
    assert [nic.name for nic in machine.nics][::7] == ["nic[0]", "nic[7]"]
    assert "the file calls the links 'xgmi, 64 GB/s': its rate is that of one direction" in text
    assert "bandwidth 64 GB/s" in text and "latency 700 ns" in text


def with_rates(bandwidth: dict[str, object], latency: dict[str, object]) -> str:
    """The switches of H100, over links with this rate and latency."""
    node = document("h100_infragraph.json")
    node["devices"][1]["links"][0]["physical"] = {"bandwidth": bandwidth, "latency": latency}
    return imported(json.dumps(node))[1]


def test_rates_of_links_to_switches_are_those_of_the_file() -> None:
    text = with_rates({"choice": "gigabits_per_second", "gigabits_per_second": 800}, {"choice": "us", "us": 0.3})

    assert "4 links of a GPU lead to switches: 400 GB/s together" in text
    assert "bandwidth 400 GB/s" in text and "latency 300 ns" in text and "does not count links" not in text
    assert "fabric switch(nvswitch_said, link=nvlink_said)" in text and "switch nvswitch_said extends nvswitch" in text


def test_rates_without_a_bandwidth_are_those_of_the_library() -> None:
    assert "link=nvlink)" in with_rates({"gigatransfers_per_second": 50}, {})
    assert 'link nvlink_said extends nvlink {\n  source nominal "the file"\n  latency 5 ns\n}' in with_rates(
        {}, {"ns": 5}
    )


def test_what_a_description_says_of_both_ways() -> None:
    mesh = document("mi300x_infragraph.json")
    mesh["devices"][0]["links"][0]["description"] = "48 GB/s of it are reached, back 40 GB/s after 800 ns"
    text = imported(json.dumps(mesh))[1]

    assert "fabric full_mesh" not in text and "xgmi_said=[0 -> 1, 0 -> 2" in text
    assert "bandwidth 64 GB/s\n  achieved 48 GB/s\n  latency 700 ns" in text
    assert "xgmi_said_2=[1 -> 0, 2 -> 0" in text and "achieved 40 GB/s\n  latency 800 ns" in text


def test_what_is_reached_stands_in_for_what_is_not_said() -> None:
    mesh = document("mi300x_infragraph.json")
    link = mesh["devices"][0]["links"][0]
    link["description"] = "48 GB/s of it are reached, back 40 GB/s after 800 ns"
    del link["physical"]["bandwidth"]
    without_bandwidth = imported(json.dumps(mesh))[1]
    del link["physical"]["latency"]
    without_both = imported(json.dumps(mesh))[1]

    assert "bandwidth 48 GB/s\n  achieved 48 GB/s\n  latency 700 ns" in without_bandwidth
    assert "bandwidth 48 GB/s\n  achieved 40 GB/s\n  latency 800 ns" in without_bandwidth
    assert "bandwidth 48 GB/s\n  achieved 48 GB/s\n  latency 800 ns" in without_both


@pytest.mark.parametrize(
    ("parts", "circle"),
    [
        ({"mi300x_node": "mi300x_node"}, "mi300x_node in mi300x_node"),
        ({"mi300x_node": "card", "card": "board", "board": "card"}, "card in board in card"),
    ],
)
def test_a_device_that_contains_itself(parts: dict[str, str], circle: str) -> None:
    mesh = document("mi300x_infragraph.json")
    mesh["devices"] += [{"name": name, "components": []} for name in parts if name != "mi300x_node"]
    for device in mesh["devices"]:
        device["components"].append({"name": parts[device["name"]], "count": 1, "choice": "device"})

    assert refused(json.dumps(mesh)) == ("MGS609", f"infrastructure: a device contains itself: {circle}")


def test_links_of_two_rates() -> None:
    mesh = document("mi300x_infragraph.json")
    device = mesh["devices"][0]
    device["links"].append({"name": "slow", "physical": {"bandwidth": {"gigabytes_per_second": 25}}})
    device["edges"] = [
        {"ep1": {"component": "xpu[0:4]"}, "ep2": {"component": "xpu[4:8]"}, "scheme": "many2many", "link": "xgmi"},
        {"ep1": {"component": "xpu[0:7:2]"}, "ep2": {"component": "xpu[1:8:2]"}, "scheme": "one2one", "link": "slow"},
    ]
    text = imported(json.dumps(mesh))[1]

    assert "bandwidth 64 GB/s" in text and "bandwidth 25 GB/s" in text
    assert "xgmi_said=[[0, 1], [2, 3], [4, 5], [6, 7]]" in text and "xgmi_said_2=[[0, 4], [0, 5]" in text


def test_a_tree_of_pcie() -> None:
    mesh = document("mi300x_infragraph.json")
    mesh["devices"][0]["edges"].pop()
    mesh["devices"][0]["links"][1]["description"] = "PCI Express gen4 x8"
    text = " ".join(imported(json.dumps(mesh))[1].split())

    assert "cpus=[[8, 9]], pcie=[[0, 8], [1, 8], [2, 8], [3, 8], [4, 9], [5, 9], [6, 9], [7, 9]]" in text
    assert "8 lanes of 16 GT/s" in text


def test_islands_behind_switches_of_their_own() -> None:
    node = document("h100_infragraph.json")
    node["devices"][1]["edges"][2:] = [
        {
            "ep1": {"component": f"nvsw[{each}]"},
            "ep2": {"component": f"gpu[{4 * each}:{4 * each + 4}]"},
            "link": "nvlink",
            "scheme": "many2many",
        }
        for each in range(2)
    ]
    machine, text, _ = imported(json.dumps(node))

    assert [group.gpus for group in machine.switched] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert "NVLinks join 2 groups of GPUs; PCIe joins the groups" in text


def test_a_device_alone() -> None:
    device = document("mi300x_infragraph.json")["devices"][0]

    assert len(imported(json.dumps(device))[0].direct) == 28


def test_switches_of_pcie_are_none_of_the_links() -> None:
    machine, text, _ = imported(json.dumps(document("h100_infragraph.json")))

    assert machine.switched[0].links == (18,) * 8 and not machine.direct
    assert "the file has 4 of server: one was read, as nothing joins them" in text


def clos(num_hosts: int = 4, num_spines: int = 3, gb_per_s: float = 12.5) -> Document:
    """Hosts of two GPUs behind an NVSwitch, each with its NICs to a leaf of its own, which leads to all spines."""
    host = {
        "name": "host",
        "description": "two H100",
        "components": [
            {"name": "gpu", "count": 2, "choice": "xpu", "description": "NVIDIA H100 SXM5"},
            {"name": "nvsw", "count": 1, "choice": "switch"},
            {"name": "bridge", "count": 1, "choice": "switch"},
            {"name": "nic", "count": 2, "choice": "nic"},
        ],
        "links": [{"name": "nvlink"}, {"name": "pcie"}],
        "edges": [
            edge({"component": "gpu"}, {"component": "nvsw"}, "nvlink", "many2many"),
            edge({"component": "gpu"}, {"component": "bridge"}, "pcie", "many2many"),
            edge({"component": "nic"}, {"component": "bridge"}, "pcie", "many2many"),
        ],
    }
    switch = {"name": "box", "components": [{"name": "port", "count": 16, "choice": "port"}], "links": [], "edges": []}
    up = [
        edge(at("host", which, "nic"), at("leaf", which, "port[0:2]"), "down", "one2one") for which in range(num_hosts)
    ] + [
        edge(at("leaf", leaf, f"port[{2 + spine}]"), at("spine", spine, f"port[{leaf}]"), "up", "one2one")
        for leaf in range(num_hosts)
        for spine in range(num_spines)
    ]
    return {
        "name": "clos",
        "devices": [host, switch],
        "links": [
            {"name": "down", "physical": {"bandwidth": {"gigabytes_per_second": gb_per_s}}},
            {"name": "up", "physical": {"bandwidth": {"gigabytes_per_second": 50}, "latency": {"ns": 250}}},
        ],
        "instances": [
            {"name": "host", "device": "host", "count": num_hosts},
            {"name": "leaf", "device": "box", "count": num_hosts},
            {"name": "spine", "device": "box", "count": num_spines},
        ],
        "edges": up,
    }


TRAFFIC = "workload w on cluster { x = tensor bf16[1024, 64] shard rows; y = all_gather(x) }"


def route(network: Network, source: int, target: int) -> list[int]:
    """The nodes from one GPU to another."""
    return list(network.path(source, target))


def edge(first: Document, second: Document, link: str, scheme: str) -> Document:
    return {"ep1": first, "ep2": second, "link": link, "scheme": scheme}


def at(name: str, number: int, component: str) -> Document:
    return {"instance": f"{name}[{number}]", "component": component}


def test_a_network_of_two_levels() -> None:
    machine, text, _ = imported(json.dumps(clos()))

    assert machine.num_gpus == 8 and machine.network is not None and machine.network.rail is None
    assert "system cluster {" in text and "gpus 8 x H100" in text and "edges(switches=11," in text
    assert "nic=[[0, 12], [1, 12], [2, 13], [3, 13], [4, 14], [5, 14], [6, 15], [7, 15]]" in text
    assert "trunk=[[12, 16], [12, 17], [12, 18], [13, 16]" in text
    assert "bandwidth 12.5 GB/s" in text and "latency 250 ns" in text
    assert text.count("links 'down, 12.5 GB/s' keep the order of sending") == 1, "each doubt is told once"

    network = network_of(compile_text(text + TRAFFIC).scenario("w").system.fabric, 8)
    spines = {node for target in (4, 5, 6) for node in route(network, 0, target) if node >= 16}
    assert spines == {16, 17, 18}, "destinations take equal ways in turn"
    assert route(network, 0, 1) == [0, 8, 1], "two GPUs of a host stay on its NVSwitch"


def test_nics_that_lead_to_one_switch_are_rails() -> None:
    one = clos(num_spines=0)
    one["instances"] = [one["instances"][0], {"name": "leaf", "device": "box", "count": 1}]
    one["edges"] = [
        edge(at("host", which, f"nic[{nic}]"), at("leaf", 0, f"port[{2 * which + nic}]"), "down", "one2one")
        for which in range(4)
        for nic in range(2)
    ]
    text = imported(json.dumps(one))[1]

    assert "gpus 8 x H100; fabric rails(nvswitch, link=nvlink, node=2, nic=nic)" in text


def test_a_nic_of_two_gpus_is_a_node() -> None:
    few = clos()
    few["devices"][0]["components"][3]["count"] = 1
    for found in few["edges"][:4]:
        found["ep2"]["component"] = "port[0]"
    text = imported(json.dumps(few))[1]

    assert "edges(switches=15," in text and "nic=[[12, 16], [13, 17], [14, 18], [15, 19]]" in text
    assert "pcie=[[0, 12], [1, 12], [2, 13], [3, 13]" in text


def test_hosts_that_nothing_joins_are_refused() -> None:
    apart = clos(num_spines=0)

    assert refused(json.dumps(apart)) == (
        "MGS612",
        "the edges between 4 hosts leave 4 groups of them that nothing joins",
    )


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (at("guest", 0, "nic"), "'guest[0]' is no component of the infrastructure"),
        (at("host", 4, "nic"), "the infrastructure has 4 of host"),
        (at("host", 0, "modem"), "'modem' is no component of host"),
    ],
)
def test_an_end_that_is_not_there(end: Document, message: str) -> None:
    wrong = clos()
    wrong["edges"][0]["ep1"] = end

    code, found = refused(json.dumps(wrong))
    assert code == "MGS609" and message in found


def test_slices_of_python() -> None:
    mesh = document("mi300x_infragraph.json")
    mesh["devices"][0]["edges"] = [
        {"ep1": {"component": "xpu[0:8:2]"}, "ep2": {"component": "xpu[1::2]"}, "scheme": "one2one", "link": "xgmi"},
        {"ep1": {"component": "xpu[1]"}, "ep2": {"component": "xpu[2]"}, "scheme": "one2one", "link": "xgmi"},
    ]

    assert sorted(imported(json.dumps(mesh))[0].direct) == [(0, 1), (1, 2), (2, 3), (4, 5), (6, 7)]


def test_nvlinks_are_divided_among_pairs() -> None:
    mesh = document("mi300x_infragraph.json")
    mesh["devices"][0]["name"] = mesh["instances"][0]["device"] = "redstone a100"
    mesh["devices"][0]["components"][1]["count"] = 4
    mesh["devices"][0]["links"].append({"name": "nv"})
    mesh["devices"][0]["edges"] = [
        {"ep1": {"component": "xpu"}, "ep2": {"component": "xpu"}, "scheme": "many2many", "link": "nv"}
    ]
    machine, text, _ = imported(json.dumps(mesh))

    assert set(machine.direct.values()) == {4} and len(machine.direct) == 6
    assert "does not count links: 4 for each pair" in text


def test_the_name_that_a_description_gives_a_gpu() -> None:
    mesh = document("mi300x_infragraph.json")
    mesh["devices"][0]["name"] = "dgx"
    mesh["devices"][0]["components"][1]["description"] = "NVIDIA Tesla P100"

    assert refused(json.dumps(mesh)) == ("MGS604", "xpu[0] is not in the library: NVIDIA Tesla P100")


def change(path: str, value: object) -> Callable[[Document], None]:
    def apply(found: Document) -> None:
        *keys, last = path.split(".")
        at: Any = found
        for key in keys:
            at = at[int(key)] if key.isdigit() else at[key]
        at[int(last) if last.isdigit() else last] = value

    return apply


EDGES = "devices.0.edges"
DESCRIPTION = "devices.0.links.0.description"


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        (change("devices.0.components.1.choice", "cpu"), "MGS609", "no device has components of the kind xpu"),
        (change("devices.0.components.1.count", 257), "MGS603", "at most 256"),
        (change("devices.0.components.1.count", -1), "MGS307", "devices[0].components[1].count: a number from 0"),
        (change("devices.0.components.0.choice", "xpu"), "MGS605", "several components of the kind xpu"),
        (change("devices.0.name", "node"), "MGS604", "does not say which GPUs"),
        (change(f"{EDGES}.4.ep2.component", "xpu[0:9]"), "MGS609", "has 8 of xpu"),
        (change(f"{EDGES}.4.ep2.component", "xpu[a]"), "MGS609", "devices[0].edges[4].ep2.component"),
        (change(f"{EDGES}.4.ep2.component", "ypu"), "MGS609", "is no component of mi300x_node"),
        (change(f"{EDGES}.4.scheme", "ring"), "MGS609", "unknown word 'ring'"),
        (change(f"{EDGES}.4.link", "nolink"), "MGS609", "edges[4].link: there is no link 'nolink'"),
        (change(f"{EDGES}.1.scheme", "one2one"), "MGS609", "one2one pairs ends one by one, and these are 1 and 4"),
        (change(EDGES, [{}]), "MGS609", "'ep1' is missing"),
        (change("devices.0.edges", 3), "MGS609", "devices[0].edges: a list is expected here"),
        (change("instances", [3]), "MGS609", "instances[0]: an object is expected here"),
        (change(DESCRIPTION, "65 GB/s of it are reached, back 64 GB/s after 9 ns"), "MGS609", "is not within"),
        (change(DESCRIPTION, "64 GB/s of it are reached, back 0 GB/s after 9 ns"), "MGS609", "links[0].description"),
        (change(DESCRIPTION, "9 GB/s of it are reached, back 9 GB/s after 9999999 ns"), "MGS609", "latency above 1 ms"),
        (
            change("devices.0.links.0.name", "0 GB/s of it are reached, back 9 GB/s after 9 ns"),
            "MGS609",
            "links[0].name",
        ),
        (change("devices.0.links.0.physical.bandwidth.gigabytes_per_second", "64"), "MGS609", "a number is expected"),
        (change("devices.0.links.0.physical.bandwidth.gigabytes_per_second", 1e300), "MGS307", "a number from 0"),
    ],
)
def test_bad_descriptions(how: Callable[[Document], None], code: str, says: str) -> None:
    mesh = document("mi300x_infragraph.json")
    how(mesh)
    found, message = refused(json.dumps(mesh))

    assert found == code
    assert says in message


def test_more_pairs_than_are_read() -> None:
    mesh = document("mi300x_infragraph.json")
    mesh["devices"][0]["components"].append({"name": "big", "choice": "switch", "count": 10_000})
    many = {"ep1": {"component": "xpu"}, "ep2": {"component": "big"}, "scheme": "many2many", "link": "xgmi"}
    mesh["devices"][0]["edges"] = [many] * 20

    assert refused(json.dumps(mesh))[0] == "MGS608"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ((MACHINES / "infragraph.yaml").read_text(), "MGS609"),
        ('{"devices": [{"components": [', "MGS609"),
        ('{"devices": [], "components": NaN}', "MGS609"),
        ('{"devices": [], "devices": [], "components": 1}', "MGS609"),
        ('{"devices": ' + "[" * 100_000 + '"components"', "MGS132"),
        ('{"devices": [], "components": ' + "9" * 30 + "}", "MGS133"),
        ('{"devices": null, "components": 1}', "MGS609"),
        ("{}", "MGS601"),
    ],
)
def test_bad_json(text: str, code: str) -> None:
    assert refused(text)[0] == code
