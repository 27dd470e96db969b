"""How the GPUs of a machine are joined, as a fabric of the language with the links that it takes.

All behind common switches are a ``switch``, equal links between all pairs a ``full_mesh``. The rest are ``edges``, in
which the bridges of PCIe join what no other link does.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from ..codes import Code
from ..text.diagnostics import Report
from .link_blocks import SWITCH, LinkBlocks
from .machine import (
    UNSAID_RATE,
    CpuWay,
    DumpedMachine,
    NetworkWire,
    Pair,
    PcieSlot,
    PcieWire,
    SaidRate,
    SwitchedGpus,
    joined_parts,
)

_LEVELS = {"PSB": 0, "PIX": 0, "PXB": 1, "PHB": 2, "NODE": 2, "SYS": 3, "SOC": 3}
"""Words of ``nvidia-smi topo -m``: one bridge, several, the root of a CPU, the way from one CPU to another."""
_ROOT = 2
UNSAID_CPUS = CpuWay(10)
"""Where the file does not say which CPUs: what NCCL counts between CPUs of Intel of the kind Skylake."""
_INTEL = (
    (0xCF, 40, "Intel, Emerald Rapids"),
    (0x8F, 22, "Intel, Sapphire Rapids"),
    (0x55, 10, "Intel, Skylake"),
    (0, 6, "Intel, Broadwell"),
)
_NEWER_THAN_THEIR_NUMBER = (0xAD, 0xAE, 0xAF)
_OTHERS = {"arm64": (6, "ARM"), "ppc64": (32, "POWER9")}
_AMD = {26: (32, "AMD, Zen 5"), 0xBF: (32, "AMD, Zen 5"), 25: (24, "AMD, Zen 3 and 4"), 0xAF: (24, "AMD, Zen 3 and 4")}


def way_between(arch: str, vendor: str, family: int, model: int) -> CpuWay:
    """Return what NCCL counts for the way between two such CPUs (``ncclTopoGetInterCpuBw``); ids below 0 are unsaid."""
    rate, name = 0, ""
    if arch in _OTHERS:
        rate, name = _OTHERS[arch]
    elif vendor == "AuthenticAMD":
        rate, name = _AMD.get(family, (16, "AMD, Zen 1 and 2" if family >= 0 else "AMD"))
    elif vendor == "GenuineIntel" and model >= 0:
        model = 0xCF if model in _NEWER_THAN_THEIR_NUMBER else model
        rate, name = next((rate, name) for least, rate, name in _INTEL if model >= least)
    return CpuWay(rate, f"NCCL counts it between CPUs: {name}") if rate else UNSAID_CPUS


class PcieTree:
    """Collects the wires of a tree; ``way`` is that between two roots."""

    def __init__(self, num_gpus: int, way: CpuWay = UNSAID_CPUS) -> None:
        self._num_nodes, self._way = num_gpus, way
        self._wires: list[PcieWire] = []
        self._roots: list[int] = []

    def join(self, below: Iterable[tuple[int, PcieSlot | None]], root: bool = False) -> int:
        """Return a new bridge or root above these nodes, each with the rate of its link upward."""
        node, self._num_nodes = self._num_nodes, self._num_nodes + 1
        self._wires += [PcieWire((each, node), rate) for each, rate in below]
        if root:
            self._roots.append(node)
        return node

    def wires(self) -> tuple[PcieWire, ...]:
        """Return all links, with those between roots."""
        return (*self._wires, *(PcieWire(pair, self._way) for pair in combinations(self._roots, 2)))


def tree_of_words(words: Sequence[Sequence[str]]) -> tuple[tuple[PcieWire, ...], tuple[str, ...]]:
    """Return the tree of which each two GPUs are so far apart as a word says, and what is in doubt about it.

    Other words, those of faster links, hide how PCIe joins two GPUs.
    """
    num_gpus = len(words)
    far: dict[Pair, int] = {}
    for first, second in combinations(range(num_gpus), 2):
        known = [_LEVELS[word] for word in (words[first][second], words[second][first]) if word in _LEVELS]
        if known:
            far[first, second] = max(known)
    tree, groups, tops, doubts = PcieTree(num_gpus), [[gpu] for gpu in range(num_gpus)], list(range(num_gpus)), []
    for level in range(_ROOT + 1):
        groups = _merged(groups, far, level)
        for group in groups:
            below = list(dict.fromkeys(tops[gpu] for gpu in group))
            if len(below) > 1 or (level == _ROOT and len(groups) > 1):
                top = tree.join([(each, None) for each in below], root=level == _ROOT)
                for gpu in group:
                    tops[gpu] = top
            if any(far.get(pair, 0) > level for pair in combinations(group, 2)):
                doubts.append(f"the table contradicts itself about PCIe between GPUs {group[0]} to {group[-1]}")
    if any(pair not in far for group in groups for pair in combinations(group, 2)):
        doubts.append(
            "the table does not say how PCIe joins GPUs that faster links join: at the root of one CPU, it was taken"
        )
    return tree.wires(), tuple(dict.fromkeys(doubts))


def _merged(groups: list[list[int]], far: dict[Pair, int], level: int) -> list[list[int]]:
    """Groups of which two become one if a pair of both is so near; at the root also if nothing is said of them."""
    merged: list[list[int]] = []
    for group in groups:
        near = [other for other in merged if _near(group, other, far, level)]
        merged = [other for other in merged if other not in near]
        merged.append(sorted([*group, *(gpu for other in near for gpu in other)]))
    return sorted(merged)


def _near(group: Sequence[int], other: Sequence[int], far: dict[Pair, int], level: int) -> bool:
    said = [far.get((min(one, two), max(one, two))) for one in group for two in other]
    known = [each for each in said if each is not None]
    return min(known) <= level if known else level == _ROOT


_Wires = dict[str, list[str]]  # the links of each name, as the language has them


def _join(wires: _Wires, ends: Pair, said: SaidRate, name_of: Callable[[SaidRate], str]) -> None:
    """Add links between two nodes, both ways or, if these are not alike, one for each way."""
    one, other = ends
    if said.is_even:
        wires.setdefault(name_of(said.there), []).append(f"[{one}, {other}]")
    else:
        wires.setdefault(name_of(said.there), []).append(f"{one} -> {other}")
        wires.setdefault(name_of(said.turned.there), []).append(f"{other} -> {one}")


MAX_WIRES = 5000
"""More links than this in ``edges`` make a file with too many words."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """The links and switches to declare, the fabric, and what is in doubt about them."""

    declarations: tuple[str, ...]
    fabric: str
    doubts: tuple[str, ...]


def wiring_of(machine: DumpedMachine, report: Report) -> Wiring:
    """Return the fabric of a machine; GPUs without the links of the others are reported as warnings."""
    return _Wiring(machine, report).run()


class _Wiring:
    def __init__(self, machine: DumpedMachine, report: Report) -> None:
        self._machine, self._model, self._report = machine, machine.model, report
        self._num_gpus = len(machine.gpus)
        self._doubts: list[str] = []
        self._blocks = LinkBlocks(machine, self._doubts)

    def run(self) -> Wiring:
        fabric = self._fabric()
        return Wiring(tuple(self._blocks.blocks.values()), fabric, tuple(dict.fromkeys(self._doubts)))

    def _fabric(self) -> str:
        machine = self._machine
        if machine.num_gpus == 1:
            self._doubts.append("the file has one GPU: a collective needs two")
            return f"full_mesh({self._model.link})"
        parts = list(joined_parts(self._num_gpus, machine.direct, machine.switched))
        self._name_lone()
        alone = len(parts) == 1 and len(machine.switched) == 1 and not machine.direct
        of_rails = machine.network is None or machine.network.rail is not None
        if alone and of_rails and machine.switched[0].said.may_lead_to_switch:
            return self._behind_switch(machine.switched[0])
        if machine.network is not None:
            return self._by_edges(parts)
        if not machine.switched and len(machine.direct) == self._num_pairs:
            kinds = {(count, machine.said.get(pair, UNSAID_RATE)) for pair, count in machine.direct.items()}
            ((count, said), *others) = kinds
            if not others and said.is_even:
                return f"full_mesh({self._blocks.links(count, said.there)})"
        return self._by_edges(parts)

    def _behind_switch(self, group: SwitchedGpus) -> str:
        count = self._links_to_switch(group)
        switch, links = self._blocks.switch(group.said), self._blocks.links(count, group.said.there)
        network = self._machine.network
        if network is None or network.rail is None:
            return f"switch({switch}, link={links})"
        nic = self._blocks.network(NetworkWire((0, self._machine.num_gpus), network.rail.there))
        return f"rails({switch}, link={links}, node={self._num_gpus}, nic={nic})"

    @property
    def _num_pairs(self) -> int:
        return self._num_gpus * (self._num_gpus - 1) // 2

    def _by_edges(self, parts: list[tuple[int, ...]]) -> str:
        hosts, gpus, groups = self._machine.hosts, self._num_gpus, self._machine.switched
        wires: _Wires = {}
        for host in range(hosts):
            for (first, second), count in self._machine.direct.items():
                said, ends = (
                    self._machine.said.get((first, second), UNSAID_RATE),
                    (host * gpus + first, host * gpus + second),
                )
                _join(wires, ends, said, partial(self._blocks.links, count))
            for number, group in enumerate(groups):
                name_of = partial(self._blocks.links, self._links_to_switch(group))
                for gpu in group.gpus:
                    _join(wires, (host * gpus + gpu, hosts * (gpus + number) + host), group.said, name_of)
        num_switches = hosts * len(groups)
        self._doubt_pairs()
        if len(parts) > 1 and self._is_network_alone:
            self._doubts.append(f"no {self._model.link_word} and no PCIe of the file joins two GPUs: the network does")
        elif len(parts) > 1:
            self._doubt_parts(parts)
            num_switches += self._add_pcie(wires, num_switches)
        num_switches += self._add_network(wires, num_switches)
        if sum(map(len, wires.values())) > MAX_WIRES:
            message = f"the machine has more than {MAX_WIRES:,} links of several kinds, which no file can list"
            raise self._report.fail(Code.MGS608, message, self._machine.gpus[0].span)
        listed = (f"{name}=[{', '.join(found)}]" for name, found in wires.items())
        return f"edges({', '.join((f'switches={num_switches}', *listed))})"

    @property
    def _is_network_alone(self) -> bool:
        """Whether the file joins GPUs by the network alone, and all of them."""
        machine = self._machine
        if machine.network is None or machine.direct or machine.switched or machine.pcie:
            return False
        num_nodes = machine.num_gpus + machine.network.num_nodes(self._num_gpus)
        wires = ((wire.ends[0], wire.ends[1]) for wire in machine.network.wires)
        return set(range(machine.num_gpus)) <= set(next(joined_parts(num_nodes, wires)))

    def _add_pcie(self, wires: _Wires, num_switches: int) -> int:
        """Add the bridges of PCIe, whose numbers follow those of ``num_switches``, and return how many there are."""
        tree, gpus, base = self._pcie_wires(), self._num_gpus, self._machine.num_gpus + num_switches
        of_host = len({end for wire in tree for end in wire.ends if end >= gpus})
        for host in range(self._machine.hosts):
            for wire in tree:
                first, second = (
                    host * gpus + end if end < gpus else base + host * of_host + end - gpus for end in wire.ends
                )
                wires.setdefault(self._blocks.pcie(wire), []).append(f"[{first}, {second}]")
        self._doubt_nodes(
            base, of_host * self._machine.hosts, "bridges and roots of PCIe", "a bridge or the root of PCIe"
        )
        return of_host * self._machine.hosts

    def _doubt_nodes(self, first: int, count: int, several: str, one: str) -> None:
        if count == 1:
            self._doubts.append(f"node {first} of the fabric is {one}, as fast as its links")
        elif count:
            self._doubts.append(
                f"nodes {first} to {first + count - 1} of the fabric are {several}, as fast as their links"
            )

    def _add_network(self, wires: _Wires, num_switches: int) -> int:
        """Add what joins the hosts, its nodes behind those of ``num_switches``, and return how many these are."""
        network = self._machine.network
        if network is None:
            return 0
        base = self._machine.num_gpus
        for wire in network.wires:
            first, second = (end if end < base else end + num_switches for end in wire.ends)
            _join(wires, (first, second), wire.said, partial(self._network_name, wire))
        count = network.num_nodes(self._num_gpus)
        self._doubt_nodes(base + num_switches, count, "NICs and switches of the network", "the switch of the network")
        return count

    def _network_name(self, wire: NetworkWire, said: SaidRate) -> str:
        if not wire.words:
            return self._blocks.pcie(PcieWire(wire.ends))
        return self._blocks.network(replace(wire, said=said))

    def _pcie_wires(self) -> tuple[PcieWire, ...]:
        """The tree of the file; one root for all where it has none that joins them."""
        wires = self._machine.pcie
        pairs = [(wire.ends[0], wire.ends[1]) for wire in wires]
        num_nodes = max((max(pair) + 1 for pair in pairs), default=self._num_gpus)
        if any(set(range(self._num_gpus)) <= set(part) for part in joined_parts(max(num_nodes, self._num_gpus), pairs)):
            self._doubts += self._machine.pcie_doubts
            return wires
        self._doubts.append("the file does not say how PCIe joins the GPUs: one root of all was taken")
        tree = PcieTree(self._num_gpus)
        tree.join([(gpu, None) for gpu in range(self._num_gpus)])
        return tree.wires()

    def _doubt_pairs(self) -> None:
        """Tell pairs without links of their own; if that makes some GPUs differ from most, something is broken."""
        direct, word = self._machine.direct, self._model.link_word
        if self._machine.switched or len(direct) in (0, self._num_pairs):
            return
        self._doubts.append(
            f"{len(direct)} of {self._num_pairs} pairs of GPUs have {word}s; the others have none of their own"
        )
        missing = [pair for pair in combinations(range(self._num_gpus), 2) if pair not in direct]
        degrees = Counter(gpu for pair in direct for gpu in pair)
        if len(missing) < self._num_gpus and len(set(degrees.values())) > 1:
            for first, second in missing:
                one, other = self._machine.gpus[first], self._machine.gpus[second]
                message = f"{one.label} has no {word} to {other.label}, though most others have"
                self._report.warn(Code.MGS610, message, one.span, "is the machine sound?")

    def _doubt_parts(self, parts: list[tuple[int, ...]]) -> None:
        """Tell that PCIe joins groups of GPUs, or all of them."""
        word, islands = self._model.link_word, sum(len(part) > 1 for part in parts)
        if islands > 1:
            self._doubts.append(f"{word}s join {islands} groups of GPUs; PCIe joins the groups")
        elif not islands:
            self._doubts.append(
                f"no {word} joins two GPUs of the file: PCIe joins them, and {self._model.name} of the library is the"
                f" one with {word}s"
            )

    def _name_lone(self) -> None:
        """Warn of GPUs that have no links while others have: mostly a broken machine."""
        machine, word = self._machine, self._model.link_word
        linked = {gpu for pair in machine.direct for gpu in pair}
        linked |= {gpu for group in machine.switched for gpu in group.gpus}
        lone = [gpu for number, gpu in enumerate(machine.gpus) if linked and number not in linked]
        for gpu in lone:
            message = f"{gpu.label} has no {word}, though others have: PCIe joins it to them"
            self._report.warn(Code.MGS610, message, gpu.span, "is the machine sound? Ask its fabric manager and log")
            self._doubts.append(message)
        if lone and machine.switched and self._num_gpus <= self._model.ports:
            sound = f"gpus {self._num_gpus} x {self._model.name}; fabric switch({SWITCH}, link={self._model.link})"
            self._doubts.append(f"if all GPUs had their links, it would be: {sound}")

    def _links_to_switch(self, group: SwitchedGpus) -> int:
        """The least number of links to the switches; GPUs with fewer than others are reported."""
        most, word = max(group.links), self._model.link_word
        for number, count in zip(group.gpus, group.links, strict=True):
            if count < most:
                gpu = self._machine.gpus[number]
                message = f"{gpu.label} has {count} {word}s, others have {most}"
                self._report.warn(Code.MGS610, message, gpu.span, "the system gives all GPUs the lower number")
                self._doubts.append(f"{message}; the system gives all the lower number")
        if most < self._model.links:
            self._doubts.append(f"the GPUs have {most} {word}s, and {self._model.name} has {self._model.links}")
        return min(group.links)
