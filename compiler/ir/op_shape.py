"""The shape of an op: the pattern of a kernel and a collective over named tensors, as one rank has it."""

from dataclasses import dataclass, field, replace

from .operations.base import Routing
from .operations.gemm import GemmShape
from .operations.grouped_gemm import GroupedGemmShape
from .operations.kernel_shape import KernelShape
from .tensors import Pattern, Tensor


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
    def moved_tensor(self) -> Tensor:
        """``moved``, where there is a collective."""
        assert self.moved is not None, f"{self.name} moves a tensor"
        return self.moved

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
        >>> hot = OpShape("w", "", Pattern.A2A_GEMM, (), None, gemm, "y", loads=((1, 3), (1, 5)), rank=1)
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
        >>> both = OpShape("w", "", Pattern.GEMM_A2A_GEMM, (), None, first, "h", then=Then(then, "y"))
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
        >>> OpShape("w", "", Pattern.A2A_GEMM, (), None, None, "y", experts).label
        'A2A+grouped_gemm'
        """
        if self.then is not None:
            return f"{self.stage(0).label}{self.stage(1).label.removeprefix('A2A')}"
        return self.pattern.value if self.kernel is None else self.pattern.value.replace("GEMM", self.kernel.operation)
