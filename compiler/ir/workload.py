"""A workload: its tensors, its ops, what ops read of others, layers and batches."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

from .op_shape import OpShape
from .operations.attention import AttentionShape
from .tensors import ColumnPart, Pattern, Tensor


class Made(Enum):
    """Which of the results of an op another op reads."""

    OUTPUT = "what it computes, or what a lone collective leaves"
    MOVED = "what it gathers for its kernel"


@dataclass(frozen=True, slots=True)
class Read:
    """One operand of an op.

    Attributes
    ----------
    tensor
        The name of the tensor.
    made_by
        The op that makes it; empty if it is declared.
    what
        Which of the results of that op it is.
    by_rows
        Whether its rows are rows of what the reading op moves or computes. The op can then begin with the rows that are
        there.
    moves
        Whether the collective of the reading op takes it; else the kernel does.
    transposed
        Whether the op takes ``tensor.t``.
    adds
        Whether it is no operand, but what the op adds its result to.
    part
        The columns that are taken; None for all.
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
    """One op of a workload: a kernel, a collective, or one of each (a pair).

    Attributes
    ----------
    name, shape
        Its name in the workload, and its sizes, types and pattern.
    reads
        Its operands.
    layer, batch
        Which layer it belongs to, from 1, and which batch, from 0, once layers or batches are written out.
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
    """How a workload is cut.

    Attributes
    ----------
    batches
        In how many batches its rows are computed.
    groups
        The groups of its experts: how many experts of each rank are in each; empty for one group of all.
    """

    batches: int = 1
    groups: tuple[int, ...] = ()


UNCUT = WorkloadCut()


@dataclass(frozen=True, slots=True)
class Batch:
    """Which rows of a workload may be computed in separate batches.

    Attributes
    ----------
    inputs
        The tensors whose rows are cut: they consist of sequences.
    rows
        The rows of one sequence.
    cuts
        (number of batches, the workload of one batch) for each number that is possible, from two on.
    """

    inputs: tuple[str, ...]
    rows: int
    cuts: tuple[tuple[int, "Workload"], ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """The ops of one question and the tensors between them.

    Attributes
    ----------
    name, about
        Its name and its title.
    ops
        In the order of the file: each reads what ops before it make.
    tensors
        All tensors, declared or made, by their full shapes.
    results
        (tensor, op, which of its results) of each tensor that an op makes.
    repeat
        How many layers there are, and what one hands on to the next; None for a single layer.
    batch
        How rows may be cut into batches, which ``planning/parts.py`` writes out; None if they may not.
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
