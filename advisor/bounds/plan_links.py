"""The time for which the busiest link carries what a plan sends over it: no run of the plan is shorter."""

from collections import Counter

from ...compiler.ir import TICKS_PER_SECOND, Reach, Scenario, Schedule, Step, Transfer, checkpoint
from ...simcore.lower.copies import ends_of
from ...simcore.lower.state import moved_bytes
from ...simcore.lower.steps import period_of


def busiest_link_ticks(scenario: Scenario, schedule: Schedule) -> int:
    """Return the ticks that the bytes of ``schedule`` take on the link that needs most for them.

    Copies to all and sums of all are left out, and so is the library, whose plan is not known: the time is then less.
    """
    if schedule.engine.by_library:
        return 0
    n, network, ranks = scenario.num_ranks, scenario.network, period_of(scenario, schedule)
    loads = [0] * len(network.own)  # bytes, of all links together that a shift maps onto each other
    steps, sent = tuple[Step, ...](), Counter[tuple[int, int]]()
    for rank in range(ranks):
        checkpoint()
        if schedule.steps_of(rank) != steps:
            steps = schedule.steps_of(rank)
            sent = _sent(scenario, steps)
        for (source, target), num_bytes in sent.items():
            for link, _ in network.way((rank + source) % n, (rank + target) % n):
                loads[link] += num_bytes
    alike = ranks // network.period  # of those links, that ``ranks`` load
    times = (
        load * TICKS_PER_SECOND // (alike * edge.bytes_per_s) for load, edge in zip(loads, network.own, strict=True)
    )
    return max(times, default=0)


def _sent(scenario: Scenario, steps: tuple[Step, ...]) -> Counter[tuple[int, int]]:
    """Count the bytes that the steps of a rank send, by source and target as seen from that rank."""
    sent = Counter[tuple[int, int]]()
    for step in steps:
        if isinstance(step, Transfer) and step.reach is not Reach.ALL:
            sent[ends_of(0, step)] += moved_bytes(scenario, step.region)
    return sent
