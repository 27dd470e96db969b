"""The links and switches of a machine that the library does not have as they are, as blocks of the language."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..codes import Code
from ..text.diagnostics import Report, Source, Span
from .known_gpus import pcie_gt_per_s
from .machine import MAX_GPUS, UNSAID_RATE, CpuWay, DumpedMachine, NetworkWire, PcieSlot, PcieWire, SaidRate, digits

# Tables of links between GPUs, as tools print them: a line of names, then a line for each GPU with a word for each.

MAX_LINES = 100_000
MAX_NAMED = 512
"""Characters of a line that may say the name of a GPU."""
_GPU = re.compile(r"GPU\d{1,4}")
_ADAPTER = re.compile(r"NIC\d{1,4}|[a-z]\w*_\d{1,4}")  # NIC0, mlx5_0
_GLUED = re.compile(r"GPU\d{1,4}|NIC\d{1,4}|[a-z][a-z\d]*_\d{1,4}|CPU|NV\d{1,3}|SYS|NODE|PHB|PXB|PIX|PSB|SOC|XGMI|PCIE")
_AFFINITY = "CPU"
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a tool's output without escapes for colours, its words, and its place."""

    text: str
    words: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class LinkTable:
    """The words of a table between ``num_gpus`` GPUs, by their numbers, the names of other columns, and its place."""

    num_gpus: int
    words: tuple[tuple[str, ...], ...]
    others: tuple[str, ...]
    spans: tuple[Span, ...]


def lines_of(source: Source, report: Report) -> list[Line]:
    """Return the lines of a text; refuse one with too many."""
    texts = source.text.split("\n")
    if len(texts) > MAX_LINES:
        raise report.fail(Code.MGS130, f"the file has more than {MAX_LINES:,} lines", Span(source, 0, 1))
    lines, start = [], 0
    for text in texts:
        plain = _STYLE.sub("", text).rstrip("\r")
        words = tuple(part for word in plain.split() for part in _parts(word))
        lines.append(Line(plain, words, Span(source, start, start + len(text))))
        start += len(text) + 1
    return lines


def matches(lines: Iterable[Line], sign: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Yield what begins lines that are short enough to say something of a GPU."""
    found = (sign.match(line.text) for line in lines if len(line.text) <= MAX_NAMED)
    return (match for match in found if match is not None)


def _parts(word: str) -> list[str]:
    """The names of columns, or the links, that stand without a space between them: ``NIC7NIC8``."""
    parts = _GLUED.findall(word) if len(word) <= MAX_NAMED else []
    return parts if len(parts) > 1 and "".join(parts) == word else [word]


def is_head(line: Line) -> bool:
    """Whether a line names the columns of a table of GPUs."""
    first, second = line.words[:1], line.words[1:2]
    return any(map(_GPU.fullmatch, first)) and all(_is_column(word) or word == _AFFINITY for word in second)


def read_table(lines: Sequence[Line], at: int, report: Report) -> LinkTable:
    """Return the table whose head is line ``at``; lines that are short or missing are errors.

    After the words for GPUs and adapters a line may have others, such as affinities, which may be empty.
    """
    head = lines[at]
    columns = list(_columns(head))
    num_gpus = sum(_GPU.fullmatch(name) is not None for name in columns)
    if columns[:num_gpus] != [f"GPU{number}" for number in range(num_gpus)]:
        hint = "a table of all GPUs of the machine is needed, without -i"
        raise report.fail(Code.MGS607, "the columns of GPUs are not GPU0, GPU1 and so on", head.span, hint)
    if num_gpus > MAX_GPUS:
        raise report.fail(Code.MGS603, f"the table has {num_gpus} GPUs, at most {MAX_GPUS} are read", head.span)
    rows, spans = [], []
    for number in range(num_gpus):
        line = lines[at + 1 + number] if at + 1 + number < len(lines) else None
        if line is None or line.words[:1] != (f"GPU{number}",):
            span = head.span if line is None else line.span
            raise report.fail(Code.MGS607, f"the table has {num_gpus} GPUs, and no line of GPU{number} here", span)
        if len(line.words) < 1 + num_gpus:
            message = f"GPU{number} has {len(line.words) - 1} words, the table {num_gpus} GPUs"
            raise report.fail(Code.MGS607, message, line.span)
        rows.append(line.words[1 : 1 + num_gpus])
        spans.append(line.span)
    return LinkTable(num_gpus, tuple(rows), tuple(columns[num_gpus:]), tuple(spans))


def _columns(head: Line) -> Iterator[str]:
    for word in head.words:
        if not _is_column(word):
            return
        yield word


def _is_column(word: str) -> bool:
    return bool(_GPU.fullmatch(word) or _ADAPTER.fullmatch(word))


SWITCH, PCIE, CPUS, NETWORK, TRUNK = "nvswitch", "pcie", "cpus", "nic", "trunk"
_LANES = 16
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_NIC_GB_PER_S = 50.0  # 400 Gb/s
_COUNTED = "what NCCL counts for it; not measured"
_UNSAID_LATENCY = "1 us @assumed"


class LinkBlocks:
    """Names of links and switches; what the library lacks is declared in ``blocks``, by its name."""

    def __init__(self, machine: DumpedMachine, doubts: list[str]) -> None:
        self._machine, self._model, self._doubts = machine, machine.model, doubts
        self.blocks: dict[str, str] = {}
        self._names: dict[tuple[str, object], str] = {}

    def links(self, count: int, said: SaidRate = UNSAID_RATE) -> str:
        """Return the name of ``count`` links of the machine together, of which the file says a rate or latency."""
        name, whole = self._model.link, self._model.links
        if said != UNSAID_RATE:
            return self._said_links(count, said)
        if count == whole:
            return name
        part = f"{name}_{count}"
        if part not in self.blocks:
            source = f'  source derived "{count} links, of which {name} of {self._model.name} has {whole}"\n'
            self.blocks[part] = f"link {part} extends {name} {{\n{source}{self._share(count)}}}"
            if count > whole and self._model.is_nvidia:
                self._doubts.append(f"{count} links at one place are more than the {whole} that {self._model.name} has")
        return part

    def _share(self, count: int) -> str:
        share = f"* {count} / {self._model.links}"
        return f"  bandwidth base.bandwidth {share}\n  achieved base.achieved {share}\n"

    def _said_links(self, count: int, said: SaidRate) -> str:
        name = self._name(f"{self._model.link}_said", (count, said))
        lines = self._share(count) if said.gb_per_s is None and count != self._model.links else ""
        if said.gb_per_s is not None:
            rate = _gb_per_s(said.gb_per_s)
            share = f'base.achieved * ({rate} / base.bandwidth) @derived "the share that the library has"'
            achieved = share if said.reached_gb_per_s is None else _gb_per_s(said.reached_gb_per_s)
            lines = f"  bandwidth {rate}\n  achieved {achieved}\n"
        if said.latency_ns is not None:
            lines += f"  latency {digits(said.latency_ns)} ns\n"
        lines += _order(said)
        self.blocks[name] = f'link {name} extends {self._model.link} {{\n  source nominal "the file"\n{lines}}}'
        return name

    def switch(self, said: SaidRate = UNSAID_RATE) -> str:
        """Return the name of a switch with a port for each GPU, as fast as the file says that their links are.

        What the way back takes longer is its latency; a port that slows that way has its rate.
        """
        num_gpus, ports = len(self._machine.gpus), self._model.ports
        if num_gpus <= ports and said.gb_per_s is None:
            return SWITCH
        name = SWITCH if num_gpus <= ports else f"{SWITCH}_{num_gpus}"
        lines = []
        if num_gpus > ports:
            lines.append(f'ports {num_gpus} @assumed "one for each GPU"')
            self._doubts.append(f"{SWITCH} of the library has {ports} ports; {name} is the same with {num_gpus}")
        if said.gb_per_s is not None:
            name = f"{name}_said"
            rate, whose = _gb_per_s(said.gb_per_s), '@assumed "that of the links"'
            if said.back is not None and said.latency_ns is not None:
                back, latency_ns = said.back
                if back < (said.reached_gb_per_s or 0):
                    rate, whose = _gb_per_s(back), '@nominal "the file"'
                lines.append(f'latency {digits(latency_ns - said.latency_ns)} ns @nominal "the file"')
            lines.append(f"bandwidth {rate} {whose}")
        self.blocks[name] = f"switch {name} extends {SWITCH} {{ {'; '.join(lines)} }}"
        return name

    def pcie(self, wire: PcieWire) -> str:
        """Return the name of a link of PCIe, or of that between two CPUs."""
        if isinstance(wire.rate, CpuWay):
            return self._between_cpus(wire.rate)
        if isinstance(wire.rate, SaidRate) and wire.rate.gb_per_s is not None:
            name = self._name(PCIE, wire.rate)
            self._pcie_block(name, f'{_gb_per_s(wire.rate.gb_per_s)} @nominal "the file"', wire.rate)
            return name
        said = wire.rate if isinstance(wire.rate, SaidRate) else UNSAID_RATE
        slot = wire.rate if isinstance(wire.rate, PcieSlot) else self._slot
        width = f"{PCIE}_gen{_GENERATIONS.get(slot.gt_per_s, 0)}_x{slot.lanes}"
        name = self._name(PCIE, (slot, said), width)
        rate = f'{slot.gb_per_s:.3g} GB/s @nominal "PCIe, {slot.lanes} lanes of {slot.gt_per_s:g} GT/s"'
        self._pcie_block(name, rate, said, slot.counted_gb_per_s)
        return name

    def _pcie_block(self, name: str, bandwidth: str, said: SaidRate, counted: float | None = None) -> None:
        """Declare a link of PCIe; without a rate that NCCL counts, its share is that of PCIe with 16 GT/s."""
        slot = PcieSlot(16, _LANES)
        share = slot.counted_gb_per_s / slot.gb_per_s
        achieved = f'{counted or (said.gb_per_s or 0) * share:.4g} GB/s @assumed "{_COUNTED}"'
        if said.reached_gb_per_s is not None:
            achieved = f'{_gb_per_s(said.reached_gb_per_s)} @nominal "the file"'
        self._declare(name, bandwidth, achieved, said)

    def network(self, wire: NetworkWire) -> str:
        """Return the name of a link of the network: of a NIC to a switch, or between two switches."""
        said, rate, source = wire.said, wire.said.gb_per_s, '@nominal "the file"'
        if rate is None:
            rate, source = _NIC_GB_PER_S, "@assumed"
            self._doubts.append(
                f"the file does not say how fast the links '{wire.words[:64]}' are: 400 Gb/s were taken"
            )
        if not said.ordered and wire.words:
            self._doubts.append(
                f"the file does not say that links '{wire.words[:64]}' keep the order of sending: flags wait for data"
            )
        reached = said.reached_gb_per_s
        name = self._name(TRUNK if wire.is_trunk else NETWORK, said)
        nine_tenths = f'{_gb_per_s(0.9 * rate)} @assumed "nine tenths"'
        achieved = nine_tenths if reached is None else f"{_gb_per_s(reached)} {source}"
        latency = "300 ns @assumed" if wire.is_trunk else _UNSAID_LATENCY
        self._declare(name, f"{_gb_per_s(rate)} {source}", achieved, said, latency)
        return name

    def _between_cpus(self, way: CpuWay) -> str:
        if not way.source and CPUS not in self.blocks:
            self._doubts.append(
                f"the file does not say which CPUs there are: {way.gb_per_s:g} GB/s from one to another are what NCCL"
                " counts for Intel, Skylake"
            )
        source = f'@reported "{way.source}"' if way.source else f'@assumed "{_COUNTED}"'
        rate = f"{way.gb_per_s:g} GB/s {source}"
        self._declare(CPUS, rate, rate, way)
        return CPUS

    def _declare(
        self, name: str, bandwidth: str, achieved: str, said: SaidRate | CpuWay, usual_latency: str = _UNSAID_LATENCY
    ) -> None:
        """Declare a link of its own; its latency is the usual one where the file does not say it."""
        latency = usual_latency if said.latency_ns is None else f'{digits(said.latency_ns)} ns @nominal "the file"'
        lines = f"  bandwidth {bandwidth}\n  achieved {achieved}\n  latency {latency}\n{_order(said)}"
        self.blocks[name] = f"link {name} {{\n{lines}}}"

    @cached_property
    def _slot(self) -> PcieSlot:
        """That of the GPUs by their data sheet, where the file does not say."""
        known = [(rate, gpu.name) for gpu in self._machine.gpus if (rate := pcie_gt_per_s(gpu.device))]
        rate, whose = min(known, default=(self._model.pcie_gt_per_s, self._model.name))
        slot = PcieSlot(rate, _LANES)
        lanes = f"{slot.lanes} lanes of {slot.gt_per_s:g} GT/s"
        self._doubts.append(
            f"the file does not say how fast PCIe is: {lanes} are written, as in the data sheet of {whose}"
        )
        return slot

    def _name(self, base: str, key: object, other: str = "") -> str:
        """The name of what ``key`` describes: ``base`` for the first of its kind, then ``other`` or one by number."""
        if (base, key) not in self._names:
            taken = sum(kind == base for kind, _ in self._names)
            self._names[base, key] = base if not taken else other or f"{base}_{taken + 1}"
        return self._names[base, key]


def _order(said: SaidRate | CpuWay) -> str:
    return "  ordered yes\n" if said.ordered else ""


def _gb_per_s(rate: float) -> str:
    return f"{digits(rate)} GB/s"
