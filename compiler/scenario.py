"""The resolved scenario: hardware, workload and what to explore, as integers in base units.

Nothing here refers to source text. Times are ticks of 10 fs, sizes are bytes, rates are bytes or
operations per second. Fractions are exact. A Scenario is what every later stage starts from.
"""

from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction

from .device_models import Calibrated, Collectives, DmaPhases, Saturation, Sync
from .replay import Replay
from .schedule import EngineChoice, NamedSchedule, Protocol
from .shapes import DType as DType
from .shapes import GemmShape as GemmShape
from .shapes import KernelShape
from .variability import Variability

TICKS_PER_SECOND = 10**14
TICKS_PER_US = 10**8


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
    """Device memory: ``peak`` is the data sheet's rate, ``achieved`` what a stream reaches and the server serves.

    Addresses are dealt to ``channels``, each with its part of the rate; 1 where that is not known.
    """

    capacity_bytes: int
    peak_bytes_per_s: int
    achieved_bytes_per_s: int
    latency_ticks: int
    channels: int = 1


@dataclass(frozen=True, slots=True)
class GemmModel:
    """Constants of the fitted GEMM form, see ``simcore/kernels/gemm.py`` for the formula.

    ``error`` is the relative error of a predicted time, ``resolution`` the relative difference between two
    schedules below which the profile cannot tell them apart. Two SMs together compute one of ``pair_tiles``.
    ``cluster`` is how many SMs side by side read an operand that they share from L2 once.
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
    cluster: int = 1


@dataclass(frozen=True, slots=True)
class Dma:
    """Copy engines: each holds one command at a time, for ``setup`` and then the bytes at ``bytes_per_s``.

    ``outstanding_bytes`` is how much one engine may have under way; None if that is not known, and then not limited.
    ``issue_interval_ticks`` is the least time between two commands of one GPU; that part of ``setup`` is spent before
    the engine. A copy is split into packets of ``packet_bytes``, or one for each row of a strided region, and each
    beyond the first holds the engine for ``packet_ticks``. ``prelaunch_ticks`` is the setup of a command that was
    written before and waits for a flag.
    """

    engines: int
    setup_ticks: int
    bytes_per_s: int
    phases: DmaPhases | None = None
    outstanding_bytes: int | None = None
    issue_interval_ticks: int = 0
    packet_bytes: int | None = None
    packet_ticks: int = 0
    prelaunch_ticks: int = 0


@dataclass(frozen=True, slots=True)
class SmCopy:
    """Copies by SMs: each SM moves ``bytes_per_s`` at most and pays ``setup`` once per chunk.

    ``outstanding_bytes`` is how much one SM may have under way: its rate is then at most that in a round trip. None if
    that is not known, and then not limited.
    """

    bytes_per_s: int
    setup_ticks: int
    saturation: Saturation | None = None
    outstanding_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """``kernel`` starts a kernel without a fitted start of its own; ``event`` is added if one waits for a transfer."""

    kernel_ticks: int
    event_ticks: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. ``peak_flops`` maps an element type to operations per second (multiply and add count as two).

    ``calibrated`` says where the constants were fitted; it has no part in any time.
    """

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
    sync: Sync = field(default_factory=Sync)
    calibrated: Calibrated = field(default_factory=Calibrated, hash=False)

    def peak(self, dtype: DType) -> int:
        """Peak rate for ``dtype`` in operations per second, 0 if the GPU has no such unit."""
        return dict(self.peak_flops).get(dtype, 0)


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a link; ``achieved`` is what payload reaches and what the server serves at.

    ``protocols`` are those that copies by SMs may use over it: LL128 needs writes of 128 bytes to arrive whole. Over an
    ``ordered`` link what was sent first arrives first, so that a flag need not wait until the data has landed.
    """

    name: str
    peak_bytes_per_s: int
    achieved_bytes_per_s: int
    latency_ticks: int
    provenance: tuple[Provenance, ...] = ()
    protocols: tuple[Protocol, ...] = (Protocol.SIMPLE, Protocol.LL)
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Switch:
    """A crossbar with one port per GPU; each output port is a server of ``bytes_per_s``.

    One that can ``multicast`` copies what comes in to all other ports, one that ``reduces`` sums what comes from all.
    """

    name: str
    ports: int
    bytes_per_s: int
    latency_ticks: int
    provenance: tuple[Provenance, ...] = ()
    multicast: bool = False
    reduces: bool = False


class FabricKind(Enum):
    """How the GPUs of a system are joined; the value is the word in the language."""

    FULL_MESH = "full_mesh"
    RING = "ring"
    SWITCH = "switch"
    TORUS = "torus"
    FAT_TREE = "fat_tree"
    RAILS = "rails"
    EDGES = "edges"

    @property
    def symmetric(self) -> bool:
        """Whether the way from rank r to r + k is the same for every r, so that one rank may stand for all."""
        return self in SYMMETRIC_FABRICS


SYMMETRIC_FABRICS = (FabricKind.FULL_MESH, FabricKind.RING, FabricKind.SWITCH)


@dataclass(frozen=True, slots=True)
class Torus:
    """Sides of a grid that is closed in each direction; the last coordinate of a rank counts fastest."""

    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FatTree:
    """Two levels: ``leaf`` consecutive GPUs to a leaf switch, and a link from each of those to each of the spines."""

    leaf: int
    spines: int


@dataclass(frozen=True, slots=True)
class Rails:
    """Nodes of ``node`` consecutive GPUs; the k-th GPU of every node has a ``nic`` link to rail switch k."""

    node: int
    nic: Link


@dataclass(frozen=True, slots=True)
class Wire:
    """A link between two nodes of a graph, both ways."""

    ends: tuple[int, int]
    link: Link


@dataclass(frozen=True, slots=True)
class Graph:
    """Links one by one; nodes from the number of GPUs on are switches."""

    switches: int
    wires: tuple[Wire, ...]


Layout = Torus | FatTree | Rails | Graph


@dataclass(frozen=True, slots=True)
class Fabric:
    """``link`` joins GPU to GPU (mesh, ring, torus) or GPU to switch; ``both_ways`` concerns the ring alone.

    ``layout`` says what else the kinds need that are not symmetric; ``topology.py`` makes links and routes of it.
    """

    kind: FabricKind
    link: Link
    switch: Switch | None = None
    both_ways: bool = True
    layout: Layout | None = None

    @property
    def links(self) -> tuple[Link, ...]:
        """Every kind of link there is, each once."""
        match self.layout:
            case Rails(nic=nic):
                return tuple(dict.fromkeys((self.link, nic)))
            case Graph(wires=wires):
                return tuple(dict.fromkeys(wire.link for wire in wires))
            case _:
                return (self.link,)


@dataclass(frozen=True, slots=True)
class System:
    """``num_ranks`` equal GPUs behind one fabric.

    ``variability`` is what makes their times differ; with ``replay`` only rank 0 is simulated, and what the others
    write into its memory is taken from a profile.
    """

    name: str
    num_ranks: int
    gpu: Gpu
    fabric: Fabric
    variability: Variability | None = None
    replay: Replay | None = None


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
    """What the workload computes and communicates; the value is the field's name for it.

    KERNEL is one kernel that is no GEMM. In ``GEMM || ...`` the two need nothing of each other.
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
        return self in (Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.A2A_GEMM)

    @property
    def beside(self) -> bool:
        """Whether a kernel and a collective run beside each other and share nothing but the machine."""
        return self in (Pattern.GEMM_BESIDE_AG, Pattern.GEMM_BESIDE_A2A)

    @property
    def exchanges(self) -> bool:
        """Whether every rank holds a block for every other: an all_to_all."""
        return self in (Pattern.ALL_TO_ALL, Pattern.A2A_GEMM, Pattern.GEMM_BESIDE_A2A)


@dataclass(frozen=True, slots=True)
class Workload:
    """One pattern over named tensors.

    ``moved`` is the tensor that crosses the fabric: the gathered input of AG (its full shape, sharded by rows),
    or the partial sums of RS (full shape; rank r ends with row block r, reduced). ``gemm`` is per rank.
    ``output`` names what the compute produces. For a lone GEMM ``moved`` is None, for a lone collective ``gemm``.
    all_reduce moves partial sums, broadcast and send_recv what rank 0 holds. Of an all_to_all rank r holds the whole
    of ``moved`` and sends row block r + k to rank r + k; where the blocks differ in size, ``split`` holds the rows of
    each, for k = 0, 1, ..., and a row block of ``moved`` is as large as the largest.
    ``kernel`` is what a lone kernel computes that is no GEMM.
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
