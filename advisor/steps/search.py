"""The layouts of a step compared: those that can be, that fit into memory, and the fastest of them."""

import math
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

from ...compiler.ir import Cancelled, Progress, Settings, ShouldStop
from ...compiler.ir.step import (
    KEEP_WRITTEN,
    ContextKind,
    Overlapped,
    Pipeline,
    PipelineKind,
    StepScenario,
    StepSchedule,
)
from ...compiler.ir.stopping import never
from ...compiler.planning.build import ScheduleError
from ...compiler.text.diagnostics import CompileError
from ..work.pools import Submit
from .ahead import is_known, simulate_ahead
from .layer_times import LayerTimes
from .outcome import StepOutcome, chunks_of, memory_limit, memory_of, outcome_of, run_of
from .plans import can_run
from .times import have_copies

Compile = Callable[[Settings], StepScenario]
"""Compiles the step again with parameters set; raises CompileError where they do not fit."""

SHOWN, MOST_CONTENDED = 5, 12
"""Layouts that an answer shows, and how many at most are simulated with traffic beside their layers to find them."""

SoFar = Callable[[Sequence[StepOutcome], int], None]
"""Takes what was found so far, the fastest first, and how many of these were simulated with traffic beside."""

MOST_REPORTED = 32
"""How often at most a search tells what it has found so far while it simulates layouts."""

TIE = 0.02
"""Difference of two steps below which they are a tie: what profiles of GEMMs resolve."""


@dataclass(frozen=True, slots=True)
class Searched:
    """What became of the layouts and schedules of a space.

    Attributes
    ----------
    outcomes
        Those that fit and were simulated, the fastest first; behind those of a framework come those that it has not.
    declared
        The schedules of the file as it stands, in their order.
    num_layouts
        How many there are; ``impossible`` do not divide, ``too_large`` do not fit into memory.
    nearest
        The one of those too large that needs least memory, with the bytes of each stage.
    reason
        Why the first of those that do not divide does not, empty without one.
    interrupted
        Whether some were left out, because the caller was asked to stop.
    contended
        So many of the first ``outcomes`` were simulated with traffic beside their layers; the others take no less time
        than they have here.
    slower
        How many were not simulated, since with the kernels of their layers alone they are no faster than those.
    framework
        The one that is to carry them out, by its name in ``FRAMEWORKS``; empty for any.
    """

    outcomes: tuple[StepOutcome, ...]
    declared: tuple[StepOutcome, ...]
    num_layouts: int
    impossible: int
    too_large: int
    nearest: tuple[Settings, StepSchedule, tuple[int, ...]] | None = None
    interrupted: bool = False
    layers_simulated: int = 0
    contended: int = 0
    reason: str = ""
    framework: str = ""
    slower: int = 0

    @property
    def usable(self) -> tuple[StepOutcome, ...]:
        """The outcomes that the framework has, the fastest first."""
        return tuple(each for each in self.outcomes if can_run(each, self.framework))


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A layout and a schedule that fit into memory."""

    scenario: StepScenario
    schedule: StepSchedule
    settings: Settings


def schedules_of(scenario: StepScenario) -> Iterator[StepSchedule]:
    """Yield the schedules of the space of a step that say something else, each once.

    What is not explored is as the first schedule of the file has it, or by what frameworks run: states of the optimizer
    shared, and traffic of gradients and weights beside the passes.
    """
    explore = scenario.explore
    usual = StepSchedule("usual", overlapped=tuple(Overlapped))
    first = next(iter(scenario.schedules), usual)
    written = all(KEEP_WRITTEN in dict(part.backward) for block in scenario.step.blocks for part in block.parts)
    pipelines = explore.pipelines or (first.pipeline,)
    if scenario.num_stages == 1:
        pipelines = (Pipeline(),)
    zeros = (explore.zero or (first.zero,)) if have_copies(scenario) else (0,)
    keeps = (first.keep,) if written else explore.keep or (first.keep,)
    contexts = (explore.context or (first.context,)) if scenario.in_context else (first.context,)
    for pipeline, zero, keep, context in product(pipelines, zeros, keeps, contexts):
        stages = first.stages if pipeline == first.pipeline and len(first.stages) == scenario.num_stages else ()
        found = replace(first, pipeline=pipeline, zero=zero, keep=keep, stages=stages, context=context)
        if zero == 3 and scenario.num_stages > 1:
            continue  # weights of all layers would be gathered for each microbatch
        ring = " context ring" if scenario.in_context and context is ContextKind.RING else ""
        name = f"{pipeline.expression} zero {zero} keep {keep}{ring}"
        yield replace(found, name=name if found != first else first.name)


def search(
    scenario: StepScenario,
    compile_with: Compile,
    times: LayerTimes,
    progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
    *,
    as_written: bool = True,
    shown: int = SHOWN,
    submit: Submit | None = None,
    answered: Callable[[Searched], None] | None = None,
    framework: str = "",
    every: bool = False,
) -> Searched:
    """Compare all layouts that the file explores, each with all schedules of the space.

    They are simulated in the order of what the kernels of their layers take alone. Where that is no less than what as
    many as are shown take, and what ties with the fastest, no other is simulated, unless ``every`` one is to be.

    Parameters
    ----------
    scenario
        The step as the file stands.
    compile_with
        Compiles it with other parameters.
    times
        Of layers; layouts that have the same layers share them.
    as_written
        Whether the file is as its user wrote it: a declared schedule that does not fit is then an error, and is left
        out where parameters were set.
    shown
        So many of the fastest are found, with traffic simulated beside the layers of those that tie with the fastest.
    submit
        Has layers simulated side by side; None: one after the other, as they are needed.
    answered
        Is called with what would be found if the search ended now.
    framework
        The one whose layouts are found first, by its name in ``FRAMEWORKS``; empty for any.

    Raises
    ------
    ScheduleError
        If a declared schedule does not fit.
    """
    stop, report = should_stop or never, progress or (lambda stage, done, total: None)
    ahead = partial(_ahead, submit=submit, report=report, stop=stop)
    ahead([(scenario, schedule) for schedule in scenario.schedules], times)
    declared = _declared(scenario, times, stop, as_written=as_written)
    space = _space(scenario, compile_with, report, stop)

    def found(outcomes: Sequence[StepOutcome], contended: int, *, interrupted: bool, slower: int = 0) -> Searched:
        counts = space.count, space.impossible, space.too_large, space.nearest
        done = interrupted, times.num_simulated, contended, space.reason
        return Searched(tuple(outcomes), declared, *counts, *done, framework, slower)

    def so_far(outcomes: Sequence[StepOutcome], contended: int) -> None:
        if answered is not None:
            answered(found(outcomes, contended, interrupted=True))

    so_far((), 0)
    apart = replace(times, contended=False)
    queue = _Queue(_by_bound(space.fitting, times), len(space.fitting) if every else shown, framework)
    ahead([(each.scenario, each.schedule) for each in queue.promising], apart)
    while True:
        interrupted = _simulated(queue, apart, report, stop, so_far) or space.interrupted
        if interrupted:
            return found(queue.done, 0, interrupted=True)
        others = [each for each in queue.done if not can_run(each, framework)]
        ahead([(each.scenario, each.schedule) for each in queue.close(shown)], times)
        usable, contended, interrupted = _contended(queue.usable, shown, times, report, stop, so_far)
        queue.limit = queue.limit_of(usable)
        if interrupted or queue.is_done:
            return found([*usable, *others], contended, interrupted=interrupted, slower=len(queue.left))


@dataclass(slots=True)
class _Queue:
    """Candidates that are ``left``, each behind the least ticks that it takes, in order; and outcomes of the others.

    ``wanted`` is how many of the ``framework`` are to be found; ``limit`` the ticks from which on none of them is.
    """

    left: list[tuple[int, _Candidate]]
    wanted: int
    framework: str
    done: list[StepOutcome] = field(default_factory=list)
    limit: float = 0.0

    @property
    def usable(self) -> list[StepOutcome]:
        """Outcomes of the framework, the fastest first."""
        return [each for each in self.done if can_run(each, self.framework)]

    @property
    def promising(self) -> list[_Candidate]:
        """What is likely to be simulated: of others the kernels alone take twice as long as of those wanted."""
        most = 2 * self.left[self.wanted - 1][0] if self.wanted < len(self.left) else math.inf
        return [each for ticks, each in self.left if ticks <= most]

    @property
    def is_done(self) -> bool:
        """Whether nothing that is left can be wanted."""
        return not self.left or self.left[0][0] >= max(self.limit, self.limit_of(self.usable))

    def close(self, count: int) -> list[StepOutcome]:
        """Of so many outcomes of the framework those that tie with the fastest."""
        fastest = self.usable[:count]
        return [each for each in fastest if each.run.makespan_ticks <= fastest[0].run.makespan_ticks * (1 + TIE)]

    def limit_of(self, fastest: Sequence[StepOutcome]) -> float:
        """The ticks from which on an outcome is neither one of those wanted nor a tie with the first."""
        if len(fastest) < self.wanted:
            return math.inf
        ticks = sorted(each.run.makespan_ticks for each in fastest)
        return max(ticks[self.wanted - 1], ticks[0] * (1 + TIE))

    def take(self, outcome: StepOutcome) -> None:
        """Add an outcome."""
        insort(self.done, outcome, key=_order)


def _by_bound(fitting: Sequence[_Candidate], times: LayerTimes) -> list[tuple[int, _Candidate]]:
    """Candidates in the order of the least ticks that they take; 0 where a layer cannot be simulated."""
    least, found = replace(times, least=True), []
    for each in fitting:
        ticks = 0
        with suppress(ScheduleError):
            ticks = run_of(each.scenario, each.schedule, least).makespan_ticks
        found.append((ticks, each))
    return sorted(found, key=lambda each: each[0])


def _ahead(
    layouts: Sequence[tuple[StepScenario, StepSchedule]],
    times: LayerTimes,
    submit: Submit | None,
    report: Progress,
    stop: ShouldStop,
) -> None:
    """Have the layers of layouts simulated side by side, if they can be; what is stopped is not known."""
    if submit is not None:
        with suppress(Cancelled):
            simulate_ahead(layouts, times, submit, report, stop)


def _declared(
    scenario: StepScenario, times: LayerTimes, stop: ShouldStop, *, as_written: bool
) -> tuple[StepOutcome, ...]:
    """The schedules of the file, as far as they fit where parameters were set."""
    found = []
    for schedule in scenario.schedules:
        if stop():
            break
        try:
            found.append(outcome_of(scenario, schedule, times))
        except Cancelled:
            break
        except ScheduleError:
            if as_written:
                raise
    return tuple(found)


@dataclass(slots=True)
class _Space:
    """All layouts and schedules, and which of them fit."""

    fitting: list[_Candidate] = field(default_factory=list)
    count: int = 0
    impossible: int = 0
    too_large: int = 0
    nearest: tuple[Settings, StepSchedule, tuple[int, ...]] | None = None
    interrupted: bool = False
    reason: str = ""

    def add(self, compiled: StepScenario, schedule: StepSchedule, settings: Settings) -> None:
        """Take a schedule of a layout."""
        try:
            stages = tuple(stage.total for stage in memory_of(compiled, schedule, chunks_of(compiled, schedule)))
        except ScheduleError as error:
            self.leave_out(f"{schedule.pipeline.expression}: {error.rejection.message}", settings)
            return
        self.count += 1
        if max(stages) <= memory_limit(compiled):
            self.fitting.append(_Candidate(compiled, schedule, settings))
            return
        self.too_large += 1
        if self.nearest is None or max(stages) < max(self.nearest[2]):
            self.nearest = settings, schedule, stages

    def leave_out(self, message: str, settings: Settings) -> None:
        """Count a layout that does not divide."""
        self.count, self.impossible = self.count + 1, self.impossible + 1
        said = ", ".join(f"{name} = {value}" for name, value in settings)
        self.reason = self.reason or (f"with {said}: {message}" if said else message)


def _space(scenario: StepScenario, compile_with: Compile, report: Progress, stop: ShouldStop) -> _Space:
    space = _Space()
    for number, settings in enumerate(_settings(scenario)):
        report("layouts that fit", number, scenario.explore.num_layouts)
        if stop():
            space.interrupted = True
            break
        try:
            compiled = compile_with(settings) if settings else scenario
        except CompileError as error:
            space.leave_out(error.first.message, settings)
            continue
        for schedule in schedules_of(compiled):
            space.add(compiled, schedule, settings)
    return space


def nearest_fitting(
    scenario: StepScenario, schedule: StepSchedule, compile_with: Compile, should_stop: ShouldStop = never
) -> tuple[Settings, StepSchedule] | None:
    """Return what fits into memory and differs least from a schedule of a step, of all that the file explores."""

    def differs(each: _Candidate) -> int:
        axes = zip(each.scenario.system.mesh, scenario.system.mesh, strict=True)
        other = each.schedule
        return sum(one != own for one, own in axes) + sum(
            (other.pipeline != schedule.pipeline, other.zero != schedule.zero, other.keep != schedule.keep)
        )

    fitting = _space(scenario, compile_with, lambda stage, done, total: None, should_stop).fitting
    nearest = min(fitting, key=differs, default=None)
    return None if nearest is None else (nearest.settings, nearest.schedule)


def _simulated(queue: _Queue, times: LayerTimes, report: Progress, stop: ShouldStop, so_far: SoFar) -> bool:
    """Simulate what may be wanted of a queue, and return whether that was stopped: then with all that is known."""
    every, total = -(-len(queue.left) // MOST_REPORTED), len(queue.left) + len(queue.done)
    while not queue.is_done:
        number = total - len(queue.left)
        report("layouts", number, total)
        if stop():
            for _, other in queue.left:
                if is_known((other.scenario, other.schedule), times):
                    queue.take(outcome_of(other.scenario, other.schedule, times, other.settings))
            return True
        _, each = queue.left[0]
        try:
            queue.take(outcome_of(each.scenario, each.schedule, times, each.settings))
        except Cancelled:
            return True
        except ScheduleError:
            pass
        del queue.left[0]
        if number % every == 0:
            so_far(queue.done, 0)
    report("layouts", total, total)
    return False


def _contended(
    outcomes: Sequence[StepOutcome], shown: int, times: LayerTimes, report: Progress, stop: ShouldStop, so_far: SoFar
) -> tuple[list[StepOutcome], int, bool]:
    """The fastest with traffic simulated beside their layers, the fastest of these first; then the others as they were.

    Without that they are no slower: once as many as are shown are faster than the next of the others, so they are. What
    does not tie with the fastest is left as it was. Also return how many these are, and whether the search was stopped.
    """
    left, done, most = list(outcomes), list[StepOutcome](), max(MOST_CONTENDED, shown)
    while left and len(done) < most:
        done.sort(key=_order)
        if len(done) >= shown and left[0].run.makespan_ticks >= done[shown - 1].run.makespan_ticks:
            break
        if done and left[0].run.makespan_ticks > done[0].run.makespan_ticks * (1 + TIE):
            break
        so_far([*done, *left], len(done))
        report("contention", len(done), most)
        if stop():
            return [*done, *left], len(done), True
        each = left[0]
        try:
            done.append(outcome_of(each.scenario, each.schedule, times, each.settings))
        except Cancelled:
            return [*done, *left], len(done), True
        del left[0]
    return [*sorted(done, key=_order), *left], len(done), False


def _settings(scenario: StepScenario) -> Iterator[Settings]:
    explore = scenario.explore
    names = [name for name, _ in explore.settings]
    for values in product(*(each for _, each in explore.settings)):
        yield tuple(zip(names, values, strict=True))


SIMPLE = tuple(PipelineKind)
"""Pipelines from what every framework has to what one has."""

EVERYWHERE = (PipelineKind.ONE_F_ONE_B, PipelineKind.INTERLEAVED)
"""Those that every framework has."""


def _order(outcome: StepOutcome) -> tuple[int, int, int]:
    kind = SIMPLE.index(outcome.schedule.pipeline.kind)
    return outcome.run.makespan_ticks, kind, outcome.memory_bytes


def recommended(searched: Searched) -> StepOutcome | None:
    """Return the layout to use: of those that tie with the fastest one that every framework has, if there is one.

    Of a framework it is one of those that it has.
    """
    usable = searched.usable
    if not usable:
        return None
    best = usable[0].run.makespan_ticks
    ties = [each for each in usable if each.run.makespan_ticks <= best * (1 + TIE)]
    return next((each for each in ties if each.schedule.pipeline.kind in EVERYWHERE), ties[0])
