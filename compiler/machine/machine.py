"""A machine as a dump describes it: GPUs, the links between them, NICs, and what the dump leaves open."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ..codes import Code
from ..text.diagnostics import Report, Span, Stopped, did_you_mean, listing
from .known_gpus import LIBRARY_GPUS, Device, LibraryGpu, library_gpu

MAX_GPUS = 256
"""More GPUs than this in one file are refused: the largest NVLink domains have 72."""

UNSAID = "of a kind that is not said"
"""The kind of a GPU that the file does not name."""

Pair = tuple[int, int]  # numbers of two GPUs, the lower first
_Node = TypeVar("_Node")


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
    """What a file says of a link: the rate of one direction, and the latency; None where it does not.

    ``reached_gb_per_s`` is what is reached of that rate, ``back`` the same and the latency of the other direction.
    ``ordered`` says that data arrives in the order of sending, both ways.
    """

    gb_per_s: float | None = None
    latency_ns: float | None = None
    reached_gb_per_s: float | None = None
    back: tuple[float, float] | None = None
    ordered: bool = False

    @property
    def there(self) -> "SaidRate":
        """One direction alone."""
        return replace(self, back=None)

    @property
    def turned(self) -> "SaidRate":
        """The other direction first."""
        if self.back is None or self.reached_gb_per_s is None or self.latency_ns is None:
            return self
        reached, latency_ns = self.back
        back = self.reached_gb_per_s, self.latency_ns
        return replace(self, latency_ns=latency_ns, reached_gb_per_s=reached, back=back)

    @property
    def is_even(self) -> bool:
        """Whether both directions are alike, as far as the file says."""
        return self.turned == self

    @property
    def may_lead_to_switch(self) -> bool:
        """Whether a switch with a latency and a rate of its own may explain the way back."""
        back = self.turned
        return (back.reached_gb_per_s or 0) <= (self.reached_gb_per_s or 0) and (back.latency_ns or 0) >= (
            self.latency_ns or 0
        )


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
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class PcieWire:
    """A link between a GPU, a bridge or a root of PCIe and another; nodes from the number of GPUs on are no GPUs.

    ``rate`` is None where the file does not say it.
    """

    ends: Pair
    rate: PcieSlot | CpuWay | SaidRate | None = None


@dataclass(frozen=True, slots=True)
class NetworkWire:
    """Links side by side between two nodes of a network, what the file says of them, and its words about them.

    ``is_trunk``: between two switches. One without words is PCIe from a GPU to a NIC of several.
    """

    ends: Pair
    said: SaidRate = UNSAID_RATE
    words: str = ""
    is_trunk: bool = False


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """What joins ``hosts`` machines that are alike.

    Of n GPUs each, GPU g of host h is node ``h * n + g``; the nodes behind all GPUs are switches, and NICs of several
    GPUs. ``rail`` is the rate of the NICs of a GPU where those of the k-th GPUs of all hosts lead to one switch.
    """

    hosts: int
    wires: tuple[NetworkWire, ...]
    rail: SaidRate | None = None

    def num_nodes(self, num_gpus: int) -> int:
        """Return the number of nodes behind the GPUs, of which a host has ``num_gpus``."""
        return max((wire.ends[1] + 1 for wire in self.wires), default=0) - self.hosts * num_gpus

    def num_groups(self, num_gpus: int) -> int:
        """Return the number of groups of hosts that nothing joins to the others."""
        base = self.hosts * num_gpus
        nodes = [
            [end // num_gpus if end < base else self.hosts + end - base for end in wire.ends] for wire in self.wires
        ]
        parts = joined_parts(self.hosts + self.num_nodes(num_gpus), ((first, second) for first, second in nodes))
        return sum(min(part) < self.hosts for part in parts)


def digits(number: float) -> str:
    """Return a number to a byte per second or less than a tick, without an exponent."""
    return f"{number:.9f}".rstrip("0").rstrip(".")


def joined_parts(
    num_nodes: int, pairs: Iterable[Pair], switched: Iterable[SwitchedGpus] = ()
) -> Iterator[tuple[int, ...]]:
    """Yield the groups of nodes that links join, the lowest numbers first."""
    through_switches = ((gpu, group.gpus[0]) for group in switched for gpu in group.gpus[1:])
    neighbours, seen = neighbours_of((*pairs, *through_switches)), set[int]()
    for first in range(num_nodes):
        if first in seen:
            continue
        part, todo = {first}, [first]
        while todo:
            new = neighbours[todo.pop()] - part
            part |= new
            todo += new
        seen |= part
        yield tuple(sorted(part))


def neighbours_of(pairs: Iterable[tuple[_Node, _Node]]) -> defaultdict[_Node, set[_Node]]:
    """Return the nodes that pairs join to each."""
    found = defaultdict[_Node, set[_Node]](set)
    for first, second in pairs:
        found[first].add(second)
        found[second].add(first)
    return found


@dataclass(frozen=True, slots=True)
class DumpedMachine:
    """A machine of equal GPUs.

    ``direct`` has the number of links between two GPUs, ``said`` what the file says of all links of a pair; pairs
    without links are left out. ``pcie`` joins all GPUs, or is empty where the file does not say how. ``doubts`` are
    sentences for the reader of the system, ``pcie_doubts`` those about PCIe, which matter where it is needed.
    ``network`` joins several such machines; all else is about one.
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
    network: HostNetwork | None = None

    @property
    def hosts(self) -> int:
        """How many such machines there are."""
        return 1 if self.network is None else self.network.hosts

    @property
    def num_gpus(self) -> int:
        """The number of GPUs of all hosts."""
        return self.hosts * len(self.gpus)


_NAMES = tuple(gpu.name for gpu in LIBRARY_GPUS)


def requested_gpu(name: str, span: Span, report: Report) -> LibraryGpu:
    """Return the GPU that the user names."""
    found = library_gpu(name)
    if found is None:
        hint = did_you_mean(name, _NAMES) or f"the library has {listing(_NAMES)}"
        raise report.fail(Code.MGS604, f"the library has no GPU '{name[:64]}'", span, hint)
    return found


def identify(
    gpus: Sequence[MachineGpu], requested: LibraryGpu | None, whole: Span, report: Report
) -> tuple[LibraryGpu, tuple[str, ...]]:
    """Return the GPU of the library that all ``gpus`` are, or the ``requested`` one, and doubts about it."""
    gpus = tuple(gpu for gpu in gpus if gpu.kind != UNSAID)
    if requested is not None:
        return requested, _contradictions(gpus, requested)
    for gpu in gpus:
        several = tuple(name for name in _NAMES if name in re.split(r"\W+", gpu.kind.upper()))
        if len(several) > 1:
            message = f"{gpu.label} may be {' or '.join(several)}: the file says '{gpu.kind}'"
            raise report.fail(Code.MGS604, message, gpu.span, f"say which: --gpu {' or --gpu '.join(several)}")
    if not gpus:
        raise report.fail(Code.MGS604, "the file does not say which GPUs these are", whole, f"say it: {_options()}")
    for gpu in gpus:
        if gpu.device is None or not gpu.device.nearest:
            raise report.fail(Code.MGS604, f"{gpu.label} is not in the library: {gpu.name}", gpu.span, _NEAREST)
        first = gpus[0].device
        if first is not None and gpu.device.nearest != first.nearest:
            message = f"GPUs of two kinds: {gpus[0].label} is {first.words}, {gpu.label} is {gpu.device.words}"
            raise report.fail(
                Code.MGS605, message, gpu.span, f"a system has equal GPUs; take all for one: {_options()}"
            )
    found = library_gpu(gpus[0].device.nearest if gpus[0].device is not None else "")
    assert found is not None, "the nearest GPU of a device is one of the library"
    return found, _differences(gpus, found)


def check_links(model: LibraryGpu, nvlinks: bool, span: Span, report: Report) -> None:
    """Refuse a GPU that has other links than the file, which has ``nvlinks`` or else xGMI links."""
    if model.is_nvidia is not nvlinks:
        found = "NVLinks" if nvlinks else "xGMI links"
        raise report.fail(
            Code.MGS604, f"the file has {found}, and {model.name} has {model.link_word}s", span, _options()
        )


def check_partners(machine: DumpedMachine, report: Report) -> None:
    """Refuse GPUs that are joined to more others than they have links to: they are partitions, or others."""
    partners = Counter(gpu for pair in machine.direct for gpu in pair)
    number, most = max(partners.items(), key=lambda item: item[1], default=(0, 0))
    model, gpu = machine.model, machine.gpus[number]
    if most > model.partners:
        message = f"{gpu.label} is joined to {most} others, and {model.name} has links to {model.partners}"
        raise refuse_partitions(message, gpu, report)


def refuse_partitions(message: str, gpu: MachineGpu, report: Report) -> Stopped:
    """Report that ``gpu`` is a part of one."""
    hint = (
        "partitions have a part of its compute units and memory (CPX of MI300X: 38 of 304, and an eighth) and share its"
        " links: import the machine as rocm-smi --setcomputepartition SPX makes it"
    )
    return report.fail(Code.MGS611, f"{message}: a partition is no full GPU", gpu.span, hint)


def refuse_hosts(found: str, span: Span, report: Report) -> Stopped:
    """Report that a file describes several hosts; ``found`` says what it has of them."""
    hint = "import a file of one host; fabric rails(...) in the system that is written joins several (docs/language.md)"
    return report.fail(Code.MGS612, f"{found}: a system is read of one host", span, hint)


def _options() -> str:
    return f"--gpu with {listing(_NAMES)}"


_NEAREST = (
    f"name the nearest one: {_options()}; compute, memory and the rate of a link between GPUs are then taken from it,"
    " as the file that is written says, and what joins the GPUs, and PCIe, from this file"
)


def _contradictions(gpus: Sequence[MachineGpu], requested: LibraryGpu) -> tuple[str, ...]:
    others = dict.fromkeys(gpu.name for gpu in gpus if gpu.device is None or gpu.device.nearest != requested.name)
    said = (
        f"the GPUs are taken for {requested.name} because --gpu says so; the file says {each}: compute, memory and the"
        f" rate of one {requested.link_word} are those of {requested.name}"
        for each in others
    )
    unsaid = () if gpus else (f"the GPUs are taken for {requested.name} because --gpu says so; the file does not say",)
    return (*said, *unsaid, *_differences(gpus, requested))


def _differences(gpus: Sequence[MachineGpu], model: LibraryGpu) -> tuple[str, ...]:
    devices = dict.fromkeys(gpu.device for gpu in gpus if gpu.device is not None)
    return tuple(
        f"{device.words} is written as {model.name}: {device.difference}"
        for device in devices
        if device.difference and device.nearest == model.name
    )
