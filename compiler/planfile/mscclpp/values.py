"""What pieces of buffers hold while an execution plan of MSCCL++ is run, and the events that make it so."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir import Direction
from .document import Chunk, Op


@dataclass(frozen=True, slots=True)
class SymbolicValue:
    """Which piece of the tensor, whose parts of it, and the bits of the events that put it here."""

    piece: int
    parts: frozenset[int]
    made: int = 0


@dataclass(frozen=True, slots=True)
class Action:
    """A transfer in ``direction``, or (None) a sum of ``num_parts``; ``peer`` is None where a switch serves all."""

    direction: Direction | None = None
    peer: int | None = None
    reduce: bool = False
    num_parts: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """One step of a plan, on ``count`` pieces from ``piece`` on; ``known`` are the bits of all events before it."""

    rank: int
    block: int
    op: Op
    name: str
    piece: int
    count: int
    known: int
    action: Action


@dataclass(frozen=True, slots=True)
class At:
    """Operation ``number`` of a threadblock under way: at which GPU, and what surely happened before."""

    rank: int
    block: int
    number: int
    op: Op
    known: int


def runs(values: Sequence[SymbolicValue], per_block: int) -> list[tuple[int, int]]:
    """(first, count) of values that follow each other in one row block and have the same history."""
    found: list[tuple[int, int]] = []
    for at, value in enumerate(values):
        before = values[at - 1] if at else None
        joins = before is not None and (before.piece + 1, before.parts, before.made) == (
            value.piece,
            value.parts,
            value.made,
        )
        if joins and value.piece % per_block:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((at, 1))
    return found


def made_by(values: Sequence[SymbolicValue], bits: int) -> list[SymbolicValue]:
    """Return the values as the events of ``bits`` put them here."""
    return [SymbolicValue(value.piece, value.parts, bits) for value in values]


def all_made(values: Sequence[SymbolicValue]) -> int:
    """The bits of all events that made any of them."""
    made = 0
    for value in values:
        made |= value.made
    return made


def where(chunk: Chunk) -> str:
    """A chunk, in words."""
    return f"chunk {chunk.index} of buffer {chunk.buffer.value} of GPU {chunk.rank}"
