"""What is said of a step of a plan: its numbers, and the words around them.

Facts of one step hold integers; those of several steps that are flagged as one hold expressions in their place.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product, repeat
from math import prod
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

    ``to_all``: whether a switch copies or sums. ``adds``: whether a transfer or a kernel adds to what is there.
    ``summed``: of how many blocks, the first ones, a transfer takes what was summed so far, and not the rank's own
    part. ``flagged``: whether a get waits for a flag of its peer. ``kernel`` is the number of the kernel, ``parts``
    that of the parts of a sum.
    """

    kind: StepKind
    to_all: bool = False
    adds: bool = False
    summed: int = 0
    flagged: bool = False
    kernel: int = 0
    parts: int = 0


@dataclass(frozen=True, slots=True)
class Block(Generic[N]):
    """Rows and columns of the block that ``owner`` names, a code of a frame; an empty range is all of them.

    ``other`` is at the other end of a block that is passed on: whose rows those to a rank are, or whom those from one
    are for. Empty where that is the rank at hand.
    """

    role: Role
    owner: tuple[N, ...]
    rows: tuple[N, ...] = ()
    cols: tuple[N, ...] = ()
    other: tuple[N, ...] = ()

    def numbers(self) -> tuple[N, ...]:
        """All numbers, in the order in which ``with_numbers`` takes them."""
        return (*self.owner, *self.rows, *self.cols, *self.other)

    def with_numbers(self, left: Iterator[M]) -> "Block[M]":
        """Return the same with the next numbers of ``left``."""
        return Block(self.role, *(_take(left, each) for each in (self.owner, self.rows, self.cols, self.other)))


@dataclass(frozen=True, slots=True)
class Arrived(Generic[N]):
    """Something that must have arrived here: the block and the rank that it comes from; ``adds`` if it was added."""

    block: Block[N]
    source: tuple[N, ...]
    adds: bool = False


@dataclass(frozen=True, slots=True)
class StepFacts(Generic[N]):
    """A step: where it goes, what it takes, and what must be before.

    ``inner`` are the limits of slices of the inner dimension, empty for all of it. ``queue`` is the lane or the stream,
    empty where the first free engine is taken. ``steps`` are places of steps of this rank in its list.
    """

    action: StepAction
    peer: tuple[N, ...] = ()
    blocks: tuple[Block[N], ...] = ()
    inner: tuple[N, ...] = ()
    queue: tuple[N, ...] = ()
    steps: tuple[N, ...] = ()
    arrived: tuple[Arrived[N], ...] = ()

    @property
    def slices(self) -> Iterator[tuple[N, N]]:
        """The slices of the inner dimension."""
        return zip(self.inner[::2], self.inner[1::2], strict=True)

    def numbers(self) -> Iterator[tuple[Number, int, N]]:
        """Yield what each number counts, which number of a code it is, and the number, always in the same order."""
        yield from _codes(self.peer)
        for block in self.blocks:
            yield from _of_block(block)
        yield from ((Number.SIZE, 0, number) for number in self.inner)
        yield from ((Number.QUEUE, 0, number) for number in self.queue)
        yield from ((Number.STEP, 0, number) for number in self.steps)
        for arrived in self.arrived:
            yield from _of_block(arrived.block)
            yield from _codes(arrived.source)

    def with_numbers(self, numbers: Iterable[M]) -> "StepFacts[M]":
        """Return the same with other numbers, given in the order of ``numbers``."""
        left = iter(numbers)

        return StepFacts(
            self.action,
            _take(left, self.peer),
            tuple(each.with_numbers(left) for each in self.blocks),
            _take(left, self.inner),
            _take(left, self.queue),
            _take(left, self.steps),
            tuple(Arrived(each.block.with_numbers(left), _take(left, each.source), each.adds) for each in self.arrived),
        )

    def shape(self) -> "StepFacts[int]":
        """Return the same with every number 0: equal for steps of which the same is said."""
        return self.with_numbers(repeat(0))


def _codes(code: tuple[N, ...]) -> Iterator[tuple[Number, int, N]]:
    yield from ((Number.RANK, place, number) for place, number in enumerate(code))


def _of_block(block: Block[N]) -> Iterator[tuple[Number, int, N]]:
    yield from _codes(block.owner)
    yield from ((Number.SIZE, 0, number) for number in (*block.rows, *block.cols))
    yield from _codes(block.other)


def _take(left: Iterator[M], like: tuple[N, ...]) -> tuple[M, ...]:
    return tuple(next(left) for _ in like)


@dataclass(frozen=True, slots=True)
class Affine:
    """``base`` and so much more for each round of each loop, modulo ``modulus`` if that is not 0."""

    base: int
    coefficients: tuple[int, ...] = ()
    modulus: int = 0

    def at(self, rounds: Sequence[int]) -> int:
        """Return the number in these rounds of the loops, each counted from 0."""
        value = self.base + sum(each * round_ for each, round_ in zip(self.coefficients, rounds, strict=True))
        return value % self.modulus if self.modulus else value


@dataclass(frozen=True, slots=True)
class Tabled:
    """One of ``values`` for each round of the loop number ``axis``."""

    axis: int
    values: tuple[int, ...]

    def at(self, rounds: Sequence[int]) -> int:
        """Return the number in these rounds of the loops."""
        return self.values[rounds[self.axis]]


@dataclass(frozen=True, slots=True)
class InTurn:
    """``first`` to ``first + count - 1`` in turn, step after step; ``counts`` are the rounds of the loops."""

    first: int
    count: int
    start: int
    counts: tuple[int, ...]

    def at(self, rounds: Sequence[int]) -> int:
        """Return the number in these rounds of the loops."""
        place = 0
        for round_, count in zip(rounds, self.counts, strict=True):
            place = place * count + round_
        return self.first + (self.start + place) % self.count


Expression = Affine | Tabled | InTurn


def expression_for(values: Sequence[int], counts: tuple[int, ...], modulus: int = 0) -> Affine | Tabled | None:
    """Return the expression of ``values``, one for each round in the order of nested loops; None if there is none.

    >>> expression_for((0, 1, 8, 9), (2, 2))
    Affine(base=0, coefficients=(8, 1), modulus=0)
    >>> expression_for((0, 5, 7), (3,))
    Tabled(axis=0, values=(0, 5, 7))
    """
    strides = strides_of(counts)
    steps = [values[stride] - values[0] if count > 1 else 0 for stride, count in zip(strides, counts, strict=True)]
    affine = Affine(values[0], tuple(_nearest(step, modulus) for step in steps), modulus)
    rounds = list(product(*map(range, counts)))
    if all(affine.at(each) == value for each, value in zip(rounds, values, strict=True)):
        return affine
    for axis, (stride, count) in enumerate(zip(strides, counts, strict=True)):
        table = Tabled(axis, tuple(values[place * stride] for place in range(count)))
        if all(table.at(each) == value for each, value in zip(rounds, values, strict=True)):
            return table
    return None


def queue_for(values: Sequence[int], counts: tuple[int, ...]) -> Expression | None:
    """Return the expression of lanes or streams, which may also be dealt in turn."""
    first, count = min(values), len(set(values))
    turn = InTurn(first, count, values[0] - first, counts)
    rounds = product(*map(range, counts))
    in_turn = 1 < count < len(values) and all(
        turn.at(each) == value for each, value in zip(rounds, values, strict=True)
    )
    return turn if in_turn else expression_for(values, counts)


def depends_on(number: Expression, axis: int) -> bool:
    """Whether ``number`` differs between the rounds of that loop."""
    match number:
        case Affine():
            return bool(number.coefficients) and number.coefficients[axis] != 0
        case Tabled():
            return number.axis == axis
        case InTurn():
            return True


def fixed(number: Expression, axis: int, round_: int) -> Expression:
    """Return ``number`` in one round of that loop; what depends on other loops too stays as it is."""
    match number:
        case Tabled():
            return Affine(number.values[round_]) if number.axis == axis else number
        case Affine() if number.coefficients:
            rest = tuple(0 if place == axis else each for place, each in enumerate(number.coefficients))
            return Affine(number.base + number.coefficients[axis] * round_, rest, number.modulus)
        case _:
            return number


def composed(number: Expression, rounds: Sequence[Expression], counts: tuple[int, ...]) -> Affine | Tabled | None:
    """Return ``number`` with the rounds of its loops as expressions in the rounds of others; None if there is none."""
    others = product(*map(range, counts))
    values = [number.at([each.at(other) for each in rounds]) for other in others]
    return expression_for(values, counts, number.modulus if isinstance(number, Affine) else 0)


def strides_of(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many steps a round of each loop takes."""
    return tuple(prod(counts[axis + 1 :]) for axis in range(len(counts)))


def _nearest(step: int, modulus: int) -> int:
    """The step modulo ``modulus`` that is nearest to 0."""
    if not modulus:
        return step
    step %= modulus
    return step - modulus if step > modulus // 2 else step


Code = tuple[int, ...]
"""The numbers by which a rank names a rank."""


class Naming(Enum):
    """SHIFT: r+k, modulo n. NODES: nodes and places further. XOR: r with bits flipped. ABSOLUTE: the rank itself."""

    SHIFT = "shift"
    NODES = "nodes"
    XOR = "xor"
    ABSOLUTE = "absolute"


@dataclass(frozen=True, slots=True)
class Frame:
    """How ranks are named among ``num_ranks``; ``node_size`` ranks are a node where nodes count."""

    naming: Naming
    num_ranks: int
    node_size: int = 1

    @property
    def moduli(self) -> Code:
        """The modulus of each number of a code, 0 for none."""
        match self.naming:
            case Naming.SHIFT:
                return (self.num_ranks,)
            case Naming.NODES:
                return self.num_ranks // self.node_size, self.node_size
            case _:
                return (0,)

    def code(self, rank: int, other: int) -> Code:
        """Return how ``rank`` names the absolute rank ``other``."""
        match self.naming:
            case Naming.SHIFT:
                return ((other - rank) % self.num_ranks,)
            case Naming.NODES:
                nodes, size = self.moduli
                return (other // size - rank // size) % nodes, (other - rank) % size
            case Naming.XOR:
                return (rank ^ other,)
            case Naming.ABSOLUTE:
                return (other,)


def shared_frames(num_ranks: int, node_size: int) -> tuple[Frame, ...]:
    """Return the frames in which a plan may be the same for all ranks, the plainest first."""
    frames = [Frame(Naming.SHIFT, num_ranks)]
    if 1 < node_size < num_ranks and num_ranks % node_size == 0:
        frames.append(Frame(Naming.NODES, num_ranks, node_size))
    if num_ranks & (num_ranks - 1) == 0:
        frames.append(Frame(Naming.XOR, num_ranks))
    return tuple(frames)
