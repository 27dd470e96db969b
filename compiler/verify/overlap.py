"""Whether kernels and copies never overlap: only then may kernels use the SMs that copy."""

from collections.abc import Iterator

from ..codes import Code
from ..ir import PlanFault, RankPlan, Scenario, Schedule, TileGroup, Transfer
from ..planning.build import compute_sms
from .happens_before import HappensBefore, Waits


def overlap_faults(scenario: Scenario, schedule: Schedule) -> Iterator[PlanFault]:
    """Return faults for kernels that may overlap with copies although the plan says ``apart``.

    A kernel must come after all arrivals at its rank or before all its transfers. The plan must have no cycle of waits.
    """
    if schedule.compute_sms == compute_sms(scenario, schedule.engine, overlaps=True):
        return
    plans = [RankPlan.of(scenario, schedule, rank) for rank in _ranks(scenario, schedule)]
    beside = [(plan, kernels) for plan in plans if (kernels := _not_last(plan))]
    if not beside:
        return
    # The waits may lead through other ranks: data of a peer may depend on the own kernel.
    order = HappensBefore(Waits(scenario, schedule))
    for plan, kernels in beside:
        for kernel in kernels:
            sent = (step.name for step in plan.steps.values() if isinstance(step, Transfer))
            early = next((name for name in sent if not order.happened((plan.rank, kernel), (plan.rank, name))), None)
            if early is not None:
                message = f"{kernel} may run beside {early}: apart means that copies come all before it or all after it"
                yield PlanFault(Code.MGS513, kernel, message)


def _ranks(scenario: Scenario, schedule: Schedule) -> range:
    return range(schedule.period(scenario.num_ranks))


def _not_last(plan: RankPlan) -> list[str]:
    """Return the kernels that do not come after all arrivals at the rank."""
    before, landed = plan.before(), plan.signals
    kernels = (step.name for step in plan.steps.values() if isinstance(step, TileGroup))
    return [kernel for kernel in kernels if not landed <= before[kernel]]
