"""The tables of ``nvidia-smi topo -m`` and ``rocm-smi --showtopo``, with the names of GPUs if the file has them.

NVIDIA's has the output of ``nvidia-smi -L`` in the same file, or the table of plain ``nvidia-smi``, for what the GPUs
are. NVIDIA calls the form of the table not stable. It counts the NVLinks of a GPU that lead towards another: behind
switches all its links count for each other GPU.

AMD's has the output of ``rocm-smi --showproductname`` beside it. The table of types says which pairs xGMI joins. A
weight of 15 is one link, of 30 two in a row; the table of hops counts one wherever xGMI leads on MI250X, and is read
where there are no weights. Partitions of a GPU stand there like GPUs.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import combinations

from ..codes import Code
from ..text.diagnostics import Report, Source, Span
from .known_gpus import AMD, Device, LibraryGpu, device_named, device_of_ids
from .link_blocks import MAX_NAMED, Line, LinkTable, is_head, lines_of, matches, read_table
from .machine import (
    UNSAID,
    DumpedMachine,
    MachineGpu,
    Nic,
    Pair,
    PcieWire,
    SwitchedGpus,
    check_links,
    identify,
    joined_parts,
    refuse_hosts,
    refuse_partitions,
)
from .wiring import tree_of_words

_ORIGIN = "the table of nvidia-smi topo -m"
_SELF = "X"
_PCIE_WORDS = ("SYS", "NODE", "PHB", "PXB", "PIX", "PSB", "SOC")
_LINKS = re.compile(r"NV(\d{1,3})")
_LISTED = re.compile(r"\s*GPU (\d{1,4}): ([^(]+?)\s*(?:\(UUID.*)?")
_MIG = re.compile(r"\s+MIG (\S+)\s+Device\s+\d+:.*")
_SUMMARY = re.compile(r"\|\s+(\d{1,4})\s+(\S.*?)\s+(?:On|Off|N/A)\s+\|\s+[0-9A-Fa-f]{8}:.*")
_LEGEND = re.compile(r"\s*(NIC\d{1,4}): (\S+)\s*")


def is_nvidia_smi(text: str) -> bool:
    """Whether the text has a table of ``nvidia-smi topo -m``."""
    return (
        re.search(r"^[ \t]*(?:\x1b\[[0-9;]*m)?GPU(\d{1,4})\D.*\n[ \t]*GPU\1[ \t]+X\s", text, re.MULTILINE) is not None
    )


def read_nvidia_smi(source: Source, requested: LibraryGpu | None, report: Report) -> DumpedMachine:
    """Return the machine of a table; ``requested`` is the GPU that the user names."""
    lines = lines_of(source, report)
    heads = [at for at, line in enumerate(lines) if is_head(line)]
    if not heads:
        row = next(line for line in lines if line.words[1:2] == (_SELF,))
        raise report.fail(Code.MGS607, "no line above says which columns are GPUs: GPU0, GPU1 and so on", row.span)
    table = read_table(lines, heads[0], report)
    if len(heads) > 1:
        raise refuse_hosts(f"the file has {len(heads)} tables of GPUs", lines[heads[1]].span, report)
    listed = _listed(lines)
    gpus = tuple(_gpu(number, span, listed) for number, span in enumerate(table.spans))
    model, doubts = identify(gpus, requested, table.spans[0], report)
    check_links(model, True, table.spans[0], report)
    counts = _counts(table, report)
    direct, switched, unclear = _joined(counts, model, any(gpu.is_card for gpu in gpus))
    pcie, hidden = tree_of_words(table.words)
    return DumpedMachine(
        origin=_ORIGIN,
        model=model,
        gpus=gpus,
        switched=switched,
        direct=direct,
        nics=_nics(table, lines),
        pcie=pcie,
        doubts=(*doubts, *unclear, *_names_that_differ(listed, table), *_divided(lines), *_without_links(source.text)),
        pcie_doubts=hidden,
    )


def _listed(lines: Sequence[Line]) -> dict[int, str]:
    """The names of GPUs that the file lists, by number."""
    short = (line.text for line in lines if len(line.text) <= MAX_NAMED)
    found = (_LISTED.fullmatch(text) or _SUMMARY.fullmatch(text) for text in short)
    return {int(match[1]): match[2] for match in found if match is not None}


def _gpu(number: int, span: Span, listed: dict[int, str]) -> MachineGpu:
    name = listed.get(number, UNSAID)[:64]
    return MachineGpu(f"GPU {number}", name, span, device_named(name))


def _counts(table: LinkTable, report: Report) -> list[list[int]]:
    """The number of NVLinks of each GPU towards each other."""
    counts = []
    for number, (words, span) in enumerate(zip(table.words, table.spans, strict=True)):
        row = []
        for other, word in enumerate(words):
            links = _LINKS.fullmatch(word)
            if links is None and word not in _PCIE_WORDS and (word != _SELF or other != number):
                message = f"'{word[:16]}' between GPU{number} and GPU{other} is no link that is known"
                raise report.fail(
                    Code.MGS607,
                    message,
                    span,
                    f"the table of nvidia-smi topo -m is read: its links are NV#, {', '.join(_PCIE_WORDS)}",
                )
            row.append(int(links[1]) if links is not None and other != number else 0)
        counts.append(row)
    return counts


def _joined(
    counts: list[list[int]], model: LibraryGpu, cards: bool
) -> tuple[dict[Pair, int], tuple[SwitchedGpus, ...], tuple[str, ...]]:
    """Direct links and groups behind switches, and what the table leaves open.

    A GPU with more links in its line than it has reaches others by a switch, over the same links; ``cards`` for PCIe
    do not.
    """
    direct: dict[Pair, int] = {}
    switched: list[SwitchedGpus] = []
    doubts: list[str] = []
    pairs = ((gpu, other) for gpu, row in enumerate(counts) for other, count in enumerate(row) if count)
    for group in joined_parts(len(counts), pairs):
        all_to_one = not cards and len(group) == 2 and max(counts[group[0]]) == model.links
        if all_to_one:
            doubts.append(
                f"all {model.links} NVLinks of GPUs {group[0]} and {group[1]} lead to each other: to a switch, it was"
                " taken, and not direct"
            )
        if all_to_one or (not cards and max(sum(counts[gpu]) for gpu in group) > model.links):
            switched.append(SwitchedGpus(group, tuple(max(counts[gpu]) for gpu in group)))
        else:
            direct |= _direct(counts, group, doubts)
    return direct, tuple(switched), tuple(doubts)


def _direct(counts: list[list[int]], group: Sequence[int], doubts: list[str]) -> dict[Pair, int]:
    links: dict[Pair, int] = {}
    for first, second in combinations(group, 2):
        there, back = counts[first][second], counts[second][first]
        if there != back:
            doubts.append(
                f"GPU {first} has {there} NVLinks to GPU {second}, and back there are {back}: the lower counts"
            )
        if min(there, back):
            links[first, second] = min(there, back)
    return links


def _nics(table: LinkTable, lines: Sequence[Line]) -> tuple[Nic, ...]:
    legend = {match[1]: match[2] for line in lines if (match := _LEGEND.fullmatch(line.text)) is not None}
    return tuple(Nic(legend.get(name, name)) for name in table.others)


def _names_that_differ(listed: dict[int, str], table: LinkTable) -> Iterator[str]:
    if listed and len(listed) != table.num_gpus:
        yield f"the file lists {len(listed)} GPUs by name, and its table has {table.num_gpus}"
    if any(name.endswith("...") for name in listed.values()):
        yield "the file cuts names of GPUs off, which may hide that they are PCIe cards: nvidia-smi -L has them whole"


def _divided(lines: Sequence[Line]) -> Iterator[str]:
    """The GPUs below which ``-L`` lists devices of MIG."""
    gpu, divided = "", dict[str, str]()
    for line in lines:
        text = line.text[:MAX_NAMED]
        if (named := _LISTED.fullmatch(text)) is not None:
            gpu = named[1]
        elif gpu and (device := _MIG.fullmatch(text)) is not None:
            divided.setdefault(gpu, device[1])
    for number, kind in divided.items():
        yield (
            f"GPU {number} is divided (MIG, such as {kind}): each device has a part of its SMs and memory, and no way"
            " to other GPUs; here the GPU is whole"
        )


def _without_links(text: str) -> Iterator[str]:
    """``nvidia-smi topo -mp`` leaves out NVLinks, and its legend their word."""
    if re.search(r"^\s*SYS\s+=", text, re.MULTILINE) and not re.search(r"^\s*NV#\s+=", text, re.MULTILINE):
        yield "the legend has no NV#: this is nvidia-smi topo -mp, which leaves NVLinks out; topo -m has them"


_TOPO_ORIGIN = "the tables of rocm-smi --showtopo"
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
    """Return the machine of the tables; ``requested`` is the GPU that the user names."""
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
    direct, unclear = _joined_by_xgmi(types, lengths, title, report)
    pcie, hidden = _pcie(types, lengths, title, lines)
    return DumpedMachine(
        _TOPO_ORIGIN, model, gpus, direct=direct, doubts=(*doubts, *unclear), pcie=pcie, pcie_doubts=hidden
    )


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


def _joined_by_xgmi(
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
