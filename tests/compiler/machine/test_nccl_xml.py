"""Topology dumps of NCCL and RCCL: what they leave out, say twice or say wrongly."""

import pytest

from magus.compiler.machine.known_gpus import LIBRARY_GPUS
from magus.compiler.machine.machine import CpuWay, PcieSlot
from magus.compiler.text.diagnostics import CompileError
from tests.helpers.machines import MACHINES, imported, nccl_dump, nccl_gpu, nvlink
from tests.helpers.some import some

SWITCH = '<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>'


def refused(text: str, gpu: str = "") -> tuple[str, str, str, int]:
    """Code, message, hint and line of the one error."""
    with pytest.raises(CompileError) as caught:
        imported(text, gpu)
    (found,) = caught.value.diagnostics
    return found.code.name, found.message, found.hint, found.span.location.line


def read(name: str) -> str:
    return (MACHINES / name).read_text()


def test_rows_of_switches_are_summed() -> None:
    machine, text, warnings = imported(read("h100.xml"))

    assert machine.switched[0].links == (18,) * 8
    assert {wire.rate for wire in machine.pcie} == {
        PcieSlot(32, 16),
        CpuWay(22, "NCCL counts it between CPUs: Intel, Sapphire Rapids"),
    }
    assert "fabric switch(nvswitch, link=nvlink)" in text and "In doubt" not in text
    assert not warnings


def test_one_row_of_a_virtual_machine() -> None:
    machine, text, _ = imported(read("h200_vm.xml"))

    assert machine.switched[0].links == (18,) * 8
    assert {wire.rate for wire in machine.pcie} == {PcieSlot(16, 16)}
    assert "gpus 8 x H200; fabric switch" in text


def test_a_broken_machine_is_named() -> None:
    _, text, warnings = imported(read("h100_broken.xml"))

    assert [(each.code.name, each.message) for each in warnings] == [
        ("MGS610", "GPU 2 at 0000:3d:00.0 has 13 NVLinks, others have 18"),
        ("MGS610", "GPU 5 at 0000:ac:00.0 has no NVLink, though others have: PCIe joins it to them"),
    ]
    assert [each.span.text for each in warnings] == ["<gpu", "<gpu"]
    assert "if all GPUs had their links, it would be: gpus 8 x H100" in text
    assert "nvlink_13=[[0, 8]" in text and "[5, 10]" in text and "[5, 8]" not in text


def test_files_of_clouds_and_graphs_are_refused_by_name() -> None:
    codes = [refused(read(name)) for name in ("cloud.xml", "graph.xml")]

    assert [each[0] for each in codes] == ["MGS603", "MGS601"]
    assert "NCCL_TOPO_FILE, as clouds ship it" in codes[0][1] and "4 PCI devices" in codes[0][1]
    assert "NCCL_GRAPH_DUMP_FILE" in codes[1][1]
    assert all("NCCL_TOPO_DUMP_FILE=topo.xml" in each[2] for each in codes)


def test_a_gpu_that_the_library_lacks() -> None:
    code, message, hint, line = refused(read("h100_pcie.xml"))

    assert (code, line) == ("MGS604", 5)
    assert message == "GPU 0 at 0000:17:00.0 is not in the library: H100 PCIe (PCI 10de:2331, sm 90)"
    assert all(gpu.name in hint for gpu in LIBRARY_GPUS)
    assert "--gpu says so; the file says H100 PCIe" in imported(read("h100_pcie.xml"), "h100")[1]


def test_a_name_that_is_not_in_the_library() -> None:
    code, message, hint, _ = refused(read("h100.xml"), "h1000")

    assert (code, hint) == ("MGS604", "did you mean 'H100'?")
    assert "'h1000'" in message


def test_gpus_of_two_kinds() -> None:
    text = nccl_dump([nccl_gpu(0, SWITCH), nccl_gpu(1, SWITCH, device="0x2335")])

    assert refused(text)[:2] == (
        "MGS605",
        "GPUs of two kinds: GPU 0 at 0000:01:00.0 is H100, GPU 1 at 0000:02:00.0 is H200",
    )
    assert "the file says H200" in imported(text, "H100")[1].replace("\n#   ", " ")


def test_files_without_ids() -> None:
    text = nccl_dump([nccl_gpu(number, SWITCH, device="0x0000") for number in range(2)])

    assert refused(text)[0] == "MGS604"
    assert "PCI 10de:0000, sm 90" in imported(text, "H100")[1]


def test_a_partial_mesh_is_edges() -> None:
    ring = [nccl_gpu(each, nvlink((each + 1) % 4, 4) + nvlink((each + 3) % 4, 4)) for each in range(4)]
    _, text, warnings = imported(nccl_dump(ring))

    assert not warnings
    assert "edges(switches=0, nvlink_4=[[0, 1], [0, 3], [1, 2], [2, 3]])" in text
    assert "4 of 6 pairs of GPUs have NVLinks" in text


def test_a_mesh_with_a_missing_link_is_broken() -> None:
    text = read("mi300x.xml")
    rows = [line for line in text.splitlines() if 'target="0000:26:00.0"' in line]
    before, _, after = text.partition(rows[0])
    _, written, warnings = imported(before + after)

    assert [(each.code.name, each.message) for each in warnings] == [
        ("MGS610", "GPU 0 at 0000:05:00.0 has no xGMI link to GPU 1 at 0000:26:00.0, though most others have")
    ]
    assert "27 of 28 pairs of GPUs have xGMI links" in written and "xgmi=[[0, 2], " in written


def test_links_that_only_one_end_names() -> None:
    parts = [nccl_gpu(0, nvlink(1, 4) + nvlink(2, 4)), nccl_gpu(1, nvlink(0, 3)), nccl_gpu(2)]
    machine, text, _ = imported(nccl_dump(parts))

    assert machine.direct == {(0, 1): 3}
    assert "GPU 0 names 4 links to GPU 1, and GPU 1 names 3: 3 are written" in text
    assert "GPU 0 names 4 links to GPU 2, and GPU 2 names 0: 0 are written" in text


def test_several_link_rows_to_one_peer_are_summed() -> None:
    parts = [nccl_gpu(0, nvlink(1, 2) * 2), nccl_gpu(1, nvlink(0, 4))]

    assert imported(nccl_dump(parts))[0].direct == {(0, 1): 4}


def test_a_dump_of_some_of_the_gpus() -> None:
    parts = [nccl_gpu(each, nvlink(1 - each, 4) + nvlink(6, 4)) for each in range(2)]
    text = imported(nccl_dump(parts))[1]

    assert "2 rows of links lead to devices that are not in the file" in text


def test_two_gpus_at_one_address_share_its_links() -> None:
    one = nccl_gpu(0, SWITCH)
    both = one.replace("</pci>", f'<gpu dev="1" sm="90" rank="1" mlopart="1">{SWITCH}</gpu></pci>')
    machine, text, _ = imported(nccl_dump([both]))

    assert machine.switched[0].links == (9, 9)
    assert "several GPUs are at one PCI address" in text


def test_ranks_give_the_order() -> None:
    text = nccl_dump([nccl_gpu(each, SWITCH).replace(f'rank="{each}"', f'rank="{3 - each}"') for each in range(4)])

    assert [gpu.label for gpu in imported(text)[0].gpus] == [
        f"GPU {each} at 0000:0{4 - each}:00.0" for each in range(4)
    ]


def test_more_gpus_than_the_switch_has_ports() -> None:
    text = imported(nccl_dump([nccl_gpu(each, SWITCH) for each in range(16)]))[1]

    assert "switch nvswitch_16 extends nvswitch { ports 16" in text


def test_addresses_of_several_hosts_may_be_alike() -> None:
    machine = imported(read("gb200_trays.xml"))[0]

    assert len(machine.gpus) == 12 and len({gpu.label for gpu in machine.gpus}) == 12


def test_nics_are_reported_and_left_out() -> None:
    net = '<nic><net name="{}" speed="{}" gdr="{}"/></nic>'
    gpus = [nccl_gpu(each, SWITCH) for each in range(2)]
    nics = [net.format("cxi0", 200_000_000, 1), net.format("cxi1", 200_000, 1), net.format("eth0", 10_000, 0)]
    text = imported(nccl_dump([*gpus, *nics]))[1]

    assert "2 x 200 Gb/s (cxi0 to cxi1), 1 x 10 Gb/s (eth0, no GPUDirect)" in text
    assert 'the speed "200000000" of NICs was taken for kbit/s' in text
    assert "node=2 and a link nic { bandwidth 25 GB/s }" in text


def test_cus_of_amd_gpus_are_compared() -> None:
    text = read("mi300x.xml")

    assert "In doubt" not in imported(text)[1]
    assert "GPUs have 228 CUs, and MI300X has 304" in imported(text.replace('sm="304"', 'sm="228"'))[1]
    assert refused(text.replace('sm="304"', 'sm="38"'))[:2] == (
        "MGS611",
        "GPU 0 at 0000:05:00.0 has 38 compute units of 304: a partition is no full GPU",
    )


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("<system version='1'>", "MGS602", "no element found"),
        ("<!DOCTYPE system [<!ENTITY a 'b'>]><system>&a;</system>", "MGS602", "document type"),
        ('<!DOCTYPE system SYSTEM "file:///etc/passwd"><system/>', "MGS602", "document type"),
        ("<system>&a;</system>", "MGS602", "undefined entity"),
        ("<system/>", "MGS603", "no gpu"),
        ("<a>" * 65, "MGS132", "deeper than 64"),
        (f"<system>{'<cpu/>' * 100_001}</system>", "MGS131", "100,000 elements"),
        ("<system " + " ".join(f"a{number}='1'" for number in range(65)) + "/>", "MGS131", "64 attributes"),
        (nccl_dump([nccl_gpu(each) for each in range(257)]), "MGS603", "at most 256"),
        (nccl_dump([nccl_gpu(0, nvlink(1, 4).replace('"4"', '"4e9"'))]), "MGS606", 'count="4e9" in nvlink'),
        (nccl_dump([nccl_gpu(0).replace('rank="0"', 'rank="\u0661"')]), "MGS606", "whole number"),
        (nccl_dump([nccl_gpu(0).replace('dev="0"', f'dev="{"9" * 5000}"')]), "MGS606", "whole number"),
        ("<svg/>", "MGS601", "root 'svg'"),
        ("GPU soup", "MGS601", "no dump of a machine"),
        ("", "MGS601", "no dump of a machine"),
    ],
)
def test_bad_xml(text: str, code: str, says: str) -> None:
    found, message, _, _ = refused(text)

    assert found == code
    assert says in message


def test_files_that_name_a_switch_of_amd() -> None:
    text = nccl_dump([nccl_gpu(each, SWITCH) for each in range(2)])

    assert refused(text, "MI300X")[0] == "MGS604"


def test_names_do_not_leave_their_comment() -> None:
    evil = "x&#10;use &quot;../secret&quot;&#13;\u202e\x7f"
    text = nccl_dump([nccl_gpu(0), nccl_gpu(1), f'<nic><net name="{evil}" speed="100"/></nic>'])
    lines = imported(text, name="\n}a\x1b.xml")[1].splitlines()

    assert all(line.startswith("# ") for line in some(line for line in lines if "secret" in line or "}a" in line))
    assert "\u202e" not in "".join(lines) and "\x1b" not in "".join(lines)
