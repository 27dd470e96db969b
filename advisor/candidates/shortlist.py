"""The simulations that rank, in packets: the favourites, baselines, and what the file declares or explores."""

from collections.abc import Sequence
from dataclasses import replace

from ...compiler.ir import Progress, Scenario, Schedule
from ...compiler.planning.build import build_schedule, declared
from ...compiler.templates import BASELINE
from ...simcore import PACKET_BYTES, affordable_unit
from ...simcore.lower.plan import period_of
from ..workers import SimulationJob, Workers
from .advice import Candidate, is_algorithm_choice
from .ranking import baselines, best_of_explored, protocol_variants, shortlisted
from .variations import single_change_variants

# Line-hops of one simulation in lines, a fraction of a second, and in packets, some seconds, on one core each.
FINE_LINE_HOPS = 5_000_000
SHORTLIST_LINE_HOPS = 60_000_000
# Divides both for a lone collective: some two dozen schedules are simulated, many of them rank by rank.
COLLECTIVE_DIVISOR = 5


def simulate_shortlist(
    pool: Workers, scenario: Scenario, candidates: list[Candidate], top: int, report: Progress
) -> list[Candidate]:
    """Simulate the favourites, the baselines, and what the file declares or explores by name."""
    wanted = {declared(scenario, named).expression for named in scenario.schedules}
    alone = is_algorithm_choice(scenario)
    wanted |= {
        candidate.expression for candidate in (candidates if alone else baselines(candidates)) if candidate.is_serial
    }
    others = [candidate for candidate in candidates if not candidate.is_serial]
    favourites = shortlisted(others, top, by_algorithm=alone)
    wanted |= {candidate.expression for candidate in (*favourites, *best_of_explored(scenario, others))}
    # The baseline first: an interrupted answer needs it.
    chosen = [candidate for candidate in candidates if candidate.expression in wanted]
    chosen.sort(key=lambda candidate: not candidate.is_serial)
    simulated = {candidate.expression: candidate for candidate in _simulated(pool, scenario, chosen, report)}
    return by_time([simulated.get(candidate.expression, candidate) for candidate in candidates])


def simulate_variants(
    pool: Workers, scenario: Scenario, candidates: list[Candidate], report: Progress
) -> list[Candidate]:
    """Add variants of the fastest schedules that the ranker does not model, simulated in packets.

    For a lone collective these are the fastest algorithms with other protocols, and by get instead of put.
    """
    if scenario.workload.moved is None:
        return candidates
    alone = is_algorithm_choice(scenario)
    variants_of = protocol_variants if alone else single_change_variants
    built = [(choice, build_schedule(scenario, choice)) for choice in variants_of(scenario, candidates)]
    variants = [
        Candidate(schedule.expression, choice, schedule, is_serial=not alone and choice.template == BASELINE.name)
        for choice, schedule in built
    ]
    return by_time([*candidates, *_simulated(pool, scenario, variants, report)])


def _simulated(pool: Workers, scenario: Scenario, chosen: Sequence[Candidate], report: Progress) -> list[Candidate]:
    """Return the candidates of ``chosen`` whose simulation succeeded, with their times in packets."""
    jobs = [
        SimulationJob(scenario, candidate.schedule, shortlist_unit(scenario, candidate.schedule))
        for candidate in chosen
    ]
    report("simulate", 0, len(jobs))
    results = pool.run(jobs, lambda done: report("simulate", done, len(jobs)))
    return [
        replace(candidate, simulated_ticks=result.makespan_ticks, unit_bytes=result.unit_bytes)
        for candidate, result in zip(chosen, results, strict=True)
        if result is not None
    ]


def by_time(candidates: list[Candidate]) -> list[Candidate]:
    """Sort candidates: simulated ones first, by time; then the rest by prediction."""
    return sorted(candidates, key=lambda c: (c.simulated_ticks is None, c.best_us, c.expression))


def shortlist_unit(scenario: Scenario, schedule: Schedule) -> int:
    """Return the granularity: packets, coarser for large problems; lines for small ones, where packets are inexact."""
    line, divisor = scenario.gpu.line_bytes, COLLECTIVE_DIVISOR if is_algorithm_choice(scenario) else 1
    divisor *= simulated_ranks(scenario, schedule)
    if affordable_unit(scenario, schedule, line, FINE_LINE_HOPS // divisor) == line:
        return line
    return affordable_unit(scenario, schedule, packet_bytes(scenario), SHORTLIST_LINE_HOPS // divisor)


def simulated_ranks(scenario: Scenario, schedule: Schedule) -> int:
    """Return the most ranks that a run may have to simulate; which of them are alike is only known in the run."""
    return period_of(scenario, schedule)


def packet_bytes(scenario: Scenario) -> int:
    """The coarser granularity: 1 KiB, or the next multiple of the line."""
    line = scenario.gpu.line_bytes
    return -(-PACKET_BYTES // line) * line
