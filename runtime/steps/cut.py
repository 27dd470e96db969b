"""Passes of a layer in batches of its rows and its experts in groups: whole tensors as pieces, and pieces as whole.

Rows of a rank are those of its batches, one below the other. A tensor whose rows every rank of a group has is that of
all ranks one below the other: in it the batches of each rank lie together, and those of one batch lie apart.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...compiler.ir import AttentionShape, GroupedGemmShape, Shard, Workload, WorkloadCut, in_batch
from ..memory import Array
from ..operands import MODULUS
from .work import GroupWork


@dataclass(frozen=True, slots=True)
class CutWork:
    """What is carried out of a pass that is cut: ``work`` has ops and tensors of each batch and group.

    ``whole`` is the pass without cuts, and ``batched`` are its tensors of which each batch has a piece.
    """

    cut: WorkloadCut
    whole: Workload
    batched: frozenset[str]
    work: GroupWork

    @property
    def tensors(self) -> frozenset[str]:
        """The names of all whole tensors."""
        return frozenset(each.name for each in self.whole.tensors)

    @property
    def mixes_rows(self) -> bool:
        """Whether a kernel or an exchange takes rows of one batch or group together, and not row by row."""
        shapes = [op.shape for op in self.whole.ops]
        kernels = (each.kernel for each in shapes)
        return any(each.pattern.exchanges for each in shapes) or any(
            isinstance(each, AttentionShape | GroupedGemmShape) for each in kernels
        )

    def names(self, name: str) -> list[list[str]]:
        """The pieces of a tensor, by batch and by group; of what ranks sum behind the last batch that of this alone."""
        workload = self.work.workload
        known, adding = {each.name for each in workload.tensors}, {op.name for op in workload.ops if op.added}
        batches = [in_batch(name, k) for k in range(self.cut.batches)] if name in self.batched else [name]
        if any(made == batches[-1] and maker in adding for made, maker, _ in workload.results):
            batches = batches[-1:]
        in_groups = [[in_batch(each, k) for k in range(len(self.cut.groups))] for each in batches]
        return [
            groups if groups and groups[0] in known else [each] for each, groups in zip(batches, in_groups, strict=True)
        ]

    def pieces(self, names: Iterable[str]) -> list[str]:
        """The pieces of all these tensors."""
        return [piece for name in names for groups in self.names(name) for piece in groups]

    def apart(self, name: str, values: Array) -> dict[str, Array]:
        """Return the pieces of what a rank has of a tensor."""
        found, names = dict[str, Array](), self.names(name)
        each = values.reshape(self._blocks(name), len(names), -1, values.shape[1])
        for number, groups in enumerate(names):
            own = each[:, number].reshape(-1, values.shape[1])
            ends = np.cumsum([self.work.shape_of(piece)[0] for piece in groups])
            found |= zip(groups, np.split(own, ends[:-1]), strict=True)
        return found

    def together(self, name: str, pieces: Mapping[str, Array]) -> Array:
        """Return what a rank has of a tensor, of its pieces: rows of batches, or the sum of gradients of a weight."""
        each = [np.concatenate([pieces[piece] for piece in groups]) for groups in self.names(name)]
        if self._is_summed(name):
            return np.asarray(sum(each) % MODULUS)
        stacked = np.stack([own.reshape(self._blocks(name), -1, own.shape[1]) for own in each], axis=1)
        return stacked.reshape(-1, each[0].shape[1])

    def computed(
        self, known: list[dict[str, Array]], compute: Callable[[list[dict[str, Array]]], list[dict[str, Array]]]
    ) -> list[dict[str, Array]]:
        """Return what groups have, and what is computed of it piece by piece, whole."""
        names = self.tensors & {name for name, _, _ in self.whole.results}
        for own, made in zip(known, compute([self._all_apart(each) for each in known]), strict=True):
            own |= {name: self._all_together(name, made) for name in names}
        return known

    def _all_apart(self, known: Mapping[str, Array]) -> dict[str, Array]:
        """Return the pieces of whole tensors, as all ranks of a group have them together."""
        ranks, found = self.work.num_ranks, dict[str, Array]()
        for name in known.keys() & self.tensors:
            shard = self.whole.tensor(name).shard
            by_rank = [self.apart(name, each) for each in split(known[name], shard, ranks)]
            found |= {piece: joined([each[piece] for each in by_rank], shard) for piece in by_rank[0]}
        return found

    def _all_together(self, name: str, known: Mapping[str, Array]) -> Array:
        """Return a whole tensor of such pieces."""
        ranks, shard, names = self.work.num_ranks, self.whole.tensor(name).shard, self.pieces([name])
        by_rank = zip(*(split(known[piece], shard, ranks) for piece in names), strict=True)
        return joined([self.together(name, dict(zip(names, each, strict=True))) for each in by_rank], shard)

    def shape_of(self, name: str) -> tuple[int, int]:
        """Rows and columns that a rank has of a tensor, all its pieces."""
        sizes = [[self.work.shape_of(piece) for piece in groups] for groups in self.names(name)]
        rows = [sum(height for height, _ in groups) for groups in sizes]
        return rows[0] if self._is_summed(name) else sum(rows), sizes[0][0][1]

    def _is_summed(self, name: str) -> bool:
        """Whether batches add up to a tensor: each piece is as large as all of it."""
        pieces = [self.work.workload.tensor(piece) for piece in self.names(name)[0]]
        return name in self.batched and sum(each.rows for each in pieces) == self.whole.tensor(name).rows

    def _blocks(self, name: str) -> int:
        """Of how many ranks one has rows of a tensor."""
        has_all = self.whole.tensor(name).shard in (Shard.NONE, Shard.COLS)
        return self.work.num_ranks if has_all and name in self.batched else 1


def split(values: Array, shard: Shard, ranks: int) -> tuple[Array, ...]:
    """What each of ``ranks`` has of a tensor."""
    if shard is Shard.NONE:
        return (values,) * ranks
    return tuple(np.split(values, ranks, axis=1 if shard is Shard.COLS else 0))


def joined(parts: Sequence[Array], shard: Shard) -> Array:
    """The tensor of which ranks have ``parts``."""
    if shard is Shard.NONE:
        return parts[0]
    return np.concatenate(parts, axis=1 if shard is Shard.COLS else 0)
