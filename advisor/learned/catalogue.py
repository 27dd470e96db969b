"""Structures that need no search: every template with usual knobs, and plain bespoke schedules.

They stand beside the winners of searches: the library then has schedules for fabrics and patterns without a search.
"""

from collections.abc import Iterator, Sequence
from itertools import product

from ...compiler.ir import EngineChoice, EngineKind, OpChoice
from ...compiler.templates import BY_NAME, TEMPLATES, Template
from .structure import BatchShape, Shares, Structure

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
    for batches, streams, (engine, per_peer) in product(_batches(consumes), PLAIN_STREAMS, _engines(PLAIN_SMS)):
        ordered = batches if consumes else batches[::-1]
        yield Structure(OpChoice("bespoke", 1, engine, streams), 1, per_peer, 0.0, ordered)


def _batches(consumes: bool) -> Iterator[tuple[BatchShape, ...]]:
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
