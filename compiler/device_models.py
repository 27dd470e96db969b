"""What a GPU's profile may hold beyond what the simulator needs: constants of closed forms, as integers in base units.

The formulas are in ``simcore/kernels/collective.py`` and ``simcore/kernels/copy.py``. Times are ticks of 10 fs, rates
bytes per second.
"""

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class ProtocolModel:
    """One protocol of a collective library: ``start`` beyond the common one, ``step`` for each of its steps."""

    start_ticks: int
    step_ticks: int
    bytes_per_s: int


@dataclass(frozen=True, slots=True)
class NvlsModel:
    """all_reduce that the switch sums: from ``from_bytes`` and ``ranks`` GPUs on. The rate counts the buffer once."""

    start_ticks: int
    bytes_per_s: int
    from_bytes: int
    ranks: int


@dataclass(frozen=True, slots=True)
class ExchangeModel:
    """all_to_all. From ``simple_from_bytes`` for each rank on the library switches to its SIMPLE protocol."""

    start_ticks: int
    ll: ProtocolModel
    ll128: ProtocolModel
    simple: ProtocolModel
    own_bytes_per_s: int
    simple_from_bytes: int


@dataclass(frozen=True, slots=True)
class Collectives:
    """A collective library on one node: rings, and what the profile knows of NVLS and all_to_all.

    ``simple_from_bytes`` (for each rank) and ``NvlsModel.from_bytes`` are choices of one build of the library, no
    property of the hardware. ``reduce_factor`` multiplies the bytes where they are summed. ``error`` is the relative
    error of a predicted time.
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


@dataclass(frozen=True, slots=True)
class DmaPhases:
    """The fixed parts of one copy that the host issues: writing the command, its scheduling, its start, the signal."""

    control_ticks: int
    schedule_ticks: int
    copy_ticks: int
    sync_ticks: int


@dataclass(frozen=True, slots=True)
class Saturation:
    """How copies by more and more SMs fill a link: ``limit`` is what they reach together, see ``sm_copy_rate``."""

    limit_bytes_per_s: int
    exponent: Fraction
