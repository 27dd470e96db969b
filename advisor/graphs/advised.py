"""Advice on a graph as it is shown: what the file declares comes first, then what was searched for all ops together."""

from dataclasses import replace
from functools import partial

from ...compiler.ir import Cancelled, GraphScenario, Progress, ShouldStop
from ...compiler.ir.stopping import never
from ...compiler.planning.build import ScheduleError
from ...simcore import RunTooLarge
from ..failures import failed_stage, failure_sentences
from ..layers.advice import GraphAdvice
from ..layers.recommend import recommend_graph
from ..options import AdviceOptions
from ..pools import open_processes, result_of
from ..processes import ProcessDied
from .answer import GraphAnswer, ShownSchedule, bound_sentence, sentences_of_ops
from .schedules import Told, simulated_schedules


def advised(
    scenario: GraphScenario,
    options: AdviceOptions,
    *,
    progress: Progress = lambda stage, done, total: None,
    should_stop: ShouldStop = never,
    answered: Told = lambda answer: None,
) -> GraphAnswer:
    """Return the advice on a graph with the runs of its schedules; ``answered`` is told what would be answered now.

    With more than one of the ``workers`` of ``options`` all simulations run in other processes. An answer that was
    stopped is ``interrupted``.

    Raises
    ------
    ScheduleError
        If the graph does not fit into memory.
    NoFeasibleSchedule
        If no schedule can be simulated.
    Cancelled
        If it was stopped before there was anything to answer.
    """
    declared = simulated_schedules(
        scenario, workers=options.workers, progress=progress, should_stop=should_stop, answered=answered
    )
    declared = replace(declared, interrupted=True)
    answered(declared)
    progress("joint search", 0, 0)
    try:
        advice = _searched(scenario, options, progress, should_stop)
    except Cancelled:
        return declared
    except (ScheduleError, RunTooLarge) as error:
        failure = failed_stage("the search for a joint schedule", error)
        return replace(declared, interrupted=False, notes=(*declared.notes, *failure_sentences([failure])))
    return with_advice(declared, advice)


def _searched(
    scenario: GraphScenario, options: AdviceOptions, progress: Progress, should_stop: ShouldStop
) -> GraphAdvice:
    if options.workers > 1:
        try:
            with open_processes(1) as submit:
                return result_of(submit(partial(_searched_there, scenario), options), should_stop)
        except ProcessDied:
            pass  # it is searched here
    return recommend_graph(scenario, options, progress=progress, should_stop=should_stop)


def _searched_there(scenario: GraphScenario, options: AdviceOptions, should_stop: ShouldStop) -> GraphAdvice:
    """In a process."""
    return recommend_graph(scenario, options, should_stop=should_stop)


def with_advice(declared: GraphAnswer, advice: GraphAdvice) -> GraphAnswer:
    """Return ``advice`` as it is shown, with the runs of ``declared`` for schedules that it has no run of."""
    scenario, known = declared.scenario, {each.expression: each for each in declared.candidates}
    found = {
        each.name: ShownSchedule(
            scenario,
            each.choice,
            each.result or (known[each.name].result if each.name in known else None),
            estimated_ticks=each.estimated_ticks,
            what=each.what,
        )
        for each in advice.candidates
    }
    ranked = sorted((known | found).values(), key=lambda each: (each.result is None, each.best_us))
    best, serial = found[advice.recommended.name], found[advice.serial.name]
    return GraphAnswer(
        scenario=scenario,
        candidates=tuple(ranked),
        recommended=best,
        serial=serial,
        bound=advice.bound,
        reasons=(
            *(f"{reason}." for reason in advice.reasons),
            *(sentences_of_ops(best) if not advice.ops else ()),
            *bound_sentence(serial, advice.bound),
        ),
        searched=advice.searched,
        notes=(*declared.notes, *advice.marks),
        outside_calibration=advice.outside_calibration,
        interrupted=advice.interrupted,
    )
