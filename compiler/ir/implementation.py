"""Implementations: what can be switched on today, its methods and costs, and stacks of frameworks.

Times are ticks of 10 fs, rates are bytes per second. Fractions are exact.
"""

from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction

from .costs import ExchangeKernel, FusedExperts, SumKernel
from .hardware import Provenance
from .op_shape import OpShape
from .schedule import EngineKind, OpChoice
from .tensors import DType, Pattern

# Terms of an expectation: arithmetic on figures of schedules and numbers.


class FigureKind(Enum):
    """Dimension of an expected value; times are in ticks, sizes in bytes, rates in bytes per tick."""

    TIME = "time"
    BYTES = "bytes"
    RATIO = "ratio"
    RATE = "rate"


class Metric(Enum):
    """A figure of a simulated schedule; the value is its name in the language."""

    kind: FigureKind

    def __new__(cls, word: str, kind: FigureKind) -> "Metric":
        """Make ``word`` the value, and ``kind`` an attribute."""
        metric = object.__new__(cls)
        metric._value_, metric.kind = word, kind
        return metric

    MAKESPAN = "makespan", FigureKind.TIME
    COMPUTE_TIME = "compute_time", FigureKind.TIME
    COMM_TIME = "comm_time", FigureKind.TIME
    EXPOSED_TIME = "exposed_time", FigureKind.TIME
    EXPOSED = "exposed", FigureKind.RATIO
    OVERLAP_EFFICIENCY = "overlap_efficiency", FigureKind.RATIO
    DIL = "dil", FigureKind.RATIO
    CIL = "cil", FigureKind.RATIO
    STAGING = "staging", FigureKind.BYTES
    HBM_BYTES = "hbm_bytes", FigureKind.BYTES
    HBM_READ_BYTES = "hbm_read_bytes", FigureKind.BYTES
    HBM_WRITE_BYTES = "hbm_write_bytes", FigureKind.BYTES
    L2_BYTES = "l2_bytes", FigureKind.BYTES
    LINK_BYTES = "link_bytes", FigureKind.BYTES
    FLAG_BYTES = "flag_bytes", FigureKind.BYTES
    FLAG_READS = "flag_reads", FigureKind.RATIO
    LINE_HOPS = "line_hops", FigureKind.RATIO
    MEMORY = "memory", FigureKind.BYTES
    BUBBLE = "bubble", FigureKind.RATIO
    TOKENS_PER_S = "tokens_per_s", FigureKind.RATIO


OP_METRICS = (Metric.MAKESPAN, Metric.COMPUTE_TIME, Metric.COMM_TIME, Metric.EXPOSED_TIME)
"""Figures that an op of a workload has by itself."""

OF_STEPS_ALONE = (Metric.MEMORY, Metric.BUBBLE, Metric.TOKENS_PER_S)
STEP_METRICS = (Metric.MAKESPAN, Metric.EXPOSED, *OF_STEPS_ALONE)
"""Figures of a training step. MEMORY is that of the stage that needs most, and TOKENS_PER_S are for each GPU."""


class Operator(Enum):
    """Arithmetic between two terms; the value is its spelling."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"


class End(Enum):
    """The least or the greatest of several; the value is the name of the function."""

    LEAST = "min"
    GREATEST = "max"


@dataclass(frozen=True, slots=True)
class MetricOf:
    """``schedule.metric``; ``schedule`` is a declared name, or ``best``, ``serial`` or ``bound``.

    With ``op`` it is ``schedule.op.metric``: a figure of one of several ops.
    """

    schedule: str
    metric: Metric
    op: str = ""


@dataclass(frozen=True, slots=True)
class Speedup:
    """``speedup(fast, slow)``: makespan of ``slow`` over makespan of ``fast``."""

    fast: str
    slow: str


@dataclass(frozen=True, slots=True)
class Value:
    """A number with its dimension."""

    amount: Fraction
    dimension: FigureKind


@dataclass(frozen=True, slots=True)
class Negation:
    """``-operand``."""

    operand: "Term"


@dataclass(frozen=True, slots=True)
class Chain:
    """``first (operator operand)*``, from left to right; ``dimension`` is that of the result."""

    first: "Term"
    rest: tuple[tuple[Operator, "Term"], ...]
    dimension: FigureKind


@dataclass(frozen=True, slots=True)
class Extreme:
    """``min(...)`` or ``max(...)`` of terms of one dimension."""

    end: End
    terms: tuple["Term", ...]


@dataclass(frozen=True, slots=True)
class OverSeeds:
    """A term reduced over all seeds: the nearest-rank percentile, or the mean where ``percent`` is None."""

    term: "Term"
    percent: Fraction | None


Term = MetricOf | Speedup | Value | Negation | Chain | Extreme | OverSeeds


OF_LAYERS = ("transformer_engine", "xla")
"""Implementations of which it is known what they switch on for a whole layer, by their names in the library."""


class TransferPath(Enum):
    """How an implementation moves bytes between GPUs; the value is the word in the language.

    TILE_STORES are stores of a GEMM's epilogue, IN_SWITCH copies and sums of the switch (multimem). LIBRARY is a call
    of the collective library, before or after the GEMM.
    """

    COPY_ENGINE = "copy_engine"
    SM_COPY = "sm_copy"
    TILE_STORES = "tile_stores"
    IN_SWITCH = "in_switch"
    LIBRARY = "library"

    @property
    def engine(self) -> EngineKind:
        """The engine of a schedule that takes this path."""
        return EngineKind.DMA if self is TransferPath.COPY_ENGINE else EngineKind.SM


@dataclass(frozen=True, slots=True)
class Method:
    """How an implementation carries out one pattern on one system.

    ``rate`` is the share of the link's achieved rate that the path reaches, ``limit_bytes_per_s`` the most that it
    reaches on any link. A call costs ``call_ticks`` on the host and ``barrier_ticks`` for barriers between ranks, in
    which nothing else happens; replayed in a graph, a call costs ``graph_call_ticks``, None if that was not measured,
    and a step nothing. The host issues each kernel and copy in ``step_ticks`` and runs ahead of the GPU. Where it does
    not, an op takes no less than ``host_ticks``, what the host needs to issue all of it. With ``tiles`` its GEMM has
    these alone, and does not split the inner dimension. Below ``rereads_below`` rows it goes through its tiles row by
    row, and reads the second operand again for every ``rows_per_read`` rows of tiles. A GEMM of fewer operations of a
    GPU than ``library_below_flops`` it leaves to the library, as the collective. ``kernels`` make its small
    all_reduces in place of the library, and ``routed`` its dispatches or combines.

    ``missing`` are numbers that are not known: without them there is no prediction. Nothing is known of other ``gpus``
    and ``dtypes`` than these, if there are some, nor of more than ``most_rows`` rows or ``most_ranks`` ranks. Nine of
    ten predicted speedups over the library, on rows it was not fitted to, are within the relative ``error``, None if
    there were too few; ``shortest_ticks`` is the shortest time among those rows and the rows of the fit, 0 without any.
    """

    pattern: Pattern
    choice: OpChoice
    path: TransferPath
    rate: Fraction = Fraction(1)
    limit_bytes_per_s: int | None = None
    call_ticks: int = 0
    graph_call_ticks: int | None = None
    host_ticks: int = 0
    barrier_ticks: int = 0
    step_ticks: int = 0
    tiles: tuple[tuple[int, int], ...] = ()
    rereads_below: int = 0
    rows_per_read: Fraction = Fraction(1)
    library_below_flops: int = 0
    missing: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    dtypes: tuple[DType, ...] = ()
    most_rows: int | None = None
    most_ranks: int | None = None
    error: Fraction | None = None
    shortest_ticks: int = 0
    kernels: tuple[SumKernel, ...] = ()
    routed: ExchangeKernel | None = None

    @property
    def is_library(self) -> bool:
        """Whether it is the library alone, which others are compared with."""
        return self.path is TransferPath.LIBRARY and not self.kernels and self.routed is None

    def has_ranks(self, ranks: int) -> bool:
        """Whether it is known of so many GPUs."""
        return ranks <= (self.most_ranks or ranks)


@dataclass(frozen=True, slots=True)
class Stack:
    """What a framework adds to each layer of a training step, beside the kernels of its graph.

    Attributes
    ----------
    forward_rows, backward_rows
        Passes over memory of the tokens of a rank, each as wide as the model, by row-wise kernels that are not fused.
    forward_scores, backward_scores
        Passes over the scores of attention, where a framework keeps them; 0 with FlashAttention.
    forward_experts, backward_experts
        Passes over what experts make between their products, as wide as the second of these takes it.
    products
        The rate of its products over that of the profile, whose library is a later one, or is called otherwise.
    plain_experts
        Whether each expert's products are plain ones in several streams, in place of one grouped kernel.
    sends
        How many sends between stages each pass of a chunk waits for, where nothing hides them.
    error
        Mean error of steps with it, simulated and measured, as a share; ``compared`` says which.
    """

    forward_rows: Fraction = Fraction(0)
    backward_rows: Fraction = Fraction(0)
    forward_scores: Fraction = Fraction(0)
    backward_scores: Fraction = Fraction(0)
    forward_experts: Fraction = Fraction(0)
    backward_experts: Fraction = Fraction(0)
    products: Fraction = Fraction(1)
    plain_experts: bool = False
    sends: Fraction = Fraction(0)
    error: Fraction | None = None
    compared: str = ""


@dataclass(frozen=True, slots=True)
class Implementation:
    """An implementation: the GPUs and element types it is known for, its methods by pattern, its kernel for experts.

    ``stack`` is what it costs as the framework of a training step.
    """

    name: str
    gpus: tuple[str, ...]
    dtypes: tuple[DType, ...]
    methods: tuple[Method, ...]
    provenance: tuple[Provenance, ...] = ()
    experts: FusedExperts | None = None
    stack: Stack | None = None

    @property
    def does(self) -> str:
        """What it carries out, in words."""
        of_layers = () if self.experts is None else ("experts of a layer",)
        return ", ".join((*(each.pattern.value for each in self.methods), *of_layers))

    def method(self, pattern: Pattern) -> Method | None:
        """Return how it carries out ``pattern``, None if it does not."""
        return next((method for method in self.methods if method.pattern is pattern), None)

    def method_of(self, shape: OpShape) -> Method | None:
        """Return how it carries out ``shape``: a dispatch as before a kernel, a combine as behind one.

        A lone all_reduce of a layer is by its kernels for one, without the calls that a benchmark has.
        """
        if shape.pattern is Pattern.ALL_REDUCE:
            summed = self.method(Pattern.GEMM_AR)
            return None if summed is None or not summed.kernels else replace(summed, call_ticks=0, graph_call_ticks=0)
        if shape.routing is None or shape.pattern is not Pattern.ALL_TO_ALL:
            return self.method(shape.pattern)
        return self.method(Pattern.GEMM_A2A if shape.back else Pattern.A2A_GEMM)
