"""What joint schedules of a workload are searched in: its ops in so many batches, by one copier, with their ways."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...compiler.ir import Workload
from .contention import Uses, of_copies, of_kernel
from .op_runs import AlikeRanks, Copier
from .options import Way, Ways


@dataclass(frozen=True, slots=True)
class LayerSpace:
    """The ops of a workload in so many batches, by one copier.

    ``ways`` and the times of ``kernels`` and of whole ``copies`` alone, in ticks, are by the names of ops; so is what
    their kernels and what such copies use of the memory and of the network on chip. ``following`` has for a pair the
    GEMMs that may be cut along it, the longest first.
    """

    copier: Copier
    batches: int
    workload: Workload
    ways: Mapping[str, tuple[Way, ...]] = field(hash=False)
    kernels: Mapping[str, int] = field(hash=False)
    copies: Mapping[str, int] = field(hash=False)
    kernel_uses: Mapping[str, Uses] = field(hash=False)
    copy_uses: Mapping[str, Uses] = field(hash=False)
    following: Mapping[str, tuple[str, ...]] = field(hash=False)

    @property
    def kernels_ticks(self) -> int:
        """All kernels of a layer alone, one after the other."""
        return sum(self.kernels.values())

    def quick(self, ranks: AlikeRanks) -> "LayerSpace":
        """Return the space without the ways that take all ranks to simulate; an op that has no other keeps its own."""
        ways = {
            op.name: tuple(way for way in self.ways[op.name] if ranks.saves(op, way.mode)) or self.ways[op.name]
            for op in self.workload.ops
            if op.shape.moved is not None
        }
        return replace(self, ways=dict(self.ways) | ways)


def space_of(ways: Ways, batches: int, workload: Workload) -> LayerSpace:
    """Return the space of a workload that is written out in so many batches."""
    system, copier, of_graph = ways.system, ways.copier, ways.of_graph(workload)
    sms = system.gpu.sms - copier.taken_sms
    copies = {
        op.name: min((way.copies[1] - way.sums for way in of_graph[op.name] if way.is_whole), default=0)
        for op in workload.ops
    }
    return LayerSpace(
        copier,
        batches,
        workload,
        of_graph,
        {op.name: ways.kernel_ticks(op) for op in workload.ops},
        copies,
        {op.name: of_kernel(system, op, sms) for op in workload.ops},
        {op.name: of_copies(system, op, copies[op.name]) for op in workload.ops},
        {pair: tuple(op.name for op in ops) for pair, ops in ways.following(workload).items()},
    )
