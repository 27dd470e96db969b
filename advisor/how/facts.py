"""What is said of a step of a plan: its numbers, and the words around them.

Facts of one step hold integers; those of several steps that are told as one hold expressions in their place.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import repeat
from typing import Generic, TypeVar

N = TypeVar("N")
M = TypeVar("M")


class Role(Enum):
    """Whose rows a block is: those that rank b owns or whose sum it gets, that go to b, that came from b, or all."""

    OF = "of"
    TO = "to"
    FROM = "from"
    ALL = "all"


class StepKind(Enum):
    """What a step does; LIBRARY stands for all that one call of the library does."""

    PUT = "put"
    GET = "get"
    KERNEL = "kernel"
    SUM = "sum"
    LIBRARY = "library"


class Number(Enum):
    """What a number of a step counts."""

    RANK = "rank"
    SIZE = "size"
    QUEUE = "queue"
    STEP = "step"


@dataclass(frozen=True, slots=True)
class StepAction:
    """The words of a step, without numbers.

    ``to_all`` is a transfer that a switch copies or sums, ``adds`` a transfer that adds, a kernel that adds to what is
    there. ``summed`` is a transfer that takes what was summed so far and not the rank's own part. ``kernel`` is the
    number of the kernel, ``parts`` the parts of a sum.
    """

    kind: StepKind
    to_all: bool = False
    adds: bool = False
    summed: bool = False
    kernel: int = 0
    parts: int = 0


@dataclass(frozen=True, slots=True)
class Block(Generic[N]):
    """Rows and columns of the block that ``owner`` names, a code of a frame; an empty range is all of them."""

    role: Role
    owner: tuple[N, ...]
    rows: tuple[N, ...] = ()
    cols: tuple[N, ...] = ()


@dataclass(frozen=True, slots=True)
class Landed(Generic[N]):
    """Something that must have landed here: the block and the rank that it comes from; ``adds`` if it was added."""

    block: Block[N]
    source: tuple[N, ...]
    adds: bool = False


@dataclass(frozen=True, slots=True)
class StepFacts(Generic[N]):
    """A step: where it goes, what it takes, and what must be before.

    ``inner`` is the slice of the inner dimension, empty for all of it. ``queue`` is the lane or the stream, empty where
    the first free engine is taken. ``steps`` are places of steps of this rank in its list.
    """

    action: StepAction
    peer: tuple[N, ...] = ()
    blocks: tuple[Block[N], ...] = ()
    inner: tuple[N, ...] = ()
    queue: tuple[N, ...] = ()
    steps: tuple[N, ...] = ()
    landed: tuple[Landed[N], ...] = ()

    def numbers(self) -> Iterator[tuple[Number, int, N]]:
        """Yield what each number counts, which number of a code it is, and the number, always in the same order."""
        yield from _codes(self.peer)
        for block in self.blocks:
            yield from _of_block(block)
        yield from ((Number.SIZE, 0, number) for number in self.inner)
        yield from ((Number.QUEUE, 0, number) for number in self.queue)
        yield from ((Number.STEP, 0, number) for number in self.steps)
        for landed in self.landed:
            yield from _of_block(landed.block)
            yield from _codes(landed.source)

    def with_numbers(self, numbers: Iterable[M]) -> "StepFacts[M]":
        """Return the same with other numbers, given in the order of ``numbers``."""
        left = iter(numbers)

        def block(old: Block[N]) -> Block[M]:
            return Block(old.role, _take(left, old.owner), _take(left, old.rows), _take(left, old.cols))

        return StepFacts(
            self.action,
            _take(left, self.peer),
            tuple(block(each) for each in self.blocks),
            _take(left, self.inner),
            _take(left, self.queue),
            _take(left, self.steps),
            tuple(Landed(block(each.block), _take(left, each.source), each.adds) for each in self.landed),
        )

    def shape(self) -> "StepFacts[int]":
        """Return the same with every number 0: equal for steps of which the same is said."""
        return self.with_numbers(repeat(0))


def _codes(code: tuple[N, ...]) -> Iterator[tuple[Number, int, N]]:
    yield from ((Number.RANK, place, number) for place, number in enumerate(code))


def _of_block(block: Block[N]) -> Iterator[tuple[Number, int, N]]:
    yield from _codes(block.owner)
    yield from ((Number.SIZE, 0, number) for number in (*block.rows, *block.cols))


def _take(left: Iterator[M], like: tuple[N, ...]) -> tuple[M, ...]:
    return tuple(next(left) for _ in like)
