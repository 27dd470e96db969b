"""GPUs that dumps name: those of the library, and those that are sold, with the nearest of the library.

Both are listed in ``known_gpus.toml``.
"""

import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files

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


_TABLES = tomllib.loads(files(__package__).joinpath("known_gpus.toml").read_text(encoding="utf-8"))
LIBRARY_GPUS = tuple(LibraryGpu(name=name, **said) for name, said in _TABLES["library"].items())
DEVICES = tuple(Device(words, tuple(said.pop("ids")), **said) for words, said in _TABLES["devices"].items())


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
