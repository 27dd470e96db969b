"""Descriptions of InfraGraph: what maps to a system, what is in doubt, and what is refused."""

import json
from collections.abc import Callable
from typing import Any

import pytest

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
    assert "the file has 4 of server: one was read" in text


def test_slices_of_python() -> None:
    mesh = document("mi300x_infragraph.json")
    mesh["devices"][0]["edges"] = [
        {"ep1": {"component": "xpu[0:8:2]"}, "ep2": {"component": "xpu[1::2]"}, "scheme": "one2one", "link": "xgmi"},
        {"ep1": {"component": "xpu[1]"}, "ep2": {"component": "xpu[2]"}, "scheme": "one2one", "link": "xgmi"},
    ]

    assert sorted(imported(json.dumps(mesh))[0].direct) == [(0, 1), (1, 2), (2, 3), (4, 5), (6, 7)]


def test_nvlinks_are_divided_among_pairs() -> None:
    mesh = document("mi300x_infragraph.json")
    mesh["devices"][0]["name"] = "redstone a100"
    mesh["devices"][0]["components"][1]["count"] = 4
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
        (change(EDGES, [{}]), "MGS609", "'ep1' is missing"),
        (change("devices.0.edges", 3), "MGS609", "devices[0].edges: a list is expected here"),
        (change("instances", [3]), "MGS609", "instances[0]: an object is expected here"),
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
