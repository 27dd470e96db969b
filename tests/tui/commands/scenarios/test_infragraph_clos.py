"""The Clos of ``examples/papers``: what its description says reaches the answer, and nothing of it may be lost."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magus.advisor.targets.infragraph import INFRAGRAPH
from magus.compiler import compile_text
from magus.examples import path
from tests.helpers.commands import document as printed
from tests.helpers.commands import magus
from tests.helpers.machines import imported, routes

pytestmark = pytest.mark.usefixtures("compiled_core", "one_model", "kept_results")

Document = dict[str, Any]
EXAMPLE = path("papers/infragraph").read_text()
REACHED = "11.927480916 GB/s of it are reached, back 11.927480916 GB/s after 500 ns"
DESCRIPTION = path("papers/infragraph").with_name("infragraph_clos.json").read_text()
GPU = EXAMPLE[EXAMPLE.index("gpu endpoint") : EXAMPLE.index("link nic")]
ASKED = EXAMPLE[EXAMPLE.index("workload sums") :]
BY_HAND = """
link ethernet extends nvlink {
  source assumed "100 Gb/s, RoCE v2: 1000 B of payload in frames of 1048 B"
  bandwidth 12.5 GB/s
  achieved 12.5 GB/s * 1000 / 1048
  latency 300 ns
  ordered yes
}
switch tor extends nvswitch { source assumed "100 Gb/s"; bandwidth 12.5 GB/s; latency 200 ns }
system cluster { gpus 8 x endpoint; fabric fat_tree(tor, link=ethernet, leaf=4, spines=2) }
"""


def machine_of(description: str) -> str:
    """What is read of a description: links and the system, with the GPU of the example."""
    text = imported(description, name="infragraph_clos.json")[1]
    return text.partition('use "nvidia/h100"\n')[2].lstrip().replace("x H100", "x endpoint")


def scenario(machine: str) -> str:
    return f'mgs 1\nuse "nvidia/h100"\n{GPU}{machine}\n{ASKED}'


def makespan_us(machine: str, file: Path) -> float:
    """The time of the ring; what the example expects need not hold."""
    file.write_text(scenario(machine).partition("expect")[0] + "expect sums { show around.makespan }\n")
    found: Any = printed("test", file, "--workers", "1")
    ((value,),) = (each["values"].values() for each in found["files"][0]["statements"])
    us: float = value["value"]
    return us


def test_the_example_is_what_is_read_of_its_description() -> None:
    assert machine_of(DESCRIPTION).strip() in EXAMPLE


def without(text: str) -> Callable[[Document], None]:
    """Take words away from the descriptions of both links."""

    def lose(found: Document) -> None:
        for link in found["links"]:
            assert text in link["description"]
            link["description"] = link["description"].replace(text, "")

    return lose


def lose_physical(key: str) -> Callable[[Document], None]:
    """Take a rate or latency away, with the words that stand in for it."""

    def lose(found: Document) -> None:
        without(REACHED)(found)
        for link in found["links"]:
            del link["physical"][key]

    return lose


def lose_hosts(found: Document) -> None:
    found["instances"][0]["count"], found["edges"] = 2, [found["edges"][0]]


def lose_spine(found: Document) -> None:
    del found["edges"][3]


def lose_leaves_and_spines(found: Document) -> None:
    found["edges"][1]["ep2"] = {"instance": "leaf[0]", "component": "port[4:8]"}
    del found["edges"][2:]


@pytest.mark.parametrize(
    "lose",
    [
        lose_hosts,
        lose_spine,
        lose_leaves_and_spines,
        lose_physical("bandwidth"),
        lose_physical("latency"),
        without(REACHED),
        without(", in the order of sending"),
    ],
    ids=["hosts", "a spine", "leaves and spines", "bandwidths", "latencies", "reached", "order"],
)
def test_what_is_lost_of_the_description_fails_the_example(lose: Callable[[Document], None], tmp_path: Path) -> None:
    found = json.loads(DESCRIPTION)
    lose(found)
    file = tmp_path / "lossy.mgs"
    file.write_text(scenario(machine_of(json.dumps(found))))
    done = magus("test", file, "--workers", "1")

    assert done.exit_code == 1 and "fail" in done.stdout, done.output


@pytest.mark.parametrize("lost", ["", "order"])
def test_a_machine_that_is_read_takes_as_long_as_the_same_by_hand(lost: str, tmp_path: Path) -> None:
    read, written = DESCRIPTION, BY_HAND
    if lost:
        read, written = read.replace(", in the order of sending", ""), written.replace("  ordered yes\n", "")
    files = tmp_path / "read.mgs", tmp_path / "written.mgs"

    assert makespan_us(machine_of(read), files[0]) == makespan_us(written, files[1])


def test_order_is_written_and_read_back() -> None:
    case = compile_text(scenario(BY_HAND)).scenario().case
    text = INFRAGRAPH.text([case], {}).replace('"endpoint"', '"NVIDIA H100"')
    again = compile_text(scenario(machine_of(text))).scenario().case

    assert routes(again) == routes(case)
    assert again.system.fabric.in_order and case.system.fabric.in_order
