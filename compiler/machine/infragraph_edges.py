"""Devices of InfraGraph, and their edges as links between GPUs, groups of GPUs behind switches, and PCIe."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..text.json_forms import Item
from .known_gpus import LibraryGpu
from .machine import UNSAID_RATE, CpuWay, Pair, PcieSlot, PcieWire, SaidRate, SwitchedGpus, joined_parts, neighbours_of
from .wiring import UNSAID_CPUS

XPU, SWITCH, CPU, NIC = "xpu", "switch", "cpu", "nic"
Node = tuple[str, int]  # name of a component, and its number
Ends = tuple[Node, Node]
_ENDPOINT = re.compile(r"([^\[\].]{1,128})(?:\[(\d{0,6})(?:(:)(\d{0,6})(?::(\d{0,6}))?)?\])?(?:\..{0,256})?")
_GENERATION = re.compile(r"(?:gen|express|pcie?)[\s_]*([1-6])(?!\d)", re.IGNORECASE)
_LANES = re.compile(r"\bx(1|2|4|8|16)\b", re.IGNORECASE)
_GT_PER_S = {"1": 2.5, "2": 5.0, "3": 8.0, "4": 16.0, "5": 32.0, "6": 64.0}


@dataclass(frozen=True, slots=True)
class NamedLink:
    """A link of a description: the words about it, its rate and latency, and transfers of a lane, 0 if not said."""

    words: str
    said: SaidRate = UNSAID_RATE
    gt_per_s: float = 0

    @property
    def is_pcie(self) -> bool:
        """Whether it is called after PCI."""
        return "pci" in self.words.lower()

    @property
    def cpu_way(self) -> CpuWay:
        """Its rate between two CPUs."""
        rate = self.said.gb_per_s
        return UNSAID_CPUS if rate is None else CpuWay(rate, "the file", self.said.latency_ns, self.said.ordered)

    @property
    def pcie_rate(self) -> PcieSlot | SaidRate | None:
        """Its rate as PCIe: that of the description, or by the generation and lanes of its words."""
        generation, lanes = _GENERATION.search(self.words), _LANES.search(self.words)
        gt_per_s = self.gt_per_s or (_GT_PER_S[generation[1]] if generation is not None else 0)
        if self.said != UNSAID_RATE or not gt_per_s:
            return None if self.said == UNSAID_RATE else self.said
        return PcieSlot(gt_per_s, int(lanes[1]) if lanes is not None else 16)


@dataclass(frozen=True, slots=True)
class Component:
    """Equal parts of a device: their name, kind, number, and the words about them."""

    name: str
    kind: str
    count: int
    words: str


@dataclass(frozen=True, slots=True)
class DescribedDevice:
    """A device: its components and links by name, and its edges."""

    name: str
    words: str
    components: dict[str, Component]
    links: dict[str, NamedLink]
    edges: tuple[Item, ...]

    def num_gpus(self) -> int:
        """Return the number of components that are GPUs."""
        return sum(each.count for each in self.components.values() if each.kind == XPU)

    def nodes(self, item: Item) -> Sequence[Node]:
        """Return the components that an endpoint names with a slice of Python, parts of them left out.

        Raises
        ------
        Stopped
            If the device has no such component, or not as many.
        """
        name, numbers = sliced(item, {each.name: each.count for each in self.components.values()}, self.name)
        return [(name, number) for number in numbers]


def sliced(item: Item, counts: dict[str, int], owner: str) -> tuple[str, range]:
    """Return the name of an endpoint and the numbers that its slice of Python selects.

    ``counts`` has how many there are of each name, ``owner`` what has them, for the message.
    """
    match = _ENDPOINT.fullmatch(item.text())
    count = counts.get(match[1]) if match is not None else None
    if match is None or count is None:
        raise item.fail(f"'{item.text()[:64]}' is no component of {owner[:64]}")
    start, colon, stop, step = match[2], match[3], match[4], match[5]
    if start is None or (not start and colon is None):
        numbers = range(count)
    elif colon is None:
        numbers = range(int(start), int(start) + 1)
    else:
        numbers = range(int(start or 0), int(stop or count), max(1, int(step or 1)))
    if any(number >= count for number in numbers[-1:]):
        raise item.fail(f"{owner[:64]} has {count} of {match[1][:64]}")
    return match[1], numbers


class DeviceEdges:
    """Collects the edges of a device; ``kinds`` are those of its components by name, ``xpu`` that with the GPUs."""

    def __init__(self, xpu: str, num_gpus: int, kinds: dict[str, str], model: LibraryGpu) -> None:
        self._xpu, self._num_gpus, self._kinds, self._model = xpu, num_gpus, kinds, model
        self._links: dict[Ends, list[SaidRate]] = defaultdict(list)
        self._pcie: dict[Ends, PcieWire] = {}
        self._numbers: dict[Node, int] = {(xpu, number): number for number in range(num_gpus)}
        self.doubts: list[str] = []

    def takes(self, link: NamedLink, kinds: set[str]) -> bool:
        """Whether edges over ``link`` between components of these kinds may join GPUs."""
        return kinds <= {XPU, SWITCH, CPU} if link.is_pcie or kinds == {CPU} else kinds <= {XPU, SWITCH}

    def add(self, link: NamedLink, ends: Iterable[Ends]) -> None:
        """Add the links of one edge, each once; they go both ways."""
        found: dict[Ends, SaidRate] = {}
        for one, other in ends:
            if one != other:
                found.setdefault((min(one, other), max(one, other)), link.said if one < other else link.said.turned)
        for pair, said in found.items():
            first, second = (self._numbers.setdefault(node, len(self._numbers)) for node in pair)
            if not link.is_pcie and {self._kinds[name] for name, _ in pair} <= {XPU, SWITCH}:
                self._links[pair].append(said)
            elif {self._kinds[name] for name, _ in pair} == {CPU}:
                self._pcie[pair] = PcieWire((first, second), link.cpu_way)
            else:
                self._pcie[pair] = PcieWire((first, second), link.pcie_rate)
        to_gpus = dict.fromkeys(name for pair in found if self._xpu in pair[0] + pair[1] for name, _ in pair)
        if link.is_pcie and any("nvsw" in name.lower() for name in to_gpus):
            self.doubts.append(f"the file joins {' and '.join(to_gpus)[:64]} by '{link.words[:96]}': taken for PCIe")
        if found and not link.is_pcie and any(self._xpu in pair[0] + pair[1] for pair in found):
            known = link.said.gb_per_s is not None
            rates = "its rate is that of one direction" if known else "rates are those of the library"
            self.doubts.append(f"the file calls the links '{link.words[:96]}': {rates}")

    def said(self) -> dict[Pair, SaidRate]:
        """Return what the file says of the links of each pair of GPUs."""
        return {pair: together(rates) for pair, rates in self._pairs().items()}

    def direct(self) -> dict[Pair, int]:
        """Return the links of each pair: one of xGMI, or a part of the NVLinks of a GPU."""
        pairs, links = self._pairs(), self._model.links
        if pairs and self._model.is_nvidia:
            degree = max(Counter(gpu for pair in pairs for gpu in pair).values())
            links = max(1, links // degree)
            if any(together(rates).gb_per_s is None for rates in pairs.values()):
                self._doubt_counts(f"{links} for each pair, {self._model.links} for a GPU, were written")
        return dict.fromkeys(sorted(pairs), links)

    def switched(self) -> tuple[SwitchedGpus, ...]:
        """Return the GPUs that are behind common switches, or behind switches that are joined."""
        to_switches: dict[int, list[SaidRate]] = defaultdict(list)
        pairs = []
        for pair, rates in self._links.items():
            ends = [self._numbers[node] for node in pair]
            if any(end >= self._num_gpus for end in ends):
                pairs.append((ends[0], ends[1]))
                for gpu, away in zip(ends, (rates, [each.turned for each in rates]), strict=True):
                    to_switches[gpu] += away
        groups = []
        for part in joined_parts(len(self._numbers), pairs):
            gpus = tuple(node for node in part if node < self._num_gpus and node in to_switches)
            if len(gpus) > 1:
                said = min((together(to_switches[gpu]) for gpu in gpus), key=lambda each: each.gb_per_s or 0)
                if said.gb_per_s is None:
                    self._doubt_counts(f"all {self._model.links} {self._model.link_word}s of a GPU lead to switches")
                elif len(to_switches[gpus[0]]) > 1:
                    number = len(to_switches[gpus[0]])
                    self.doubts.append(f"{number} links of a GPU lead to switches: {said.gb_per_s:g} GB/s together")
                groups.append(SwitchedGpus(gpus, (self._model.links,) * len(gpus), said))
        return tuple(groups)

    def pcie(self) -> tuple[PcieWire, ...]:
        """Return PCIe between the GPUs: without what leads to no GPU, and one of bridges with the same neighbours."""
        neighbours = neighbours_of(wire.ends for wire in self._pcie.values())
        cut_ends(neighbours, self._num_gpus)
        first_of: dict[frozenset[int], int] = {}
        for node in sorted(each for each in neighbours if each >= self._num_gpus):
            if first_of.setdefault(frozenset(neighbours[node]), node) != node:
                _take(node, neighbours)
        cut_ends(neighbours, self._num_gpus)
        wires = [wire for wire in self._pcie.values() if wire.ends[1] in neighbours.get(wire.ends[0], ())]
        numbers = {number: number for number in range(self._num_gpus)}
        for wire in wires:
            for end in wire.ends:
                numbers.setdefault(end, len(numbers))
        ends = (sorted(numbers[end] for end in wire.ends) for wire in wires)
        return tuple(PcieWire((first, second), wire.rate) for (first, second), wire in zip(ends, wires, strict=True))

    def _pairs(self) -> dict[Pair, list[SaidRate]]:
        """The rates of the links between two GPUs."""
        between = {
            (min(ends), max(ends)): rates
            for pair, rates in self._links.items()
            if max(ends := [self._numbers[node] for node in pair]) < self._num_gpus
        }
        return dict(sorted(between.items()))

    def _doubt_counts(self, written: str) -> None:
        self.doubts.append(f"the file does not count links: {written}")


def together(rates: Sequence[SaidRate]) -> SaidRate:
    """Links side by side: the sum of their rates, if all are said, the longest latency, and order if all keep it."""
    latencies = [each.latency_ns for each in rates if each.latency_ns is not None]
    backs = [each.back for each in rates if each.back is not None]
    return SaidRate(
        _sum([each.gb_per_s for each in rates]),
        max(latencies, default=None),
        _sum([each.reached_gb_per_s for each in rates]),
        (sum(rate for rate, _ in backs), max(latency for _, latency in backs)) if len(backs) == len(rates) else None,
        all(each.ordered for each in rates),
    )


def _sum(rates: Sequence[float | None]) -> float | None:
    """The sum, if all are said."""
    known = [rate for rate in rates if rate is not None]
    return sum(known) if len(known) == len(rates) else None


def cut_ends(neighbours: dict[int, set[int]], num_gpus: int) -> None:
    """Take away nodes from ``num_gpus`` on that lead to one other node alone, one after another."""
    todo = [node for node in neighbours if node >= num_gpus]
    while todo:
        node = todo.pop()
        if node in neighbours and len(neighbours[node]) < 2:
            todo += [other for other in _take(node, neighbours) if other >= num_gpus]


def _take(node: int, neighbours: dict[int, set[int]]) -> set[int]:
    """Take a node away, and return its neighbours."""
    joined = neighbours.pop(node)
    for other in joined:
        neighbours[other].discard(node)
    return joined
