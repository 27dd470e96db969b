"""The network of a description of InfraGraph: hosts that are alike, their NICs, and the switches between them.

A device without GPUs is one switch, whatever it consists of. NICs lead to the GPUs that are nearest to them in their
host; a NIC of several GPUs is a node of the network.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

from ..text.json_forms import Item
from .infragraph_edges import NIC, XPU, DescribedDevice, NamedLink, Node, cut_ends, sliced, together
from .machine import HostNetwork, NetworkWire, Pair, SaidRate, neighbours_of

NESTED = "device"
"""Kind of a component that is a device of its own: of a host, a NIC."""
_End = tuple[str, int, str, int]  # what it is, number of the host or switch, and of a host the component
_GPU, _SWITCH = "gpu", "switch"


@dataclass(frozen=True, slots=True)
class Instance:
    """``count`` devices that are alike."""

    name: str
    device: DescribedDevice
    count: int


class NetworkReader:
    """Collects the edges between instances; ``host`` is the device with the GPUs, ``inside`` its own edges."""

    def __init__(
        self, host: DescribedDevice, instances: Sequence[Instance], inside: Iterable[tuple[Node, Node]]
    ) -> None:
        self._host = host
        self._num_gpus = host.num_gpus()
        self._instances = {each.name: each for each in instances}
        self._first: dict[str, int] = {}
        counts = Counter[bool]()
        for each in instances:
            is_host = each.device.name == host.name
            self._first[each.name] = counts[is_host]
            counts[is_host] += each.count
        self._hosts, self._num_switches = counts[True], counts[False]
        self._beside = neighbours_of(inside)
        self._wires: dict[tuple[_End, _End], list[NamedLink]] = defaultdict(list)
        self._seen: set[tuple[object, object]] = set()
        self.doubts: list[str] = []

    def ends(self, item: Item) -> Sequence[tuple[_End, object]]:
        """Return what an endpoint stands for: a GPU, a NIC or a switch, and its full name in the file."""
        members = item.entries(("instance", "component"))
        name, numbers = sliced(
            members["instance"], {each.name: each.count for each in self._instances.values()}, "the infrastructure"
        )
        device = self._instances[name].device
        parts = device.nodes(members["component"])
        tail = members["component"].text().partition(".")[2]
        return [
            (self._end(device, self._first[name] + number, part), (name, number, part, tail))
            for number in numbers
            for part in parts
        ]

    def _end(self, device: DescribedDevice, number: int, part: Node) -> _End:
        if device.name != self._host.name:
            return _SWITCH, number, "", 0
        kind = self._host.components[part[0]].kind
        return (_GPU if kind == XPU else kind), number, *part

    def add(self, link: NamedLink, pairs: Iterable[tuple[tuple[_End, object], tuple[_End, object]]]) -> None:
        """Add the links of one edge, each once; several between the same two are side by side."""
        for (first, one), (second, other) in pairs:
            kinds = {first[0], second[0]}
            if not kinds <= {_GPU, NIC, NESTED, _SWITCH}:
                self.doubts.append(f"what the file joins to {' and '.join(sorted(kinds))} of hosts is left out")
            elif first != second and (one, other) not in self._seen:
                self._seen |= {(one, other), (other, one)}
                turned = link if first < second else replace(link, said=link.said.turned)
                self._wires[min(first, second), max(first, second)].append(turned)

    def network(self) -> HostNetwork | None:
        """Return what joins the hosts; None if no edge leads out of them."""
        if not self._wires:
            return None
        owners = self._owners()
        shared = [nic for nic, gpus in owners.items() if len(gpus) != 1]
        base = self._hosts * self._num_gpus

        def number(end: _End) -> int:
            kind, which, name, part = end
            if kind == _SWITCH:
                return base + self._hosts * len(shared) + which
            if kind == _GPU or (name, part) not in shared:
                return which * self._num_gpus + (part if kind == _GPU else owners[name, part][0])
            return base + which * len(shared) + shared.index((name, part))

        wires: dict[Pair, list[NamedLink]] = defaultdict(list)
        for (first, second), links in self._wires.items():
            one, other = number(first), number(second)
            if one < other:
                wires[one, other] += links
            elif one > other:
                wires[other, one] += [replace(link, said=link.said.turned) for link in links]
        switches = base + self._hosts * len(shared)
        found = [
            NetworkWire(pair, together([link.said for link in links]), links[0].words, pair[0] >= switches)
            for pair, links in wires.items()
        ]
        for host in range(self._hosts):
            for nic in shared:
                node = base + host * len(shared) + shared.index(nic)
                found += [NetworkWire((host * self._num_gpus + gpu, node)) for gpu in owners[nic]]
        return HostNetwork(self._hosts, _numbered(found, base), self._rail(found))

    def _owners(self) -> dict[Node, tuple[int, ...]]:
        """The GPUs of each NIC that leads out of a host: one where there are enough, the nearest."""
        used = {end[2:] for pair in self._wires for end in pair if end[0] in (NIC, NESTED)}
        components = self._host.components.values()
        parts = ((each.name, number) for each in components for number in range(each.count))
        nics = [part for part in parts if part in used]
        far = {nic: self._distances(nic) for nic in nics}
        taken = Counter[object]()
        owners: dict[Node, tuple[int, ...]] = dict.fromkeys(nics, ())
        if len(nics) < self._num_gpus:
            for gpu in range(self._num_gpus) if nics else ():
                nic = min(nics, key=lambda each: (far[each].get(gpu, inf), taken[each]))
                taken[nic] += 1
                owners[nic] += (gpu,)
            return owners
        for nic in nics:
            gpu = min(range(self._num_gpus), key=lambda each: (far[nic].get(each, inf), taken[each]))
            taken[gpu] += 1
            owners[nic] = (gpu,)
        return owners

    def _distances(self, nic: Node) -> dict[int, int]:
        """How many edges of the host lead from a NIC to each GPU, through no other."""
        distance, todo, gpus = {nic: 0}, [nic], dict[int, int]()
        for node in todo:
            if self._host.components[node[0]].kind == XPU:
                gpus[node[1]] = distance[node]
                continue
            for other in sorted(self._beside[node] - distance.keys()):
                distance[other] = distance[node] + 1
                todo.append(other)
        return gpus

    def _rail(self, wires: Sequence[NetworkWire]) -> SaidRate | None:
        """The rate of the NICs of a GPU where the k-th GPUs of all hosts lead to one switch; else None."""
        base = self._hosts * self._num_gpus
        of_gpu: dict[int, list[NetworkWire]] = defaultdict(list)
        for wire in wires:
            if wire.ends[0] < base:
                of_gpu[wire.ends[0]].append(wire)
        rates = {wire.said for each in of_gpu.values() for wire in each}
        if len(of_gpu) < base or len(rates) > 1 or any(len(each) > 1 for each in of_gpu.values()):
            return None
        rails = [
            {of_gpu[host * self._num_gpus + gpu][0].ends[1] for host in range(self._hosts)}
            for gpu in range(self._num_gpus)
        ]
        alone = all(len(rail) == 1 and min(rail) >= base for rail in rails) and all(rate.is_even for rate in rates)
        return next(iter(rates)) if alone and self._num_gpus > 1 else None


def _numbered(wires: Sequence[NetworkWire], num_gpus: int) -> tuple[NetworkWire, ...]:
    """The wires without those that lead to no other GPU, the nodes behind the GPUs numbered one after another."""
    neighbours = neighbours_of(wire.ends for wire in wires)
    cut_ends(neighbours, num_gpus)
    kept = [wire for wire in wires if wire.ends[1] in neighbours.get(wire.ends[0], ())]
    nodes = sorted({end for wire in kept for end in wire.ends if end >= num_gpus})
    numbers = {node: num_gpus + at for at, node in enumerate(nodes)}
    ends = ((numbers.get(one, one), numbers.get(other, other)) for one, other in (wire.ends for wire in kept))
    return tuple(replace(wire, ends=pair) for wire, pair in zip(kept, ends, strict=True))
