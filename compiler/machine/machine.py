"""A machine as a dump describes it: GPUs, the links between them, NICs, and what the dump leaves open."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..text.source import Span
from .device_ids import Device, LibraryGpu

MAX_GPUS = 256
"""More GPUs than this in one file are refused: the largest NVLink domains have 72."""

UNSAID = "of a kind that is not said"
"""The kind of a GPU that the file does not name."""

Pair = tuple[int, int]  # numbers of two GPUs, the lower first


@dataclass(frozen=True, slots=True)
class MachineGpu:
    """A GPU: its label in messages, what the file says that it is, where, and the GPU that this is, if it is known."""

    label: str
    kind: str
    span: Span
    device: Device | None = None

    @property
    def name(self) -> str:
        """The name that it is sold by, as far as that is known, and what the file says."""
        return self.kind if self.device is None else f"{self.device.words} ({self.kind})"

    @property
    def is_card(self) -> bool:
        """Whether it is a PCIe card: bridges may join two or four, and no NVSwitch does."""
        words = re.split(r"\W+", f"{self.kind} {self.device.words if self.device is not None else ''}".upper())
        return "PCIE" in words or "NVL" in words


@dataclass(frozen=True, slots=True)
class SaidRate:
    """What a file says of a link: the rate of one direction, and the latency; None where it does not."""

    gb_per_s: float | None = None
    latency_ns: float | None = None


UNSAID_RATE = SaidRate()


@dataclass(frozen=True, slots=True)
class SwitchedGpus:
    """GPUs behind common switches, the number of links of each to them, and what the file says of all links of one."""

    gpus: tuple[int, ...]
    links: tuple[int, ...]
    said: SaidRate = UNSAID_RATE


@dataclass(frozen=True, slots=True)
class Nic:
    """A network adapter; ``gbit_per_s`` is None where the file does not say."""

    name: str
    gbit_per_s: float | None = None
    reaches_gpus: bool = True


@dataclass(frozen=True, slots=True)
class PcieSlot:
    """A PCIe link: transfers per second of a lane in units of 10^9, and lanes."""

    gt_per_s: float
    lanes: int

    @property
    def gb_per_s(self) -> float:
        """One direction, without what the line code takes (8b/10b, 128b/130b, FLITs of 242 in 256 bytes)."""
        code = 0.8 if self.gt_per_s < 8 else 128 / 130 if self.gt_per_s < 64 else 242 / 256
        return self.gt_per_s * self.lanes / 8 * code

    @property
    def counted_gb_per_s(self) -> float:
        """What NCCL counts for it: 1.5 GB/s for a lane of 16 GT/s (``kvDictPciGen`` in its ``src/graph/topo.cc``)."""
        return self.gt_per_s * self.lanes * 1.5 / 16


@dataclass(frozen=True, slots=True)
class CpuWay:
    """The way from one CPU to another, and where its rate is from; ``source`` is empty if the file does not say."""

    gb_per_s: float
    source: str = ""
    latency_ns: float | None = None


@dataclass(frozen=True, slots=True)
class PcieWire:
    """A link between a GPU, a bridge or a root of PCIe and another; nodes from the number of GPUs on are no GPUs.

    ``rate`` is None where the file does not say it.
    """

    ends: Pair
    rate: PcieSlot | CpuWay | SaidRate | None = None


@dataclass(frozen=True, slots=True)
class DumpedMachine:
    """A machine of equal GPUs.

    ``direct`` has the number of links between two GPUs, ``said`` what the file says of all links of a pair; pairs
    without links are left out. ``pcie`` joins all GPUs, or is empty where the file does not say how. ``doubts`` are
    sentences for the reader of the system, ``pcie_doubts`` those about PCIe, which matter where it is needed.
    """

    origin: str
    model: LibraryGpu
    gpus: tuple[MachineGpu, ...]
    switched: tuple[SwitchedGpus, ...] = ()
    direct: Mapping[Pair, int] = field(default_factory=dict)
    nics: tuple[Nic, ...] = ()
    pcie: tuple[PcieWire, ...] = ()
    doubts: tuple[str, ...] = ()
    said: Mapping[Pair, SaidRate] = field(default_factory=dict)
    pcie_doubts: tuple[str, ...] = ()
