"""Topology dumps of NCCL and RCCL, as ``NCCL_TOPO_DUMP_FILE`` writes them: an XML tree of CPUs, PCI devices, GPUs.

The form is that of NCCL's ``src/graph/xml.cc``. A link has no bandwidth there. ``sm`` is the compute capability of
NVIDIA GPUs, and the number of CUs of AMD GPUs. Links to a switch stand one row for each switch, or, in a virtual
machine, one row for all.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from xml.parsers import expat

from ..codes import Code
from ..text.diagnostics import Report, Source, Span, Stopped
from .known_gpus import LibraryGpu, device_of_ids
from .machine import (
    MAX_GPUS,
    CpuWay,
    DumpedMachine,
    MachineGpu,
    Nic,
    Pair,
    PcieSlot,
    PcieWire,
    SwitchedGpus,
    check_links,
    identify,
    refuse_hosts,
    refuse_partitions,
)
from .wiring import UNSAID_CPUS, PcieTree, way_between

# Parse untrusted XML into a small tree, within limits: no document types, so no entities, and nothing outside.

MAX_DEPTH = 64
MAX_ELEMENTS = 100_000
MAX_ATTRIBUTES = 64


@dataclass(frozen=True, slots=True)
class Element:
    """An element: its tag, attributes and children, and the offset of its first byte in the text as UTF-8."""

    tag: str
    attributes: dict[str, str]
    offset: int
    children: "list[Element]" = field(default_factory=list)

    def get(self, name: str) -> str:
        """Return an attribute without spaces around it; empty if there is none."""
        return self.attributes.get(name, "").strip()

    def of_tag(self, *tags: str) -> "list[Element]":
        """Return the children with one of the tags."""
        return [child for child in self.children if child.tag in tags]


class XmlText:
    """The tree of an XML text, and the places of its elements."""

    def __init__(self, source: Source, report: Report) -> None:
        self._source, self._report = source, report
        self._data = source.text.encode("utf-8", "surrogatepass")
        self._open: list[Element] = []
        self._num_elements = 0
        self._root: Element | None = None
        self._parser = expat.ParserCreate("utf-8")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype

    def root(self) -> Element:
        """Parse the text; errors are reported at their place."""
        try:
            self._parser.Parse(self._data, True)
        except expat.ExpatError as error:
            why = expat.ErrorString(error.code)
            if why == expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT and self._root is not None:
                message = f"the file goes on after <{self._root.tag[:32]}>: two files in one, as of two hosts"
                raise self._fail_here(Code.MGS612, message, "import one at a time") from None
            raise self._fail_here(Code.MGS602, f"no XML: {why}") from None
        assert self._root is not None, "XML that parses has a root"
        return self._root

    def span(self, element: Element) -> Span:
        """Return the place of the tag of an element."""
        start = self._characters(element.offset)
        return Span(self._source, start, start + 1 + len(element.tag))

    def fail(self, code: Code, message: str, element: Element, hint: str = "") -> Stopped:
        """Report an error at an element."""
        return self._report.fail(code, message, self.span(element), hint)

    def number(self, element: Element, name: str, usual: int, high: int) -> int:
        """Return an attribute that is a whole number from -1 to ``high``; ``usual`` if there is none."""
        text = element.get(name)
        if not text:
            return usual
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 9 and -1 <= int(text) <= high):
            message = f'{name}="{text[:32]}" in {element.tag}: a whole number up to {high:,} is expected here'
            raise self.fail(Code.MGS606, message, element)
        return int(text)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._num_elements += 1
        if len(self._open) >= MAX_DEPTH:
            raise self._fail_here(Code.MGS132, f"elements are nested deeper than {MAX_DEPTH}")
        if self._num_elements > MAX_ELEMENTS or len(attributes) > MAX_ATTRIBUTES:
            raise self._fail_here(
                Code.MGS131, f"more than {MAX_ELEMENTS:,} elements, or {MAX_ATTRIBUTES} attributes in one"
            )
        element = Element(tag, attributes, self._parser.CurrentByteIndex)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _end(self, tag: str) -> None:
        self._open.pop()

    def _refuse_doctype(self, *_: object) -> None:
        raise self._fail_here(Code.MGS602, "a document type is not read: dumps of machines have none, nor entities")

    def _fail_here(self, code: Code, message: str, hint: str = "") -> Stopped:
        at = min(self._characters(max(0, self._parser.CurrentByteIndex)), max(0, len(self._source.text) - 1))
        return self._report.fail(code, message, Span(self._source, at, at + 1), hint)

    def _characters(self, num_bytes: int) -> int:
        return len(self._data[:num_bytes].decode("utf-8", "replace"))


MAX_COUNT = 1024
"""More links in one row than this are no count."""
MAX_MBIT_PER_S = 10_000_000
"""A faster adapter is one whose speed stands in kbit/s, as some files of RCCL have it."""
_ORIGIN = "a topology dump of NCCL or RCCL"
_DUMP = "run any program with NCCL_TOPO_DUMP_FILE=topo.xml, for instance all_reduce_perf -g 8, and import topo.xml"
_GPU_CLASSES = ("0x0302", "0x0300", "0x0380", "0x1200")
_SWITCH_CLASS = "0x0680"
_PORTS_OF_A_HOST = 8
_BROADCOM = (("0x1000", "0xc010"), ("0x1000", "0xc030"))
_LINK_TAGS = ("nvlink", "xgmi")
_OTHER_ROOTS = {
    "graphs": "the rings and trees that NCCL chose (NCCL_GRAPH_DUMP_FILE), not the machine",
    "algo": "an algorithm of MSCCL, not a machine",
    "topology": "a topology of hwloc, which has no links between GPUs",
    "nvidia_smi_log": "what nvidia-smi -q -x writes, which has no links between GPUs",
}


@dataclass(frozen=True, slots=True)
class _Found:
    """A GPU in the tree: its element, the PCI device that it is on, and the host."""

    element: Element
    pci: Element
    host: str

    @property
    def address(self) -> tuple[str, str]:
        """Where it is: host and PCI address."""
        return self.host, self.pci.get("busid").lower()


def read_nccl_xml(source: Source, requested: LibraryGpu | None, report: Report) -> DumpedMachine:
    """Return the machine of a topology dump; ``requested`` is the GPU that the user names."""
    return _Reader(source, report).machine(requested)


class _Reader:
    def __init__(self, source: Source, report: Report) -> None:
        self._report = report
        self._xml = XmlText(source, report)
        self._root = self._xml.root()
        self._found: list[_Found] = []
        self._nics: list[Nic] = []
        self._doubts: list[str] = []
        self._num_listed = 0  # PCI devices of the class of a GPU

    def machine(self, requested: LibraryGpu | None) -> DumpedMachine:
        root = self._root
        if root.tag != "system":
            what = _OTHER_ROOTS.get(root.tag, f"XML with the root '{root.tag[:32]}', no topology of NCCL")
            raise self._xml.fail(Code.MGS601, f"this is {what}", root, _DUMP)
        cpus = root.of_tag("cpu")
        for cpu in cpus:
            self._walk(cpu, cpu.get("host_hash"), ())
        self._check_gpus()
        self._found.sort(key=lambda found: (self._rank(found), *found.address))
        gpus = tuple(self._gpu(number, found) for number, found in enumerate(self._found))
        model, doubts = identify(gpus, requested, self._xml.span(root), self._report)
        self._doubts += doubts
        self._check_units(gpus, model)
        direct, switched = self._links(model)
        if any(gpu.is_card for gpu in gpus):
            direct, switched = direct | self._bridged(gpus, switched), ()
        self._check_hosts(gpus, model, switched)
        return DumpedMachine(
            _ORIGIN,
            model,
            gpus,
            switched,
            direct,
            tuple(self._nics),
            _Pcie(self._xml, self._found, cpus).wires(),
            tuple(dict.fromkeys(self._doubts)),
        )

    def _walk(self, element: Element, host: str, path: tuple[Element, ...]) -> None:
        for child in element.children:
            if child.tag == "pci":
                self._num_listed += child.get("class").lower().startswith(_GPU_CLASSES)
                self._walk(child, host, (*path, child))
            elif child.tag == "gpu" and path:
                self._found.append(_Found(child, path[-1], host))
            elif child.tag == "nic":
                self._nics += [self._nic(net) for net in child.of_tag("net")]

    def _check_gpus(self) -> None:
        if not self._found:
            listed = f"{self._num_listed} PCI devices that may be GPUs, but " if self._num_listed else ""
            message = f"the file has {listed}no gpu: it is one for NCCL_TOPO_FILE, as clouds ship it, not a dump"
            raise self._xml.fail(Code.MGS603, message, self._root, _DUMP)
        if len(self._found) > MAX_GPUS:
            message = f"the file has {len(self._found)} GPUs, at most {MAX_GPUS} are read"
            raise self._xml.fail(Code.MGS603, message, self._root)

    def _rank(self, found: _Found) -> tuple[int, int]:
        """Ranks in order, then devices that no rank uses."""
        rank = self._xml.number(found.element, "rank", -1, 10**6)
        device = self._xml.number(found.element, "dev", -1, 10**6)
        return (10**6 + 1 if rank < 0 else rank), device

    def _gpu(self, number: int, found: _Found) -> MachineGpu:
        vendor, device = found.pci.get("vendor"), found.pci.get("device")
        known = [f"PCI {vendor.removeprefix('0x')}:{device.removeprefix('0x')}"] if vendor and device else []
        architecture, capability = found.element.get("gcn"), found.element.get("sm")
        kind = ", ".join([*known, architecture or f"sm {capability}"])
        label = f"GPU {number} at {found.pci.get('busid') or 'no address'}"
        return MachineGpu(label, kind, self._xml.span(found.element), device_of_ids(vendor, device))

    def _check_units(self, gpus: Sequence[MachineGpu], model: LibraryGpu) -> None:
        """Compare the CUs of AMD GPUs, which a partition or a virtual function has fewer of."""
        if model.is_nvidia:
            return
        for gpu, found in zip(gpus, self._found, strict=True):
            units = self._xml.number(found.element, "sm", model.sms, 10**5)
            if units in (model.sms // 2, model.sms // 4, model.sms // 8):
                raise refuse_partitions(f"{gpu.label} has {units} compute units of {model.sms}", gpu, self._report)
            if units != model.sms:
                self._doubts.append(f"GPUs have {units} CUs, and {model.name} has {model.sms}: they are others")

    def _check_hosts(self, gpus: Sequence[MachineGpu], model: LibraryGpu, switched: Sequence[SwitchedGpus]) -> None:
        """Refuse GPUs of several hosts, unless they are of those whose switches join several, and all are joined."""
        hosts = Counter(found.host for found in self._found)
        spans = model.ports > _PORTS_OF_A_HOST or any(gpu.device is not None and gpu.device.spans_hosts for gpu in gpus)
        if len(hosts) > 1 and not (spans and len(switched) == 1 and len(switched[0].gpus) == len(gpus)):
            counts = " and ".join(str(count) for count in hosts.values())
            raise refuse_hosts(f"the file has {counts} GPUs of {len(hosts)} hosts", gpus[0].span, self._report)
        devices = {(found.address, found.pci.offset) for found in self._found}
        if len(devices) > len({found.address for found in self._found}):
            message = "two devices of the file have one PCI address, as those of two hosts may"
            raise refuse_hosts(message, gpus[0].span, self._report)

    def _bridged(self, gpus: Sequence[MachineGpu], switched: Sequence[SwitchedGpus]) -> dict[Pair, int]:
        """The links between two cards of which the file says no more than that they lead somewhere."""
        for group in switched:
            if len(group.gpus) == 2:
                return {(group.gpus[0], group.gpus[1]): min(group.links)}
            gpu = gpus[group.gpus[0]]
            message = f"the file does not say which of {len(group.gpus)} cards its bridge joins {gpu.label} to"
            raise self._report.fail(Code.MGS607, message, gpu.span, "nvidia-smi topo -m says it: import its table")
        return {}

    def _links(self, model: LibraryGpu) -> tuple[dict[Pair, int], tuple[SwitchedGpus, ...]]:
        sharing = Counter(found.address for found in self._found)
        at = {found.address: number for number, found in enumerate(self._found)}
        direct, switched = Counter[Pair](), Counter[int]()
        strangers = 0
        for number, found in enumerate(self._found):
            share = sharing[found.address]
            for row in found.element.of_tag(*_LINK_TAGS):
                check_links(model, row.tag == "nvlink", self._xml.span(row), self._report)
                count = max(0, self._xml.number(row, "count", 1, MAX_COUNT)) // share
                target = row.get("target").lower()
                if (found.host, target) in at:
                    direct[number, at[found.host, target]] += count
                elif row.get("tclass").lower().startswith(_SWITCH_CLASS) or target.startswith("ffff"):
                    switched[number] += count
                else:
                    strangers += 1
        if max(sharing.values()) > 1:
            self._doubts.append("several GPUs are at one PCI address, each with the links of all: they were divided")
        if strangers:
            self._doubts.append(
                f"{strangers} rows of links lead to devices that are not in the file; a run on some of the GPUs writes"
                " such a dump"
            )
        members = tuple(sorted(number for number, count in switched.items() if count))
        groups = (SwitchedGpus(members, tuple(switched[number] for number in members)),) if members else ()
        return self._both_ways(direct), groups

    def _both_ways(self, direct: Counter[Pair]) -> dict[Pair, int]:
        """The links that both ends name; in doubt the lower number."""
        links: dict[Pair, int] = {}
        for first, second in sorted({(min(pair), max(pair)) for pair in direct}):
            there, back = direct[first, second], direct[second, first]
            if there != back:
                ends = f"GPU {first} names {there} links to GPU {second}, and GPU {second} names {back}"
                self._doubts.append(f"{ends}: {min(there, back)} are written")
            if first != second and min(there, back):
                links[first, second] = min(there, back)
        return links

    def _nic(self, net: Element) -> Nic:
        mbit = self._xml.number(net, "speed", 0, 10**9 - 1)
        name = net.get("name") or "unnamed"
        if mbit > MAX_MBIT_PER_S:
            self._doubts.append(f'the speed "{mbit}" of NICs was taken for kbit/s: in Mbit/s no NIC is so fast')
            mbit //= 1000
        return Nic(name, mbit / 1000 if mbit > 0 else None, net.get("gdr") != "0")


class _Pcie:
    """The tree of PCIe devices above the GPUs."""

    def __init__(self, xml: XmlText, found: Sequence[_Found], cpus: Sequence[Element]) -> None:
        self._xml, self._cpus = xml, cpus
        self._numbers = {id(each.element): number for number, each in enumerate(found)}
        self._tree = PcieTree(len(found), self._between_cpus(cpus[0]) if cpus else UNSAID_CPUS)

    def wires(self) -> tuple[PcieWire, ...]:
        """Return the links from the GPUs up to the roots of their CPUs, and between these."""
        roots = [below for cpu in self._cpus if (below := self._below(cpu))]
        for below in roots:
            if len(roots) > 1 or len(below) > 1:
                self._tree.join(below, root=True)
        return self._tree.wires()

    def _below(self, element: Element) -> list[tuple[int, PcieSlot | None]]:
        """The GPUs and bridges below a bridge or root, with the rates of their links to it.

        A bridge with one below is left out: the slower link of the two remains.
        """
        below: list[tuple[int, PcieSlot | None]] = []
        for device in element.of_tag("pci"):
            slot = self._slot(device)
            own = [(self._numbers[id(gpu)], slot) for gpu in device.of_tag("gpu") if id(gpu) in self._numbers]
            under = [*own, *self._below(device)]
            if _is_part(device, element):
                below += under
            elif len(under) == 1:
                node, rate = under[0]
                slots = (each for each in (rate, slot) if each)
                below.append((node, min(slots, key=attrgetter("counted_gb_per_s"), default=None)))
            elif under:
                below.append((self._tree.join(under), slot))
        return below

    def _slot(self, device: Element) -> PcieSlot | None:
        """The link of a device upward; of unsaid width, as in virtual machines, 16 lanes, as NCCL takes it."""
        speed = re.match(r"(\d{1,3}(?:\.\d)?) GT/s", device.get("link_speed"))
        lanes = {"": 16, "0": 16, "1": 1, "2": 2, "4": 4, "8": 8, "16": 16}.get(device.get("link_width"))
        return None if speed is None or lanes is None or not float(speed[1]) else PcieSlot(float(speed[1]), lanes)

    def _between_cpus(self, cpu: Element) -> CpuWay:
        family, model = (self._xml.number(cpu, name, -1, 10**6) for name in ("familyid", "modelid"))
        return way_between(cpu.get("arch"), cpu.get("vendor"), family, model)


def _is_part(device: Element, above: Element) -> bool:
    """Whether both are one switch of Broadcom, which shows as two levels and is as fast within as at its ports."""
    ids = [(each.get("vendor").lower(), each.get("device").lower()) for each in (device, above)]
    return ids[0] == ids[1] and ids[0] in _BROADCOM
