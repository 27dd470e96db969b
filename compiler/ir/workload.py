"""What the ranks compute and communicate: tensors and the pattern they form."""

from dataclasses import dataclass, replace
from enum import Enum

from .shapes import DType, GemmShape, GroupedGemmShape, KernelShape


class Shard(Enum):
    """Which dimension of a tensor is split evenly among the ranks; the value is the word in the language."""

    NONE = "replicated"
    ROWS = "rows"
    COLS = "cols"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A matrix; ``rows`` and ``cols`` are its full shape before sharding."""

    name: str
    dtype: DType
    rows: int
    cols: int
    shard: Shard

    @property
    def num_bytes(self) -> int:
        """Size of the whole tensor, all shards together."""
        return self.rows * self.cols * self.dtype.num_bytes


class Pattern(Enum):
    """How data flow between the kernel and the collective; the value is the field's name for it.

    GEMM in a value stands for the kernel, whichever it is: ``Workload.label`` names it. KERNEL is one kernel alone that
    is no GEMM. In ``GEMM || ...`` the two need nothing of each other.
    """

    GEMM = "GEMM"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    AG_GEMM = "AG+GEMM"
    GEMM_RS = "GEMM+RS"
    KERNEL = "kernel"
    ALL_REDUCE = "all_reduce"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    SEND_RECV = "send_recv"
    GEMM_AR = "GEMM+AR"
    A2A_GEMM = "A2A+GEMM"
    GEMM_BESIDE_AG = "GEMM || all_gather"
    GEMM_BESIDE_A2A = "GEMM || all_to_all"
    GEMM_A2A = "GEMM+A2A"
    GEMM_A2A_GEMM = "GEMM+A2A+GEMM"

    @property
    def gathers(self) -> bool:
        """Whether an all_gather stands alone or precedes the compute."""
        return self in (Pattern.ALL_GATHER, Pattern.AG_GEMM)

    @property
    def reduces(self) -> bool:
        """Whether a reduce_scatter stands alone or follows the compute; an all_reduce is not meant."""
        return self in (Pattern.REDUCE_SCATTER, Pattern.GEMM_RS)

    @property
    def sums(self) -> bool:
        """Whether partial results of all ranks are added up."""
        return self.reduces or self in (Pattern.ALL_REDUCE, Pattern.GEMM_AR)

    @property
    def overlaps(self) -> bool:
        """Whether one kernel depends on one collective or the other way round, so that parts can hide each other."""
        return self.consumes or self.produces

    @property
    def consumes(self) -> bool:
        """Whether the kernel, or the last of two, works on what the collective brings."""
        return self in (Pattern.AG_GEMM, Pattern.A2A_GEMM, Pattern.GEMM_A2A_GEMM)

    @property
    def produces(self) -> bool:
        """Whether the collective takes what the kernel, or the first of two, makes."""
        return self in (Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.GEMM_A2A, Pattern.GEMM_A2A_GEMM)

    @property
    def beside(self) -> bool:
        """Whether a kernel and a collective run beside each other and share nothing but the machine."""
        return self in (Pattern.GEMM_BESIDE_AG, Pattern.GEMM_BESIDE_A2A)

    @property
    def exchanges(self) -> bool:
        """Whether every rank holds a block for every other: an all_to_all."""
        return self in _EXCHANGES


_EXCHANGES = (
    Pattern.ALL_TO_ALL,
    Pattern.A2A_GEMM,
    Pattern.GEMM_BESIDE_A2A,
    Pattern.GEMM_A2A,
    Pattern.GEMM_A2A_GEMM,
)


@dataclass(frozen=True, slots=True)
class Then:
    """The kernel of one rank behind the collective that takes what another kernel made, and what it produces."""

    kernel: GemmShape | KernelShape
    output: str


@dataclass(frozen=True, slots=True)
class Workload:
    """One pattern over named tensors.

    ``moved`` is the tensor that crosses the fabric: the gathered input of AG (its full shape, sharded by rows),
    or the partial sums of RS (full shape; rank r ends with row block r, reduced). ``gemm`` is per rank.
    ``output`` names what the compute produces. For a lone GEMM ``moved`` is None, for a lone collective ``gemm``.
    all_reduce moves partial sums, broadcast and send_recv what rank 0 holds. Of an all_to_all rank r holds the whole
    of ``moved`` and sends row block r + k to rank r + k; where the blocks differ in size, ``split`` holds the rows of
    each, for k = 0, 1, ..., and a row block of ``moved`` is as large as the largest. Where they also differ from rank
    to rank, ``loads`` holds the rows [from][to] of absolute ranks instead, ``experts`` the rows of each expert of each
    rank behind it, and everything else is as ``rank`` has it, which is the one that gets most; see ``at``.
    ``kernel`` is what one rank computes where that is no GEMM, alone or before or after the collective. ``made`` names
    the tensors that operations make. Where kernels stand on both sides of the collective, ``then`` is the second.
    """

    name: str
    about: str
    pattern: Pattern
    tensors: tuple[Tensor, ...]
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

    @property
    def uneven(self) -> bool:
        """Whether the blocks of an all_to_all differ in size."""
        return bool(self.split or self.loads)

    def at(self, rank: int) -> "Workload":
        """The workload as the absolute ``rank`` has it; the same where ranks are alike.

        >>> gemm = GemmShape(8, 4, 2, DType.BF16)
        >>> hot = Workload("w", "", Pattern.A2A_GEMM, (), None, gemm, "y", loads=((1, 3), (1, 5)), rank=1)
        >>> [hot.at(rank).gemm.m for rank in (0, 1)]
        [2, 8]
        """
        if not self.loads or rank == self.rank:
            return self
        gemm, kernel = self.gemm, self.kernel
        if gemm is not None and self.pattern.consumes:
            gemm = replace(gemm, m=sum(sent[rank] for sent in self.loads))
        if isinstance(kernel, GroupedGemmShape) and self.experts:
            kernel = replace(kernel, rows=self.experts[rank])
        return replace(self, rank=rank, gemm=gemm, kernel=kernel)

    @property
    def num_kernels(self) -> int:
        """How many kernels there are: 0 for a lone collective."""
        return (self.compute is not None) + (self.then is not None)

    @property
    def stages(self) -> tuple["Workload", ...]:
        """The workload as each of its kernels sees it; none for a lone collective."""
        return tuple(map(self.stage, range(self.num_kernels)))

    @property
    def last_stage(self) -> "Workload":
        """As the last kernel sees it; a lone collective is its own."""
        return self.stage(self.num_kernels - 1)

    @property
    def may_persist(self) -> bool:
        """Whether one persistent kernel can compute it, which is a GEMM here."""
        return self.gemm is not None and self.then is None

    def stage(self, kernel: int) -> "Workload":
        """The workload as its kernel of that number sees it, alone with the collective.

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
    def compute(self) -> GemmShape | KernelShape | None:
        """What one rank computes, first where there are two kernels; None for a lone collective."""
        return self.gemm if self.gemm is not None else self.kernel

    @property
    def is_collective(self) -> bool:
        """Whether there is a collective and nothing else."""
        return self.moved is not None and self.compute is None

    @property
    def label(self) -> str:
        """The pattern with the names of its kernels, for people.

        >>> from .shapes import GroupedGemmShape
        >>> experts = GroupedGemmShape((4, 4), 64, 64, DType.BF16)
        >>> Workload("w", "", Pattern.A2A_GEMM, (), None, None, "y", experts).label
        'A2A+grouped_gemm'
        """
        if self.then is not None:
            return f"{self.stage(0).label}{self.stage(1).label.removeprefix('A2A')}"
        return self.pattern.value if self.kernel is None else self.pattern.value.replace("GEMM", self.kernel.operation)
