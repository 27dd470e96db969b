"""The simulations that rank, in packets: favourites, baselines, what the file names, and variants."""

import math
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import replace

from ...compiler.ir import (
    TICKS_PER_US,
    EngineKind,
    Explore,
    Gpu,
    LaunchMode,
    OpCase,
    OpChoice,
    OpPlan,
    Progress,
)
from ...compiler.planning.build import OPTIONS, build_op_plan, declared
from ...compiler.planning.knobs.structure import ALGORITHM
from ...simcore import PACKET_BYTES, affordable_unit
from ...simcore.lower.steps import period_of
from ..bounds.link_loads import busiest_link_ticks
from ..bounds.lower_bound import quick_bound_ticks
from ..estimate.makespan import estimate_ticks
from ..work.workers import SimulationJob, Workers
from .candidate import (
    Candidate,
    ScheduleOrigin,
    by_time,
    forms_of,
    in_other_tiles,
    launches_of,
    persistent_forms,
    summed_in_switch,
)
from .forests import forests, try_forests
from .predicted import baselines, best_of_explored, origin_of, protocol_variants, shortlisted

# Overlapping schedules that are varied, and variants that are tried of each kind: serial or overlapping.
NUM_VARIED, NUM_TRIED = 2, 2
# Overlapping variants are tried if they may take this multiple of the fastest, serial ones if they may be faster.
MAX_RATIO = 1.02


def variants(scenario: OpCase, candidates: Sequence[Candidate]) -> list[OpChoice]:
    """Return variants of the fastest schedules that may be faster, and the best with each option that the file names.

    ``candidates`` are in the order of their times. Serial schedules are varied like those that overlap: a gain by a
    protocol beside a baseline without it would look like overlap.
    """
    simulated = [one for one in candidates if one.simulated_ticks is not None and one.choice is not None]
    overlapping = [one for one in simulated if not one.is_serial]
    direct = [one for one in simulated if one.is_serial and not one.is_library]
    # An estimate of usual options says how far the others are off; one of unusual options would be corrected twice.
    direct = [one for one in direct if one.has_usual_options] or direct
    by_sm = [one for one in direct if one.schedule.engine.kind is EngineKind.SM]
    known = {one.choice for one in candidates}
    serial = list(dict.fromkeys([*direct[:1], *by_sm[:1]]))
    found = [
        form
        for forms in (forms_of, in_other_tiles)
        for varied, limit in ((overlapping[:NUM_VARIED], MAX_RATIO), (serial, 1.0))
        for form in _likely(scenario, varied, known, limit, forms)
    ]
    in_graphs = [_in_graph(scenario, one.choice) for one in simulated if one.is_library]
    in_tiles = _soonest(
        scenario, persistent_forms(scenario), MAX_RATIO * min((one.best_us for one in simulated), default=0.0)
    )
    forms = [*found, *in_graphs, *summed_in_switch(scenario), *in_tiles]
    return list(dict.fromkeys(form for form in forms if form is not None and form not in known))


def _likely(
    scenario: OpCase,
    varied: Sequence[Candidate],
    known: set[OpChoice | None],
    max_ratio: float,
    forms: Callable[[OpCase, OpChoice | None], Iterator[OpChoice]],
) -> list[OpChoice]:
    """Return the new variants that are likely to be fast, and the best with each value that the file names."""
    predicted: dict[OpChoice, float] = {}
    for one in varied:
        new = [form for form in forms(scenario, one.choice) if form not in known]
        if new:
            off = one.best_us * TICKS_PER_US / estimate_ticks(scenario, one.schedule)
            for form in new:
                predicted.setdefault(form, off * estimate_ticks(scenario, build_op_plan(scenario, form)))
    limit = max_ratio * TICKS_PER_US * min((one.best_us for one in varied), default=0.0)
    best = sorted(predicted, key=lambda form: predicted[form])
    named = [
        next((form for form in best if getattr(form.tactics, knob.field) == value), None)
        for word, knob in OPTIONS.items()
        for value in scenario.explore.values(word)
        if value != knob.usual
    ]
    likely = [form for form in best if predicted[form] < limit][:NUM_TRIED]
    return [*likely, *(form for form in named if form is not None)]


def _soonest(scenario: OpCase, forms: Iterable[OpChoice], limit_us: float) -> list[OpChoice]:
    """Return the forms with the lowest estimates, all below ``limit_us``."""
    built = ((form, build_op_plan(scenario, form)) for form in forms)
    most = scenario.explore.staging_limit_bytes
    fitting = [(form, plan) for form, plan in built if most is None or plan.staging_bytes <= most]
    times = {form: estimate_ticks(scenario, plan) / TICKS_PER_US for form, plan in fitting}
    return [form for form in sorted(times, key=lambda form: times[form]) if times[form] < limit_us][:NUM_TRIED]


def _in_graph(scenario: OpCase, library: OpChoice | None) -> OpChoice | None:
    """Return the library's schedule as a graph if the file asks for graphs: it has no other options."""
    if library is None or LaunchMode.GRAPH not in launches_of(scenario, library):
        return None
    return replace(library, tactics=replace(library.tactics, launch=LaunchMode.GRAPH))


# Line-hops of one simulation in lines, a fraction of a second, and in packets, some seconds, on one core each.
FINE_LINE_HOPS = 5_000_000
SHORTLIST_LINE_HOPS = 60_000_000
# Divides both for a lone collective: some two dozen schedules are simulated, many of them rank by rank.
COLLECTIVE_DIVISOR = 5
# A plan that is predicted this many times as slow as the likely best one is not simulated where runs take seconds. The
# estimate errs by 39 % at most (of lone collectives; of other plans by 17 % in nine of ten).
FAR_BEHIND = 3.0
# Where a proposal was simulated, a template that is predicted this many times as slow is not, but for the best few that
# the answer is compared with. In 60 drawn scenarios nine of ten estimates of templates were within 2 %; 313 of the 498
# templates that were simulated were so far behind, and none of these was faster than the proposals.
BEHIND, NUM_COMPARED = 1.1, 2
# So many are left out at most, so that who asks for more has more, and none that may be a tie within such an error.
MOST_LEFT_OUT, ERROR = 6, 1.02
# Bespoke schedules that are offered, the fastest first.
NUM_OFFERED = 2


def simulate_shortlist(
    pool: Workers, scenario: OpCase, candidates: list[Candidate], top: int, report: Progress
) -> list[Candidate]:
    """Simulate ``top`` more favourites, the baselines, and what the file declares or explores by name.

    Of the favourites some are left out that are far behind what was simulated before; of large systems, those that
    cannot be the answer: see ``_worth_a_run``. Of collectives alone those are told: see ``_alone``.
    """
    requested = {declared(scenario, named).expression for named in scenario.schedules}
    alone = scenario.is_algorithm_choice
    wanted = {
        candidate.expression for candidate in (candidates if alone else baselines(candidates)) if candidate.is_serial
    }
    if scenario.explore.values(ALGORITHM.word):
        requested |= wanted
    others = [candidate for candidate in candidates if not candidate.is_serial]
    new = [candidate for candidate in others if candidate.simulated_ticks is None]
    favourites = shortlisted(new, top, by_algorithm=alone)
    chosen_few = favourites if alone else _close(scenario, others, favourites)
    wanted |= {candidate.expression for candidate in chosen_few}
    explored = {candidate.expression for candidate in best_of_explored(scenario, new)}
    if scenario.explore != Explore():
        requested |= explored
    # The baseline first: an interrupted answer needs it.
    chosen = [candidate for candidate in candidates if candidate.expression in requested | wanted | explored]
    chosen.sort(key=lambda candidate: not candidate.is_serial)
    if alone:
        return _alone(pool, scenario, candidates, chosen, requested, report)
    return merged(candidates, _worth_a_run(pool, scenario, chosen, requested, report))


def _alone(
    pool: Workers,
    scenario: OpCase,
    candidates: list[Candidate],
    chosen: Sequence[Candidate],
    requested: Container[str],
    report: Progress,
) -> list[Candidate]:
    """Simulate the baselines of a lone collective and the likely best, then trees, then which else may be faster.

    Others get the time of their busiest link, which is no less than the fastest run.
    """
    likely = next((each for each in chosen if not each.is_serial), None)
    first = [each for each in chosen if each.is_serial or each is likely or each.expression in requested]
    found = _with_forests(pool, scenario, merged(candidates, _simulated(pool, scenario, first, report)), report)
    fastest = _fastest_ticks(found)
    others = [
        replace(each, least_ticks=_ruled_out_by(scenario, each.schedule, fastest))
        for each in chosen
        if each not in first
    ]
    may_win = [each for each in others if each.least_ticks is None]
    ruled_out = [each for each in others if each.least_ticks is not None]
    return merged(found, [*_simulated(pool, scenario, may_win, report), *ruled_out])


def _fastest_ticks(candidates: Sequence[Candidate]) -> float:
    return min((one.ticks for one in candidates if one.simulated_ticks is not None), default=math.inf)


def _ruled_out_by(scenario: OpCase, schedule: OpPlan, fastest: float) -> int | None:
    """The ticks of its busiest link alone where they are no less than the ``fastest`` run; None where it may be faster.

    None too where one rank is simulated for all, which takes as long as counting what its links pass.
    """
    if simulated_ranks(scenario, schedule) == 1:
        return None
    least = busiest_link_ticks(scenario, schedule)
    return least if least >= fastest else None


def _close(scenario: OpCase, others: Sequence[Candidate], favourites: Sequence[Candidate]) -> list[Candidate]:
    """Return the ``favourites``, best first, without the last that are ``BEHIND`` the fastest run of ``others``."""
    fastest = min((other.best_us for other in others if other.simulated_ticks is not None), default=math.inf)
    limit = fastest * max(BEHIND, ERROR * (1 + scenario.resolution))
    kept = max(NUM_COMPARED, len(favourites) - MOST_LEFT_OUT)
    return [one for place, one in enumerate(favourites) if place < kept or one.best_us <= limit]


def first_to_simulate(candidates: Sequence[Candidate], top: int) -> list[Candidate]:
    """Return the baselines and the ``top`` others that are predicted best."""
    others = [candidate for candidate in candidates if not candidate.is_serial]
    return [*baselines(candidates), *others[:top]]


def simulate_first(
    pool: Workers, scenario: OpCase, candidates: list[Candidate], top: int, report: Progress
) -> list[Candidate]:
    """Simulate the baselines and the ``top`` others that are predicted best."""
    return merged(candidates, _simulated(pool, scenario, first_to_simulate(candidates, top), report))


def _worth_a_run(
    pool: Workers, scenario: OpCase, chosen: Sequence[Candidate], requested: Container[str], report: Progress
) -> list[Candidate]:
    """Simulate the candidates of ``chosen`` that may be the fastest: where runs are long, not all are.

    A plan of which many ranks are simulated takes seconds. It is left out, unless it is ``requested``, if its busiest
    link alone takes longer than the fastest run of the others of its kind, serial or not: the baseline, and what it is
    compared with, stay the fastest there are. So is one that is predicted to be ``FAR_BEHIND``.
    """
    least = {
        candidate.expression: busiest_link_ticks(scenario, candidate.schedule)
        for candidate in chosen
        if candidate.expression not in requested and simulated_ranks(scenario, candidate.schedule) > 1
    }
    if not least:
        return _simulated(pool, scenario, chosen, report)
    simulated: list[Candidate] = []
    settled = 0  # simulated or left out

    def run(some: Sequence[Candidate]) -> list[Candidate]:
        nonlocal settled
        found = _simulated(pool, scenario, some, lambda stage, done, _: report(stage, settled + done, len(chosen)))
        settled += len(some)
        return found

    for serial in (True, False):
        kind = [(each, float(least.get(each.expression, 0))) for each in chosen if each.is_serial is serial]
        predicted = min((each.best_us for each, _ in kind), default=0.0) * TICKS_PER_US
        likely = max(predicted, min((ticks for _, ticks in kind), default=0))
        kind = [(each, math.inf if _far(each, likely, least) else ticks) for each, ticks in kind]
        first = run([each for each, ticks in kind if ticks <= likely])
        limit = min((each.simulated_ticks for each in first if each.simulated_ticks), default=math.inf)
        rest = run([each for each, ticks in kind if likely < ticks < limit])
        settled += sum(likely < ticks and limit <= ticks for _, ticks in kind)
        simulated += [*first, *rest]
    return simulated


def _far(candidate: Candidate, likely: float, least: Container[str]) -> bool:
    """Whether it need not be simulated, and is predicted far behind the likely best time, in ticks."""
    return candidate.expression in least and candidate.best_us * TICKS_PER_US > FAR_BEHIND * likely


def simulate_variants(
    pool: Workers, scenario: OpCase, candidates: list[Candidate], report: Progress
) -> list[Candidate]:
    """Add variants of the fastest schedules that the space does not have, simulated in packets.

    For a lone collective these are the fastest algorithms with other protocols, and by get instead of put.
    """
    if scenario.shape.moved is None:
        return candidates
    if scenario.is_algorithm_choice:
        named = [one for one in candidates if one.choice is None or not one.choice.trees]
        return _with_choices(pool, scenario, candidates, protocol_variants(scenario, named), report)
    candidates = _with_choices(pool, scenario, candidates, variants(scenario, candidates), report)
    return _with_forests(pool, scenario, candidates, report)


def _with_forests(pool: Workers, scenario: OpCase, candidates: list[Candidate], report: Progress) -> list[Candidate]:
    """Add the fastest schedules of trees, with the number of chunks that is best among those that are tried."""
    choices, limit = list(forests(scenario)), scenario.explore.staging_limit_bytes
    if not choices or (limit is not None and build_op_plan(scenario, choices[0]).staging_bytes > limit):
        return candidates
    found = candidates
    least = _fastest_ticks(found)

    def timer(some: Sequence[OpChoice]) -> list[tuple[int, OpChoice]]:
        nonlocal found
        for trees in dict.fromkeys(choice.trees for choice in some):  # those before may rule out those of busier links
            found = _with_choices(pool, scenario, found, [one for one in some if one.trees == trees], report)
        ended = [one for one in found if one.simulated_ticks is not None]
        return [(one.ticks, one.choice) for one in ended if one.choice is not None and one.choice in some]

    floors = dict[tuple[tuple[int, ...], ...], int]()

    def floor(choice: OpChoice) -> int:
        """The time of the busiest link, which hardly depends on the number of chunks."""
        if choice.trees not in floors:
            floors[choice.trees] = busiest_link_ticks(scenario, build_op_plan(scenario, choice))
        return floors[choice.trees]

    try_forests(scenario, choices, timer, least, quick_bound_ticks(scenario), floor)
    planted = [one.expression for one in found if one.choice is not None and one.choice.trees]
    return [one for one in found if one.expression not in planted[NUM_OFFERED:]]


def _with_choices(
    pool: Workers, scenario: OpCase, candidates: list[Candidate], choices: Sequence[OpChoice], report: Progress
) -> list[Candidate]:
    """Return the candidates with new ``choices``, simulated in packets, by time.

    Of a lone collective those are left out whose busiest link alone takes longer than the fastest candidate.
    """
    alone, known = scenario.is_algorithm_choice, {candidate.expression for candidate in candidates}
    built = [(choice, build_op_plan(scenario, choice)) for choice in choices]
    if alone:
        fastest = _fastest_ticks(candidates)
        built = [(choice, plan) for choice, plan in built if _ruled_out_by(scenario, plan, fastest) is None]
    varied = [
        Candidate(
            schedule.expression, choice, schedule, ScheduleOrigin.TEMPLATE if alone else origin_of(scenario, choice)
        )
        for choice, schedule in built
        if schedule.expression not in known
    ]
    return by_time([*candidates, *_simulated(pool, scenario, varied, report)])


def _simulated(pool: Workers, scenario: OpCase, chosen: Sequence[Candidate], report: Progress) -> list[Candidate]:
    """Return the candidates of ``chosen`` that were simulated before, or are now, with their times in packets."""
    new = [candidate for candidate in chosen if candidate.simulated_ticks is None]
    jobs = [job_in_packets(scenario, candidate.schedule) for candidate in new]
    if jobs:
        report("simulate", 0, len(jobs))
    results = pool.run(jobs, lambda done: report("simulate", done, len(jobs))) if jobs else []
    done = {
        candidate.expression: replace(candidate, simulated_ticks=result.makespan_ticks, unit_bytes=result.unit_bytes)
        for candidate, result in zip(new, results, strict=True)
        if result is not None
    }
    found = (done.get(candidate.expression, candidate) for candidate in chosen)
    return [candidate for candidate in found if candidate.simulated_ticks is not None]


def job_in_packets(scenario: OpCase, schedule: OpPlan) -> SimulationJob:
    """Return the simulation that ranks ``schedule``."""
    return SimulationJob(scenario, schedule, shortlist_unit(scenario, schedule))


def merged(candidates: Sequence[Candidate], others: Sequence[Candidate]) -> list[Candidate]:
    """Return both by time; of two with the same expression the one of ``others``, with a time if either has one."""
    known = {candidate.expression: candidate for candidate in candidates}
    for other in others:
        before = known.get(other.expression, other)
        simulated = before if other.simulated_ticks is None else other
        known[other.expression] = replace(
            other, simulated_ticks=simulated.simulated_ticks, unit_bytes=simulated.unit_bytes
        )
    return by_time(list(known.values()))


def answered_by_runs(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the simulated candidates; none if the baseline alone was simulated: that is no answer yet."""
    simulated = [candidate for candidate in candidates if not candidate.is_estimate]
    return simulated if any(not candidate.is_serial for candidate in simulated) else []


def without_beaten(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates without bespoke ones that no run shows to be faster than every other schedule.

    At most ``NUM_OFFERED`` of those that are faster are kept, and the fastest that cuts no tile. If at most the
    baseline was simulated, or nothing but bespoke schedules, all are.
    """
    others = [one.best_us for one in candidates if one.provenance is None and one.simulated_ticks is not None]
    if not others or not answered_by_runs(candidates):
        return list(candidates)
    faster = [one for one in candidates if one.provenance and one.simulated_ticks and one.best_us < min(others)]
    whole = [one for one in by_time(faster) if not one.cuts_tiles]
    kept = {one.expression for one in (*by_time(faster)[:NUM_OFFERED], *whole[:1])}
    return [one for one in candidates if one.provenance is None or one.expression in kept]


def shortlist_unit(scenario: OpCase, schedule: OpPlan) -> int:
    """Return the granularity: packets, coarser for large problems; lines for small ones, where packets are inexact."""
    line, divisor = scenario.gpu.line_bytes, COLLECTIVE_DIVISOR if scenario.is_algorithm_choice else 1
    divisor *= simulated_ranks(scenario, schedule)
    if affordable_unit(scenario, schedule, line, FINE_LINE_HOPS // divisor) == line:
        return line
    return affordable_unit(scenario, schedule, packet_bytes(scenario.gpu), SHORTLIST_LINE_HOPS // divisor)


def simulated_ranks(scenario: OpCase, schedule: OpPlan) -> int:
    """Return the most ranks that a run may have to simulate; which of them are alike is only known in the run."""
    return period_of(scenario, schedule)


def packet_bytes(gpu: Gpu) -> int:
    """The coarser granularity: 1 KiB, or the next multiple of the line."""
    line = gpu.line_bytes
    return -(-PACKET_BYTES // line) * line
