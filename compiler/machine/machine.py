"""A machine as a dump describes it: GPUs, the links between them, NICs, and what the dump leaves open."""

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


@dataclass(frozen=True, slots=True)
class SwitchedGpus:
    """GPUs behind common switches, and the number of links of each to them."""

    gpus: tuple[int, ...]
    links: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Nic:
    """A network adapter; ``gbit_per_s`` is None where the file does not say."""

    name: str
    gbit_per_s: float | None = None
    reaches_gpus: bool = True


@dataclass(frozen=True, slots=True)
class PcieSlot:
    """A PCIe link of a GPU: transfers per second of a lane in units of 10^9, and lanes."""

    gt_per_s: float
    lanes: int


@dataclass(frozen=True, slots=True)
class DumpedMachine:
    """A machine of equal GPUs.

    ``direct`` has the number of links between two GPUs; pairs without links are left out. ``pcie`` is None where the
    file does not say. ``doubts`` are sentences for the reader of the system.
    """

    origin: str
    model: LibraryGpu
    gpus: tuple[MachineGpu, ...]
    switched: tuple[SwitchedGpus, ...] = ()
    direct: Mapping[Pair, int] = field(default_factory=dict)
    nics: tuple[Nic, ...] = ()
    pcie: PcieSlot | None = None
    doubts: tuple[str, ...] = ()
