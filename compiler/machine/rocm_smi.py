"""The tables of ``rocm-smi --showtopo``, with the output of ``--showproductname`` in the same file if that is there.

The table of types says which pairs xGMI joins. A weight of 15 is one link, of 30 two in a row; the table of hops counts
one wherever xGMI leads on MI250X, and is read where there are no weights. Partitions of a GPU stand there like GPUs.
"""

import re
from collections.abc import Sequence

from ..codes import Code
from ..text.diagnostics import Report, Source, Span
from .known_gpus import AMD, Device, LibraryGpu, device_named, device_of_ids
from .link_blocks import Line, LinkTable, is_head, lines_of, matches, read_table
from .machine import (
    UNSAID,
    DumpedMachine,
    MachineGpu,
    Pair,
    PcieWire,
    check_links,
    identify,
    refuse_hosts,
    refuse_partitions,
)
from .wiring import tree_of_words

_ORIGIN = "the tables of rocm-smi --showtopo"
_TYPES, _HOPS, _WEIGHTS = "Link Type between two GPUs", "Hops between two GPUs", "Weight between two GPUs"
_KINDS = ("XGMI", "PCIE", "0", "X")
_ONE_LINK = {_WEIGHTS: "15", _HOPS: "1"}
_ONE_CPU = {_WEIGHTS: 40, _HOPS: 2}
"""Two GPUs on PCIe that are farther from each other than this are at different CPUs, if no NUMA nodes are said."""
_NUMA = re.compile(r"GPU\[(\d{1,4})\]\s*:\s*\(Topology\) Numa Node:\s*(\d{1,4})\s*$")
_PARTITION = re.compile(r"GPU\[(\d{1,4})\]\s*:\s*Compute Partition:\s*(?!SPX)[A-Z]{3}\s*$")
_WITHOUT_ID = re.compile(r"GPU\[(\d{1,4})\]\s*:\s*(?:Device ID|Card Model):\s*N/A\s*$")
_NAMED = re.compile(r"GPU\[(\d{1,4})\]\s*:\s*(?:Card [Ss]eries|Card [Mm]odel|Device Name|Device ID):\s*(\S.*)")


def is_rocm_smi(text: str) -> bool:
    """Whether the text has a table of ``rocm-smi --showtopo``."""
    return any(title in text for title in (_TYPES, _HOPS, _WEIGHTS))


def read_rocm_smi(source: Source, requested: LibraryGpu | None, report: Report) -> DumpedMachine:
    """Return the machine of the tables; ``asked`` is the GPU that the user names."""
    lines = lines_of(source, report)
    types = _table(lines, _TYPES, report)
    if types is None:
        hint = "write the whole output of rocm-smi --showtopo to a file"
        raise report.fail(Code.MGS607, f"the table '{_TYPES}' is missing", Span(source, 0, 1), hint)
    gpus = _gpus(lines, types)
    _check_partitions(lines, gpus, report)
    model, doubts = identify(gpus, requested, types.spans[0], report)
    check_links(model, False, types.spans[0], report)
    title, lengths = _lengths(types, lines, report)
    direct, unclear = _direct(types, lengths, title, report)
    pcie, hidden = _pcie(types, lengths, title, lines)
    return DumpedMachine(_ORIGIN, model, gpus, direct=direct, doubts=(*doubts, *unclear), pcie=pcie, pcie_doubts=hidden)


def _check_partitions(lines: Sequence[Line], gpus: Sequence[MachineGpu], report: Report) -> None:
    """Refuse partitions of GPUs: the file says it, or the first of each GPU alone has the id of the device."""
    said, without = (
        sorted({number for found in matches(lines, sign) if (number := int(found[1])) < len(gpus)})
        for sign in (_PARTITION, _WITHOUT_ID)
    )
    if said:
        raise refuse_partitions(f"{gpus[said[0]].label} is a partition by the file", gpus[said[0]], report)
    splits = any(gpu.device is not None and gpu.device.words.startswith("MI3") for gpu in gpus)
    if splits and without and len(without) < len(gpus):
        message = f"{gpus[without[0]].label} has no id of its own, as partitions of a GPU have none"
        raise refuse_partitions(message, gpus[without[0]], report)


def _table(lines: Sequence[Line], title: str, report: Report) -> LinkTable | None:
    """The table under a title, None if there is none."""
    starts = [at for at, line in enumerate(lines) if title in line.text]
    if not starts:
        return None
    if len(starts) > 1:
        raise refuse_hosts(f"the file has {len(starts)} tables '{title}'", lines[starts[1]].span, report)
    (start,) = starts
    head = next((at for at in range(start, min(start + 4, len(lines))) if is_head(lines[at])), None)
    if head is None:
        raise report.fail(Code.MGS607, f"'{title}' has no table below it", lines[start].span)
    return read_table(lines, head, report)


def _gpus(lines: Sequence[Line], types: LinkTable) -> tuple[MachineGpu, ...]:
    found: dict[int, tuple[str, Device | None]] = {}
    for match in matches(lines, _NAMED):
        number, text = int(match[1]), match[2].strip()[:64]
        device = device_of_ids(AMD, text) or device_named(text)
        if number not in found or (device is not None and found[number][1] is None):
            found[number] = text, device
    names = (found.get(number, (UNSAID, None)) for number in range(types.num_gpus))
    numbered = enumerate(zip(names, types.spans, strict=True))
    return tuple(MachineGpu(f"GPU {number}", text, span, device) for number, ((text, device), span) in numbered)


def _direct(
    types: LinkTable, lengths: LinkTable | None, title: str, report: Report
) -> tuple[dict[Pair, int], tuple[str, ...]]:
    """Pairs with an xGMI link of their own; the tables do not count links between two GPUs."""
    direct: dict[Pair, int] = {}
    doubts: dict[str, None] = {}
    if lengths is None:
        doubts["the file does not say over how many links xGMI leads: each pair that it joins was given its own"] = None
    for first in range(types.num_gpus):
        for second in range(types.num_gpus):
            word = types.words[first][second]
            if word.upper() not in _KINDS:
                message = f"'{word[:16]}' between GPU{first} and GPU{second} is no link that is known"
                raise report.fail(Code.MGS607, message, types.spans[first], "links are XGMI and PCIE")
            own = lengths is None or lengths.words[first][second] == _ONE_LINK[title]
            if first != second and word.upper() == "XGMI" and own:
                if types.words[second][first] != word:
                    doubts[f"xGMI joins GPU {first} to GPU {second}, and not back: a link was written"] = None
                direct[min(first, second), max(first, second)] = 1
    return direct, tuple(doubts)


def _pcie(
    types: LinkTable, lengths: LinkTable | None, title: str, lines: Sequence[Line]
) -> tuple[tuple[PcieWire, ...], tuple[str, ...]]:
    """PCIe by NUMA nodes, else by the lengths of ways: rocm-smi does not see bridges."""
    nodes = {int(found[1]): found[2] for found in matches(lines, _NUMA)}

    def word(first: int, second: int) -> str:
        """What nvidia-smi calls the way between two GPUs; other links than PCIe as they are."""
        if types.words[first][second].upper() != "PCIE":
            return types.words[first][second]
        if first in nodes and second in nodes:
            return "PHB" if nodes[first] == nodes[second] else "SYS"
        length = lengths.words[first][second] if lengths is not None else ""
        return "SYS" if length.isascii() and length.isdigit() and int(length[:6]) > _ONE_CPU[title] else "PHB"

    gpus = range(types.num_gpus)
    pcie, doubts = tree_of_words([[word(first, second) for second in gpus] for first in gpus])
    unsaid = "the file does not say which GPUs share a bridge of PCIe: each was taken to be at the root of a CPU"
    return pcie, (*doubts, unsaid)


def _lengths(types: LinkTable, lines: Sequence[Line], report: Report) -> tuple[str, LinkTable | None]:
    """The table of weights, or if there is none or it has no links, that of hops."""
    xgmi = any(word.upper() == "XGMI" for row in types.words for word in row)
    for title in _ONE_LINK:
        table = _table(lines, title, report)
        if table is None or table.num_gpus != types.num_gpus:
            continue
        if not xgmi or any(_ONE_LINK[title] in row for row in table.words):
            return title, table
    return _HOPS, None
