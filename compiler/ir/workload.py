"""A workload: its tensors, its ops, what ops read of others, layers and batches."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

from .op_shape import OpShape
from .operations.attention import AttentionShape
from .tensors import ColumnPart, Pattern, Tensor


class Made(Enum):
    """What of an op another one reads."""

    OUTPUT = "what it computes, or what a lone collective leaves"
    MOVED = "what it gathers for its kernel"


@dataclass(frozen=True, slots=True)
class Read:
    """An operand: a tensor, and the op that makes it, empty where it is declared.

    ``by_rows``: whether rows of the tensor are rows of what the op moves or computes, so that those that are there can
    be taken before the others are. ``moves``: whether it is what the collective of the op takes; else its kernel does.
    ``transposed``: whether the op takes ``tensor.t``. ``adds``: whether it is no operand, but what the op adds to.
    ``part``: those of its columns that are taken, where it is not all.
    """

    tensor: str
    made_by: str = ""
    what: Made = Made.OUTPUT
    by_rows: bool = False
    moves: bool = False
    transposed: bool = False
    adds: bool = False
    part: ColumnPart | None = None

    @property
    def name(self) -> str:
        """The tensor, or its part: ``x``, ``a_back.q``."""
        return self.tensor if self.part is None else f"{self.tensor}.{self.part.name}"

    @property
    def seen(self) -> str:
        """What the op takes: ``x``, ``x.t``, ``a_back.q``."""
        return f"{self.name}.t" if self.transposed else self.name


@dataclass(frozen=True, slots=True)
class Op:
    """An op: its ``shape`` is a pair of compute and communication, a kernel or a collective.

    ``layer`` counts from 1 where layers that repeat are written out, and ``batch`` from 0 where batches are.
    """

    name: str
    shape: OpShape
    reads: tuple[Read, ...] = ()
    layer: int = 1
    batch: int = 0

    @property
    def label(self) -> str:
        """What it is, for people: a pattern with the names of its kernels, or the name of a lone kernel."""
        kernel = self.shape.kernel
        return self.shape.label if self.shape.pattern is not Pattern.KERNEL or kernel is None else kernel.operation

    @property
    def is_pair(self) -> bool:
        """Whether a kernel and a collective can hide each other."""
        return self.shape.pattern.overlaps

    @property
    def added(self) -> tuple[Read, ...]:
        """What other batches have made, which it adds to."""
        return tuple(read for read in self.reads if read.adds)

    @property
    def takes_rows_of(self) -> str:
        """The op of whose output it takes rows as they are, empty if there is none."""
        found = (read.made_by for read in self.reads if read.by_rows and read.what is Made.OUTPUT)
        return next(filter(None, found), "")


@dataclass(frozen=True, slots=True)
class Repeat:
    """``count`` layers of which each takes the ``result`` of the one before as its tensor ``as_input``.

    Of a workload in ``batches`` each does so by itself.
    """

    count: int
    result: str
    as_input: str
    batches: int = 1

    @property
    def carried(self) -> dict[str, str]:
        """For each tensor that a layer takes from the one before: which of its results that is.

        >>> Repeat(80, "y", "x").carried, Repeat(80, "y", "x", batches=2).carried
        ({'x': 'y'}, {'x[0]': 'y[0]', 'x[1]': 'y[1]'})
        """
        if self.batches == 1:
            return {self.as_input: self.result}
        numbers = range(self.batches)
        return {in_batch(self.as_input, number): in_batch(self.result, number) for number in numbers}


@dataclass(frozen=True, slots=True)
class WorkloadCut:
    """How a workload is cut: in ``batches`` of its rows, and its experts in ``groups``, none where they are not.

    A group is given by how many experts of each rank it has.
    """

    batches: int = 1
    groups: tuple[int, ...] = ()


UNCUT = WorkloadCut()


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of a workload that may be computed apart: those of ``inputs`` are sequences of ``rows`` each.

    ``cuts`` holds for each number of batches that is possible, two or more, the workload of one of them.
    """

    inputs: tuple[str, ...]
    rows: int
    cuts: tuple[tuple[int, "Workload"], ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """``ops`` in the order of the file, in which each reads what ops before it make.

    ``tensors`` are those of the file by their full shapes, results included. ``results`` names for each tensor that is
    made its op, and which of its tensors it is. ``batch`` says how it may be cut; ``planning/parts.py`` writes it out.
    """

    name: str
    about: str
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...] = ()
    results: tuple[tuple[str, str, Made], ...] = ()
    repeat: Repeat | None = None
    batch: Batch | None = None

    @classmethod
    def of_one(cls, shape: OpShape, name: str = "") -> "Workload":
        """Return the workload whose one op is ``shape``, called ``name``, else as what it makes."""
        op = Op(name or shape.output, shape)
        gathered = set(shape.made) - {shape.output} if shape.pattern is Pattern.AG_GEMM else set()
        what = {each: Made.MOVED if each in gathered else Made.OUTPUT for each in shape.made}
        results = tuple((each, op.name, what[each]) for each in shape.made)
        return cls(name or shape.name, shape.about, (op,), shape.tensors, results)

    @property
    def attention(self) -> tuple[AttentionShape, ...]:
        """The shapes of attention, forward."""
        kernels = (op.shape.kernel for op in self.ops)
        return tuple(each for each in kernels if isinstance(each, AttentionShape))

    @property
    def in_context(self) -> tuple[AttentionShape, ...]:
        """Attention whose sequences lie on several ranks."""
        return tuple(each for each in self.attention if each.context > 1)

    @property
    def declared_reads(self) -> Iterator[Read]:
        """What ops read that none of them makes."""
        return (read for op in self.ops for read in op.reads if not read.made_by and not read.adds)

    @property
    def num_layers(self) -> int:
        """How many layers there are, one without ``repeat``."""
        return 1 if self.repeat is None else self.repeat.count

    @property
    def only_shape(self) -> OpShape | None:
        """The shape of the only op where it says all there is, by the name of the workload; else None.

        It says nothing of transposed operands and parts of them, of ends of its kernel, of layers and of batches.
        """
        if len(self.ops) != 1 or self.repeat is not None or self.batch is not None:
            return None
        (op,) = self.ops
        is_plain = all(not read.transposed and read.part is None for read in op.reads)
        if not is_plain or len(self.results) != len(op.shape.made):
            return None
        named = (op.shape.name, op.shape.about) == (self.name, self.about)
        return op.shape if named else replace(op.shape, name=self.name, about=self.about)

    def made_from(self, name: str) -> frozenset[str]:
        """The ops whose results an op takes, directly or through others."""
        makers = {read.made_by for read in self.op(name).reads if read.made_by}
        return frozenset(makers).union(*(self.made_from(maker) for maker in makers))

    def tensor(self, name: str) -> Tensor:
        """The declared tensor of that name.

        Raises
        ------
        KeyError
            If there is none.
        """
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise KeyError(name)

    def output_of(self, op: Op) -> Tensor:
        """The tensor that an op makes, by its name here: that of a batch or a group has its number."""
        return next(self.tensor(name) for name, maker, what in self.results if (maker, what) == (op.name, Made.OUTPUT))

    def op(self, name: str) -> Op:
        """The op of that name.

        Raises
        ------
        KeyError
            If there is none.
        """
        for op in self.ops:
            if op.name == name:
                return op
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Partition:
    """A workload on several groups, as the workloads ``parts`` that follow one another in each of its ``layers``.

    Each part is of one layer. ``repeats``: a layer hands on one tensor from part to part, as layers of a step do.
    """

    name: str
    parts: tuple[str, ...]
    layers: int = 1
    repeats: bool = False


def even_groups(experts: int, count: int) -> tuple[int, ...]:
    """So many groups of ``experts``, as equal as can be.

    >>> even_groups(48, 4), even_groups(7, 3)
    ((12, 12, 12, 12), (2, 2, 3))
    """
    return tuple(stop - start for start, stop in pairwise(experts * each // count for each in range(count + 1)))


def in_batch(name: str, number: int) -> str:
    """The name of an op or a tensor in a batch or a group, counted from 0, in whichever layer.

    >>> in_batch("qkv", 1), in_batch("qkv@3", 0), in_batch("h[1]", 2)
    ('qkv[1]', 'qkv[0]@3', 'h[1, 2]')
    """
    own, at, layer = name.partition("@")
    numbers = f"{own[:-1]}, {number}]" if own.endswith("]") else f"{own}[{number}]"
    return f"{numbers}{at}{layer}"


def without_batch(name: str) -> str:
    """The name without its batch and its group.

    >>> without_batch("qkv[1]@3"), without_batch("qkv")
    ('qkv@3', 'qkv')
    """
    own, at, layer = name.partition("@")
    return f"{own.partition('[')[0]}{at}{layer}"
