"""Symbolic contents of buffers while an execution plan of MSCCL++ runs, and the events that write them."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir import Direction
from .document import Chunk, Op


@dataclass(frozen=True, slots=True)
class SymbolicValue:
    """A piece of the tensor, the ranks whose parts are summed in it, and the bits of the events that wrote it here."""

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
    """One step of a plan, on ``count`` pieces from ``piece`` on; ``known`` are the bits of all events before it.

    It is of operation ``number`` of threadblock ``block``.
    """

    rank: int
    block: int
    number: int
    op: Op
    name: str
    piece: int
    count: int
    known: int
    action: Action


@dataclass(frozen=True, slots=True)
class RunningOp:
    """Operation ``number`` of a threadblock as it runs; ``known`` are the bits of events that happened before."""

    rank: int
    block: int
    number: int
    op: Op
    known: int


def runs(values: Sequence[SymbolicValue], per_block: int) -> list[tuple[int, int]]:
    """Return (first, count) of runs: consecutive values in one row block, with the same parts and events."""
    ranges: list[tuple[int, int]] = []
    for index, value in enumerate(values):
        before = values[index - 1] if index else None
        joins = before is not None and (before.piece + 1, before.parts, before.made) == (
            value.piece,
            value.parts,
            value.made,
        )
        if joins and value.piece % per_block:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + 1)
        else:
            ranges.append((index, 1))
    return ranges


def made_by(values: Sequence[SymbolicValue], bits: int) -> list[SymbolicValue]:
    """Return the values as written by the events of ``bits``."""
    return [SymbolicValue(value.piece, value.parts, bits) for value in values]


def all_made(values: Sequence[SymbolicValue]) -> int:
    """Return the bits of all events that wrote any of the values."""
    made = 0
    for value in values:
        made |= value.made
    return made


def where(chunk: Chunk) -> str:
    """Describe a chunk for messages."""
    return f"chunk {chunk.index} of buffer {chunk.buffer.value} of GPU {chunk.rank}"
