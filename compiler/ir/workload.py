"""A workload: its tensors, its ops and the shape of each, what ops read of others, layers and batches."""

from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise

from .operations.attention import AttentionShape
from .operations.base import Routing
from .operations.gemm import GemmShape
from .operations.grouped_gemm import GroupedGemmShape
from .operations.kernel_shape import KernelShape
from .tensors import ColumnPart, Pattern, Tensor


@dataclass(frozen=True, slots=True)
class Then:
    """The second kernel of one rank, behind the collective that takes what the first one makes, and its output."""

    kernel: KernelShape
    output: str


@dataclass(frozen=True, slots=True)
class OpShape:
    """One pattern over named tensors.

    Attributes
    ----------
    moved
        The tensor that crosses the fabric, None without a collective: the gathered input of an all_gather (its full
        shape, sharded by rows), the partial sums of a reduce_scatter (full shape; rank r ends with row block r,
        reduced) or an all_reduce, or what rank 0 holds of a broadcast or send_recv. In an all_to_all rank r holds the
        whole of it and sends row block r + k to rank r + k.
    gemm, kernel
        What one rank computes, alone, before or after the collective: a GEMM or another kernel; None for a lone
        collective.
    then
        The second kernel, where kernels stand on both sides of the collective.
    output
        The name of what the first kernel computes, or of what a lone collective leaves.
    made
        The names of the tensors that operations make.
    split
        Rows of each block of an all_to_all, for k = 0, 1, ..., where they differ in size; a row block of ``moved`` is
        then as large as the largest.
    loads
        Rows [from][to] of absolute ranks instead, where the blocks also differ from rank to rank. Everything else is
        then as ``rank`` has it, the one that gets most; see ``at``. In a collective of uneven parts (``RankParts``) all
        ranks hold as many rows of a part: those [to] of its rank. A row-wise kernel has those of the op before it.
    experts
        Rows of each expert of each rank behind such an all_to_all.
    by_columns
        Whether the parts of a tensor that ranks hold in full are columns, because rows do not divide among the ranks.
        Then ``moved`` is the transpose of that tensor, and so is the output of the kernel, as steps of a plan count
        them: their rows are columns of the text.
    routing
        The routing of the ``dispatch`` or ``combine`` that moves it, None if neither does. ``back``: it is a combine.
    """

    name: str
    about: str
    pattern: Pattern
    tensors: tuple[Tensor, ...] = field(hash=False)
    moved: Tensor | None
    gemm: GemmShape | None
    output: str
    kernel: KernelShape | None = None
    split: tuple[int, ...] = ()
    made: tuple[str, ...] = ()
    then: Then | None = None
    loads: tuple[tuple[int, ...], ...] = ()
    experts: tuple[tuple[int, ...], ...] = ()
    rank: int = 0
    by_columns: bool = False
    routing: Routing | None = None
    back: bool = False

    @property
    def uneven(self) -> bool:
        """Whether the blocks of an all_to_all differ in size."""
        return self.pattern.exchanges and bool(self.split or self.loads)

    @property
    def uneven_by_rank(self) -> bool:
        """Whether the blocks of an all_to_all also differ from rank to rank."""
        return self.pattern.exchanges and bool(self.loads)

    @property
    def uneven_parts(self) -> bool:
        """Whether a collective of what ranks hold in full cuts it in parts that differ in size."""
        return self.moved is not None and not self.pattern.exchanges and bool(self.loads)

    @property
    def ranks_differ(self) -> bool:
        """Whether its kernel, alone, is another one at each rank."""
        return self.kernel is not None and self.kernel.ranks_differ

    @property
    def counts_on_device(self) -> bool:
        """Whether a router on the GPUs decides how many rows go where: an exchange with experts, or of uneven blocks.

        Commands of copy engines say how much they copy, and the host writes them: it would have to read the counts
        back first.
        """
        if self.moved is None or not self.pattern.exchanges:
            return False
        kernels = (self.kernel, None if self.then is None else self.then.kernel)
        return self.routing is not None or self.uneven or any(isinstance(each, GroupedGemmShape) for each in kernels)

    def at(self, rank: int) -> "OpShape":
        """The workload as the absolute ``rank`` has it; the same where ranks are alike.

        >>> from .tensors import DType
        >>> gemm = GemmShape(8, 4, 2, DType.BF16)
        >>> hot = Workload("w", "", Pattern.A2A_GEMM, (), None, gemm, "y", loads=((1, 3), (1, 5)), rank=1)
        >>> [hot.at(rank).gemm.m for rank in (0, 1)]
        [2, 8]
        """
        if self.ranks_differ and self.kernel is not None:
            own = self.kernel.of_rank(rank)
            return self if own is self.kernel else replace(self, rank=rank, kernel=own)
        if not self.loads or rank == self.rank:
            return self
        gemm, kernel = self.gemm, self.kernel
        rows, of = (sum(sent[each] for sent in self.loads) for each in (rank, self.rank))
        experts = self.experts[rank] if self.experts else ()
        if gemm is not None and self.pattern.consumes:
            gemm = gemm.at_rank(rows, experts, of)
        if kernel is not None:
            kernel = kernel.at_rank(rows, experts, of)
        return replace(self, rank=rank, gemm=gemm, kernel=kernel)

    @property
    def num_kernels(self) -> int:
        """How many kernels there are: 0 for a lone collective."""
        return (self.compute is not None) + (self.then is not None)

    @property
    def stages(self) -> tuple["OpShape", ...]:
        """The workload as each of its kernels sees it; none for a lone collective."""
        return tuple(map(self.stage, range(self.num_kernels)))

    @property
    def last_stage(self) -> "OpShape":
        """As the last kernel sees it; a lone collective is its own."""
        return self.stage(self.num_kernels - 1)

    @property
    def may_persist(self) -> bool:
        """Whether one persistent kernel can compute it, which is a GEMM here."""
        return self.gemm is not None and self.then is None

    def stage(self, kernel: int) -> "OpShape":
        """The workload as its kernel of that number sees it, alone with the collective.

        >>> from .tensors import DType
        >>> first, then = GemmShape(8, 4, 2, DType.BF16), GemmShape(8, 2, 4, DType.BF16)
        >>> both = Workload("w", "", Pattern.GEMM_A2A_GEMM, (), None, first, "h", then=Then(then, "y"))
        >>> [(stage.pattern.value, stage.output) for stage in both.stages]
        [('GEMM+A2A', 'h'), ('A2A+GEMM', 'y')]
        """
        if self.then is None:
            return self
        if kernel == 0:
            return replace(self, pattern=Pattern.GEMM_A2A, then=None)
        shape = self.then.kernel
        gemm, other = (shape, None) if isinstance(shape, GemmShape) else (None, shape)
        return replace(self, pattern=Pattern.A2A_GEMM, gemm=gemm, kernel=other, output=self.then.output, then=None)

    @property
    def compute(self) -> KernelShape | None:
        """The kernel of one rank, the first of two; None for a lone collective."""
        return self.gemm if self.gemm is not None else self.kernel

    @property
    def is_collective(self) -> bool:
        """Whether there is a collective and nothing else."""
        return self.moved is not None and self.compute is None

    @property
    def label(self) -> str:
        """The pattern with the names of its kernels, for people.

        >>> from .operations.grouped_gemm import GroupedGemmShape
        >>> from .tensors import DType
        >>> experts = GroupedGemmShape((4, 4), 64, 64, DType.BF16)
        >>> Workload("w", "", Pattern.A2A_GEMM, (), None, None, "y", experts).label
        'A2A+grouped_gemm'
        """
        if self.then is not None:
            return f"{self.stage(0).label}{self.stage(1).label.removeprefix('A2A')}"
        return self.pattern.value if self.kernel is None else self.pattern.value.replace("GEMM", self.kernel.operation)


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
