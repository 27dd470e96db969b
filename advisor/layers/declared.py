"""The schedules of a graph that its file declares, and ``serial``: simulated side by side, and compared."""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from ...compiler.ir import Cancelled, GraphChoice, GraphScenario, Progress, ShouldStop
from ...compiler.ir.stopping import never
from ...compiler.planning.graph_batches import in_batches
from ...compiler.resolve.schedules.from_text import SERIAL
from ...simcore import RunOptions, RunOutcome
from ...simcore.simulate_layers import simulate_layers
from ..answer.answer import Confirmed, Findings, advice_of
from ..answer.partial import Answered
from ..bounds.graph_bound import graph_bound
from ..bounds.lower_bound import Bound
from ..candidates.advice import Advice
from ..candidates.candidate import Candidate, ScheduleOrigin, by_time, joint_candidate
from ..candidates.shortlist import packet_bytes
from ..failures import failed_simulation
from ..pools import open_processes
from ..processes import POLL_S, ProcessDied
from ..solver.graph_memory import check_graph_memory
from ..solver.result import NoFeasibleSchedule
from ..stages import Stages
from .baselines import by_library
from .telling import ops_of, reasons_for

log = logging.getLogger(__name__)


def simulated_schedules(
    scenario: GraphScenario,
    workers: int = 1,
    progress: Progress = lambda stage, done, total: None,
    should_stop: ShouldStop = never,
    answered: Answered = lambda advice: None,
) -> Advice:
    """Return the advice that the declared schedules and ``serial`` give, simulated in packets in so many ``workers``.

    ``answered`` is told what would be answered now as soon as the baseline is known, and again with each result. An
    answer that was stopped is ``interrupted``.

    Raises
    ------
    ScheduleError
        If the tensors of the graph do not fit into the memory of a GPU.
    NoFeasibleSchedule
        If no schedule can be simulated.
    Cancelled
        If it was stopped before there was anything to answer.
    """
    check_graph_memory(scenario)
    schedules = {schedule.name: schedule for schedule in (SERIAL, *scenario.schedules)}
    library, _ = by_library(scenario)
    waiting = [joint_candidate(library.choice, ScheduleOrigin.LIBRARY, library.what)] if library is not None else []
    waiting += [_declared(each) for each in schedules.values()]
    known = {each.expression: each for each in waiting}
    comparison = _Comparison(scenario, graph_bound(scenario.system, scenario.graph, should_stop), known)
    progress("simulate", 0, len(waiting))
    for done, candidate in enumerate(_simulated(scenario, waiting, workers, should_stop), 1):
        comparison.known[candidate.expression] = candidate
        progress("simulate", done, len(waiting))
        if done < len(waiting) and comparison.has_baseline:
            answered(comparison.answer(interrupted=True))
    return comparison.answer(interrupted=should_stop())


def _declared(schedule: GraphChoice) -> Candidate:
    return joint_candidate(schedule, ScheduleOrigin.SERIAL if schedule == SERIAL else ScheduleOrigin.DECLARED)


def simulated_candidate(scenario: GraphScenario, candidate: Candidate, should_stop: ShouldStop) -> Candidate:
    """Return ``candidate`` simulated in packets, or with the problem why it cannot be.

    Raises
    ------
    Cancelled
        If it was stopped.
    """
    try:
        result = simulate_layers(
            scenario.system,
            scenario.graph,
            candidate.joint,
            name=scenario.name,
            unit_bytes=packet_bytes(scenario.gpu),
            options=RunOptions(observe=True, should_stop=should_stop),
        )
        check_graph_memory(scenario, result.schedule.staging_bytes)
    except Cancelled:
        raise
    except Exception as error:
        failure = failed_simulation(candidate.expression, error)
        return replace(candidate, problem=f"{failure.kind.value}: {failure.reason}")
    outcome, circle = result.outcome, result.deadlock
    if outcome is RunOutcome.CANCELLED:
        raise Cancelled
    if outcome is not RunOutcome.DONE:
        return replace(candidate, problem="; ".join((outcome.value, *circle[:2])))
    return candidate.with_result(result)


@dataclass(slots=True)
class _Comparison:
    """What is ``known`` so far of each schedule, by its name."""

    scenario: GraphScenario
    bound: Bound
    known: dict[str, Candidate]

    @property
    def has_baseline(self) -> bool:
        """Whether serial is simulated."""
        return self.known[SERIAL.name].result is not None

    def answer(self, *, interrupted: bool) -> Advice:
        """What is to be said of what is known."""
        ranked = by_time(list(self.known.values()))
        problems = tuple(f"{each.expression}: {each.problem}" for each in ranked if each.problem)
        simulated = [each for each in ranked if each.result is not None]
        if not simulated:
            if interrupted:
                raise Cancelled
            raise NoFeasibleSchedule(problems)
        if not any(each.is_serial for each in simulated):  # the slowest stands for the baseline
            ranked = [
                replace(each, origin=ScheduleOrigin.SERIAL) if each is simulated[-1] else each for each in simulated
            ]
        stages = Stages(interrupted=interrupted)
        advice = advice_of(self.scenario, Findings(tuple(ranked), None, self.bound, Confirmed(), stages, problems))
        best = advice.recommended
        assert best.result is not None, "the baseline is simulated"
        written_out = in_batches(self.scenario.graph, best.joint.batches)
        ops = ops_of(written_out, {}, best.joint, best.result)
        return replace(advice, ops=ops, reasons=(*reasons_for(ops, best, None, 0), *advice.reasons))


def _simulated(
    scenario: GraphScenario, waiting: Sequence[Candidate], workers: int, should_stop: ShouldStop
) -> Iterator[Candidate]:
    """Yield ``waiting`` simulated, each as soon as it is; those that were not begun before a stop are left out."""
    left = {each.expression: each for each in waiting}
    if workers > 1 and len(waiting) > 1:
        try:
            with open_processes(min(workers, len(waiting))) as submit:
                running = [submit(partial(simulated_candidate, scenario), each) for each in waiting]
                for candidate in _as_they_come(running, should_stop):
                    del left[candidate.expression]
                    yield candidate
        except ProcessDied:
            log.debug("a worker process died", exc_info=True)
    for candidate in left.values():
        if should_stop():
            return
        with suppress(Cancelled):
            yield simulated_candidate(scenario, candidate, should_stop)


def _as_they_come(running: Sequence[Future[Candidate]], should_stop: ShouldStop) -> Iterator[Candidate]:
    left = set(running)
    while left and not should_stop():
        done, left = wait(left, timeout=POLL_S, return_when=FIRST_COMPLETED)
        for future in done:
            with suppress(Cancelled):
                yield future.result()


def with_simulated(advice: Advice, first: Advice) -> Advice:
    """Return the answer that ``advice`` gives with the runs of ``first`` for schedules that it has no run of."""
    found = {one.expression: one for one in advice.candidates}
    for one in first.candidates:
        known = found.get(one.expression)
        if known is None:
            found[one.expression] = one
        elif known.is_estimate and one.result is not None:
            found[one.expression] = known.with_result(one.result)
    stages, notes = Stages(interrupted=advice.interrupted), tuple(dict.fromkeys((*first.notes, *advice.notes)))
    findings = Findings(tuple(by_time(list(found.values()))), None, advice.bound, Confirmed(), stages, notes)
    again = advice_of(advice.scenario, replace(findings, offers=advice.offers))
    best = again.recommended
    told = {"ops": advice.ops, "reasons": advice.reasons}
    if best.expression != advice.recommended.expression and best.result is not None:
        ops = ops_of(in_batches(advice.scenario.graph, best.joint.batches), {}, best.joint, best.result)
        told = {"ops": ops, "reasons": (*reasons_for(ops, best, None, advice.kernels_ticks), *again.reasons)}
    return replace(
        again,
        **told,  # type: ignore[arg-type]
        marks=tuple(dict.fromkeys((*again.marks, *advice.marks))),
        timing=advice.timing,
        kernels_ticks=advice.kernels_ticks,
        copier=advice.copier,
        searched=advice.searched,
        source=advice.source,
    )
