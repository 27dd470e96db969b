"""Descriptions of InfraGraph (infragraph.dev, 3.1) as JSON: devices, their components, and edges between these.

The machine is the first device with components of the kind ``xpu``, or the only one of a file that is a device alone;
instances of it are hosts that are alike, which edges between instances join. An edge does not say how many links it
stands for. Edges over a link called after PCI are PCIe. Rates and latencies of links are those of the file, where it
has them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import product
from typing import TypeVar

from ..codes import Code
from ..text.diagnostics import Report, Source, Span
from ..text.json_forms import Item, JsonPlace, read_json
from .infragraph_edges import NIC, XPU, Component, DescribedDevice, DeviceEdges, NamedLink, Node
from .infragraph_network import NESTED, Instance, NetworkReader
from .known_gpus import LibraryGpu, device_named
from .machine import MAX_GPUS, UNSAID, DumpedMachine, HostNetwork, MachineGpu, Nic, SaidRate, identify

MAX_ITEMS, MAX_SHOWN = 10_000, 8
MAX_PAIRS = 100_000
"""Pairs of components that all edges together stand for."""
_End = TypeVar("_End")
_MANY_TO_MANY = "many2many"
_ORIGIN = "a description of InfraGraph"
_SCHEMES = ("one2one", _MANY_TO_MANY)
_EDGE = ("ep1", "ep2"), ("scheme", "link", "description")  # keys that an edge has, and may have
_UNITS = {"gigabits_per_second": "Gb/s", "gigabytes_per_second": "GB/s", "gigatransfers_per_second": "GT/s"}
_GB_PER_S = {"gigabits_per_second": 1 / 8, "gigabytes_per_second": 1.0}
_NANOSECONDS = {"ms": 1e6, "us": 1e3, "ns": 1.0}
_LEAST, _MOST = 1e-3, 1e6  # of rates and latencies, in any of the units
REACHED = "{} GB/s of it are reached, back {} GB/s after {} ns"
"""In the description of a link: the rates that it reaches from ``ep1`` to ``ep2`` and back, and the latency back."""
IN_ORDER = "in the order of sending"
"""In the description of a link: data arrives so, as on one path of RDMA; a flag can follow its data at once."""
_NUMBER = r"(\d{1,7}(?:\.\d{1,9})?)"
_REACHED = re.compile(REACHED.format(_NUMBER, _NUMBER, _NUMBER))
_HINT = (
    'JSON of the same is read, the whole or one device: infrastructure.serialize("json") in Python, or'
    " python -c 'import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)' < FILE > FILE.json"
)


def is_infragraph(text: str) -> bool:
    """Whether the text is a description of InfraGraph, as JSON or as YAML, which is refused by name."""
    if text.lstrip().startswith("{"):
        return '"components"' in text and ('"devices"' in text or '"edges"' in text)
    keys = set(re.findall(r"^[ \t]*(?:- )?(devices|components|links|edges|instances):[ \t\r]*$", text, re.MULTILINE))
    return "components" in keys and len(keys) > 1


def read_infragraph(source: Source, requested: LibraryGpu | None, report: Report) -> DumpedMachine:
    """Return the machine of a description; ``requested`` is the GPU that the user names."""
    span = Span(source, 0, 1)
    if not source.text.lstrip().startswith("{"):
        raise report.fail(Code.MGS609, "this is a description of InfraGraph in YAML, which is not read", span, _HINT)
    document = read_json(source.text, JsonPlace("infrastructure", span, report, Code.MGS609))
    return _Reader(document, span, report).machine(requested)


class _Reader:
    def __init__(self, document: Item, span: Span, report: Report) -> None:
        self._document, self._span, self._report = document, span, report
        self._members = document.members()
        self._doubts: list[str] = []
        self._devices: dict[str, DescribedDevice] = {}
        self._num_pairs = 0

    def machine(self, requested: LibraryGpu | None) -> DumpedMachine:
        device = self._device_with_gpus()
        xpu = next(each for each in device.components.values() if each.kind == XPU)
        gpus = self._gpus(device, xpu)
        model, doubts = identify(gpus, requested, self._span, self._report)
        self._doubts = [*doubts, *self._doubts]
        kinds = {each.name: each.kind for each in device.components.values()}
        edges = DeviceEdges(xpu.name, xpu.count, kinds, model)
        self._read_edges(device, edges)
        nics = tuple(
            Nic(f"{each.name[:16]}[{number}]")
            for each in device.components.values()
            if each.kind == NIC
            for number in range(each.count)
        )
        switched, direct, network = edges.switched(), edges.direct(), self._network(device)
        doubts = tuple(dict.fromkeys([*self._doubts, *edges.doubts]))
        return DumpedMachine(
            _ORIGIN, model, gpus, switched, direct, nics, edges.pcie(), doubts, edges.said(), network=network
        )

    def _device_with_gpus(self) -> DescribedDevice:
        """The first device with GPUs; others are in doubt."""
        items = _list(self._members, "devices") if "devices" in self._members else (self._document,)
        self._devices = {device.name: device for device in map(self._device, items)}
        self._check_circles()
        found = [device for device in self._devices.values() if device.num_gpus()]
        if not found:
            message = "no device has components of the kind xpu of its own"
            raise self._document.fail(message, "the device that holds the GPUs is read, not one that holds others")
        if len(found) > 1:
            names = ", ".join(device.name for device in found[:4])
            self._doubts.append(f"the file has several devices with GPUs ({names}): the first was read")
        return found[0]

    def _check_circles(self) -> None:
        """Refuse devices that contain themselves."""
        parts = {
            device.name: [each.name for each in device.components.values() if each.kind == NESTED]
            for device in self._devices.values()
        }
        try:
            TopologicalSorter(parts).prepare()
        except CycleError as error:
            _, circle = error.args
            shown = " in ".join(name[:32] for name in circle[:MAX_SHOWN])
            message = f"a device contains itself: {shown}{' and so on' if len(circle) > MAX_SHOWN else ''}"
            raise self._document.fail(message, "name each device as a part of others alone") from None

    def _network(self, host: DescribedDevice) -> HostNetwork | None:
        """What joins the instances of the device with the GPUs; None if there is one, or nothing joins them."""
        instances = list(self._instances())
        num_hosts = sum(each.count for each in instances if each.device.name == host.name)
        if num_hosts < 2:
            return None
        reader = NetworkReader(host, instances, self._edges_inside(host))
        links = self._links(self._members)
        for item in _list(self._members, "edges"):
            members = item.entries(*_EDGE)
            ends = [reader.ends(members[key]) for key in ("ep1", "ep2")]
            reader.add(_link_of(members, links), self._pairs(item, *ends))
        network = reader.network()
        self._doubts += dict.fromkeys(reader.doubts)
        if network is None:
            self._doubts.append(f"the file has {num_hosts} of {host.name}: one was read, as nothing joins them")
            return None
        num_groups = network.num_groups(host.num_gpus())
        if num_groups > 1:
            message = f"the edges between {num_hosts} hosts leave {num_groups} groups of them that nothing joins"
            raise self._report.fail(Code.MGS612, message, self._span, "describe a network that reaches every host")
        return network

    def _instances(self) -> Iterator[Instance]:
        for item in _list(self._members, "instances"):
            members = item.members()
            device = self._devices.get(_text(members, "device"))
            if device is None:
                raise item.fail(f"there is no device '{_text(members, 'device')[:64]}'")
            yield Instance(_text(members, "name"), device, _count(members))

    def _edges_inside(self, host: DescribedDevice) -> Iterator[tuple[Node, Node]]:
        """All edges of the host, those of parts of a component as of the component."""
        for item in host.edges:
            members = item.entries(*_EDGE)
            yield from self._pairs(item, *(self._nodes(members[key], host, nested=True) for key in ("ep1", "ep2")))

    def _pairs(self, item: Item, first: Sequence[_End], second: Sequence[_End]) -> Iterable[tuple[_End, _End]]:
        """The pairs that an edge stands for, by its scheme."""
        members = item.members()
        scheme = members["scheme"].word(_SCHEMES) if "scheme" in members else _SCHEMES[0]
        many = scheme == _MANY_TO_MANY
        if not many and first and second and len(first) != len(second):
            raise item.fail(f"{scheme} pairs ends one by one, and these are {len(first)} and {len(second)}")
        self._num_pairs += len(first) * len(second) if many else min(len(first), len(second))
        if self._num_pairs > MAX_PAIRS:
            raise item.fail(f"the edges stand for more than {MAX_PAIRS:,} pairs", code=Code.MGS608)
        return product(first, second) if many else zip(first, second, strict=False)

    def _links(self, members: dict[str, Item]) -> dict[str, NamedLink]:
        links = (each.members() for each in _list(members, "links"))
        return {_text(link, "name"): self._link(link) for link in links}

    def _device(self, item: Item) -> DescribedDevice:
        members = item.members()
        components = (self._component(each.members()) for each in _list(members, "components"))
        return DescribedDevice(
            _text(members, "name"),
            f"{_text(members, 'name')} {_text(members, 'description')}",
            {each.name: each for each in components},
            self._links(members),
            _list(members, "edges"),
        )

    def _component(self, members: dict[str, Item]) -> Component:
        name = _text(members, "name")
        words = _text(members, "description") or name
        return Component(name, _text(members, "choice").lower(), _count(members), words)

    def _link(self, members: dict[str, Item]) -> NamedLink:
        """A link with its name, description, bandwidth and latency, and what the description says that it reaches.

        What is reached stands in for a bandwidth that is not said, and the latency back for that there.
        """
        words = f"{_text(members, 'name')} {_text(members, 'description')}".strip()
        physical = members["physical"].members() if "physical" in members else {}
        bandwidth, latency = (self._quantity(physical, key) for key in ("bandwidth", "latency"))
        rates = {key: bandwidth[key].decimal(_LEAST, _MOST) for key in _UNITS if key in bandwidth}
        said = [rate * _GB_PER_S[key] for key, rate in rates.items() if key in _GB_PER_S]
        waits = [latency[key].decimal(0, _MOST) * unit for key, unit in _NANOSECONDS.items() if key in latency]
        shown = [f"{rate:g} {_UNITS[key]}" for key, rate in rates.items()]
        rate = SaidRate(said[0] if said else None, waits[0] if waits else None)
        reached = _REACHED.search(words)
        if reached is not None:
            there, back, latency_ns = map(float, reached.groups())
            most, wait_ns = said[0] if said else max(there, back), waits[0] if waits else latency_ns
            if not _LEAST <= min(there, back) <= max(there, back) <= most <= _MOST or latency_ns > _MOST:
                message = f"'{reached[0]}' is not within its bandwidth, or its latency above {_MOST / 1e6:g} ms"
                raise members["description" if "description" in members else "name"].fail(message)
            rate = SaidRate(most, wait_ns, there, (back, latency_ns))
        rate = replace(rate, ordered=rate.gb_per_s is not None and IN_ORDER in words)
        return NamedLink(", ".join([words, *shown]), rate, rates.get("gigatransfers_per_second", 0))

    def _quantity(self, physical: dict[str, Item], key: str) -> dict[str, Item]:
        """The numbers of a bandwidth or latency: that which is chosen, if it says which."""
        members = physical[key].members() if key in physical and physical[key].value is not None else {}
        chosen = _text(members, "choice")
        return {chosen: members[chosen]} if chosen in members else members

    def _gpus(self, device: DescribedDevice, xpu: Component) -> tuple[MachineGpu, ...]:
        if xpu.count > MAX_GPUS:
            message = f"{xpu.name} has {xpu.count} GPUs, at most {MAX_GPUS} are read"
            raise self._report.fail(Code.MGS603, message, self._span)
        if device.num_gpus() > xpu.count:
            raise self._report.fail(Code.MGS605, f"{device.name} has several components of the kind xpu", self._span)
        usual = "" if xpu.words == xpu.name else xpu.words
        said = next((words for words in (xpu.words, device.words) if device_named(words) is not None), usual)
        kind = said.strip()[:64] or UNSAID
        return tuple(
            MachineGpu(f"{xpu.name}[{number}]", kind, self._span, device_named(said)) for number in range(xpu.count)
        )

    def _read_edges(self, device: DescribedDevice, edges: DeviceEdges) -> None:
        """Collect the edges between GPUs, switches and CPUs."""
        for item in device.edges:
            members = item.entries(*_EDGE)
            link = _link_of(members, device.links)
            first, second = (self._nodes(members[key], device) for key in ("ep1", "ep2"))
            kinds = {device.components[end[0][0]].kind for end in (first, second) if end}
            if edges.takes(link, kinds):
                edges.add(link, self._pairs(item, first, second))

    def _nodes(self, item: Item, device: DescribedDevice, *, nested: bool = False) -> Sequence[Node]:
        """The components that an endpoint names; those of which it names parts only if ``nested``."""
        members = item.entries(("component",), ("device",))
        if "device" in members and members["device"].value:
            return device.nodes(members["device"]) if nested else ()
        return device.nodes(members["component"])


def _link_of(members: dict[str, Item], links: Mapping[str, NamedLink]) -> NamedLink:
    """The link of an edge; one without a name has neither a bandwidth nor a latency."""
    name = _text(members, "link")
    if name and name not in links:
        raise members["link"].fail(f"there is no link '{name[:64]}'")
    return links.get(name, NamedLink(name))


def _list(members: dict[str, Item], key: str) -> tuple[Item, ...]:
    """The items of a list, none if there is no list."""
    return members[key].items(MAX_ITEMS) if key in members and members[key].value is not None else ()


def _count(members: dict[str, Item]) -> int:
    """How many there are, one if that is not said."""
    return members["count"].number(0, MAX_ITEMS) if "count" in members else 1


def _text(members: dict[str, Item], key: str) -> str:
    """A text, empty if there is none."""
    return members[key].any_text()[:512] if key in members and members[key].value is not None else ""
