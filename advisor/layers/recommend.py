"""From a graph to advice: ways of its ops, joint search, all layers in packets, and why."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from ...compiler.codes import Code
from ...compiler.ir import (
    TICKS_PER_US,
    Cancelled,
    GraphChoice,
    GraphScenario,
    Progress,
    Rejection,
    Scenario,
    ShouldStop,
    heeding,
)
from ...compiler.ir.stopping import never
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.graph_build import build_graph_plan
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.resolve.schedules.explore import BATCHES
from ...compiler.resolve.schedules.from_text import SERIAL
from ...simcore.memo.memo import ADVISOR, memo_of, memoized
from ...simcore.simulate_layers import LayersResult
from ..answer.above_bound import BoundCheck
from ..answer.explain import COPY_ENGINES_LEFT_OUT
from ..answer.extrapolation import outside_of_graph
from ..bounds.graph_bound import graph_bound
from ..bounds.lower_bound import Bound
from ..candidates.advice import MIN_LEAD
from ..candidates.predicted import predicted_candidates
from ..failures import failure_sentences
from ..implementations.promise import MIN_GAIN
from ..options import AdviceOptions
from ..solver.graph_memory import check_graph_memory
from ..stages import PATIENCE_S, Stages, either, lateness
from .advice import GraphAdvice, GraphCandidate, OpAdvice, by_time
from .baselines import EACH_ITS_BEST, NO_OVERLAP
from .copiers import leaves_out_copy_engines
from .joint import COARSE_BYTES, JointRuns, Start, affordable_packet, simulated, too_much
from .offers.find import OfferSearch
from .offers.offer import LayerOffer
from .search import JOINT, JointSearch, free_names
from .telling import LEAST_GAIN, ops_of, reasons_for, slowly

NUM_FINALISTS = 3
"""Searched schedules of which all layers are simulated."""

NEAR = 1.03
"""Candidates that are slower than the fastest by more than this, in coarse packets, are not simulated further."""

FINE_LINE_HOPS = 120_000_000
"""Most line-hops of a run that confirms, about a second on one core."""

SEARCH, OFFERS, BOUND = "the joint search", "the implementations", "the lower bound"

INTERRUPTED = "stopped early: this is the best of what was found until then"

NOT_SIMULATED = "nothing was simulated in time: the time without overlap is the sum of the estimates of all ops"

NOT_SEARCHED = "copies by {} and ways in which all must be simulated were compared only where they are explored"

SIMULATED_ALL_THE_SAME = (
    "a layer is simulated without verification too, and no small changes of its schedules are tried"
)

SHORTENED = "a large graph: the search ended before small changes gained nothing any more"


def _silent(stage: str, done: int, total: int) -> None:
    """Report no progress."""


def recommend_graph(
    scenario: GraphScenario,
    options: AdviceOptions | None = None,
    *,
    progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
) -> GraphAdvice:
    """Return which schedule to use for all ops of a graph together; while results are kept on disk, the kept answer.

    Without ``verify`` or with ``bespoke`` 0 no small changes are tried. ``top``, ``workers``, ``threshold`` and
    ``sensitivity`` are for pairs.

    Raises
    ------
    ScheduleError
        If the graph does not fit into memory, or its system replays a profile.
    RunTooLarge
        If not even the schedule without overlap can be simulated.
    Cancelled
        If ``should_stop`` returned true before anything was simulated.
    """
    options = options or AdviceOptions()
    _check(scenario)
    return memoized(
        memo_of(("recommend_graph", scenario, replace(options, within_s=None)), ADVISOR),
        GraphAdvice,
        lambda: _recommended(scenario, options, progress, should_stop),
        given=(scenario,),
        lasts=lambda advice: not advice.interrupted,
    )


def _recommended(
    scenario: GraphScenario, options: AdviceOptions, progress: Progress | None, should_stop: ShouldStop | None
) -> GraphAdvice:
    begun, stop, report = perf_counter(), should_stop or never, progress or _silent
    late = lateness(options.within_s)
    early = stop if late is None else either(stop, late)
    runs = JointRuns(scenario.system, scenario.graph, scenario.explore.staging_limit_bytes, early)
    runs.told = lambda choice, ticks: report("joint", runs.num_runs, 0)
    report("place", 0, 1)
    late_for_serial = None if options.within_s is None else lateness(options.within_s + PATIENCE_S)
    estimate_ticks = 0 if late_for_serial is None else serial_estimate(scenario, stop, either(stop, late_for_serial))
    try:
        serial = runs.begin(SERIAL, stop if late_for_serial is None else either(stop, late_for_serial))
    except Cancelled:
        if stop():
            raise
        return replace(_unsimulated(scenario, estimate_ticks), seconds=perf_counter() - begun)
    if serial is None:
        message = f"{scenario.name} cannot be simulated without overlap"
        raise ScheduleError(Rejection(Code.MGS402, message, "repeat fewer layers, or use smaller tensors"))
    search = JointSearch(scenario, runs, climbs=options.verify and options.bespoke > 0)
    stages, finish = Stages(early), _Finish(scenario, runs, serial, early, report)
    stages.run(SEARCH, search.run, None)
    offers = OfferSearch(scenario, runs, search.known, search.found)
    report("offers", 0, 1)
    stages.run(OFFERS, offers.run, None)
    known = _candidates(scenario, search, serial)
    candidates = finish.candidates([*known, *_offered(scenario, offers.found.values(), known)])
    bound = stages.run(BOUND, lambda: graph_bound(scenario.system, scenario.graph), None)
    interrupted = stages.interrupted or finish.stopped
    failed = failure_sentences(stages.failures)
    notes = (
        *((INTERRUPTED,) if interrupted else ()),
        *failed,
        *_left_out(scenario, runs),
        *_not_searched(scenario, runs),
    )
    if not options.verify:
        notes = (*notes, SIMULATED_ALL_THE_SAME)
    limit = BoundCheck(0 if bound is None else bound.ticks)
    candidates, found, below = _above_bound(limit, candidates, list(offers.found.values()))
    advice = _advice(scenario, search, candidates, bound, (*notes, *below), interrupted=interrupted)
    advice = replace(advice, offers=tuple(sorted(found, key=lambda each: each.all_ticks)))
    if advice.verdict is Verdict.SERIAL and runs.stages_too_much(serial.result):
        staged = too_much(serial.result, runs.staging_limit_bytes or 0)
        too = f"{SERIAL.name}: {staged}, and nothing that was found stages less"
        advice = replace(advice, marks=(*advice.marks, too))
    return replace(advice, seconds=perf_counter() - begun)


def _above_bound(
    limit: BoundCheck, candidates: tuple[GraphCandidate, ...], offers: list[LayerOffer]
) -> tuple[tuple[GraphCandidate, ...], list[LayerOffer], tuple[str, ...]]:
    """Return candidates and implementations whose times reach the bound, and a note on each of the others."""
    below = {one.name: limit.sentence(one.name, one.us) for one in candidates if limit.is_below(one.us)}
    below.pop(SERIAL.name, None)  # without a baseline there is no answer
    of_offers = {each.schedule: each.all_ticks / TICKS_PER_US for each in offers}
    below |= {name: limit.sentence(name, us) for name, us in of_offers.items() if limit.is_below(us)}
    kept = tuple(one for one in candidates if one.name not in below)
    return kept, [each for each in offers if each.schedule not in below], tuple(below.values())


def serial_estimate(scenario: GraphScenario, should_stop: ShouldStop, too_late: ShouldStop) -> int:
    """Return the estimated ticks of all layers without overlap: the serial schedules of all ops, one after the other.

    Once it is ``too_late``, one rank of a collective stands for all.

    Raises
    ------
    Cancelled
        If ``should_stop`` returned true.
    """
    with heeding(should_stop):
        pairs = (Scenario(op.name, scenario.system, op.workload) for op in scenario.graph.ops)
        one_us = sum(predicted_candidates(pair, (), never, too_late)[0].best_us for pair in pairs)
    return round(one_us * TICKS_PER_US * scenario.graph.num_layers)


def _unsimulated(scenario: GraphScenario, estimate_ticks: int) -> GraphAdvice:
    """The answer where nothing was simulated in time: no overlap, as it is estimated."""
    serial = GraphCandidate(SERIAL, NO_OVERLAP, estimate_ticks, is_baseline=True)
    marks, reasons = (INTERRUPTED, NOT_SIMULATED), ()
    return GraphAdvice(
        scenario, Verdict.SERIAL, serial, serial, (serial,), (), reasons, None, 0, "", 0, marks=marks, interrupted=True
    )


def _left_out(scenario: GraphScenario, runs: JointRuns) -> Iterator[str]:
    """Why schedules of the file are not compared."""
    for choice in scenario.schedules:
        if choice in runs.left_out:
            yield f"{choice.name} is left out: {runs.left_out[choice]}"


def _not_searched(scenario: GraphScenario, runs: JointRuns) -> Iterator[str]:
    """What was left out of a search that would take too long."""
    if runs.ranks.are_many:
        others = "other numbers of SMs" if leaves_out_copy_engines(scenario.graph, scenario.explore) else "SMs"
        yield f"{runs.system.num_ranks} GPUs that are not alike: {NOT_SEARCHED.format(others)}"
    if runs.is_spent:
        yield SHORTENED


def _check(scenario: GraphScenario) -> None:
    check_graph_memory(scenario)
    if scenario.system.replay is not None:
        message = f"{scenario.system.name} replays a profile, which is one of a single pair"
        raise ScheduleError(Rejection(Code.MGS523, message))


def _candidates(scenario: GraphScenario, search: JointSearch, serial: Start) -> list[GraphCandidate]:
    """What was found; of what was searched the fastest, each as long as no other: equal to the tick is the same."""
    known = {search.found[choice] for choice in search.known}
    by_ticks = {search.found[choice]: choice for choice in reversed(search.best_searched())}
    searched = [by_ticks[ticks] for ticks in sorted(by_ticks.keys() - known)][:NUM_FINALISTS]
    found = [
        _candidate(replace(choice, name=name), "searched for all ops together", search.found[choice])
        for choice, name in zip(searched, free_names(JOINT, scenario.schedules), strict=False)
    ]
    found += [_candidate(choice, what, search.found[choice], is_baseline=True) for choice, what in search.known.items()]
    if not any(one.choice == SERIAL for one in found):
        found.append(_candidate(SERIAL, NO_OVERLAP, serial.result.makespan_ticks, is_baseline=True))
    return found


def _offered(
    scenario: GraphScenario, offers: Iterable[LayerOffer], known: Sequence[GraphCandidate]
) -> Iterator[GraphCandidate]:
    """The schedules of implementations that are not among the ``known``; what a file explores does not limit them."""
    limited = any(word != BATCHES for word, _ in scenario.explore.asked)
    for offer in offers:
        if all(one.name != offer.schedule for one in known):
            choice, what = offer.table.choice, offer.about + (", which is not explored" if limited else "")
            yield GraphCandidate(choice, what, offer.ticks, is_baseline=True, is_outside=limited)


def _candidate(choice: GraphChoice, what: str, ticks: int, *, is_baseline: bool = False) -> GraphCandidate:
    return GraphCandidate(choice, what, ticks, is_baseline=is_baseline)


@dataclass(slots=True)
class _Finish:
    """Simulates all layers of the candidates that may be the answer, in units as fine as time allows."""

    scenario: GraphScenario
    runs: JointRuns
    serial: Start
    should_stop: ShouldStop
    report: Progress
    stopped: bool = False

    def candidates(self, found: Sequence[GraphCandidate]) -> tuple[GraphCandidate, ...]:
        """Return all, those that may be the answer with results."""
        best = min(one.ticks for one in found)
        near = [one for one in found if one.ticks <= best * NEAR or one.what in (NO_OVERLAP, EACH_ITS_BEST)]
        near.sort(key=lambda one: (one.choice != SERIAL, one.side_by_side, one.ticks))
        unit, results = self._unit(), dict[GraphChoice, LayersResult]()
        for done, one in enumerate(near):
            self.report("layers", done, len(near))
            try:
                result = self._result(one, unit)
            except Cancelled:
                self.stopped = True
                break
            if result is not None:
                results[one.choice] = result
        if len(results) < min(2, len(near)):  # not even no overlap and the fastest: estimates compare better
            results.clear()
        finished = (
            replace(one, result=results[one.choice], unit_bytes=unit) if one.choice in results else one for one in found
        )
        return _renamed(by_time(tuple(finished)), self.scenario.schedules)

    def _result(self, one: GraphCandidate, unit: int) -> LayersResult | None:
        """Of all layers, which may stage more than a few do; None if it is too much.

        No overlap, of which the length of a run is known, is not simulated again where that takes too long.
        """
        if one.choice == SERIAL and self.serial.is_long and unit == COARSE_BYTES:
            return self.serial.result
        system, graph = self.scenario.system, self.scenario.graph
        result = simulated(system, graph, one.choice, unit, self.should_stop, fine=True)
        may_not_be = result is not None and one.choice != SERIAL and self.runs.stages_too_much(result)
        return None if may_not_be else result

    def _unit(self) -> int:
        """The finest unit in which a run has no more line-hops than are affordable: lines, or packets."""
        line, unit = self.scenario.system.gpu.line_bytes, affordable_packet(self.serial.line_hops, FINE_LINE_HOPS)
        line_hops = self.serial.line_hops * COARSE_BYTES // unit
        while unit // 2 >= line and line_hops * 2 <= FINE_LINE_HOPS:
            unit, line_hops = unit // 2, line_hops * 2
        return unit


def _renamed(candidates: Sequence[GraphCandidate], declared: Sequence[GraphChoice]) -> tuple[GraphCandidate, ...]:
    """The searched schedules with names in the order of their times."""
    names = free_names(JOINT, declared)
    return tuple(
        one if one.is_baseline else replace(one, choice=replace(one.choice, name=next(names))) for one in candidates
    )


def _advice(
    scenario: GraphScenario,
    search: JointSearch,
    candidates: tuple[GraphCandidate, ...],
    bound: Bound | None,
    notes: tuple[str, ...],
    *,
    interrupted: bool,
) -> GraphAdvice:
    serial = next(one for one in candidates if one.choice == SERIAL)
    resolution = float(scenario.system.gpu.gemm.resolution)
    recommended = recommended_of(candidates, serial, resolution)
    space = search.space_of(recommended.choice)
    kernels = 0 if space is None else space.kernels_ticks * scenario.graph.num_layers
    ops: tuple[OpAdvice, ...] = ()
    if recommended.result is not None and space is not None:
        ops = ops_of(space.graph, space.ways, recommended.choice, recommended.result)
    in_turns = (one for one in candidates if one.what.startswith(EACH_ITS_BEST))  # by each copier
    in_turn = min(in_turns, key=lambda one: one.ticks, default=None)
    outside = outside_of_graph(scenario.system, build_graph_plan(scenario.system, scenario.graph, recommended.choice))
    return GraphAdvice(
        scenario,
        Verdict.SERIAL if recommended is serial else Verdict.OVERLAP,
        recommended,
        serial,
        candidates,
        ops,
        (
            *_near_serial(candidates, recommended, serial, resolution),
            *reasons_for(ops, recommended, in_turn, kernels),
            *(slowly(space.ways, recommended.choice) if space is not None else ()),
            *((COPY_ENGINES_LEFT_OUT,) if leaves_out_copy_engines(scenario.graph, scenario.explore) else ()),
        ),
        bound,
        kernels,
        "" if space is None else str(space.copier),
        search.runs.num_runs,
        marks=notes,
        interrupted=interrupted,
        outside_calibration=outside,
    )


def recommended_of(candidates: Sequence[GraphCandidate], serial: GraphCandidate, resolution: float) -> GraphCandidate:
    """The fastest, but what people have where it leads that by less than ``MIN_LEAD``, and no overlap where it is near.

    Neither kernels side by side are recommended, to which no profile is fitted, nor what the file does not explore.
    Estimates count where nothing was simulated whole, since the search was stopped.
    """
    usable = [one for one in candidates if not one.side_by_side and not one.is_outside]
    known = [one for one in usable if one.result is not None] or usable
    fastest = min(known, key=lambda one: (one.ticks, not one.is_baseline))
    usual = min((one for one in known if one.is_baseline), key=lambda one: one.ticks, default=fastest)
    best = usual if usual.ticks < fastest.ticks * (1 + MIN_LEAD) else fastest
    return best if serial.ticks >= best.ticks * (1 + max(MIN_GAIN, resolution)) else serial


def _near_serial(
    candidates: Sequence[GraphCandidate], recommended: GraphCandidate, serial: GraphCandidate, resolution: float
) -> Iterator[str]:
    """Why no overlap is recommended though something is faster."""
    usable = (one for one in candidates if not one.side_by_side and not one.is_outside)
    fastest = min(usable, key=lambda one: one.ticks, default=serial)
    gain = serial.ticks / fastest.ticks - 1
    if recommended is serial and gain >= LEAST_GAIN:
        least = max(MIN_GAIN, resolution)
        what = "the profile resolves" if resolution > MIN_GAIN else "is worth a change"
        yield f"{fastest.name}, the fastest, gains {gain:.2%}, less than the {least:.1%} that {what}"
