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
# Templates with a kernel for each peer, and the number of peers in a node of 8.
BY_PEER, USUAL_PEERS = ("hetero_unfused_1d", "shard_p2p"), 7

KNOBS = (
    "log_pieces", "num_batches", "num_slices", "num_bands", "first_own", "first_remote", "first_cut",
    "last_own", "last_remote", "last_cut", "copy_sms", "engines_per_peer", "lanes_per_peer", "streams",
    "persistent", "ll", "ll128", "get", "serial", "pipelined", "ring", "double_ring", "direct",
    "waves", "sums", "pieces_of_shard", "uneven",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shapes:
    """P structures: ``own``, ``remote`` and ``cut`` [P, M] are shares of each piece, 0 after the last one.

    ``knobs`` is [P, K], by ``KNOBS``. ``consumes`` [P] is whether the structure is of kernels after a collective.
    """

    own: FloatArray
    remote: FloatArray
    cut: FloatArray
    knobs: FloatArray
    consumes: npt.NDArray[np.bool_]

    def knob(self, name: str) -> FloatArray:
        """Return one knob of every structure, [P]."""
        return np.asarray(self.knobs[:, KNOBS.index(name)])

    @classmethod
    def of(cls, structures: Sequence[Structure], consumes: Sequence[bool]) -> "Shapes":
        """Return the arrays of ``structures``."""
        pieces = [_pieces(one, after) for one, after in zip(structures, consumes, strict=True)]
        shares = np.zeros((3, len(pieces), MAX_PIECES))
        for row, each in enumerate(pieces):
            shares[:, row, : len(each)] = np.transpose(each)
        knobs = np.array([_knobs(*each) for each in zip(structures, pieces, strict=True)]).reshape(-1, len(KNOBS))
        own, remote, cut = shares
        return cls(own, remote, cut, knobs, np.array(consumes, np.bool_))


def _pieces(structure: Structure, consumes: bool) -> list[Piece]:
    """Return the pieces in the order in which they run."""
    template, count = structure.knobs.template, structure.pieces
    if structure.batches:
        return _merged([
            (batch.own, fmean(batch.remote), share)
            for batch in structure.batches
            for share in (batch.slices if consumes else batch.columns) or (1.0,)
        ])  # fmt: skip
    if template == BASELINE.name:
        return [WHOLE]
    if template == "uniform_fused_2d":
        return _merged([(1.0, 1.0, 1 / count)] * count)
    if template in ("uniform_fused_1d", "pipelined"):
        return _merged([(1 / count, 1 / count, 1.0)] * count)
    kernels = count * (USUAL_PEERS if template in BY_PEER else 1)
    remote, own = _merged([(0.0, 1 / kernels, 1.0)] * kernels, MAX_PIECES - 1), [(1.0, 0.0, 1.0)]
    return [*own, *remote] if consumes else [*remote, *own]


def _merged(pieces: list[Piece], most: int = MAX_PIECES) -> list[Piece]:
    """Return at most ``most`` pieces: of more, neighbours as one."""
    if len(pieces) <= most:
        return pieces
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
        pipelined and knobs.algorithm in ("", "ring"),
        pipelined and knobs.algorithm == "double_ring",
        pipelined and knobs.algorithm == "direct",
        knobs.waves,
        knobs.sums,
        structure.pieces,
        any(len(batch.remote) > 1 for batch in batches),
    ]
