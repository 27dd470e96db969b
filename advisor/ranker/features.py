"""Features of a schedule: ratios of physical times, sizes and rates, and counts of what its plan does.

Most features have no scale, so that the model carries over to hardware it has not seen; sizes and times are logarithms.
None depends on the name of a template or of a topology. The names of the features are part of a model's identity: a
model trained on others is refused.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ...compiler.ir import TICKS_PER_SECOND, TICKS_PER_US, Scenario, Schedule, TileGroup
from ...simcore.kernels.gemm import gemm_work
from ...simcore.kernels.work import hbm_bytes
from ..estimate.makespan import Estimate, estimate_ticks, estimates
from .view import View, mean

FloatArray = npt.NDArray[np.float64]
Feature = Callable[[View], float]


def _log(value: float) -> float:
    return math.log(max(value, 1e-9))


def _gemm(view: View, what: Callable[[int, int, int], float]) -> float:
    shape = view.scenario.workload.gemm
    return 0.0 if shape is None else what(shape.m, shape.n, shape.k)


def _intensity(view: View) -> float:
    """Operations per byte of compulsory traffic."""
    shape = view.scenario.workload.gemm
    return 0.0 if shape is None else _log(shape.flops / sum(hbm_bytes(shape, accumulate=False)))


def _part_l2(view: View) -> float:
    """Share of the L2 that one part uses while it runs alone."""
    part, l2 = view.estimate.part, view.scenario.gpu.l2
    if part is None:
        return 0.0
    total = part.l2_hit_bytes + part.hbm_read_bytes + part.hbm_write_bytes
    return total / part.body_ticks * TICKS_PER_SECOND / (l2.instances * l2.bytes_per_s)


def _part_fill(view: View) -> float:
    """How much of its waves one part fills."""
    part = view.estimate.part
    return 0.0 if part is None else part.num_units / (part.waves * view.schedule.compute_sms)


def _setup_share(view: View) -> float:
    """Setup against setup and bytes at the engine's rate: small chunks do not pay."""
    busy = view.transfer_bytes / view.engine_rate * TICKS_PER_SECOND
    return view.setup_ticks / max(1.0, view.setup_ticks + busy)


def _feed(view: View) -> float:
    """Rate at which all engines together feed the links a rank sends on, over what these take; 0 without transfers."""
    if not view.transfers:
        return 0.0
    return _log(view.engine_rate * view.engines / max(1, view.network.bytes_per_s_out[0]))


def _copy_burst(view: View) -> float:
    """Rate at which all engines together read the HBM, over what it serves."""
    return _log(view.engine_rate * view.engines / view.scenario.gpu.hbm.achieved_bytes_per_s)


def _pieces_per_peer(view: View) -> float:
    """Transfers with each peer, 0 without any."""
    return _log(len(view.transfers) / len(view.peers)) if view.peers else 0.0


def _awaited_share(view: View) -> float:
    """Share of the transfers that a kernel waits for at once, if it waits for any: all of them, or one by one."""
    awaited = [sum(name not in view.computed for name in kernel.after) for kernel in view.waiting]
    return mean(awaited) / max(1, len(view.transfers))


def _free_share(view: View) -> float:
    """Share of the operations in kernels that wait for no transfer, and for which none waits: they hide the others."""
    sources = {name for transfer in view.transfers for name in transfer.after}
    sizes = {kernel.name: _volume(kernel) for kernel in view.kernels}
    bound = sources | {kernel.name for kernel in view.waiting}
    free = sum(size for name, size in sizes.items() if name not in bound)
    return free / max(1, sum(sizes.values()))


def _volume(kernel: TileGroup) -> int:
    return kernel.k.size * sum(region.rows.size * region.cols.size for region in kernel.regions)


FEATURES: tuple[tuple[str, Feature], ...] = (
    ("log_estimate_us", lambda v: _log(v.makespan / TICKS_PER_US)),
    ("gemm_share", lambda v: v.share(v.estimate.gemm_ticks)),
    ("reduce_share", lambda v: v.share(v.estimate.reduce_ticks)),
    ("comm_share", lambda v: v.share(v.estimate.comm_ticks)),
    ("first_share", lambda v: v.share(v.estimate.first_ticks)),
    ("tail_share", lambda v: v.share(v.estimate.tail_ticks)),
    ("exposed_share", lambda v: v.share(v.estimate.exposed_ticks)),
    ("hbm_use", lambda v: v.share(v.estimate.hbm_bytes * TICKS_PER_SECOND / v.scenario.gpu.hbm.achieved_bytes_per_s)),
    ("dil", lambda v: v.estimate.gemm_ticks / max(1, v.whole_ticks)),
    ("log_whole_over_comm", lambda v: _log(max(1, v.whole_ticks) / max(1.0, v.estimate.comm_ticks))),
    ("log_transfers", lambda v: _log(max(1, v.estimate.num_transfers))),
    ("log_transfer_bytes", lambda v: _log(max(1.0, v.transfer_bytes))),
    ("setup_share", _setup_share),
    ("setups_share", lambda v: v.share(v.setup_ticks * v.estimate.num_transfers / v.engines)),
    ("launch_share", lambda v: v.share(v.scenario.gpu.launch.event_ticks * v.estimate.num_groups)),
    ("latency_share", lambda v: v.share(v.scenario.system.fabric.link.latency_ticks * v.estimate.num_transfers)),
    ("part_fill", _part_fill),
    ("part_l2", _part_l2),
    ("log_engines", lambda v: _log(v.engines)),
    ("engines_per_peer", lambda v: v.engines / max(1, v.scenario.num_ranks - 1)),
    ("copy_sm_share", lambda v: v.engines / v.scenario.gpu.sms if v.by_sm else 0.0),
    ("feed", _feed),
    ("copy_burst", _copy_burst),
    ("log_pieces_per_peer", _pieces_per_peer),
    ("waiting_kernels", lambda v: len(v.waiting) / max(1, len(v.kernels))),
    ("awaited_share", _awaited_share),
    ("free_share", _free_share),
    ("blocks_share", lambda v: mean(len(kernel.regions) for kernel in v.kernels) / v.scenario.num_ranks),
    ("hops", lambda v: mean(v.links[step.peer] for step in v.transfers)),
    ("way_share", lambda v: v.share(mean(v.latency_ticks[step.peer] for step in v.transfers))),
    ("reduces", lambda v: float(v.scenario.workload.pattern.reduces)),
    ("ranks", lambda v: float(v.scenario.num_ranks)),
    ("log_m", lambda v: _gemm(v, lambda m, n, k: _log(m))),
    ("log_n", lambda v: _gemm(v, lambda m, n, k: _log(n))),
    ("log_k", lambda v: _gemm(v, lambda m, n, k: _log(k))),
    ("log_m_over_k", lambda v: _gemm(v, lambda m, n, k: _log(m / k))),
    ("log_intensity", _intensity),
)
NAMES: tuple[str, ...] = tuple(name for name, _ in FEATURES)
LOG_ESTIMATE_US = NAMES.index("log_estimate_us")


def features_of(scenario: Scenario, schedule: Schedule) -> tuple[float, ...]:
    """Features of one schedule of ``scenario``, in the order of NAMES."""
    return _row(scenario, schedule, estimate_ticks(scenario, schedule), _whole_ticks(scenario))


def matrix(scenario: Scenario, schedules: Sequence[Schedule]) -> FloatArray:
    """Features of each schedule: [N, F] float64."""
    whole_ticks, estimated = _whole_ticks(scenario), estimates(scenario, schedules)
    rows = [_row(scenario, *each, whole_ticks) for each in zip(schedules, estimated, strict=True)]
    return np.array(rows, np.float64).reshape(len(rows), len(FEATURES))


def _row(scenario: Scenario, schedule: Schedule, estimate: Estimate, whole_ticks: int) -> tuple[float, ...]:
    view = View(scenario, schedule, estimate, whole_ticks)
    return tuple(feature(view) for _, feature in FEATURES)


def _whole_ticks(scenario: Scenario) -> int:
    gemm = scenario.workload.gemm
    return 0 if gemm is None else gemm_work(scenario.gpu, gemm, scenario.gpu.sms).alone_ticks
