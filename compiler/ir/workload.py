"""What the ranks compute and communicate: tensors, the pattern of the workload, and the kernels of one rank."""

from dataclasses import dataclass, replace

from .operations.gemm import GemmShape
from .operations.kernel_shape import KernelShape
from .pattern import Pattern
from .tensors import Tensor


@dataclass(frozen=True, slots=True)
class Then:
    """The kernel of one rank behind the collective that takes what another kernel made, and what it produces."""

    kernel: KernelShape
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

        >>> from .tensors import DType
        >>> gemm = GemmShape(8, 4, 2, DType.BF16)
        >>> hot = Workload("w", "", Pattern.A2A_GEMM, (), None, gemm, "y", loads=((1, 3), (1, 5)), rank=1)
        >>> [hot.at(rank).gemm.m for rank in (0, 1)]
        [2, 8]
        """
        if not self.loads or rank == self.rank:
            return self
        gemm, kernel = self.gemm, self.kernel
        rows, experts = sum(sent[rank] for sent in self.loads), self.experts[rank] if self.experts else ()
        if gemm is not None and self.pattern.consumes:
            gemm = gemm.at_rank(rows, experts)
        if kernel is not None:
            kernel = kernel.at_rank(rows, experts)
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
        """What one rank computes, first where there are two kernels; None for a lone collective."""
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
