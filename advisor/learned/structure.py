"""The structure of a schedule without sizes: what carries over from one scenario to another.

A structure has shares where a choice has rows, columns and numbers of pieces. ``fitted`` makes it a choice of another
scenario: shares are rounded to the grain, and what the scenario cannot run is left out.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise, product
from statistics import fmean

import numpy as np
import numpy.typing as npt

from ...compiler.ir import CopyProtocol, Direction, EngineChoice, EngineKind, EngineMode, Kernels, OpCase, OpChoice
from ...compiler.planning.build import reject_choice
from ...compiler.templates import BASELINE, BY_NAME, TEMPLATES, Template
from ..bespoke.batches import RowBatch, batches_of, lengths_of, whole_rows, with_batches

Shares = tuple[float, ...]

# Rows of parts are multiples of the coarsest of these that keeps the smallest part: sides of tiles down to the smallest
# one, single rows.
GRAINS = (128, 64, 32, 16, 1)
KEPT_SHARE = 0.75
# No structure has more pieces, engines or batches.
MAX_COUNT = 1024


@dataclass(frozen=True, slots=True)
class BatchShape:
    """Shares of a batch: of the own block, of the block of each peer, and of the dimensions that its cuts divide.

    ``remote`` has one share if all peers are alike.
    """

    own: float
    remote: Shares
    slices: Shares = ()
    columns: Shares = ()


@dataclass(frozen=True, slots=True)
class Structure:
    """A choice without sizes: ``knobs`` has what is the same everywhere, with one chunk and without parts.

    ``pieces`` are chunks of each rank. ``engines_per_peer`` replaces the number of copy engines and ``lanes_per_peer``
    that of lanes; SMs that copy are a number.
    """

    knobs: OpChoice
    pieces: int
    engines_per_peer: float
    lanes_per_peer: float
    batches: tuple[BatchShape, ...]


def is_sound(structure: Structure) -> bool:
    """Whether a structure that was read from a file has a known template, and numbers as any structure has them."""
    knobs = structure.knobs
    counts = (structure.pieces, knobs.engine.count, knobs.streams, knobs.waves, knobs.sums, len(structure.batches) + 1)
    shares = [
        share
        for batch in structure.batches
        for share in (batch.own, *batch.remote, *batch.slices, *batch.columns, 1.0 if batch.remote else math.inf)
    ]
    return (
        knobs.template in BY_NAME
        and all(1 <= count <= MAX_COUNT for count in counts)
        and all(0 <= share <= 1 for share in shares)
        and all(0 <= each <= MAX_COUNT for each in (structure.engines_per_peer, structure.lanes_per_peer))
    )


def structure_of(scenario: OpCase, choice: OpChoice) -> Structure:
    """Return the structure of a choice of ``scenario``."""
    peers = scenario.num_ranks - 1
    knobs = replace(choice, chunks=1, lanes=0, parts=(), slices=(), columns=())
    batches = _shapes(scenario, choice) if choice.parts else ()
    pieces = max(1, choice.chunks // scenario.num_ranks)
    return Structure(knobs, pieces, choice.engine.count / peers, choice.lanes / peers, batches)


def _shapes(scenario: OpCase, choice: OpChoice) -> tuple[BatchShape, ...]:
    whole, lengths = whole_rows(scenario), lengths_of(scenario)
    shapes = []
    for batch in batches_of(choice):
        own, *remote = (rows / max(1, of) for rows, of in zip(batch.rows, whole, strict=True))
        alike = tuple(remote[:1]) if max(remote) - min(remote) < 1e-9 else tuple(remote)
        slices = tuple(size / lengths.inner for size in batch.slices)
        shapes.append(BatchShape(own, alike, slices, tuple(size / lengths.cols for size in batch.columns)))
    return tuple(shapes)


def fitted(structure: Structure, scenario: OpCase) -> OpChoice | None:
    """Return the choice of ``scenario`` with this structure; None if the scenario cannot run one."""
    return next((choice for choice in _choices(structure, scenario) if reject_choice(scenario, choice) is None), None)


def _choices(structure: Structure, scenario: OpCase) -> Iterator[OpChoice]:
    """Yield choices with this structure, from coarse parts, or the number of pieces, to others that may be legal."""
    peers = scenario.num_ranks - 1
    engine = _engine(structure, scenario)
    lanes = min(engine.count, round(structure.lanes_per_peer * peers))
    choice = replace(structure.knobs, engine=engine, lanes=lanes, chunks=scenario.num_ranks)
    if not structure.batches:
        pieces = structure.pieces
        for each in dict.fromkeys((pieces, *(1 << k for k in range(pieces.bit_length() - 1, -1, -1)))):
            yield replace(choice, chunks=each * scenario.num_ranks)
        return
    least = _least_rows(structure, scenario)
    for grain in GRAINS:
        if KEPT_SHARE * grain <= least or grain == 1:
            cut = with_batches(choice, _batches(structure, scenario, grain))
            whole = len(cut.parts) == 1 and not cut.slices and not cut.columns
            if cut.parts and not whole:  # shares of nothing leave none, and one whole batch is serial
                yield cut


def _least_rows(structure: Structure, scenario: OpCase) -> float:
    """Return the rows of the smallest part of a block."""
    own, *remote = whole_rows(scenario)
    rows = (own * shape.own for shape in structure.batches)
    others = (share * max(remote) for shape in structure.batches for share in shape.remote)
    return min((count for count in (*rows, *others) if count > 0), default=1.0)


def _engine(structure: Structure, scenario: OpCase) -> EngineChoice:
    engine, dma = structure.knobs.engine, scenario.gpu.dma
    if engine.kind is EngineKind.SM:
        return replace(engine, count=scenario.gpu.sms) if engine.mode is EngineMode.TILES else engine
    return replace(engine, count=max(1, min(dma.engines, round(structure.engines_per_peer * (scenario.num_ranks - 1)))))


def _batches(structure: Structure, scenario: OpCase, grain: int) -> list[RowBatch]:
    whole, lengths = whole_rows(scenario), lengths_of(scenario)
    peers = len(whole) - 1
    remote = [_by_peer(shape.remote, peers) for shape in structure.batches]
    columns = [_split([shape.own for shape in structure.batches], whole[0], grain)]
    split = cache(partial(_split, grain=grain))  # most peers are alike
    columns += [split(tuple(shares[k] for shares in remote), whole[1 + k]) for k in range(peers)]
    return [
        RowBatch(rows, _cut(shape.slices, lengths.inner, lengths.step), _cut(shape.columns, lengths.cols, lengths.step))
        for shape, rows in zip(structure.batches, zip(*columns, strict=True), strict=True)
    ]


def _by_peer(shares: Shares, peers: int) -> Shares:
    """Return the share of each of ``peers``; the mean where they are those of another number of peers."""
    return shares if len(shares) == peers else (fmean(shares),) * peers


def _split(shares: Sequence[float], total: int, grain: int) -> list[int]:
    """Split ``total`` in proportion to ``shares``, in multiples of ``grain`` except for the last one that has any."""
    passed, edges, of = 0.0, [0], sum(shares) or 1.0
    for share in shares:
        passed += share
        is_all = passed >= of * (1 - 1e-9)
        edges.append(total if is_all else max(edges[-1], min(total, round(total * passed / of / grain) * grain)))
    return [high - low for low, high in pairwise(edges)]


def _cut(shares: Shares, total: int, step: int) -> tuple[int, ...]:
    sizes = tuple(size for size in _split(shares, total, step) if size) if shares else ()
    return sizes if len(sizes) > 1 else ()


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

    ``crowd`` [P] is how many pieces of a structure are merged into one entry. ``knobs`` is [P, K], by ``KNOBS``.
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


PIECES = (1, 2, 4, 8)
COPY_SMS, ENGINES_PER_PEER = (8, 32), (1.0, 2.0)
STREAMS, WAVES, SUM_STREAMS = (1, 2), (1, 2), (1, 4)
ALGORITHMS = ("", "double_ring", "direct")
# Of plain bespoke schedules: SMs that copy, streams, and in how many parts blocks are, or what cuts divide.
PLAIN_SMS, PLAIN_STREAMS = (16, 32), (1, 2, 3)
EQUAL_PARTS, GROWING_PARTS, PLAIN_CUTS = (2, 3, 4, 6), (2, 3, 4), (2, 3, 4, 6)


def catalogue(*, consumes: bool) -> tuple[Structure, ...]:
    """Return the structures of templates and of plain bespoke schedules, for kernels after or before a collective."""
    templates = (template for template in (*TEMPLATES, BY_NAME["pipelined"]) if not template.has("parts"))
    usual = (structure for template in templates for structure in _of_template(template, sums=not consumes))
    return (*usual, *_bespoke(consumes=consumes))


def _of_template(template: Template, *, sums: bool) -> Iterator[Structure]:
    pieces = PIECES if template.cuts_shards else (1,)
    forwards = template.has("waves")
    streams = STREAMS if template.has("streams") and not forwards else (1,)
    algorithms, waves = (ALGORITHMS, WAVES) if forwards else (("",), (1,))
    parallel = SUM_STREAMS if forwards and sums else (1,)
    knobs = product(pieces, streams, algorithms, waves, parallel, _engines(COPY_SMS))
    for count, stream, algorithm, wave, summed, (engine, per_peer) in knobs:
        choice = OpChoice(template.name, 1, engine, stream, algorithm=algorithm, waves=wave, sums=summed)
        yield Structure(choice, count, per_peer, 0.0, ())


def _engines(copy_sms: Sequence[int]) -> Iterator[tuple[EngineChoice, float]]:
    yield from ((EngineChoice(EngineKind.SM, sms), 0.0) for sms in copy_sms)
    yield from ((EngineChoice(EngineKind.DMA, 1), per_peer) for per_peer in ENGINES_PER_PEER)


def _bespoke(*, consumes: bool) -> Iterator[Structure]:
    """Yield bespoke schedules whose batches are equal, grow or are cut, by usual engines in usual streams.

    Batches before a collective are those after one in reverse: what is small is sent last in place of waited for first.
    """
    for batches, streams, (engine, per_peer) in product(_usual_batches(consumes), PLAIN_STREAMS, _engines(PLAIN_SMS)):
        ordered = batches if consumes else batches[::-1]
        yield Structure(OpChoice("bespoke", 1, engine, streams), 1, per_peer, 0.0, ordered)


def _usual_batches(consumes: bool) -> Iterator[tuple[BatchShape, ...]]:
    """Yield batches in the order of kernels after a collective: rows of the own block need no data of others."""

    def batch(own: float, remote: float, cuts: int = 1) -> BatchShape:
        parts = (1 / cuts,) * cuts if cuts > 1 else ()
        return BatchShape(own, (remote,), *((parts, ()) if consumes else ((), parts)))

    def remote(shares: Shares) -> list[BatchShape]:
        return [batch(0.0, share) for share in shares]

    own = batch(1.0, 0.0)
    yield from ((batch(1.0, 1.0, cuts),) for cuts in PLAIN_CUTS)
    yield from ((own, batch(0.0, 1.0, cuts)) for cuts in (1, *PLAIN_CUTS[:2]))
    yield from ((batch(share, 0.0), batch(1 - share, 1.0)) for share in (0.25, 0.5))
    for shares in (*map(_equal, EQUAL_PARTS), *map(_growing, GROWING_PARTS)):
        first, *rest = remote(shares)
        yield (own, first, *rest)
        yield (first, own, *rest)
    yield from (tuple(batch(share, share) for share in _growing(parts)) for parts in GROWING_PARTS)


def _equal(parts: int) -> Shares:
    return (1 / parts,) * parts


def _growing(parts: int) -> Shares:
    """Return shares of which each is twice the one before."""
    return tuple((1 << part) / ((1 << parts) - 1) for part in range(parts))
