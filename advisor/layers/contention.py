"""How much longer a kernel takes beside copies of other ops: both use the memory and the network on chip.

A server serves in order of arrival, so copies that come at a constant rate get all they ask for and the kernel gets the
rest (``simcore/kernels/copy.py`` has the closed form and where it is from).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ...compiler.ir import TICKS_PER_SECOND, Gpu, Op, OpCase, OpChoice, System, TileGroup
from ...compiler.planning.build import build_op_plan
from ...compiler.planning.knobs.engine import default_engine
from ...compiler.planning.parts import kernel_alone
from ...compiler.templates import BASELINE
from ...simcore.kernels.dispatch import compute_work
from ..bounds.link_loads import least_traffic


@dataclass(frozen=True, slots=True)
class Uses:
    """Shares of the time of servers that a kernel or copies take when alone."""

    memory: float = 0.0
    noc: float = 0.0

    def beside(self, copies: "Uses", share: float) -> float:
        """How much of a kernel is done in a unit of time beside ``copies`` that take a ``share`` of the links."""
        pairs = ((self.memory, copies.memory), (self.noc, copies.noc))
        return min(1.0, *((1 - taken * share) / max(own, 1e-9) for own, taken in pairs))


def of_kernel(system: System, op: Op, sms: int) -> Uses:
    """What the kernel of an op takes on so many SMs."""
    kernel = kernel_alone(op.shape) if op.is_pair and op.shape.then is None else op.shape
    if kernel.compute is None:
        return Uses()
    scenario = OpCase(op.name, system, kernel)
    schedule = build_op_plan(scenario, OpChoice(BASELINE.name, system.num_ranks, default_engine(system)))
    works = [compute_work(scenario, step, sms) for step in schedule.steps if isinstance(step, TileGroup)]
    ticks = max(1, sum(work.body_ticks for work in works))
    moved = sum(work.hbm_read_bytes + work.hbm_write_bytes for work in works)
    memory = moved * TICKS_PER_SECOND / ticks / system.gpu.hbm.achieved_bytes_per_s
    return Uses(min(1.0, memory), sum(work.num_units * work.noc_ticks for work in works) / ticks)


def of_copies(system: System, op: Op, ticks: int) -> Uses:
    """What the copies of an op take that last so long: each byte is read and written once."""
    moved = least_traffic(OpCase(op.name, system, op.shape))
    if moved is None or not ticks:
        return Uses()
    passed = 2 * max(*moved.into, *moved.out) * TICKS_PER_SECOND / ticks
    return Uses(*(min(0.9, passed / rate) for rate in _rates(system.gpu)))


def _rates(gpu: Gpu) -> Iterator[float]:
    yield gpu.hbm.achieved_bytes_per_s
    yield float("inf") if gpu.noc is None else gpu.noc.copy_bytes_per_s
