"""Structures of a library as arrays: the pieces that follow each other in each of them, and its knobs as numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import numpy.typing as npt

from ...compiler.ir import CopyProtocol, Direction, EngineKind, Kernels
from ...compiler.templates import BASELINE
from .structure import Structure

FloatArray = npt.NDArray[np.float64]
Piece = tuple[float, float, float]
"""Share of the own block, share of the others, and share of the dimension that cuts divide."""

# Most pieces of a structure that are followed; of one with more, neighbours are taken together.
MAX_PIECES = 16
WHOLE: Piece = (1.0, 1.0, 1.0)
# Templates with a kernel for each peer.
BY_PEER = ("hetero_unfused_1d", "shard_p2p")

KNOBS = (
    "log_pieces", "num_batches", "num_slices", "num_bands", "first_own", "first_remote", "first_cut",
    "last_own", "last_remote", "last_cut", "copy_sms", "engines_per_peer", "lanes_per_peer", "streams",
    "persistent", "ll", "ll128", "get", "serial", "pipelined", "ring", "double_ring", "direct",
    "waves", "sums", "pieces_of_shard", "uneven", "one_by_one", "hops",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shapes:
    """P structures: ``own``, ``remote`` and ``cut`` [P, M] are shares of each piece, 0 after the last one.

    ``crowd`` [P] is how many of its pieces a structure has for each one here. ``knobs`` is [P, K], by ``KNOBS``.
    ``consumes`` is whether the structures are of kernels after a collective.
    """

    own: FloatArray
    remote: FloatArray
    cut: FloatArray
    crowd: FloatArray
    knobs: FloatArray
    consumes: bool

    def knob(self, name: str) -> FloatArray:
        """Return one knob of every structure, [P]."""
        return np.asarray(self.knobs[:, KNOBS.index(name)])

    @classmethod
    def of(cls, structures: Sequence[Structure], num_ranks: int, *, consumes: bool) -> "Shapes":
        """Return the arrays of ``structures`` on ``num_ranks`` ranks."""
        pieces = [_pieces(structure, num_ranks, consumes) for structure in structures]
        merged = [_merged(each, consumes) for each in pieces]
        shares = np.zeros((3, len(pieces), MAX_PIECES))
        for row, each in enumerate(merged):
            shares[:, row, : len(each)] = np.transpose(each)
        crowd = np.array([len(all_) / len(some) for all_, some in zip(pieces, merged, strict=True)])
        rows = [[*_knobs(*each), _hops(each[0], num_ranks)] for each in zip(structures, pieces, strict=True)]
        knobs = np.array(rows, np.float64).reshape(-1, len(KNOBS))
        own, remote, cut = shares
        return cls(own, remote, cut, crowd, knobs, consumes)


def _pieces(structure: Structure, num_ranks: int, consumes: bool) -> list[Piece]:
    """Return the pieces in the order in which they run."""
    template, count = structure.knobs.template, structure.pieces
    if structure.batches:
        return [
            (batch.own, fmean(batch.remote), share)
            for batch in structure.batches
            for share in (batch.slices if consumes else batch.columns) or (1.0,)
        ]
    if template == BASELINE.name:
        return [WHOLE]
    if template == "uniform_fused_2d":
        return [(1.0, 1.0, 1 / count)] * count
    if template == "uniform_fused_1d":
        return [(1 / count, 1 / count, 1.0)] * count
    kernels = math.ceil(count * _hops(structure, num_ranks) / structure.knobs.waves)
    remote, own = [(0.0, 1 / kernels, 1.0)] * kernels, (1.0, 0.0, 1.0)
    return [own, *remote] if consumes else [*remote, own]


def _hops(structure: Structure, num_ranks: int) -> int:
    """Return how many kernels follow each other for each piece of a shard, beside that of the own block."""
    template, algorithm = structure.knobs.template, structure.knobs.algorithm
    if template in BY_PEER or algorithm == "ring" or (template == "pipelined" and not algorithm):
        return num_ranks - 1
    return num_ranks // 2 if algorithm == "double_ring" else 1


def _merged(pieces: list[Piece], consumes: bool) -> list[Piece]:
    """Return at most ``MAX_PIECES`` pieces: of more, neighbours as one, but the one that no data hold up by itself."""
    if len(pieces) <= MAX_PIECES:
        return pieces
    apart = 0 if consumes else -1
    if pieces[apart][1]:
        return _grouped(pieces, MAX_PIECES)
    grouped = _grouped(pieces[1:] if consumes else pieces[:-1], MAX_PIECES - 1)
    return [pieces[0], *grouped] if consumes else [*grouped, pieces[-1]]


def _grouped(pieces: list[Piece], most: int) -> list[Piece]:
    groups = np.array_split(np.array(pieces), most)
    return [(float(own), float(remote), min(1.0, float(cut))) for own, remote, cut in map(_together, groups)]


def _together(group: FloatArray) -> FloatArray:
    own, remote, cut = group.T
    alike = np.ptp(cut) == 0 and cut[0] == 1.0
    return np.array([own.sum(), remote.sum(), 1.0] if alike else [own.mean(), remote.mean(), cut.sum()])


def _knobs(structure: Structure, pieces: list[Piece]) -> list[float]:
    knobs, batches = structure.knobs, structure.batches
    by_sm, options = knobs.engine.kind is EngineKind.SM, knobs.tactics
    pipelined = knobs.template == "pipelined"
    return [
        math.log(len(pieces)),
        len(batches),
        max((len(batch.slices) for batch in batches), default=0),
        max((len(batch.columns) for batch in batches), default=0),
        *pieces[0],
        *pieces[-1],
        knobs.engine.count if by_sm else 0,
        0 if by_sm else structure.engines_per_peer,
        structure.lanes_per_peer,
        knobs.streams,
        options.kernel is Kernels.PERSISTENT,
        options.protocol is CopyProtocol.LL,
        options.protocol is CopyProtocol.LL128,
        options.direction is Direction.GET,
        knobs.template == BASELINE.name,
        pipelined,
        knobs.algorithm == "ring" or (pipelined and not knobs.algorithm),
        knobs.algorithm == "double_ring",
        pipelined and knobs.algorithm == "direct",
        knobs.waves,
        knobs.sums,
        structure.pieces,
        any(len(batch.remote) > 1 for batch in batches),
        knobs.template == "shard_p2p",
    ]
