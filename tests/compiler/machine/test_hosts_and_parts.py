"""Dumps that are not one machine of whole GPUs: two hosts in a file, partitions, names that fit two GPUs."""

import json

import pytest

from magus.compiler.text.diagnostics import CompileError
from tests.helpers.machines import MACHINES, imported, nccl_dump, nccl_gpu, nvlink, topo_rows, topo_table

SWITCH = '<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>'
MI300X = (MACHINES / "mi300x_topo.txt").read_text()


def refused(text: str, gpu: str = "") -> tuple[str, str, str]:
    """Code, message and hint of the one error."""
    with pytest.raises(CompileError) as caught:
        imported(text, gpu)
    (found,) = caught.value.diagnostics
    return found.code.name, found.message, found.hint


def hosts(rows: str, device: str = "0x2330") -> str:
    """A dump of two hosts, with two GPUs each."""
    parts = [nccl_gpu(number, rows, device=device) for number in range(4)]
    cpu = '<cpu host_hash="0x{}" numaid="0">{}</cpu>'
    return f"<system>{cpu.format(1, ''.join(parts[:2]))}{cpu.format(2, ''.join(parts[2:]))}</system>"


def test_two_hosts_in_a_dump() -> None:
    assert refused(hosts(SWITCH))[:2] == (
        "MGS612",
        "the file has 2 and 2 GPUs of 2 hosts: a system is read of one host",
    )
    assert refused(hosts(""), "H100")[0] == "MGS612"
    assert len(imported(hosts(SWITCH, "0x2941"))[0].gpus) == 4  # GB200: switches of NVLink join hosts


def test_two_dumps_in_a_file() -> None:
    one = nccl_dump([nccl_gpu(number, SWITCH) for number in range(2)])
    both = one.replace("</system>", one.partition(">")[2])

    assert refused(f"{one}\n{one}")[:2] == (
        "MGS612",
        "the file goes on after <system>: two files in one, as of two hosts",
    )
    assert refused(both)[1].startswith("two devices of the file have one PCI address")


def test_two_tables_of_amd() -> None:
    assert refused(MI300X + MI300X)[:2] == (
        "MGS612",
        "the file has 2 tables 'Link Type between two GPUs': a system is read of one host",
    )


def test_weights_go_before_hops() -> None:
    """On MI250X the hops are 1 wherever xGMI leads; a weight of 30 is two links in a row."""
    weights = topo_rows(4, lambda one, two: "30" if one + two == 3 else "15")
    hops, types = topo_rows(4, lambda *_: "1"), topo_rows(4, lambda *_: "XGMI")
    titles = ("Weight between two GPUs", "Hops between two GPUs", "Link Type between two GPUs")
    text = "\n".join(f"{title}\n{topo_table(rows)}" for title, rows in zip(titles, (weights, hops, types), strict=True))

    assert sorted(imported(text, "MI300X")[0].direct) == [(0, 1), (0, 2), (1, 3), (2, 3)]
    assert len(imported(text.replace("15", "13"), "MI300X")[0].direct) == 6


def mesh_of(num_gpus: int) -> str:
    return f"Link Type between two GPUs\n{topo_table(topo_rows(num_gpus, lambda *_: 'XGMI'))}"


def test_more_partners_than_links() -> None:
    code, message, hint = refused(mesh_of(16), "MI300X")

    assert (code, message) == (
        "MGS611",
        "GPU 0 is joined to 15 others, and MI300X has links to 7: a partition is no full GPU",
    )
    assert "38 of 304" in hint and "SPX" in hint
    assert len(imported(mesh_of(8), "MI300X")[0].direct) == 28


def test_partitions_of_one_gpu() -> None:
    without = MI300X
    for number in range(1, 8):
        without = without.replace(
            f"GPU[{number}]\t\t: Card Model: \t\t0x74a1", f"GPU[{number}]\t\t: Card Model: \t\tN/A"
        )

    assert refused(without)[:2] == (
        "MGS611",
        "GPU 1 has no id of its own, as partitions of a GPU have none: a partition is no full GPU",
    )
    assert refused(f"{MI300X}GPU[3]\t\t: Compute Partition: CPX\n")[0] == "MGS611"
    assert len(imported(f"{MI300X}GPU[3]\t\t: Compute Partition: SPX\n")[0].gpus) == 8


def test_more_partners_than_nvlinks() -> None:
    parts = [nccl_gpu(each, "".join(nvlink(to, 1) for to in range(20) if to != each)) for each in range(20)]

    assert refused(nccl_dump(parts))[:2] == (
        "MGS611",
        "GPU 0 at 0000:01:00.0 is joined to 19 others, and H100 has links to 18: a partition is no full GPU",
    )


def test_four_cards_of_which_the_file_does_not_say_which_a_bridge_joins() -> None:
    cards = [nccl_gpu(number, SWITCH, device="0x233b") for number in range(4)]

    assert refused(nccl_dump(cards), "H200")[:2] == (
        "MGS607",
        "the file does not say which of 4 cards its bridge joins GPU 0 at 0000:01:00.0 to",
    )


def test_a_name_that_fits_two_gpus() -> None:
    device = {"name": "dgx", "components": [{"name": "xpu", "choice": "xpu", "count": 2, "description": "H100 / H200"}]}
    text = json.dumps(device | {"edges": []})

    assert refused(text) == (
        "MGS604",
        "xpu[0] may be H100 or H200: the file says 'H100 / H200'",
        "say which: --gpu H100 or --gpu H200",
    )
    assert imported(text, "H200")[0].model.name == "H200"


def test_a_gpu_that_the_library_lacks() -> None:
    code, _, hint = refused(topo_table(topo_rows(2, lambda *_: "NV2"), name="Tesla V100-SXM2-32GB"))

    assert code == "MGS604" and "--gpu with" in hint and "what joins the GPUs, and PCIe, from this file" in hint


H100 = topo_table(topo_rows(2, lambda *_: "NV18"), name="NVIDIA H100 80GB HBM3")


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("components:\n- {name: xpu}\nedges:\n- {}\nname: box\n", "MGS609", "JSON of the same is read"),
        ("devices:\n  - components:\n    - name: xpu\n", "MGS609", "JSON of the same is read"),
        ('{"system": {"(Topology) Weight between DRM devices 0 and 1": "15"}}', "MGS601", "without --json"),
        ("ACCESS TABLE:\n", "MGS601", "rocm-smi --showtopo"),
        ("GPU 0: NVIDIA H100 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n", "MGS601", "nvidia-smi topo -m"),
        (H100.partition("\tGPU0")[0], "MGS601", "(nvidia-smi -L; nvidia-smi topo -m)"),
        (H100.replace("NV18", "OK"), "MGS607", "the table of nvidia-smi topo -m is read"),
        (H100.replace("GPU0", "GPU4").replace("GPU1", "GPU5"), "MGS607", "all GPUs of the machine"),
        ("<nvidia_smi_log/>", "MGS601", "NCCL_TOPO_DUMP_FILE"),
    ],
)
def test_relatives_of_what_is_read_name_it(text: str, code: str, says: str) -> None:
    found, _, hint = refused(text)

    assert found == code and says in hint


def test_names_without_a_space_between_them() -> None:
    head = "GPU0GPU1\tNIC0\tNIC1NIC2\tmlx5_3mlx5_4"
    nics = imported(H100.replace("\tGPU0\tGPU1", head).replace("NV18", "NV18\tSYS\tSYSSYS"))[0].nics

    assert [nic.name for nic in nics] == ["NIC0", "NIC1", "NIC2", "mlx5_3", "mlx5_4"]


def test_a_summary_of_an_old_driver() -> None:
    row = "|   {}  {}      On   | 00000000:0{}:00.0 Off |                    0 |\n"
    table = topo_table(topo_rows(2, lambda *_: "NV12"))
    processes = "|    0   N/A  N/A     12345      C   python                     123MiB |\n"

    def names(name: str) -> set[str]:
        text = "".join(row.format(number, name, number) for number in range(2)) + processes + table
        return {gpu.kind for gpu in imported(text, "A100")[0].gpus}

    assert names("A100-SXM4-40GB") == {"A100-SXM4-40GB"}
    assert names("NVIDIA A100-SXM4-40GB") == {"NVIDIA A100-SXM4-40GB"}
    assert names("Tesla V100-SXM2...") == {"Tesla V100-SXM2..."}


def test_a_table_of_pcie_alone() -> None:
    legend = "Legend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the interconnect\n"
    table = topo_table(topo_rows(2, lambda *_: "SYS"), name="NVIDIA H100 80GB HBM3")

    assert "nvidia-smi topo -mp, which leaves NVLinks out" in imported(table + legend)[1].replace("\n#   ", " ")
    assert "topo -mp" not in imported(f"{table}{legend}  NV#  = bonded\n")[1]
