"""GPUs that dumps name: those of the library, and those that are sold, with the nearest of the library."""

import re
from dataclasses import dataclass

NVIDIA, AMD = "10de", "1002"
"""PCI ids of vendors."""


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
    def partners(self) -> int:
        """How many others a GPU can be joined to, by one link each."""
        return self.links if self.is_nvidia else _XGMI_LINKS

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


_XGMI_LINKS = 7
"""Links of MI300X, MI325X and MI355X to other GPUs, by AMD's data sheets."""

# NVLinks of a GPU by NVIDIA's data sheets; the notes on ``link nvlink`` in the library name them too.
LIBRARY_GPUS = (
    LibraryGpu("nvidia/a100", "A100", links=12, ports=8, sms=108, pcie_gt_per_s=16),
    LibraryGpu("nvidia/a800", "A800", links=8, ports=8, sms=108, pcie_gt_per_s=16),
    LibraryGpu("nvidia/h100", "H100", links=18, ports=8, sms=132, pcie_gt_per_s=32),
    LibraryGpu("nvidia/h800", "H800", links=8, ports=8, sms=132, pcie_gt_per_s=32),
    LibraryGpu("nvidia/h20", "H20", links=18, ports=8, sms=78, pcie_gt_per_s=32),
    LibraryGpu("nvidia/h200", "H200", links=18, ports=8, sms=132, pcie_gt_per_s=32),
    LibraryGpu("nvidia/b200", "B200", links=18, ports=8, sms=148, pcie_gt_per_s=32),
    LibraryGpu("nvidia/b300", "B300", links=18, ports=8, sms=148, pcie_gt_per_s=64),
    LibraryGpu("nvidia/gb200", "GB200", links=18, ports=72, sms=148, pcie_gt_per_s=32),
    LibraryGpu("nvidia/gb300", "GB300", links=18, ports=72, sms=148, pcie_gt_per_s=64),
    LibraryGpu("amd/mi300x", "MI300X", links=1, ports=0, sms=304, pcie_gt_per_s=32),
    LibraryGpu("amd/mi325x", "MI325X", links=1, ports=0, sms=304, pcie_gt_per_s=32),
    LibraryGpu("amd/mi355x", "MI355X", links=1, ports=0, sms=256, pcie_gt_per_s=32),
)


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as it is sold: words that its name has, its PCI ids, the GPU of the library nearest to it, if any is near.

    ``difference`` says how that GPU differs from it, empty if it is the same. ``pcie_gt_per_s`` is the generation of
    its data sheet, 0 if it is that of the nearest.
    """

    words: str
    ids: tuple[str, ...]
    nearest: str = ""
    difference: str = ""
    pcie_gt_per_s: float = 0

    @property
    def vendor(self) -> str:
        """The PCI id of its vendor."""
        return AMD if self.words.startswith("MI") else NVIDIA

    @property
    def spans_hosts(self) -> bool:
        """Whether switches of NVLink join GPUs of several hosts."""
        return self.words.startswith("GB")


DEVICES = (
    Device("A100 PCIe", ("20b1", "20b5", "20f1"), pcie_gt_per_s=16),
    Device("A100 64GB", ("20b3",), pcie_gt_per_s=16),
    Device("A100 40GB", ("20b0",), "A100", "it has 40 GB of slower memory, A100 in the library 80 GB"),
    Device("A100", ("20b2",), "A100"),
    Device("A800 PCIe", ("20f5", "20f6"), pcie_gt_per_s=16),
    Device("A800 40GB", ("20bd",), "A800", "it has 40 GB of slower memory, A800 in the library 80 GB"),
    Device("A800", ("20f3",), "A800"),
    Device("H100 PCIe", ("2331",), pcie_gt_per_s=32),
    Device("H100 NVL", ("2321",), pcie_gt_per_s=32),
    Device("H100 64GB", ("2337",), "H100", "it has 64 GB of memory, H100 in the library 80 GB"),
    Device("H100 96GB", ("2338",), "H100", "it has 96 GB of memory, H100 in the library 80 GB"),
    Device("H100 94GB", ("2339",), "H100", "it has 94 GB of memory, H100 in the library 80 GB"),
    Device("H100", ("2330",), "H100"),
    Device("H800 PCIe", ("2322",), pcie_gt_per_s=32),
    Device("H800", ("2324",), "H800"),
    Device("H20 3e", ("232c",), "H20", "it has 141 GB of faster memory, H20 in the library 96 GB"),
    Device("H20", ("2328", "2329"), "H20"),
    Device("H200 NVL", ("233b",), pcie_gt_per_s=32),
    Device("H200", ("2335",), "H200"),
    Device("GH200 144G", ("2348",), "H200", "it is joined to a Grace CPU, and its memory differs a little"),
    Device("GH200", ("2342",), "H100", "it is joined to a Grace CPU, and has 96 GB of faster memory"),
    Device("B100", ("2920", "29bc"), pcie_gt_per_s=32),
    Device("B200", ("2901",), "B200"),
    Device("GB200", ("2941",), "GB200"),
    Device("B300", ("3182",), "B300"),
    Device("GB300", ("31c2", "31c3"), "GB300"),
    Device("V100", ("1db1", "1db4", "1db5", "1db6", "1db8"), pcie_gt_per_s=8),
    Device("T4", ("1eb8",), pcie_gt_per_s=8),
    Device("A10", ("2236",), pcie_gt_per_s=16),
    Device("A30", ("20b7",), pcie_gt_per_s=16),
    Device("A40", ("2235",), pcie_gt_per_s=16),
    Device("L4", ("27b8",), pcie_gt_per_s=16),
    Device("L40", ("26b5",), pcie_gt_per_s=16),
    Device("L40S", ("26b9",), pcie_gt_per_s=16),
    Device("RTX A6000", ("2230",), pcie_gt_per_s=16),
    Device("RTX PRO 6000", ("2bb1", "2bb5"), pcie_gt_per_s=32),
    Device("RTX 6000 Ada", ("26b1",), pcie_gt_per_s=16),
    Device("RTX 3090", ("2204",), pcie_gt_per_s=16),
    Device("RTX 4090", ("2684",), pcie_gt_per_s=16),
    Device("RTX 5090", ("2b85",), pcie_gt_per_s=32),
    Device("MI100", ("738c", "738e"), pcie_gt_per_s=16),
    Device("MI210", ("740f",), pcie_gt_per_s=16),
    Device("MI250X", ("7408",), pcie_gt_per_s=16),
    Device("MI250", ("740c",), pcie_gt_per_s=16),
    Device("MI300A", ("74a0",), pcie_gt_per_s=32),
    Device("MI300X", ("74a1", "74a9", "74b5", "74bd"), "MI300X"),
    Device("MI308X", ("74a2",), pcie_gt_per_s=32),
    Device("MI325X", ("74a5", "74b9"), "MI325X"),
    Device("MI350X", ("75a0",), "MI355X", "the same dies at a lower power limit and clock"),
    Device("MI350P", ("75a8",), pcie_gt_per_s=32),
    Device("MI355X", ("75a3",), "MI355X"),
)


def library_gpu(name: str) -> LibraryGpu | None:
    """Return the GPU of the library of that name, in any case."""
    return next((gpu for gpu in LIBRARY_GPUS if gpu.name == name.upper()), None)


def pcie_gt_per_s(device: Device | None) -> float:
    """Return the transfers per second of a lane of PCIe by the data sheet of a device, in 10^9; 0 if not known."""
    if device is None:
        return 0
    nearest = library_gpu(device.nearest)
    return device.pcie_gt_per_s or (nearest.pcie_gt_per_s if nearest is not None else 0)


def device_of_ids(vendor: str, device: str) -> Device | None:
    """Return the GPU with these PCI ids, which may begin with ``0x``."""
    vendor, device = (text.lower().removeprefix("0x") for text in (vendor, device))
    return next((each for each in DEVICES if device in each.ids and vendor == each.vendor), None)


_NO_NAME = re.compile(r"[{}<>\[\]\"#;=\\]")


def device_named(name: str) -> Device | None:
    """Return the GPU that a driver calls ``name``, for instance ``NVIDIA A100-SXM4-80GB``; None for what is no name."""
    if _NO_NAME.search(name):
        return None
    words = set(re.split(r"[\s\-/_]+", name.lower()))
    return next((each for each in DEVICES if set(each.words.lower().split()) <= words), None)
