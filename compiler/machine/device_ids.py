"""GPUs by PCI id and by the name that drivers report, and which GPU of the library each is.

PCI ids and names: the PCI ID Project (pci-ids.ucw.cz), 2026-08-22.
"""

import re
from dataclasses import dataclass

NVIDIA, AMD = "10de", "1002"


@dataclass(frozen=True, slots=True)
class LibraryGpu:
    """A GPU of the library: its name, its link and switch there, and what dumps say in other words.

    ``links`` of the machine make one link of the library: all NVLinks of a GPU, or one xGMI link. A switch of the
    library has ``ports``. ``pcie_gt_per_s`` is the generation of the data sheet, with 16 lanes.
    """

    library: str
    name: str
    links: int
    ports: int
    sms: int
    pcie_gt_per_s: float

    @property
    def is_nvidia(self) -> bool:
        """Whether it has NVLinks; else xGMI."""
        return self.library.startswith("nvidia/")

    @property
    def link(self) -> str:
        """The name of its link in the library."""
        return "nvlink" if self.is_nvidia else "xgmi"

    @property
    def link_word(self) -> str:
        """The name of its link in prose."""
        return "NVLink" if self.is_nvidia else "xGMI link"


# NVLinks of a GPU by NVIDIA's data sheets; the notes on ``link nvlink`` in the library name them too.
LIBRARY_GPUS = (
    LibraryGpu("nvidia/a100", "A100", links=12, ports=8, sms=108, pcie_gt_per_s=16),
    LibraryGpu("nvidia/a800", "A800", links=8, ports=8, sms=108, pcie_gt_per_s=16),
    LibraryGpu("nvidia/h100", "H100", links=18, ports=8, sms=132, pcie_gt_per_s=32),
    LibraryGpu("nvidia/h800", "H800", links=8, ports=8, sms=132, pcie_gt_per_s=32),
    LibraryGpu("nvidia/h200", "H200", links=18, ports=8, sms=132, pcie_gt_per_s=32),
    LibraryGpu("nvidia/b200", "B200", links=18, ports=8, sms=148, pcie_gt_per_s=32),
    LibraryGpu("nvidia/b300", "B300", links=18, ports=8, sms=148, pcie_gt_per_s=64),
    LibraryGpu("nvidia/gb200", "GB200", links=18, ports=72, sms=148, pcie_gt_per_s=32),
    LibraryGpu("amd/mi300x", "MI300X", links=1, ports=0, sms=304, pcie_gt_per_s=32),
    LibraryGpu("amd/mi325x", "MI325X", links=1, ports=0, sms=304, pcie_gt_per_s=32),
    LibraryGpu("amd/mi355x", "MI355X", links=1, ports=0, sms=256, pcie_gt_per_s=32),
)


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as it is sold: words that its name has, its PCI ids, the GPU of the library nearest to it, if any is near.

    ``difference`` says how that GPU differs from it, empty if it is the same.
    """

    words: str
    ids: tuple[str, ...]
    nearest: str = ""
    difference: str = ""

    @property
    def vendor(self) -> str:
        """The PCI id of its vendor."""
        return AMD if self.words.startswith("MI") else NVIDIA


DEVICES = (
    Device("A100 PCIe", ("20b1", "20b5", "20f1")),
    Device("A100 64GB", ("20b3",)),
    Device("A100 40GB", ("20b0",), "A100", "it has 40 GB of slower memory, A100 in the library 80 GB"),
    Device("A100", ("20b2",), "A100"),
    Device("A800 PCIe", ("20f5", "20f6")),
    Device("A800 40GB", ("20bd",), "A800", "it has 40 GB of slower memory, A800 in the library 80 GB"),
    Device("A800", ("20f3",), "A800"),
    Device("H100 PCIe", ("2331",)),
    Device("H100 NVL", ("2321",)),
    Device("H100 64GB", ("2337",), "H100", "it has 64 GB of memory, H100 in the library 80 GB"),
    Device("H100 96GB", ("2338",), "H100", "it has 96 GB of memory, H100 in the library 80 GB"),
    Device("H100 94GB", ("2339",), "H100", "it has 94 GB of memory, H100 in the library 80 GB"),
    Device("H100", ("2330",), "H100"),
    Device("H800 PCIe", ("2322",)),
    Device("H800", ("2324",), "H800"),
    Device("H20", ("2328", "2329", "232c")),
    Device("H200 NVL", ("233b",)),
    Device("H200", ("2335",), "H200"),
    Device("GH200 144G", ("2348",), "H200", "it is joined to a Grace CPU, and its memory differs a little"),
    Device("GH200", ("2342",), "H100", "it is joined to a Grace CPU, and has 96 GB of faster memory"),
    Device("B100", ("2920", "29bc")),
    Device("B200", ("2901",), "B200"),
    Device("GB200", ("2941",), "GB200"),
    Device("B300", ("3182",), "B300"),
    Device("GB300", ("31c2", "31c3"), "B300", "it is joined to a Grace CPU; the library has no numbers of its own"),
    Device("MI100", ("738c", "738e")),
    Device("MI210", ("740f",)),
    Device("MI250X", ("7408",)),
    Device("MI250", ("740c",)),
    Device("MI300A", ("74a0",)),
    Device("MI300X", ("74a1", "74a9", "74b5", "74bd"), "MI300X"),
    Device("MI308X", ("74a2",)),
    Device("MI325X", ("74a5", "74b9"), "MI325X"),
    Device("MI350X", ("75a0",), "MI355X", "the same dies at a lower power limit and clock"),
    Device("MI350P", ("75a8",)),
    Device("MI355X", ("75a3",), "MI355X"),
)


def library_gpu(name: str) -> LibraryGpu | None:
    """Return the GPU of the library of that name, in any case."""
    return next((gpu for gpu in LIBRARY_GPUS if gpu.name == name.upper()), None)


def device_of_ids(vendor: str, device: str) -> Device | None:
    """Return the GPU with these PCI ids, which may begin with ``0x``."""
    vendor, device = (text.lower().removeprefix("0x") for text in (vendor, device))
    return next((each for each in DEVICES if device in each.ids and vendor == each.vendor), None)


def device_named(name: str) -> Device | None:
    """Return the GPU that a driver calls ``name``, for instance ``NVIDIA A100-SXM4-80GB``."""
    words = set(re.split(r"[\s\-/_]+", name.lower()))
    return next((each for each in DEVICES if set(each.words.lower().split()) <= words), None)
