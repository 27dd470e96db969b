"""The table of ``nvidia-smi topo -m``, with the output of ``nvidia-smi -L`` in the same file if that is there.

NVIDIA calls the form of the table not stable. It counts the NVLinks of a GPU that lead towards another: behind switches
all its links count for each other GPU. What the GPUs are stands in ``-L``, or in the table of plain ``nvidia-smi``.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import combinations

from ..codes import Code
from ..text.diagnostics import Report, Source, Span
from .known_gpus import LibraryGpu, device_named
from .link_blocks import MAX_NAMED, Line, LinkTable, is_head, lines_of, read_table
from .machine import (
    UNSAID,
    DumpedMachine,
    MachineGpu,
    Nic,
    Pair,
    SwitchedGpus,
    check_links,
    identify,
    joined_parts,
    refuse_hosts,
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
    """Return the machine of a table; ``asked`` is the GPU that the user names."""
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
    cards = any(gpu.is_card for gpu in gpus)
    direct, switched, unclear = _joined(counts, model, cards)
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
