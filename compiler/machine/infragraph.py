"""Descriptions of InfraGraph (infragraph.dev, 3.1) as JSON: devices, their components, and edges between these.

The machine is the first device with components of the kind ``xpu``; the network between devices is left out. An edge
does not say how many links it stands for. Edges over a link called after PCI are PCIe.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from ..codes import Code
from ..text.diagnostics import Report
from ..text.json_items import Item, JsonPlace, read_json
from ..text.source import Source, Span
from .device_ids import LibraryGpu, device_named
from .identify import identify
from .machine import MAX_GPUS, UNSAID, DumpedMachine, MachineGpu, Nic, Pair, SwitchedGpus

MAX_ITEMS = 10_000
MAX_PAIRS = 1_000_000
"""Pairs of components that all edges together stand for."""
_ORIGIN = "a description of InfraGraph"
_XPU, _SWITCH, _NIC = "xpu", "switch", "nic"
_ONE_TO_ONE, _MANY_TO_MANY = "one2one", "many2many"
_ENDPOINT = re.compile(r"([^\[\]]{1,128})(?:\[(\d{0,6})(?:(:)(\d{0,6})(?::(\d{0,6}))?)?\])?")
_UNITS = {"gigabits_per_second": "Gb/s", "gigabytes_per_second": "GB/s", "gigatransfers_per_second": "GT/s"}

Node = tuple[str, int]  # name of a component, and its number


@dataclass(frozen=True, slots=True)
class _Component:
    name: str
    kind: str
    count: int
    words: str


@dataclass(frozen=True, slots=True)
class _Device:
    """A device: its components by name, the words about its links by their name, and its edges."""

    name: str
    words: str
    components: dict[str, _Component]
    links: dict[str, str]
    edges: tuple[Item, ...]


def is_infragraph(text: str) -> bool:
    """Whether the text is a description of InfraGraph, as JSON or as YAML, which is refused by name."""
    if text.lstrip().startswith("{"):
        return '"devices"' in text and '"components"' in text
    return re.search(r"^devices:[ \t\r]*$", text, re.MULTILINE) is not None and "components:" in text


def read_infragraph(source: Source, asked: LibraryGpu | None, report: Report) -> DumpedMachine:
    """Return the machine of a description; ``asked`` is the GPU that the user names."""
    span = Span(source, 0, 1)
    if not source.text.lstrip().startswith("{"):
        hint = 'write it as JSON: infrastructure.serialize("json") in Python'
        raise report.fail(Code.MGS609, "a description of InfraGraph in YAML is not read", span, hint)
    document = read_json(source.text, JsonPlace("infrastructure", span, report, Code.MGS609))
    return _Reader(document, span, report).machine(asked)


class _Reader:
    def __init__(self, document: Item, span: Span, report: Report) -> None:
        self._document, self._span, self._report = document, span, report
        self._members = document.members()
        self._doubts: list[str] = []

    def machine(self, asked: LibraryGpu | None) -> DumpedMachine:
        device = self._device_with_gpus()
        xpu = next(each for each in device.components.values() if each.kind == _XPU)
        gpus = self._gpus(device, xpu)
        model, doubts = identify(gpus, asked, self._span, self._report)
        self._doubts = [*doubts, *self._doubts]
        direct, switched = self._links(device, xpu, model)
        nics = tuple(
            Nic(f"{each.name[:16]}[{number}]")
            for each in device.components.values()
            if each.kind == _NIC
            for number in range(each.count)
        )
        return DumpedMachine(_ORIGIN, model, gpus, switched, direct, nics, doubts=tuple(dict.fromkeys(self._doubts)))

    def _device_with_gpus(self) -> _Device:
        """The first device with GPUs; others and further instances are in doubt."""
        items = self._list(self._members, "devices")
        found = [device for device in map(self._device, items) if self._num_gpus(device)]
        if not found:
            message = "no device has components of the kind xpu of its own"
            raise self._document.fail(message, "the device that holds the GPUs is read, not one that holds others")
        if len(found) > 1:
            names = ", ".join(device.name for device in found[:4])
            self._doubts.append(f"the file has several devices with GPUs ({names}): the first was read")
        count = sum(self._count(members) for members in self._instances() if _text(members, "device") == found[0].name)
        if count > 1:
            self._doubts.append(f"the file has {count} of {found[0].name}: one was read, without what joins them")
        return found[0]

    def _num_gpus(self, device: _Device) -> int:
        return sum(each.count for each in device.components.values() if each.kind == _XPU)

    def _instances(self) -> list[dict[str, Item]]:
        return [item.members() for item in self._list(self._members, "instances")]

    def _list(self, members: dict[str, Item], key: str) -> tuple[Item, ...]:
        return members[key].items(MAX_ITEMS) if key in members and members[key].value is not None else ()

    def _count(self, members: dict[str, Item]) -> int:
        return members["count"].number(0, MAX_ITEMS) if "count" in members else 1

    def _device(self, item: Item) -> _Device:
        members = item.members()
        components = (self._component(each.members()) for each in self._list(members, "components"))
        links = (each.members() for each in self._list(members, "links"))
        return _Device(
            _text(members, "name"),
            f"{_text(members, 'name')} {_text(members, 'description')}",
            {each.name: each for each in components},
            {_text(link, "name"): self._link_words(link) for link in links},
            self._list(members, "edges"),
        )

    def _component(self, members: dict[str, Item]) -> _Component:
        name = _text(members, "name")
        words = _text(members, "description") or name
        return _Component(name, _text(members, "choice").lower(), self._count(members), words)

    def _link_words(self, members: dict[str, Item]) -> str:
        """Name, description and bandwidth of a link."""
        words = f"{_text(members, 'name')} {_text(members, 'description')}".strip()
        physical = members["physical"].members() if "physical" in members else {}
        bandwidth = physical["bandwidth"].members() if "bandwidth" in physical else {}
        rates = [f"{bandwidth[key].decimal(0, 1e9):g} {unit}" for key, unit in _UNITS.items() if key in bandwidth]
        return ", ".join([words, *rates])

    def _gpus(self, device: _Device, xpu: _Component) -> tuple[MachineGpu, ...]:
        if xpu.count > MAX_GPUS:
            message = f"{xpu.name} has {xpu.count} GPUs, at most {MAX_GPUS} are read"
            raise self._report.fail(Code.MGS603, message, self._span)
        if self._num_gpus(device) > xpu.count:
            raise self._report.fail(Code.MGS605, f"{device.name} has several components of the kind xpu", self._span)
        usual = "" if xpu.words == xpu.name else xpu.words
        said = next((words for words in (xpu.words, device.words) if device_named(words) is not None), usual)
        kind = said.strip()[:64] or UNSAID
        return tuple(
            MachineGpu(f"{xpu.name}[{number}]", kind, self._span, device_named(said)) for number in range(xpu.count)
        )

    def _links(
        self, device: _Device, xpu: _Component, model: LibraryGpu
    ) -> tuple[dict[Pair, int], tuple[SwitchedGpus, ...]]:
        pairs, switched = set[Pair](), set[int]()
        for (first, one), (second, other) in self._gpu_edges(device, xpu):
            if first == second:
                pairs.add((min(one, other), max(one, other)))
            else:
                switched.add(one if first == xpu.name else other)
        return self._direct(pairs, model), self._groups(switched, model)

    def _direct(self, pairs: set[Pair], model: LibraryGpu) -> dict[Pair, int]:
        """The links of each pair: one of xGMI, or a part of the NVLinks of a GPU."""
        links = model.links
        if pairs and model.is_nvidia:
            degree = max(Counter(gpu for pair in pairs for gpu in pair).values())
            links = max(1, model.links // degree)
            self._doubts.append(
                f"the file does not count links: {links} for each pair, {model.links} for a GPU, were written"
            )
        return dict.fromkeys(sorted(pairs), links)

    def _groups(self, switched: set[int], model: LibraryGpu) -> tuple[SwitchedGpus, ...]:
        if not switched:
            return ()
        self._doubts.append(
            f"the file does not count links: all {model.links} {model.link_word}s of a GPU lead to switches"
        )
        return (SwitchedGpus(tuple(sorted(switched)), (model.links,) * len(switched)),)

    def _gpu_edges(self, device: _Device, xpu: _Component) -> Iterator[tuple[Node, Node]]:
        """Yield both ends of each edge between GPUs or from a GPU to a switch, but for those of PCIe."""
        num_pairs = 0
        for item in device.edges:
            members = item.entries(("ep1", "ep2"), ("scheme", "link", "description"))
            link = _text(members, "link")
            words = device.links.get(link, link)
            first, second = (self._nodes(members[key], device) for key in ("ep1", "ep2"))
            kinds = {device.components[end[0][0]].kind for end in (first, second) if end}
            if "pci" in words.lower() or _XPU not in kinds or not kinds <= {_XPU, _SWITCH}:
                continue
            many = "scheme" in members and members["scheme"].word((_ONE_TO_ONE, _MANY_TO_MANY)) == _MANY_TO_MANY
            num_pairs += len(first) * len(second)
            if num_pairs > MAX_PAIRS:
                raise item.fail(f"the edges stand for more than {MAX_PAIRS:,} pairs", code=Code.MGS608)
            self._doubts.append(f"the file calls the links '{words[:96]}': rates are those of the library")
            ends = product(first, second) if many else zip(first, second, strict=False)
            yield from ((one, other) for one, other in ends if one != other)

    def _nodes(self, item: Item, device: _Device) -> Sequence[Node]:
        """The components that an endpoint names with a slice of Python; none if they are of another device."""
        members = item.entries(("component",), ("device",))
        if "device" in members and members["device"].value:
            return ()
        match = _ENDPOINT.fullmatch(members["component"].text())
        component = device.components.get(match[1]) if match is not None else None
        if match is None or component is None:
            raise members["component"].fail(
                f"'{members['component'].text()[:64]}' is no component of {device.name[:64]}"
            )
        start, colon, stop, step = match[2], match[3], match[4], match[5]
        if start is None or (not start and colon is None):
            numbers = range(component.count)
        elif colon is None:
            numbers = range(int(start), int(start) + 1)
        else:
            numbers = range(int(start or 0), int(stop or component.count), max(1, int(step or 1)))
        if any(number >= component.count for number in numbers[-1:]):
            raise members["component"].fail(f"{device.name[:64]} has {component.count} of {component.name[:64]}")
        return [(component.name, number) for number in numbers]


def _text(members: dict[str, Item], key: str) -> str:
    """A text, empty if there is none."""
    return members[key].any_text()[:512] if key in members and members[key].value is not None else ""
