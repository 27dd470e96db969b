"""How PCIe joins GPUs: a tree of bridges up to the root of each CPU, and a way from each CPU to each other.

That is NCCL's picture of a machine (``src/graph/topo.cc``): within a root every link has its own rate, and traffic
meets where it takes the same link.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations

from .machine import CpuWay, Pair, PcieSlot, PcieWire

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
