"""One GPU, links and switches as integers in base units, with the origin of each number.

Times are ticks of 10 fs, sizes are bytes, rates are bytes or operations per second. Fractions are exact.
"""

from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from math import ceil

from .costs import AttentionModel, Collectives, GemmModel, GroupedModel, Range, Sustained
from .options import CopyProtocol
from .tensors import DType


@dataclass(frozen=True, slots=True)
class DmaPhases:
    """Fixed phases of one copy that the host issues: writing the command, scheduling, starting, and signalling."""

    control_ticks: int
    schedule_ticks: int
    copy_ticks: int
    sync_ticks: int


@dataclass(frozen=True, slots=True)
class Saturation:
    """Saturation of a link by copies of several SMs; ``limit`` is their highest total rate, see ``sm_copy_rate``."""

    limit_bytes_per_s: int
    exponent: Fraction


@dataclass(frozen=True, slots=True)
class Sync:
    """Costs of waits of kernels and of launches in a graph; None where the profile does not say.

    A poll is repeated every ``poll_interval``. A monitor takes ``monitor_arm`` to arm and wakes its waiter
    ``monitor_wake`` after the flag is set (AMD, US patent 12,131,199, and Dutu et al., ISCA 2020: a waiter is recorded
    with the address it waits for, and a write there resumes it); ``monitor_entries`` of them fit in a GPU; without that
    number a file cannot ask for monitors, and a simulation has no limit.
    ``graph_launch`` replaces the costs of a launch from the host and of an event by that of a launch in a graph.
    """

    poll_interval_ticks: int | None = None
    monitor_arm_ticks: int = 0
    monitor_wake_ticks: int | None = None
    monitor_entries: int | None = None
    graph_launch_ticks: int | None = None


@dataclass(frozen=True, slots=True)
class GemmRegion:
    """GEMMs, by type and by the m, n and k of one rank, to which the constants of the GEMM form were fitted."""

    dtype: DType
    m: Range
    n: Range
    k: Range


@dataclass(frozen=True, slots=True)
class CollectiveRegion:
    """Collectives, by bytes as nccl-tests counts them and by number of GPUs, to which constants were fitted."""

    num_bytes: Range
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The regions to which the constants of a GPU were fitted; None where its profile does not say.

    ``sm_copy`` is a range of SMs that copy. ``derived`` names those of ``gemm``, ``sm_copy`` and ``collectives`` whose
    constants were fitted on another GPU.
    """

    gemm: GemmRegion | None = None
    sm_copy: Range | None = None
    collectives: CollectiveRegion | None = None
    derived: frozenset[str] = frozenset()
    gemm_types: tuple[GemmRegion, ...] = ()

    def gemm_of(self, dtype: DType) -> GemmRegion | None:
        """The region of the constants of kernels of ``dtype``."""
        regions = {region.dtype: region for region in self.gemm_types}
        return regions.get(dtype) or regions.get(dtype.alike) or self.gemm


class Origin(Enum):
    """The origin of a number, most reliable first; the value is its note in the language (``@measured "..."``)."""

    MEASURED = "measured"
    FITTED = "fitted"
    NOMINAL = "nominal"
    REPORTED = "reported"
    DERIVED = "derived"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin and source of one number, named by its path, for instance ``MI300X.hbm.achieved``.

    ``inherited`` is the device that states it, empty if that is the device itself.
    """

    path: str
    origin: Origin
    source: str
    inherited: str = ""


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache of a GPU: ``instances`` equal slices, each with its own size and bandwidth."""

    size_bytes: int
    instances: int
    bytes_per_s: int
    latency_ticks: int


@dataclass(frozen=True, slots=True)
class Hbm:
    """Device memory: ``peak`` is the rate of the data sheet, ``achieved`` that of a stream, at which the server serves.

    Addresses are spread over ``channels``, each with its part of the rate; 1 if unknown. ``look_ahead_bytes`` is the
    most that the running unit of one SM may have in flight; None if unknown, and then not limited.
    """

    capacity_bytes: int
    peak_bytes_per_s: int
    achieved_bytes_per_s: int
    latency_ticks: int
    channels: int = 1
    look_ahead_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Dma:
    """Copy engines: each holds one command at a time, for ``setup`` and then the bytes at ``bytes_per_s``.

    ``outstanding_bytes`` is the most that one engine may have in flight; None if unknown, and then not limited.
    ``issue_interval_ticks`` is the least time between two commands of one GPU; that part of ``setup`` passes before the
    engine is held. A copy is split into packets of ``packet_bytes``, or one for each row of a strided region, and each
    beyond the first holds the engine for ``packet_ticks``. ``prelaunch_ticks`` is the setup of a command that was
    written in advance and waits for a flag.
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

    ``outstanding_bytes`` is the most that one SM may have in flight, so its rate is at most that per round trip; None
    if unknown, and then not limited.
    """

    bytes_per_s: int
    setup_ticks: int
    saturation: Saturation | None = None
    outstanding_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Noc:
    """The network on chip between SMs, copy engines, L2 and links: a server that GEMMs and copies share.

    A tile of a GEMM takes ``gemm_share`` of the part of the network that its SM has, a copy the time of each byte at
    ``copy_bytes_per_s`` where it is read and where it is written. Once they ask for more than there is, both wait.
    """

    gemm_share: Fraction
    copy_bytes_per_s: int


@dataclass(frozen=True, slots=True)
class Beside:
    """How much longer than simulated a GEMM may take beside copies, at most, where that was not measured by size.

    ``dma`` is beside copy engines, ``sm`` beside SMs that copy. No simulated time depends on it.
    """

    dma: Fraction
    sm: Fraction


@dataclass(frozen=True, slots=True)
class LaunchCost:
    """``kernel`` starts a kernel without a fitted start of its own; ``event`` is added if one waits for a transfer.

    The host issues the kernels and copies of a rank one after the other, each in ``host``, and runs ahead of the GPU:
    none starts before it is issued. 0 where issuing is not what anything waits for.
    """

    kernel_ticks: int
    event_ticks: int
    host_ticks: int = 0


SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Parts in which kernels compute the inner dimension of a tile, none below ``MIN_SPLIT_K``."""
MIN_SPLIT_K = 128


def split_k(k: int, split: int) -> int:
    """The inner dimension of a part of ``split``, in whole k steps."""
    return 64 * ceil(ceil(k / split) / 64)


MOST_SIDE_OF_SCALED = 128
"""Rows or columns of a tile whose blocks have scales."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. ``peak_flops`` maps an element type to operations per second (multiply and add count as two).

    ``calibrated`` is the region in which the constants were fitted; no time depends on it.
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
    launch: LaunchCost
    provenance: tuple[Provenance, ...] = ()
    collectives: Collectives | None = None
    sync: Sync = field(default_factory=Sync)
    mall: Cache | None = None
    noc: Noc | None = None
    sustained: Sustained | None = None
    beside: Beside | None = None
    attention: AttentionModel | None = None
    mla: AttentionModel | None = None
    trtllm: AttentionModel | None = None
    wide: AttentionModel | None = None
    grouped: GroupedModel | None = None
    calibrated: Calibrated = field(default_factory=Calibrated)

    def __hash__(self) -> int:
        """Hash a few numbers that tell GPUs apart: kernel times are looked up by GPU, and all its fields take long."""
        hbm, gemm, launch = self.hbm, self.gemm, self.launch
        kernel = gemm.tile_ticks, gemm.k_step_ticks, launch.kernel_ticks, launch.event_ticks, self.dma.setup_ticks
        return hash((self.name, self.sms, hbm.achieved_bytes_per_s, hbm.latency_ticks, self.l2.bytes_per_s, *kernel))

    @property
    def last_cache(self) -> Cache | None:
        """The cache that holds writes of peers: the one in front of memory, else an L2 with a single instance.

        Instances of L2 that each serve some of the SMs do not see the writes of peers, so reads of these miss.
        """
        return self.mall or (self.l2 if self.l2.instances == 1 else None)

    def tiles_of(self, dtype: DType) -> list[tuple[tuple[int, int], int]]:
        """Return all tiles of GEMMs and how many SMs compute each, pairs first: of two as fast it reads less.

        Where the library has blocks of fewest waves, those of a kernel of one's own are no larger either: what sums up
        products of scaled blocks needs as many registers again.
        """
        tiles = [(block, 2) for block in self.gemm.pair_tiles] + [(block, 1) for block in self.gemm.tiles]
        if self.gemm.of(dtype).ragged_ticks is None:
            return tiles
        return [tile for tile in tiles if max(tile[0]) <= MOST_SIDE_OF_SCALED] or tiles

    def splits_of(self, dtype: DType, k: int) -> tuple[int, ...]:
        """Return in how many parts a kernel of ``dtype`` may compute the inner dimension ``k`` of a tile."""
        model = self.gemm.of(dtype)
        if not model.splits_k or model.ragged_ticks is not None:
            return SPLITS[:1]
        return tuple(each for each in SPLITS if each == 1 or split_k(k, each) >= MIN_SPLIT_K)

    def grouped_of(self, dtype: DType) -> GroupedModel | None:
        """Return the constants of grouped GEMMs of ``dtype``, None if the profile has none."""
        if self.grouped is None or (self.grouped.own_type(dtype) is None and dtype not in (DType.BF16, DType.FP16)):
            return None
        return self.grouped.of(dtype)

    def peak(self, dtype: DType) -> int:
        """Return the peak rate for ``dtype`` in operations per second, 0 if the GPU has no such unit."""
        for known, rate in self.peak_flops:
            if known is dtype and rate:
                return rate
        return self.peak(dtype.alike) if dtype is DType.FP8_BLOCK else 0


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a link; ``achieved`` is the payload rate, at which the server serves.

    ``protocols`` are those that copies by SMs may use over it; LL128 needs writes of 128 bytes to arrive whole. An
    ``ordered`` link delivers in the order of sending, so that a flag need not wait until the data has arrived.
    """

    name: str
    peak_bytes_per_s: int
    achieved_bytes_per_s: int
    latency_ticks: int
    provenance: tuple[Provenance, ...] = field(default=(), hash=False)  # long, and networks are cached by links
    protocols: tuple[CopyProtocol, ...] = (CopyProtocol.SIMPLE, CopyProtocol.LL)
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Switch:
    """A crossbar with one port per GPU; each output port is a server of ``bytes_per_s``.

    With ``multicast`` it can copy input to all other ports, with ``reduces`` sum the inputs of all ports.
    """

    name: str
    ports: int
    bytes_per_s: int
    latency_ticks: int
    provenance: tuple[Provenance, ...] = field(default=(), hash=False)  # long, and networks are cached by links
    multicast: bool = False
    reduces: bool = False
