"""Structures that need no search: every template with usual numbers of pieces, engines and streams.

They stand beside the winners of searches: the library then has schedules for fabrics and patterns without a search.
"""

from collections.abc import Iterator
from itertools import product

from ...compiler.ir import Choice, EngineChoice, EngineKind
from ...compiler.templates import BY_NAME, TEMPLATES, Template
from .structure import Structure

PIECES = (1, 2, 4, 8)
COPY_SMS, ENGINES_PER_PEER = (8, 32), (1.0, 2.0)
STREAMS, WAVES, SUM_STREAMS = (1, 2), (1, 2), (1, 4)
ALGORITHMS = ("", "double_ring", "direct")


def catalogue(*, consumes: bool) -> tuple[Structure, ...]:
    """Return the structures of all templates that a search goes through, for kernels after or before a collective."""
    templates = (template for template in (*TEMPLATES, BY_NAME["pipelined"]) if not template.has("parts"))
    return tuple(structure for template in templates for structure in _of_template(template, sums=not consumes))


def _of_template(template: Template, *, sums: bool) -> Iterator[Structure]:
    pieces = PIECES if template.cuts_shards else (1,)
    forwards = template.has("waves")
    streams = STREAMS if template.has("streams") and not forwards else (1,)
    algorithms, waves = (ALGORITHMS, WAVES) if forwards else (("",), (1,))
    parallel = SUM_STREAMS if forwards and sums else (1,)
    knobs = product(pieces, streams, algorithms, waves, parallel, _engines())
    for count, stream, algorithm, wave, summed, (engine, per_peer) in knobs:
        choice = Choice(template.name, 1, engine, stream, algorithm=algorithm, waves=wave, sums=summed)
        yield Structure(choice, count, per_peer, 0.0, ())


def _engines() -> Iterator[tuple[EngineChoice, float]]:
    yield from ((EngineChoice(EngineKind.SM, sms), 0.0) for sms in COPY_SMS)
    yield from ((EngineChoice(EngineKind.DMA, 1), per_peer) for per_peer in ENGINES_PER_PEER)
