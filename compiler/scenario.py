"""The resolved scenario: hardware, workload and what to explore, as integers in base units.

Nothing here refers to source text. Times are ticks of 10 fs, sizes are bytes, rates are bytes or
operations per second. Fractions are exact. A Scenario is what every later stage starts from.
"""

from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction

from .device_models import Collectives, DmaPhases, Saturation
from .schedule import EngineChoice, NamedSchedule

TICKS_PER_SECOND = 10**14
TICKS_PER_US = 10**8


class DType(Enum):
    """Element type; the value is its name in the language."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    FP32 = "fp32"

    @property
    def num_bytes(self) -> int:
        """Size of one element."""
        return {DType.BF16: 2, DType.FP16: 2, DType.FP8: 1, DType.FP32: 4}[self]


class Origin(Enum):
    """Where a number comes from, strongest first; the value is its note in the language (``@measured "..."``)."""

    MEASURED = "measured"
    FITTED = "fitted"
    NOMINAL = "nominal"
    REPORTED = "reported"
    DERIVED = "derived"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin and source of one number, named by its path, for instance ``MI300X.hbm.achieved``."""

    path: str
    origin: Origin
    source: str


@dataclass(frozen=True, slots=True)
class Cache:
    """The L2 of a GPU: ``instances`` equal slices, each with its own size and bandwidth."""

    size_bytes: int
    instances: int
    bytes_per_s: int
    latency_ticks: int


@dataclass(frozen=True, slots=True)
class Hbm:
    """Device memory: ``peak`` is the data sheet's rate, ``achieved`` what a stream reaches and the server serves."""

    capacity_bytes: int
    peak_bytes_per_s: int
    achieved_bytes_per_s: int
    latency_ticks: int


@dataclass(frozen=True, slots=True)
class GemmModel:
    """Constants of the fitted GEMM form, see ``simcore/kernels/gemm.py`` for the formula.

    ``error`` is the relative error of a predicted time, ``resolution`` the relative difference between two
    schedules below which the profile cannot tell them apart. Two SMs together compute one of ``pair_tiles``.
    """

    start_ticks: int
    mma_fraction: Fraction
    hbm_fraction: Fraction
    tile_ticks: int
    k_step_ticks: int
    split_ticks: int
    split_bytes_per_s: int
    exponent: Fraction
    quantisation: Fraction
    tiles: tuple[tuple[int, int], ...]
    error: Fraction
    resolution: Fraction
    validated: bool
    pair_tiles: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Dma:
    """Copy engines: each holds one command at a time, for ``setup`` and then the bytes at ``bytes_per_s``.

    ``outstanding_bytes`` is how much one engine may have under way; None if that is not known, and then not limited.
    """

    engines: int
    setup_ticks: int
    bytes_per_s: int
    phases: DmaPhases | None = None
    outstanding_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SmCopy:
    """Copies by SMs: each SM moves ``bytes_per_s`` and pays ``setup`` once per chunk."""

    bytes_per_s: int
    setup_ticks: int
    saturation: Saturation | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """``kernel`` starts a kernel without a fitted start of its own; ``event`` is added if one waits for a transfer."""

    kernel_ticks: int
    event_ticks: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. ``peak_flops`` maps an element type to operations per second (multiply and add count as two)."""

    name: str
    sms: int
    clock_hz: int
    line_bytes: int
    peak_flops: tuple[tuple[DType, int], ...]
    l2: Cache
    hbm: Hbm
    gemm: GemmModel
    dma: Dma
    sm_copy: SmCopy
    launch: Launch
    provenance: tuple[Provenance, ...] = field(default=(), hash=False)  # long, and kernel times are cached by GPU
    collectives: Collectives | None = None

    def peak(self, dtype: DType) -> int:
        """Peak rate for ``dtype`` in operations per second, 0 if the GPU has no such unit."""
        return dict(self.peak_flops).get(dtype, 0)


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a link; ``achieved`` is what payload reaches and what the server serves at."""

    name: str
    peak_bytes_per_s: int
    achieved_bytes_per_s: int
    latency_ticks: int
    provenance: tuple[Provenance, ...] = ()


@dataclass(frozen=True, slots=True)
class Switch:
    """A crossbar with one port per GPU; each output port is a server of ``bytes_per_s``."""

    name: str
    ports: int
    bytes_per_s: int
    latency_ticks: int
    provenance: tuple[Provenance, ...] = ()


class FabricKind(Enum):
    """How the GPUs of a system are joined; the value is the word in the language."""

    FULL_MESH = "full_mesh"
    RING = "ring"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Fabric:
    """``link`` joins GPU to GPU (mesh, ring) or GPU to switch; ``both_ways`` concerns the ring alone."""

    kind: FabricKind
    link: Link
    switch: Switch | None = None
    both_ways: bool = True


@dataclass(frozen=True, slots=True)
class System:
    """``num_ranks`` equal GPUs behind one fabric."""

    name: str
    num_ranks: int
    gpu: Gpu
    fabric: Fabric


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
    """What the workload computes and communicates; the value is the field's name for it."""

    GEMM = "GEMM"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    AG_GEMM = "AG+GEMM"
    GEMM_RS = "GEMM+RS"

    @property
    def gathers(self) -> bool:
        """Whether an all_gather precedes the compute."""
        return self in (Pattern.ALL_GATHER, Pattern.AG_GEMM)

    @property
    def reduces(self) -> bool:
        """Whether a reduce_scatter follows the compute."""
        return self in (Pattern.REDUCE_SCATTER, Pattern.GEMM_RS)

    @property
    def overlaps(self) -> bool:
        """Whether there is both compute and communication, so that one can hide the other."""
        return self in (Pattern.AG_GEMM, Pattern.GEMM_RS)


@dataclass(frozen=True, slots=True)
class GemmShape:
    """The GEMM of one rank: C[m, n] = A[m, k] B[k, n]."""

    m: int
    n: int
    k: int
    dtype: DType

    @property
    def flops(self) -> int:
        """Operations, multiply and add counted as two."""
        return 2 * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class Workload:
    """One pattern over named tensors.

    ``moved`` is the tensor that crosses the fabric: the gathered input of AG (its full shape, sharded by rows),
    or the partial sums of RS (full shape; rank r ends with row block r, reduced). ``gemm`` is per rank.
    ``output`` names what the compute produces. For a lone GEMM ``moved`` is None, for a lone collective ``gemm``.
    """

    name: str
    about: str
    pattern: Pattern
    tensors: tuple[Tensor, ...]
    moved: Tensor | None
    gemm: GemmShape | None
    output: str


@dataclass(frozen=True, slots=True)
class Explore:
    """The space to search. An empty tuple means every legal value of that knob; a limit of None means no limit."""

    templates: tuple[str, ...] = ()
    chunks: tuple[int, ...] = ()
    engines: tuple[EngineChoice, ...] = ()
    staging_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """One workload on one system, with the schedules its file declares and the space to explore."""

    name: str
    system: System
    workload: Workload
    schedules: tuple[NamedSchedule, ...] = ()
    explore: Explore = Explore()

    @property
    def num_ranks(self) -> int:
        """Number of GPUs."""
        return self.system.num_ranks

    @property
    def gpu(self) -> Gpu:
        """The GPU, the same on every rank."""
        return self.system.gpu
