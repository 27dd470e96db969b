"""Schedules that a file declares and ``serial``, simulated side by side; what ops do in them, and why."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from ...compiler.ir import (
    TICKS_PER_US,
    Cancelled,
    OpMode,
    Scenario,
    Schedule,
    ShouldStop,
    Workload,
    WrittenPlan,
)
from ...compiler.planning.build import expression_of, whole_text
from ...compiler.planning.groups import cut_up
from ...compiler.planning.plan import in_layer
from ...compiler.resolve.schedules.from_text import SERIAL
from ...compiler.text.diagnostics import listing
from ...compiler.text.units import us_text
from ...simcore import RunOptions, RunOutcome
from ...simcore.figures.load_buckets import overlap_ticks, total_ticks, union_of
from ...simcore.figures.result import Interval, IntervalKind, Result
from ...simcore.simulate_layers import SHOWN_LAYER, simulate_layers
from ..answer.answer import Findings, advice_of
from ..answer.extrapolation import imbalance_lines
from ..answer.stages import UNWATCHED, Stages, Watcher
from ..bounds.lower_bound import Bound, workload_bound
from ..candidates.advice import Advice, OpAdvice
from ..candidates.candidate import Candidate, ScheduleOrigin, by_time, joint_candidate
from ..candidates.shortlist import packet_bytes
from ..solver.memory import NoFeasibleSchedule, check_workload_memory
from ..work.pools import open_processes
from ..work.processes import POLL_S, ProcessDied
from ..work.workers import failed_simulation
from .options import OpOption, fastest_alone
from .orders import by_library

SEPARATE = "separate"

LEAST_SHARE = 0.1
"""Least share of the time of copies that a kernel hides to be named."""

LEAST_GAIN = 0.005
"""Least difference in time that is worth a sentence."""

WORTH = 1.02
"""Least gain of an op alone by its own best that is worth a sentence."""


def ops_of(
    workload: Workload, op_options: Mapping[str, Sequence[OpOption]], choice: Schedule, result: Result
) -> tuple[OpAdvice, ...]:
    """Return what the ops of ``workload`` do in ``choice``, in the order in which they begin.

    ``workload`` is written out in the batches of the choice; of layers that repeat it is one that has neighbours.
    """
    layer = min(SHOWN_LAYER, result.num_simulated)
    timeline = result.timeline
    of_parts: dict[str, list[Interval]] = {}
    for each in timeline.of_rank(0):
        of_parts.setdefault(_op(each.name), []).append(each)
    kernels = [each for each in timeline.of_rank(0) if each.kind is not IntervalKind.COMM]
    modes = {mode.op: mode for mode in choice.modes}
    found = []
    for op in workload.ops:
        times = result.op(in_layer(op.name, layer))
        copies = [each for each in of_parts.get(times.name, ()) if each.kind is IntervalKind.COMM]
        of = op_options.get(op.name, ())
        best = fastest_alone(of) if len(of) > 1 else None
        mode = modes.get(op.name, OpMode(op.name))
        whole = next((option.total for option in of if option.is_separate), 0)
        differs = best is not None and best.mode != mode
        found.append(
            OpAdvice(
                op.name,
                op.label,
                f"chained {op.takes_rows_of}" if op.name in choice.chained else _how(op.is_pair, mode),
                times.begin_ticks,
                times.end_ticks,
                times.comm_ticks,
                times.exposed_ticks,
                tuple(_hidden_by(copies, kernels, layer)),
                _how(op.is_pair, best.mode) if best is not None and differs else "",
                best.total if best is not None else 0,
                whole,
            )
        )
    return tuple(sorted(found, key=lambda each: each.begin_ticks))


def _op(step: str) -> str:
    return step.partition(".")[0]


def _how(is_pair: bool, mode: OpMode) -> str:
    if mode.separate is not None:
        return f"{SEPARATE}, by {whole_text(mode.separate)}"
    if mode.body is None:
        return "serial" if is_pair else ""
    return "a plan written out" if isinstance(mode.body, WrittenPlan) else expression_of(mode.body)


def _hidden_by(copies: Sequence[Interval], kernels: Sequence[Interval], layer: int) -> Iterator[tuple[str, float]]:
    """The ops whose kernels run while copies do, with their shares of the time of the copies, the largest first."""
    moments, own_kernels = union_of(copies), dict[str, list[Interval]]()
    for kernel in kernels:
        own_kernels.setdefault(_op(kernel.name), []).append(kernel)
    beside = {name: overlap_ticks(moments, union_of(those)) for name, those in own_kernels.items()}
    shares = Counter({name: ticks / total_ticks(moments) for name, ticks in beside.items() if ticks})
    for name, share in shares.most_common():
        if share >= LEAST_SHARE:
            own, _, number = name.partition("@")
            later = int(number or 1) - layer
            where = "" if later == 0 else " of the next layer" if later > 0 else " of the layer before"
            yield f"{own}{where}", share


def slowly(op_options: Mapping[str, Sequence[OpOption]], choice: Schedule) -> Iterator[str]:
    """Yield why collectives are slower than they could be, where some are."""
    modes = set(choice.modes)
    names = [name for name, of in op_options.items() if any(option.is_paced and option.mode in modes for option in of)]
    if names:
        are = "is" if len(names) == 1 else "are"
        yield f"{listing(names)} {are} copied slowly: kernels beside such copies wait less for the network on chip."


def reasons_for(
    ops: Sequence[OpAdvice], recommended: Candidate, in_turn: Candidate | None, kernels_ticks: int
) -> Iterator[str]:
    """Yield why: the pairs that are not cut, those that are cut otherwise than alone, and what remains exposed."""
    for op in ops:
        hidden = " and ".join(f"{name} ({share:.0%})" for name, share in op.hidden_by[:2])
        where = f"its copies run under {hidden}" if hidden else "its copies run beside no kernel"
        if op.how.startswith(SEPARATE):
            yield f"{op.name} is not cut: {where}{_alone_sentence(op)}."
        elif _alone_sentence(op):
            yield f"{op.name} is {op.how}: {where}{_alone_sentence(op)}."
        elif op.comm_ticks and not op.whole_ticks and op.hidden_by:
            yield f"{op.name} moves under {hidden}."
    if 0 < kernels_ticks <= recommended.ticks:  # they are simulated in packets, in which small kernels may be slower
        over = recommended.ticks / kernels_ticks - 1
        yield f"all kernels alone take {us_text(kernels_ticks / TICKS_PER_US)}: the schedule takes {over:.1%} more."
    gain = 1.0 if in_turn is None else in_turn.ticks / recommended.ticks
    if in_turn is not None and abs(gain - 1) >= LEAST_GAIN:
        yield f"each pair's own best, one after the other, takes {us_text(in_turn.best_us)}, {gain:.2f}x as long."


def _alone_sentence(op: OpAdvice) -> str:
    """What is best for a pair alone, where it gains something and is not what the pair does here."""
    gain = op.whole_ticks / op.alone_ticks if op.alone_ticks else 1.0
    if not op.alone or gain < WORTH:
        return ""
    times = f"{us_text(op.alone_ticks / TICKS_PER_US)} against {us_text(op.whole_ticks / TICKS_PER_US)} whole"
    return f"; alone {op.alone} is best, {times}"


log = logging.getLogger(__name__)


def simulated_schedules(scenario: Scenario, workers: int = 1, watcher: Watcher = UNWATCHED) -> Advice:
    """Return the advice that the declared schedules and ``serial`` give, simulated in packets in so many ``workers``.

    ``watcher`` is told what would be answered now as soon as the baseline is known, and again with each result. An
    answer that was stopped is ``interrupted``.

    Raises
    ------
    ScheduleError
        If the tensors of the workload do not fit into the memory of a GPU.
    NoFeasibleSchedule
        If no schedule can be simulated.
    Cancelled
        If it was stopped before there was anything to answer.
    """
    check_workload_memory(scenario)
    progress, should_stop = watcher.progress, watcher.should_stop
    schedules = {schedule.name: schedule for schedule in (SERIAL, *scenario.schedules)}
    library, _ = by_library(scenario)
    waiting = [joint_candidate(library.choice, ScheduleOrigin.LIBRARY, library.what)] if library is not None else []
    waiting += [_declared(each) for each in schedules.values()]
    known = {each.expression: each for each in waiting}
    bound = workload_bound(scenario, should_stop)
    comparison = _Comparison(scenario, bound, known)
    progress("simulate", 0, len(waiting))
    for done, candidate in enumerate(_simulated(scenario, waiting, workers, should_stop), 1):
        comparison.known[candidate.expression] = candidate
        progress("simulate", done, len(waiting))
        if watcher.answered is not None and done < len(waiting) and comparison.has_baseline:
            watcher.answered(comparison.answer(interrupted=True))
    return comparison.answer(interrupted=should_stop())


def _declared(schedule: Schedule) -> Candidate:
    return joint_candidate(schedule, ScheduleOrigin.SERIAL if schedule == SERIAL else ScheduleOrigin.DECLARED)


def simulated_candidate(scenario: Scenario, candidate: Candidate, should_stop: ShouldStop) -> Candidate:
    """Return ``candidate`` simulated in packets, or with the problem why it cannot be.

    Raises
    ------
    Cancelled
        If it was stopped.
    """
    try:
        result = simulate_layers(
            scenario.system,
            scenario.workload,
            candidate.joint,
            name=scenario.name,
            unit_bytes=packet_bytes(scenario.gpu),
            options=RunOptions(observe=True, should_stop=should_stop),
        )
        check_workload_memory(scenario, result.schedule.staging_bytes)
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

    scenario: Scenario
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
        advice = advice_of(self.scenario, Findings(tuple(ranked), stages, bound=self.bound, notes=problems))
        advice = _with_ops(advice, kernels_ticks=0)
        return replace(advice, reasons=(*imbalance_lines(self.scenario), *advice.reasons))


def _with_ops(advice: Advice, kernels_ticks: int) -> Advice:
    """Return the advice with what each op does in the recommended schedule, which is simulated, and why."""
    best = advice.recommended
    assert best.result is not None, "the baseline is simulated"
    ops = ops_of(cut_up(advice.scenario.workload, best.joint.cut), {}, best.joint, best.result)
    return replace(advice, ops=ops, reasons=(*reasons_for(ops, best, None, kernels_ticks), *advice.reasons))


def _simulated(
    scenario: Scenario, waiting: Sequence[Candidate], workers: int, should_stop: ShouldStop
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
    ranked = tuple(by_time(list(found.values())))
    findings = Findings(ranked, stages, bound=advice.bound, notes=notes, offers=advice.offers)
    again = advice_of(advice.scenario, findings)
    best = again.recommended
    if best.expression != advice.recommended.expression and best.result is not None:
        again = _with_ops(again, advice.kernels_ticks)
    else:
        again = replace(again, ops=advice.ops, reasons=advice.reasons)
    return replace(
        again,
        marks=tuple(dict.fromkeys((*again.marks, *advice.marks))),
        timing=advice.timing,
        kernels_ticks=advice.kernels_ticks,
        copier=advice.copier,
        searched=advice.searched,
        source=advice.source,
    )
