"""Tables of nvidia-smi and rocm-smi: what they count, leave open, and how they break."""

import pytest

from magus.compiler.text.diagnostics import CompileError
from tests.helpers.machines import MACHINES, imported, topo_table


def read(name: str) -> str:
    return (MACHINES / name).read_text()


def refused(text: str, gpu: str = "") -> tuple[str, str, int]:
    """Code, message and line of the one error."""
    with pytest.raises(CompileError) as caught:
        imported(text, gpu)
    (found,) = caught.value.diagnostics
    return found.code.name, found.message, found.span.location.line


def test_links_to_a_switch_count_for_every_gpu() -> None:
    machine, text, _ = imported(read("h100_topo.txt"))

    assert machine.switched[0].links == (18,) * 8 and not machine.direct
    assert [nic.name for nic in machine.nics] == [f"mlx5_{number}" for number in range(8)]
    assert "In doubt" not in text


def test_direct_links_of_a_few_gpus() -> None:
    machine = imported(read("a100_mesh_topo.txt"))[0]

    assert not machine.switched
    assert set(machine.direct.values()) == {4} and len(machine.direct) == 6


def test_an_empty_affinity_and_spaces_for_tabs() -> None:
    rows = [["X", "NV12", "NV12"], ["NV12", "X", "NV12"], ["NV12", "NV12", "X"]]
    tabs = topo_table(rows, tail="\t\t0\t\tN/A")

    assert imported(tabs, "A100")[1] == imported(tabs.replace("\t", "      "), "A100")[1]
    assert imported(tabs.replace("\n", "\r\n"), "A100")[1] == imported(tabs, "A100")[1]


def test_islands_are_joined_by_pcie() -> None:
    machine, text, _ = imported(read("h200_islands_topo.txt"), "H200")

    assert [group.gpus for group in machine.switched] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert "NVLinks join 2 groups of GPUs; PCIe joins the groups" in text


def test_a_gpu_with_fewer_links_than_others() -> None:
    rows = [["X" if at == to else "NV17" if at == 2 else "NV18" for to in range(8)] for at in range(8)]
    _, text, warnings = imported(topo_table(rows), "H100")

    assert [each.message for each in warnings] == ["GPU 2 has 17 NVLinks, others have 18"]
    assert "link nvlink_17 extends nvlink" in text


def test_a_gpu_without_links() -> None:
    rows = [["X" if at == to else "SYS" if 3 in (at, to) else "NV18" for to in range(8)] for at in range(8)]
    _, text, warnings = imported(topo_table(rows), "H100")

    assert [each.message for each in warnings] == ["GPU 3 has no NVLink, though others have: PCIe joins it to them"]
    assert "if all GPUs had their links" in text


def test_two_gpus_with_all_their_links() -> None:
    assert "lead to each other" in imported(read("two_of_h100_topo.txt"))[1]


def test_one_gpu() -> None:
    machine, text, _ = imported(topo_table([["X"]]) + "GPU 0: NVIDIA H200 (UUID: GPU-1)\n")

    assert len(machine.gpus) == 1 and "the file has one GPU: a collective needs two" in text


def test_names_that_do_not_fit_the_table() -> None:
    text = read("two_of_h100_topo.txt") + "GPU 2: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n"

    assert "the file lists 3 GPUs by name, and its table has 2" in imported(text)[1]
    assert refused(text + text)[:2] == ("MGS612", "the file has 2 tables of GPUs: a system is read of one host")


def test_hops_of_amd() -> None:
    text = read("ring_of_4_topo.txt")
    machine = imported(text, "MI325X")[0]
    without = text.replace("Hops between", "Steps between").replace("Weight between", "Mass between")

    assert sorted(machine.direct) == [(0, 1), (0, 3), (1, 2), (2, 3)]
    assert sorted(imported(text.replace("Hops between", "Steps between"), "MI325X")[0].direct) == sorted(machine.direct)
    assert len(imported(without, "MI325X")[0].direct) == 6
    assert "does not say over how many links xGMI leads" in imported(without, "MI325X")[1]


def test_pcie_between_gpus_of_amd() -> None:
    text = imported(read("ring_of_4_topo.txt").replace("XGMI", "PCIE"), "MI325X")[1]

    assert "no xGMI link joins two GPUs of the file" in text
    assert "edges(switches=2, pcie=[[0, 4], [1, 4], [2, 5], [3, 5]], cpus=[[4, 5]])" in text


def test_one_direction_of_amd() -> None:
    before, _, after = read("mi300x_topo.txt").rpartition("XGMI")

    assert "xGMI joins GPU 6 to GPU 7, and not back" in imported(f"{before}PCIE{after}")[1]


ROWS = [["X", "NV18"], ["NV18", "X"]]
ROCM = read("ring_of_4_topo.txt")


@pytest.mark.parametrize(
    ("text", "gpu", "code", "says", "line"),
    [
        (topo_table(ROWS), "", "MGS604", "does not say which GPUs", 2),
        (topo_table(ROWS), "MI300X", "MGS604", "the file has NVLinks, and MI300X has xGMI links", 2),
        (ROCM, "H100", "MGS604", "the file has xGMI links, and H100 has NVLinks", 19),
        (topo_table(ROWS).replace("NV18", "PIXIE"), "H100", "MGS607", "'PIXIE' between GPU0 and GPU1", 2),
        (topo_table(ROWS).replace("X\tNV18", "X\tX"), "H100", "MGS607", "'X' between GPU0 and GPU1", 2),
        (topo_table(ROWS).replace("GPU1\tNV18", "GPU2\tNV18"), "H100", "MGS607", "no line of GPU1", 3),
        (topo_table(ROWS).rpartition("GPU1")[0], "H100", "MGS607", "no line of GPU1", 3),
        (topo_table(ROWS).rpartition("\tX")[0], "H100", "MGS607", "GPU1 has 1 words", 3),
        (topo_table(ROWS).replace("\tGPU1\t", "\tGPU2\t"), "H100", "MGS607", "GPU0, GPU1 and so on", 1),
        (topo_table([["X"] * 257] * 257), "H100", "MGS603", "at most 256", 1),
        (topo_table(ROWS) + "\n" * 100_001, "H100", "MGS130", "100,000 lines", 1),
        (ROCM.replace("XGMI", "WIFI"), "MI325X", "MGS607", "'WIFI' between GPU0 and GPU1", 19),
        (ROCM.partition("=== Link")[0], "MI325X", "MGS607", "'Link Type between two GPUs' is missing", 1),
        (
            ROCM.partition("Link Type between two GPUs")[0] + "Link Type between two GPUs",
            "MI325X",
            "MGS607",
            "below",
            17,
        ),
    ],
)
def test_bad_tables(text: str, gpu: str, code: str, says: str, line: int) -> None:
    found, message, at = refused(text, gpu)

    assert (found, at) == (code, line)
    assert says in message


def test_a_gpu_that_is_divided() -> None:
    names = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n  MIG 3g.40gb     Device  0: (UUID: MIG-0)\n"
    names += "  MIG 3g.40gb     Device  1: (UUID: MIG-1)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n"
    rows = [["X", "NV18"], ["NV18", "X"]]
    machine = imported(names + topo_table(rows))[0]

    (divided,) = [doubt for doubt in machine.doubts if "MIG" in doubt]
    assert divided.startswith("GPU 0 is divided (MIG, such as 3g.40gb)")
