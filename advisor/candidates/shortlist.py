"""The simulations that rank: of the favourites, every serial schedule and what the file declares, in packets."""

from collections.abc import Sequence
from dataclasses import replace

from ...compiler.ir import Progress, Scenario, Schedule
from ...compiler.planning.build import build_schedule, declared
from ...compiler.templates import BASELINE
from ...simcore import PACKET_BYTES, affordable_unit
from ...simcore.lower.plan import all_alike
from ..workers import SimulationJob, Workers
from .advice import Candidate, is_algorithm_choice
from .ranking import asked, baselines, shortlisted, variants
from .variations import other_ways

# A blink, and some seconds, on one core each.
FINE_LINE_HOPS = 5_000_000
SHORTLIST_LINE_HOPS = 60_000_000
# Of a lone collective some two dozen schedules are simulated, many of them rank by rank.
ALGORITHMS_SHARE = 5


def simulate_shortlist(
    pool: Workers, scenario: Scenario, candidates: list[Candidate], top: int, report: Progress
) -> list[Candidate]:
    """Simulate in packets the favourites, the baselines, and whatever the file declares or asks about."""
    wanted = {declared(scenario, named).expression for named in scenario.schedules}
    alone = is_algorithm_choice(scenario)
    wanted |= {
        candidate.expression for candidate in (candidates if alone else baselines(candidates)) if candidate.is_serial
    }
    others = [candidate for candidate in candidates if not candidate.is_serial]
    favourites = shortlisted(others, top, by_algorithm=alone)
    wanted |= {candidate.expression for candidate in (*favourites, *asked(scenario, others))}
    # The baseline first: an answer that is cut short is to have it.
    chosen = sorted((each for each in candidates if each.expression in wanted), key=lambda each: not each.is_serial)
    simulated = {done.expression: done for done in _simulated(pool, scenario, chosen, report)}
    return by_time([simulated.get(candidate.expression, candidate) for candidate in candidates])


def simulate_variants(
    pool: Workers, scenario: Scenario, candidates: list[Candidate], report: Progress
) -> list[Candidate]:
    """The fastest schedules also in other ways, which the ranker does not know.

    For a lone collective that is the fastest algorithms with other protocols, and by get instead of put.
    """
    if scenario.workload.moved is None:
        return candidates
    alone = is_algorithm_choice(scenario)
    ways = variants(scenario, candidates) if alone else other_ways(scenario, candidates)
    found = [(choice, build_schedule(scenario, choice)) for choice in ways]
    tried = [
        Candidate(schedule.expression, way, schedule, not alone and way.template == BASELINE.name, None, None, None)
        for way, schedule in found
    ]
    return by_time([*candidates, *_simulated(pool, scenario, tried, report)])


def _simulated(pool: Workers, scenario: Scenario, chosen: Sequence[Candidate], report: Progress) -> list[Candidate]:
    """Those of ``chosen`` that could be simulated, with their times in packets."""
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
    """Simulated ones first, by time; then the rest by prediction."""
    return sorted(candidates, key=lambda c: (c.simulated_ticks is None, c.best_us, c.expression))


def shortlist_unit(scenario: Scenario, schedule: Schedule) -> int:
    """Packets for the shortlist, coarser for large problems; lines where pieces are small: packets are rough there."""
    line, share = scenario.gpu.line_bytes, ALGORITHMS_SHARE if is_algorithm_choice(scenario) else 1
    share *= simulated_ranks(scenario, schedule)
    if affordable_unit(scenario, schedule, line, FINE_LINE_HOPS // share) == line:
        return line
    return affordable_unit(scenario, schedule, packet_bytes(scenario), SHORTLIST_LINE_HOPS // share)


def simulated_ranks(scenario: Scenario, schedule: Schedule) -> int:
    """How many ranks a run may have to follow; that some of them do the same is found out only then."""
    return 1 if all_alike(scenario, schedule) else scenario.num_ranks


def packet_bytes(scenario: Scenario) -> int:
    """The coarser granularity: 1 KiB, or the next multiple of the line."""
    line = scenario.gpu.line_bytes
    return -(-PACKET_BYTES // line) * line
