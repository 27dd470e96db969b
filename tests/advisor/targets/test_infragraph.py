"""Systems as descriptions of InfraGraph: what ``magus import`` reads back, and what they cannot say."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.advisor.targets import Refused
from magus.advisor.targets.infragraph import INFRAGRAPH
from magus.compiler import compile_text
from magus.compiler.ir import OpCase
from tests.helpers.machines import imported, routes
from tests.helpers.marks import examples

WORKLOAD = "workload w on node { x = tensor bf16[12288, 64] shard rows; y = all_gather(x) }\n"
NIC = 'link nic { bandwidth 50 GB/s; achieved 45 GB/s; latency 2 us; source nominal "a test" }\n'
LEAF = 'switch leaf { ports 64; bandwidth 40 GB/s; latency 150 ns; source nominal "a test" }\n'
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


def read_back(of: OpCase) -> OpCase:
    """What is read of the description of a system."""
    _, text, _ = imported(INFRAGRAPH.text([of], {}))
    place = "cluster" if "system cluster" in text else "node"
    again = compile_text(text + WORKLOAD.replace("node", place)).scenario().case
    assert isinstance(again, OpCase)
    return again


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_that_is_read_back_has_the_same_routes(name: str) -> None:
    again = read_back(case(name))

    assert again.gpu.name == case(name).gpu.name
    assert routes(again) == routes(case(name))


def number(most: int, least: int = 0) -> st.SearchStrategy[str]:
    """A number with three decimals."""
    return st.integers(1000 * least + 1, 1000 * most).map(
        lambda thousandths: f"{thousandths // 1000}.{thousandths % 1000:03}"
    )


@st.composite
def links(draw: st.DrawFn, name: str) -> str:
    rate, share = draw(number(900, least=10)), draw(st.integers(1, 1000))
    return (
        f'link {name} {{ source nominal "a test"; bandwidth {rate} GB/s; achieved {rate} GB/s * {share} / 1000; '
        f"latency {draw(number(9000))} ns }}\n"
    )


CLIQUES = "edges(side=[[0, 1], [1, 2], [0, 2], [3, 4], [4, 5], [3, 5]], nic=[[2, 3], [0, 5]])"
ONE_BY_ONE = "edges(switches=1, there=[0 -> 1, 1 -> 2], back=[1 -> 0, 2 -> 1], nic=[[0, 4], [3, 4]])"
FABRICS = (
    (4, "full_mesh(side)"),
    (6, "ring(side)"),
    (6, "torus(side, shape=[2, 3])"),
    (8, "switch(leaf, link=side)"),
    (8, "fat_tree(leaf, link=side, leaf=2, spines=3)"),
    (8, "fat_tree(leaf, link=nic, leaf=4, spines=1)"),
    (8, "rails(leaf, link=side, node=4, nic=nic)"),
    (6, "rails(leaf, link=side, node=2, nic=nic)"),
    (6, CLIQUES),
    (4, ONE_BY_ONE),
)


@pytest.mark.parametrize(("gpus", "fabric"), FABRICS, ids=[fabric[:25] for _, fabric in FABRICS])
@examples(6)
@given(data=st.data())
def test_rates_and_latencies_come_back_to_the_last_bit(gpus: int, fabric: str, data: st.DataObject) -> None:
    drawn = [data.draw(links(name)) for name in ("side", "nic", "there")]
    leaf = f"ports 64; bandwidth {data.draw(number(900))} GB/s; latency {data.draw(number(900))} ns"
    text = "".join([*drawn, f'switch leaf {{ source nominal "a test"; {leaf} }}\n'])
    text += f"link back extends there {{ achieved base.achieved / 2; latency {data.draw(number(900))} ns }}\n"
    system = f"system node {{ gpus {gpus} x H100; fabric {fabric} }}\n"
    found = compile_text(f'use "nvidia/h100"\n{text}{system}{WORKLOAD}').scenario().case
    assert isinstance(found, OpCase)
    again = read_back(found)

    assert routes(again) == routes(found)
    assert INFRAGRAPH.text([again], {}) == INFRAGRAPH.text([read_back(again)], {}), "and what is read is written again"


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(written(name))
    return found


def test_hosts_that_are_alike_are_instances_of_one_device() -> None:
    rails = document("rails")

    assert [(each["device"], each["count"]) for each in rails["instances"]] == [("host", 4), ("switch", 8)]
    assert rails["edges"][3]["ep1"] == {"instance": "host[0:4]", "component": "gpu[3]"}
    assert rails["edges"][3]["ep2"] == {"instance": "switch[3]", "component": "switch[0]"}


def test_what_the_file_has_no_place_for_is_in_words() -> None:
    (link,) = document("switch")["devices"][0]["links"]

    assert link["description"] == "375 GB/s of it are reached, back 375 GB/s after 500 ns"
    assert link["physical"]["latency"] == {"choice": "ns", "ns": 250}
    assert link["physical"]["bandwidth"]["gigabytes_per_second"] == 450


def test_a_link_that_serves_in_several_ways_has_several_names() -> None:
    names = [link["name"] for link in document("tree")["links"]]

    assert names == ["nic", "nic_2"], "from GPUs to a leaf, and between a leaf and a spine"


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


def test_a_link_with_two_bandwidths_is_refused() -> None:
    half = "link half extends nvlink { bandwidth base.bandwidth / 2; achieved base.achieved / 2 }\n"
    ways = "edges(nvlink=[0 -> 1], half=[1 -> 0])"

    assert "have one bandwidth, 0 -> 1 of node another than back" in refused(
        f"{half}system node {{ gpus 2 x H100; fabric {ways} }}"
    )


def test_a_group_is_refused() -> None:
    mesh = "system node { gpus 32 x H100; fabric rails(nvswitch, link=nvlink, node=8, nic=nic); mesh tp 4, dp 8 }"

    assert "node.dp, 8 of 32 x H100 is a group of a system" in refused(mesh, WORKLOAD.replace("node", "node.dp"))


def test_links_that_would_take_too_many_lines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magus.advisor.targets.infragraph.MAX_PAIRS", 5)

    assert "node has more than 5 links that are written one by one" in refused(
        "system node { gpus 8 x H100; fabric ring(nvlink) }"
    )
