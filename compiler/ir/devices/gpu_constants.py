"""Optional constants in the profile of a GPU, mostly of closed forms, as integers in base units.

The formulas are in ``simcore/kernels/nccl.py`` and ``simcore/kernels/copy.py``. Times are ticks of 10 fs, rates
bytes per second.
"""

from dataclasses import dataclass
from fractions import Fraction

from ..workloads.tensors import DType

Range = tuple[int, int]
"""A smallest and a largest value, both included."""


@dataclass(frozen=True, slots=True)
class ProtocolModel:
    """One protocol of a collective library: ``start`` beyond the common one, ``step`` for each of its steps."""

    start_ticks: int
    step_ticks: int
    bytes_per_s: int


@dataclass(frozen=True, slots=True)
class NvlsModel:
    """all_reduce summed by the switch, from ``from_bytes`` and ``ranks`` GPUs on. The rate counts the buffer once."""

    start_ticks: int
    bytes_per_s: int
    from_bytes: int
    ranks: int


@dataclass(frozen=True, slots=True)
class ExchangeModel:
    """all_to_all; from ``simple_from_bytes`` per rank on the library uses its SIMPLE protocol."""

    start_ticks: int
    ll: ProtocolModel
    ll128: ProtocolModel
    simple: ProtocolModel
    own_bytes_per_s: int
    simple_from_bytes: int


@dataclass(frozen=True, slots=True)
class Collectives:
    """A collective library on one node: rings, and NVLS and all_to_all if the profile has them.

    ``simple_from_bytes`` (per rank) and ``NvlsModel.from_bytes`` are choices of one build of the library, not
    properties of the hardware. ``reduce_factor`` multiplies the bytes where they are summed. ``error`` is the relative
    error of a predicted time. ``link_bytes_per_s`` is what a GPU sends over the links that the constants were fitted
    on, ``link_latency_ticks`` their latency from GPU to GPU; None if not said.
    """

    start_ticks: int
    ll: ProtocolModel
    ll128: ProtocolModel
    simple: ProtocolModel
    own_bytes_per_s: int
    reduce_factor: Fraction
    simple_from_bytes: int
    error: Fraction
    validated: bool
    nvls: NvlsModel | None = None
    all_to_all: ExchangeModel | None = None
    link_bytes_per_s: int | None = None
    link_latency_ticks: int | None = None


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
