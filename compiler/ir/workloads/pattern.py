"""How data flow between the kernels of a workload and its collective."""

from enum import Enum


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
        """Whether a reduce_scatter stands alone or follows the compute; False for an all_reduce."""
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
