"""What the ranker sees of a scenario and a choice: ratios of physical times, sizes and rates, and what kind it is.

Most features have no scale, so that the model carries over to hardware it has not seen; sizes and times are logarithms.
The names are part of a model's identity: a model trained on others is refused.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...compiler.ir import (
    TICKS_PER_SECOND,
    TICKS_PER_US,
    Choice,
    EngineKind,
    Scenario,
    Schedule,
    network_of,
)
from ...compiler.planning.build import build_schedule
from ...compiler.templates import TEMPLATES
from ...simcore.kernels.gemm import gemm_work
from ...simcore.kernels.work import hbm_bytes
from ..estimate.makespan import Estimate, estimate_ticks

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class View:
    """A choice with what the features are computed from; ``whole_ticks`` is the undivided kernel alone on all SMs."""

    scenario: Scenario
    choice: Choice
    schedule: Schedule
    estimate: Estimate
    whole_ticks: int

    @property
    def makespan(self) -> float:
        """The estimate in ticks, at least one."""
        return max(1.0, self.estimate.makespan_ticks)

    @property
    def by_sm(self) -> bool:
        """Whether SMs copy."""
        return self.choice.engine.kind is EngineKind.SM

    @property
    def engine_rate(self) -> float:
        """Bytes per second of one engine of the pool."""
        gpu = self.scenario.gpu
        return float(gpu.sm_copy.bytes_per_s if self.by_sm else gpu.dma.bytes_per_s)

    @property
    def setup_ticks(self) -> int:
        """Setup of one transfer."""
        gpu = self.scenario.gpu
        return gpu.sm_copy.setup_ticks if self.by_sm else gpu.dma.setup_ticks

    @property
    def transfer_bytes(self) -> float:
        """Mean bytes of a transfer, 0 without any."""
        moved, n = self.scenario.workload.moved, self.scenario.num_ranks
        total = 0 if moved is None else moved.num_bytes // n * (n - 1)
        return total / max(1, self.estimate.num_transfers)

    def share(self, ticks: float) -> float:
        """``ticks`` as a share of the estimate."""
        return ticks / self.makespan


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


def _part_hbm(view: View) -> float:
    """Share of the HBM that one part uses while it runs alone."""
    part, rate = view.estimate.part, view.scenario.gpu.hbm.achieved_bytes_per_s / TICKS_PER_SECOND
    return 0.0 if part is None else (part.hbm_read_bytes + part.hbm_write_bytes) / part.body_ticks / rate


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
    """Rate at which all engines together feed the links a rank sends on, over what these take."""
    fabric, n = view.scenario.system.fabric, view.scenario.num_ranks
    out = network_of(fabric, n).bytes_per_s_out[0]
    if fabric.topology.name == "ring" and fabric.both_ways and n <= 2:  # as the shipped model was trained
        out = 2 * fabric.link.achieved_bytes_per_s
    elif n == 1 and fabric.symmetric:
        out = fabric.link.achieved_bytes_per_s
    return _log(view.engine_rate * view.choice.engine.count / max(1, out))


def _copy_burst(view: View) -> float:
    """Rate at which all engines together read the HBM, over what it serves."""
    return _log(view.engine_rate * view.choice.engine.count / view.scenario.gpu.hbm.achieved_bytes_per_s)


def _is_template(name: str) -> Feature:
    return lambda view: float(view.choice.template == name)


def _is_fabric(name: str) -> Feature:
    return lambda view: float(view.scenario.system.fabric.topology.name == name)


# The fabrics of the scenarios that the shipped model was trained on.
FABRICS = ("full_mesh", "ring", "switch")

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
    ("log_groups", lambda v: _log(max(1, v.estimate.num_groups))),
    ("log_transfers", lambda v: _log(max(1, v.estimate.num_transfers))),
    ("log_transfer_bytes", lambda v: _log(max(1.0, v.transfer_bytes))),
    ("setup_share", _setup_share),
    ("setups_share", lambda v: v.share(v.setup_ticks * v.estimate.num_transfers / v.choice.engine.count)),
    ("launch_share", lambda v: v.share(v.scenario.gpu.launch.event_ticks * v.estimate.num_groups)),
    ("latency_share", lambda v: v.share(v.scenario.system.fabric.link.latency_ticks * v.estimate.num_transfers)),
    ("part_waves", lambda v: 0.0 if v.estimate.part is None else float(v.estimate.part.waves)),
    ("part_fill", _part_fill),
    ("part_share", lambda v: 0.0 if v.estimate.part is None else v.share(v.estimate.part.body_ticks)),
    ("part_hbm", _part_hbm),
    ("part_l2", _part_l2),
    ("streams_hbm", lambda v: _part_hbm(v) * v.choice.streams),
    ("streams_fill", lambda v: _part_fill(v) * v.choice.streams),
    ("streams", lambda v: float(v.choice.streams)),
    ("by_sm", lambda v: float(v.by_sm)),
    ("log_engines", lambda v: _log(v.choice.engine.count)),
    ("engines_per_peer", lambda v: v.choice.engine.count / max(1, v.scenario.num_ranks - 1)),
    ("copy_sm_share", lambda v: v.choice.engine.count / v.scenario.gpu.sms if v.by_sm else 0.0),
    ("feed", _feed),
    ("copy_burst", _copy_burst),
    *((template.name, _is_template(template.name)) for template in TEMPLATES),
    *((name, _is_fabric(name)) for name in FABRICS),
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


def features_of(scenario: Scenario, choice: Choice) -> tuple[float, ...]:
    """Features of one choice, in the order of NAMES.

    Raises
    ------
    ScheduleError
        If the choice is illegal on the scenario.
    """
    return _row(scenario, choice, build_schedule(scenario, choice), _whole_ticks(scenario))


def matrix(scenario: Scenario, choices: Sequence[Choice], schedules: Sequence[Schedule]) -> FloatArray:
    """Features of each choice, of which ``schedules`` are built: [N, F] float64."""
    whole = _whole_ticks(scenario)
    rows = [_row(scenario, *each, whole) for each in zip(choices, schedules, strict=True)]
    return np.array(rows, np.float64).reshape(len(rows), len(FEATURES))


def _row(scenario: Scenario, choice: Choice, schedule: Schedule, whole_ticks: int) -> tuple[float, ...]:
    view = View(scenario, choice, schedule, estimate_ticks(scenario, schedule), whole_ticks)
    return tuple(feature(view) for _, feature in FEATURES)


def _whole_ticks(scenario: Scenario) -> int:
    gemm = scenario.workload.gemm
    return 0 if gemm is None else gemm_work(scenario.gpu, gemm, scenario.gpu.sms).alone_ticks
