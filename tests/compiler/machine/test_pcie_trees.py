"""PCIe between GPUs as edges: bridges, roots and CPUs of tables and dumps, at the rates that NCCL counts."""

import pytest

from magus.compiler.machine.machine import CpuWay, PcieSlot
from magus.compiler.machine.wiring import UNSAID_CPUS, way_between
from tests.helpers.machines import MACHINES, imported, nccl_dump, nccl_gpu, topo_rows, topo_table

RTX_4090 = "NVIDIA GeForce RTX 4090"


def fabric(text: str, gpu: str = "A100") -> str:
    """The fabric that is written, on one line."""
    written = imported(text, gpu)[1]
    return " ".join(written.rpartition("fabric ")[2].split()).rstrip("} ")


def by_groups(*words: str) -> str:
    """A table of 8 GPUs: the first word within pairs, the second within four, the third between."""
    return topo_table(
        topo_rows(8, lambda one, two: words[0 if one // 2 == two // 2 else 1 if one // 4 == two // 4 else 2])
    )


def test_gpus_at_the_roots_of_two_cpus() -> None:
    leaves = "pcie=[[0, 8], [1, 8], [2, 8], [3, 8], [4, 9], [5, 9], [6, 9], [7, 9]], cpus=[[8, 9]]"

    assert fabric(by_groups("PHB", "PHB", "SYS")) == f"edges(switches=2, {leaves})"
    assert fabric(by_groups("NODE", "PHB", "SYS")) == f"edges(switches=2, {leaves})"


def test_bridges_below_roots() -> None:
    pairs = "[0, 8], [1, 8], [2, 9], [3, 9], [4, 10], [5, 10], [6, 11], [7, 11]"
    up = "[8, 12], [9, 12], [10, 13], [11, 13]"

    assert fabric(by_groups("PIX", "PHB", "SYS")) == f"edges(switches=6, pcie=[{pairs}, {up}], cpus=[[12, 13]])"
    assert fabric(by_groups("PIX", "PXB", "PHB")) == f"edges(switches=7, pcie=[{pairs}, {up}, [12, 14], [13, 14]])"


def test_one_bridge_or_root_is_a_star() -> None:
    for word in ("PIX", "PXB", "PHB", "NODE"):
        assert (
            fabric(topo_table(topo_rows(2, lambda *_, word=word: word))) == "edges(switches=1, pcie=[[0, 2], [1, 2]])"
        )


def test_cards_in_pairs_with_bridges() -> None:
    rows = topo_rows(4, lambda one, two: "NV12" if one // 2 == two // 2 else "SYS")
    machine, text, _ = imported(topo_table(rows, name="NVIDIA A100 80GB PCIe"), "A100")

    assert machine.direct == {(0, 1): 12, (2, 3): 12} and not machine.switched
    assert "nvlink=[[0, 1], [2, 3]], pcie=[[0, 4], [1, 4], [2, 5], [3, 5]]" in text
    assert "does not say how PCIe joins GPUs that faster links join" in text.replace("\n#   ", " ")


def test_two_cards_with_all_their_links() -> None:
    rows = topo_rows(2, lambda *_: "NV18")
    row = '<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>'
    cards = [nccl_gpu(number, row, device="0x233b") for number in range(2)]

    assert fabric(topo_table(rows, name="NVIDIA H200 NVL"), "H200") == "full_mesh(nvlink)"
    assert fabric(nccl_dump(cards), "H200") == "full_mesh(nvlink)"
    assert fabric(topo_table(rows, name="NVIDIA H200"), "H200") == "switch(nvswitch, link=nvlink)"


def test_rates_are_those_of_the_gpus_of_the_file() -> None:
    rows = topo_rows(2, lambda *_: "PHB")
    text = imported(topo_table(rows, name=RTX_4090), "H100")[1]

    assert "bandwidth 31.5 GB/s" in text and "achieved 24 GB/s" in text
    assert "16 lanes of 16 GT/s are written, as in the data sheet of RTX 4090" in text.replace("\n#   ", " ")
    assert "achieved 48 GB/s" in imported(topo_table(rows, name="NVIDIA RTX PRO 6000 Blackwell"), "H100")[1]
    assert "in the data sheet of H100" in imported(topo_table(rows, name="NVIDIA Foo"), "H100")[1].replace(
        "\n#   ", " "
    )


def test_cpus_that_are_not_said() -> None:
    text = imported(by_groups("PHB", "PHB", "SYS"), "A100")[1]

    assert "achieved 10 GB/s" in text and "does not say which CPUs there are" in text


def bridge(inner: str, width: int = 16, vendor: str = "0x10b5") -> str:
    ids = f'class="0x060400" vendor="{vendor}" device="0xc030"'
    return f'<pci busid="0000:80:00.0" {ids} link_speed="16.0 GT/s PCIe" link_width="{width}">{inner}</pci>'


def on_pcie(*numbers: int, speed: str = "16.0") -> str:
    slot = f'link_speed="{speed} GT/s PCIe" link_width="16"'
    return "".join(nccl_gpu(number, device="0x2204", sm=86, pci=slot) for number in numbers)


def test_bridges_of_a_dump() -> None:
    cpus = [bridge(bridge(on_pcie(0, 1), width=8) + bridge(on_pcie(2, 3))), bridge(on_pcie(4), width=4) + on_pcie(5)]
    machine, text, _ = imported(two_cpus(cpus), "A100")

    assert fabric(two_cpus(cpus)) == (
        "edges(switches=5, pcie=[[0, 6], [1, 6], [2, 7], [3, 7], [7, 8], [8, 9], [5, 10]],"
        " pcie_gen4_x8=[[6, 8]], pcie_gen4_x4=[[4, 10]], cpus=[[9, 10]])"
    )
    assert "achieved 12 GB/s" in text and "achieved 6 GB/s" in text and "Zen 3 and 4" in text
    assert PcieSlot(16, 4) in {wire.rate for wire in machine.pcie}


def two_cpus(parts: list[str]) -> str:
    cpu = '<cpu numaid="{}" arch="x86_64" vendor="AuthenticAMD" familyid="25">{}</cpu>'
    return f"<system>{''.join(cpu.format(number, part) for number, part in enumerate(parts))}</system>"


def test_a_switch_of_broadcom_that_shows_as_two_levels() -> None:
    parts = [bridge(on_pcie(first, first + 1), vendor="0x1000") for first in (0, 2)]

    assert fabric(nccl_dump([bridge("".join(parts), vendor="0x1000")])) == (
        "edges(switches=1, pcie=[[0, 4], [1, 4], [2, 4], [3, 4]])"
    )


def test_pcie_of_amd_by_numa_nodes_or_weights() -> None:
    ring = (MACHINES / "ring_of_4_topo.txt").read_text().replace("XGMI", "PCIE")
    weights = topo_rows(4, lambda one, two: "40" if one // 2 == two // 2 else "72")
    types = topo_rows(4, lambda *_: "PCIE")
    tables = f"Weight between two GPUs\n{topo_table(weights)}Link Type between two GPUs\n{topo_table(types)}"

    assert "cpus=[[4, 5]]" in fabric(ring, "MI325X")
    assert fabric(tables, "MI325X") == "edges(switches=2, pcie=[[0, 4], [1, 4], [2, 5], [3, 5]], cpus=[[4, 5]])"
    assert fabric(tables.replace("72", "40"), "MI325X").startswith("edges(switches=1, ")


@pytest.mark.parametrize(
    ("cpu", "gb_per_s"),
    [
        (("x86_64", "GenuineIntel", 6, 0x55), 10),
        (("x86_64", "GenuineIntel", 6, 0x4F), 6),
        (("x86_64", "GenuineIntel", 6, 0x8F), 22),
        (("x86_64", "GenuineIntel", 6, 0xAD), 40),
        (("x86_64", "AuthenticAMD", 23, 49), 16),
        (("x86_64", "AuthenticAMD", 26, 2), 32),
        (("arm64", "", -1, -1), 6),
    ],
)
def test_ways_between_cpus(cpu: tuple[str, str, int, int], gb_per_s: float) -> None:
    assert way_between(*cpu).gb_per_s == gb_per_s and way_between(*cpu).source
    assert way_between("x86_64", "GenuineIntel", -1, -1) == UNSAID_CPUS == CpuWay(10)
