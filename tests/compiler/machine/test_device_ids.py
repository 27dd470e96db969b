"""The tables of GPUs agree with the library, and names and ids lead to one GPU each."""

import pytest

from magus.compiler import compile_text
from magus.compiler.machine.known_gpus import (
    AMD,
    DEVICES,
    LIBRARY_GPUS,
    NVIDIA,
    LibraryGpu,
    device_named,
    device_of_ids,
    library_gpu,
    pcie_gt_per_s,
)
from magus.compiler.text.names import shipped_libraries


def test_every_gpu_of_the_library_is_known() -> None:
    libraries = {name for name in shipped_libraries() if not name.startswith(("implementations/", "stacks/"))}

    assert {gpu.library for gpu in LIBRARY_GPUS} == libraries
    assert {device.nearest for device in DEVICES} - {""} == {gpu.name for gpu in LIBRARY_GPUS}


@pytest.mark.parametrize("gpu", LIBRARY_GPUS, ids=lambda gpu: gpu.name)
def test_a_gpu_is_as_the_library_says(gpu: LibraryGpu) -> None:
    fabric = f"switch(nvswitch, link={gpu.link})" if gpu.is_nvidia else f"full_mesh({gpu.link})"
    text = f"""use "{gpu.library}"
system node {{ gpus 2 x {gpu.name}; fabric {fabric} }}
workload w on node {{ x = tensor bf16[2, 8] shard rows; y = all_gather(x) }}"""

    scenario = compile_text(text).scenario().case

    switch = scenario.system.fabric.switch
    assert scenario.gpu.sms == gpu.sms
    assert (0 if switch is None else switch.ports) == gpu.ports
    assert library_gpu(gpu.name.lower()) is gpu


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 PCIe"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA H20-3e", "H20 3e"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA GH200 144G HBM3e", "GH200 144G"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("AMD Instinct MI300X OAM", "MI300X"),
        ("Tesla P100-SXM2-16GB", None),
        ("", None),
    ],
)
def test_names_of_drivers(name: str, words: str | None) -> None:
    found = device_named(name)

    assert (None if found is None else found.words) == words


def test_pcie_of_every_device() -> None:
    assert all(pcie_gt_per_s(device) in (8, 16, 32, 64) for device in DEVICES)
    assert [pcie_gt_per_s(device_named(name)) for name in ("RTX 4090", "H100", "A100 PCIe", "?")] == [16, 32, 16, 0]


def test_ids() -> None:
    ids = [(device.vendor, each) for device in DEVICES for each in device.ids]

    assert len(set(ids)) == len(ids)
    assert {vendor for vendor, _ in ids} == {AMD, NVIDIA}
    assert [device_of_ids(f"0x{vendor}", each.upper()) for vendor, each in ids] == [
        device for device in DEVICES for _ in device.ids
    ]
    assert device_of_ids("0x1002", "0x2330") is None


@pytest.mark.parametrize("name", ["H100 }", "NVIDIA H100; gpu X", 'H100 "', "NVIDIA H100 # 80GB", "H100 <b>"])
def test_what_no_driver_calls_a_gpu_names_none(name: str) -> None:
    assert device_named(name) is None
