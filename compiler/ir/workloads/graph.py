"""A graph of ops: a layer or a step, as pairs, kernels and collectives that take results of each other."""

from dataclasses import dataclass, replace
from enum import Enum

from .pattern import Pattern
from .tensors import ColumnPart, Tensor
from .workload import Workload


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
class GraphOp:
    """An op: its ``workload`` is a pair of compute and communication, a kernel or a collective.

    ``layer`` counts from 1 where layers that repeat are written out, and ``batch`` from 0 where batches are.
    """

    name: str
    workload: Workload
    reads: tuple[Read, ...] = ()
    layer: int = 1
    batch: int = 0

    @property
    def label(self) -> str:
        """What it is, for people: a pattern with the names of its kernels, or the name of a lone kernel."""
        kernel = self.workload.kernel
        return (
            self.workload.label if self.workload.pattern is not Pattern.KERNEL or kernel is None else kernel.operation
        )

    @property
    def is_pair(self) -> bool:
        """Whether a kernel and a collective can hide each other."""
        return self.workload.pattern.overlaps

    @property
    def takes_rows_of(self) -> str:
        """The op of whose output it takes rows as they are, empty if there is none."""
        found = (read.made_by for read in self.reads if read.by_rows and read.what is Made.OUTPUT)
        return next(filter(None, found), "")


@dataclass(frozen=True, slots=True)
class Repeat:
    """``count`` layers of which each takes the ``result`` of the one before as its tensor ``as_input``.

    Of a graph in ``batches`` each does so by itself.
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
class Batch:
    """Rows of a graph that may be computed apart: those of ``inputs`` are sequences of ``rows`` each.

    ``cuts`` holds for each number of batches that is possible, two or more, the graph of one of them.
    """

    inputs: tuple[str, ...]
    rows: int
    cuts: tuple[tuple[int, "Graph"], ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """``ops`` in the order of the file, in which each reads what ops before it make.

    ``tensors`` are those of the file by their full shapes, results included. ``results`` names for each tensor that is
    made its op, and what of it it is. ``batch`` says how it may be cut; ``planning/graph_batches.py`` writes it out.
    """

    name: str
    about: str
    ops: tuple[GraphOp, ...]
    tensors: tuple[Tensor, ...] = ()
    results: tuple[tuple[str, str, Made], ...] = ()
    repeat: Repeat | None = None
    batch: Batch | None = None

    @classmethod
    def of_one(cls, workload: Workload, name: str = "") -> "Graph":
        """Return the graph whose one op is ``workload``, called ``name``, else as what it makes."""
        op = GraphOp(name or workload.output, workload)
        gathered = set(workload.made) - {workload.output} if workload.pattern is Pattern.AG_GEMM else set()
        what = {each: Made.MOVED if each in gathered else Made.OUTPUT for each in workload.made}
        results = tuple((each, op.name, what[each]) for each in workload.made)
        return cls(name or workload.name, workload.about, (op,), workload.tensors, results)

    @property
    def num_layers(self) -> int:
        """How many layers there are, one without ``repeat``."""
        return 1 if self.repeat is None else self.repeat.count

    @property
    def pair(self) -> Workload | None:
        """The workload of a lone op that says all there is, by the name of the graph; else None.

        It says nothing of transposed operands and parts of them, of ends of its kernel, of layers and of batches.
        """
        if len(self.ops) != 1 or self.repeat is not None or self.batch is not None:
            return None
        (op,) = self.ops
        is_plain = all(not read.transposed and read.part is None for read in op.reads)
        if not is_plain or len(self.results) != len(op.workload.made):
            return None
        return replace(op.workload, name=self.name, about=self.about)

    def made_from(self, name: str) -> frozenset[str]:
        """The ops whose results an op takes, directly or through others."""
        makers = {read.made_by for read in self.op(name).reads if read.made_by}
        return frozenset(makers).union(*(self.made_from(maker) for maker in makers))

    def op(self, name: str) -> GraphOp:
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


def in_batch(name: str, number: int) -> str:
    """The name of an op or a tensor in a batch, counted from 0, in whichever layer.

    >>> in_batch("qkv", 1), in_batch("qkv@3", 0)
    ('qkv[1]', 'qkv[0]@3')
    """
    own, at, layer = name.partition("@")
    return f"{own}[{number}]{at}{layer}"


def batch_of(name: str) -> int:
    """The number of the batch in the name of an op, 0 without one.

    >>> batch_of("qkv[1]@3"), batch_of("qkv@3")
    (1, 0)
    """
    return int(name.partition("[")[2].partition("]")[0] or 0)


def without_batch(name: str) -> str:
    """The name without its batch.

    >>> without_batch("qkv[1]@3"), without_batch("qkv")
    ('qkv@3', 'qkv')
    """
    own, at, layer = name.partition("@")
    return f"{own.partition('[')[0]}{at}{layer}"
