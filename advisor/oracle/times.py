"""Times of a GEMM or a collective alone, in us, by the fitted forms of a profile; None where they were not fitted."""

from dataclasses import replace

from ...compiler.ir import (
    TICKS_PER_US,
    CollectiveRegion,
    DType,
    GemmShape,
    Gpu,
    Pattern,
    Scenario,
    Shard,
    System,
    Tensor,
    Workload,
)
from ...compiler.planning.knobs.library import library_on, library_scaling
from ...simcore.kernels.gemm import gemm_work
from ...simcore.kernels.nccl import NcclCollective, collective_time
from ..answer.extrapolation import is_fitted_gemm
from ..bounds.lower_bound import quick_bound_ticks

COLLECTIVES = tuple(each.value for each in NcclCollective)
"""The collectives that have a form."""

LATENCY = 0
"""Number of bytes that asks for the time of a collective that moves next to nothing."""


def gemm_us(gpu: Gpu, shape: GemmShape) -> float | None:
    """Return the time of a GEMM on all SMs, with its launch; None for other sizes or types than fitted."""
    return gemm_work(gpu, shape, gpu.sms).alone_ticks / TICKS_PER_US if is_fitted_gemm(gpu, shape) else None


def collective_us(machine: System, name: str, num_bytes: int, ranks: int) -> float | None:
    """Return the time of the library's collective among ``ranks`` GPUs, without its launch.

    It is None for one without a form, beyond one switch, and for other numbers of bytes or GPUs than fitted.
    """
    region = _region(machine)
    if region is None or name not in COLLECTIVES or ranks not in region.ranks or ranks > machine.num_ranks:
        return None
    low, high = region.num_bytes
    if num_bytes != LATENCY and not low <= num_bytes <= high:
        return None
    try:
        gpu = replace(machine.gpu, collectives=library_on(machine))
        time = collective_time(gpu, NcclCollective(name), num_bytes or low, ranks)
    except ValueError:  # a profile may lack the all_to_all
        return None
    return time.us if time.ticks >= _least_ticks(machine, name, num_bytes or low, ranks) else None


def _least_ticks(machine: System, name: str, num_bytes: int, ranks: int) -> int:
    """The bound of the collective on ``ranks`` GPUs."""
    moved = Tensor("x", DType.FP8, ranks, num_bytes // ranks, Shard.ROWS)
    workload = Workload(name, "", Pattern(name), (moved,), moved, None, "y")
    return quick_bound_ticks(Scenario(name, replace(machine, num_ranks=ranks), workload))


def collective_sizes(machine: System) -> tuple[int, ...]:
    """Return the numbers of bytes, doubling, for which collectives have a time."""
    region = _region(machine)
    if region is None:
        return ()
    low, high = region.num_bytes
    return tuple(low << shift for shift in range((high // low).bit_length()))


def _region(machine: System) -> CollectiveRegion | None:
    """Where the collectives of the profile were fitted, all behind one switch; None over other links than fitted on."""
    scaled = library_on(machine) is None or library_scaling(replace(machine, num_ranks=2))
    known = machine.fabric.one_switch is not None and not scaled
    return machine.gpu.calibrated.collectives if known else None
