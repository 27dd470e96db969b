"""The schedules of a graph that its file declares, and ``serial``: simulated side by side, and compared."""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ...compiler.ir import Cancelled, GraphChoice, GraphScenario, Progress, ShouldStop
from ...compiler.ir.stopping import never
from ...compiler.planning.graph_build import build_graph_plan
from ...compiler.resolve.schedules.from_text import SERIAL
from ...simcore import RunOptions, RunOutcome
from ...simcore.program.program import PACKET_BYTES
from ...simcore.simulate_layers import simulate_layers
from ..answer.extrapolation import outside_of_graph
from ..bounds.graph_bound import graph_bound
from ..bounds.lower_bound import Bound
from ..candidates.advice import MIN_LEAD
from ..failures import failed_simulation
from ..pools import open_processes
from ..processes import POLL_S, ProcessDied
from ..solver.graph_memory import check_graph_memory
from ..solver.result import NoFeasibleSchedule
from .answer import GraphAnswer, ShownSchedule, reasons_of

log = logging.getLogger(__name__)

Told = Callable[[GraphAnswer], None]


def simulated_schedules(
    scenario: GraphScenario,
    *,
    workers: int = 1,
    progress: Progress = lambda stage, done, total: None,
    should_stop: ShouldStop = never,
    answered: Told = lambda answer: None,
) -> GraphAnswer:
    """Return the declared schedules and ``serial``, simulated in packets in ``workers`` processes, the fastest first.

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
    choices = tuple({choice.name: choice for choice in (SERIAL, *scenario.schedules)}.values())
    known = {choice.name: ShownSchedule(scenario, choice) for choice in choices}
    comparison = _Comparison(scenario, graph_bound(scenario.system, scenario.graph, should_stop), known)
    progress("simulate", 0, len(choices))
    for done, candidate in enumerate(_simulated(scenario, choices, workers, should_stop), 1):
        comparison.known[candidate.expression] = candidate
        progress("simulate", done, len(choices))
        if done < len(choices) and comparison.has_baseline:
            answered(comparison.answer(interrupted=True))
    return comparison.answer(interrupted=should_stop())


def simulated_candidate(scenario: GraphScenario, choice: GraphChoice, should_stop: ShouldStop) -> ShownSchedule:
    """Return ``choice`` simulated in packets, or with the reason why it cannot be.

    Raises
    ------
    Cancelled
        If it was stopped.
    """
    line = scenario.system.gpu.line_bytes
    try:
        result = simulate_layers(
            scenario.system,
            scenario.graph,
            choice,
            name=scenario.name,
            unit_bytes=-(-PACKET_BYTES // line) * line,
            options=RunOptions(observe=True, should_stop=should_stop),
        )
        check_graph_memory(scenario, result.simulated.whole.schedule.staging_bytes)
    except Cancelled:
        raise
    except Exception as error:
        failure = failed_simulation(choice.name, error)
        return ShownSchedule(scenario, choice, problem=f"{failure.kind.value}: {failure.reason}")
    outcome, circle = result.simulated.whole.outcome, result.simulated.whole.deadlock
    if outcome is RunOutcome.CANCELLED:
        raise Cancelled
    if outcome is not RunOutcome.DONE:
        return ShownSchedule(scenario, choice, problem="; ".join((outcome.value, *circle[:2])))
    return ShownSchedule(scenario, choice, result)


@dataclass(slots=True)
class _Comparison:
    """What is ``known`` so far of each schedule, by its name."""

    scenario: GraphScenario
    bound: Bound
    known: dict[str, ShownSchedule]

    @property
    def has_baseline(self) -> bool:
        """Whether serial is simulated."""
        return self.known[SERIAL.name].result is not None

    def answer(self, *, interrupted: bool) -> GraphAnswer:
        """What is to be said of what is known."""
        ranked = sorted(self.known.values(), key=lambda each: each.best_us)
        simulated = [each for each in ranked if each.result is not None]
        problems = tuple(f"{each.expression}: {each.problem}" for each in ranked if each.problem)
        if not simulated:
            if interrupted:
                raise Cancelled
            raise NoFeasibleSchedule(problems)
        serial = next((each for each in simulated if each.is_serial), simulated[-1])
        leads = simulated[0].best_us * (1 + MIN_LEAD) <= serial.best_us
        best = simulated[0] if leads else serial
        return GraphAnswer(
            scenario=self.scenario,
            candidates=tuple(ranked),
            recommended=best,
            serial=serial,
            bound=self.bound,
            reasons=reasons_of(best, simulated, serial, self.bound),
            notes=problems,
            outside_calibration=outside_of_graph(
                self.scenario.system, build_graph_plan(self.scenario.system, self.scenario.graph, best.choice)
            ),
            interrupted=interrupted,
        )


def _simulated(
    scenario: GraphScenario, choices: Sequence[GraphChoice], workers: int, should_stop: ShouldStop
) -> Iterator[ShownSchedule]:
    """Yield ``choices`` simulated, each as soon as it is; those that were not begun before a stop are left out."""
    left = {choice.name: choice for choice in choices}
    if workers > 1 and len(choices) > 1:
        try:
            with open_processes(min(workers, len(choices))) as submit:
                running = [submit(partial(simulated_candidate, scenario), choice) for choice in choices]
                for candidate in _as_they_come(running, should_stop):
                    del left[candidate.expression]
                    yield candidate
        except ProcessDied:
            log.debug("a worker process died", exc_info=True)
    for choice in left.values():
        if should_stop():
            return
        with suppress(Cancelled):
            yield simulated_candidate(scenario, choice, should_stop)


def _as_they_come(running: Sequence[Future[ShownSchedule]], should_stop: ShouldStop) -> Iterator[ShownSchedule]:
    left = set(running)
    while left and not should_stop():
        done, left = wait(left, timeout=POLL_S, return_when=FIRST_COMPLETED)
        for future in done:
            with suppress(Cancelled):
                yield future.result()
