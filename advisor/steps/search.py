"""The layouts of a step compared: the fastest of those that fit, with traffic beside their layers.

Layers of many layouts may be simulated side by side, before the layouts are put together of them one after the other.
What is asked ahead is what the layouts would ask, so that the answer is the same however many work on it.
"""

import math
from bisect import insort
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ...compiler.ir import Cancelled, Progress, ShouldStop
from ...compiler.ir.step import PipelineKind, StepScenario
from ...compiler.ir.stopping import never, silent
from ...compiler.planning.build import ScheduleError
from ..layers.beside import LayerBeside
from ..work.pools import Submit, result_of
from .layer_times import LayerAnswer, LayerQuestion, LayerTimes
from .outcome import StepLayout, StepOutcome, chunks_of, outcome_of, run_of, updated_of
from .plans import can_run
from .space import Compile, Searched, space_of
from .times import ticks_of

SHOWN, MOST_CONTENDED = 5, 12
"""Layouts that an answer shows, and how many at most are simulated with traffic beside their layers to find them."""

MOST_REPORTED = 32
"""How often at most a search tells what it has found so far while it simulates layouts."""

TIE = 0.02
"""Difference of two steps below which they are a tie: what profiles of GEMMs resolve."""


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
    found = Searched(framework=framework)

    def so_far(outcomes: Sequence[StepOutcome], contended: int, *, interrupted: bool = True) -> Searched:
        known = replace(found, outcomes=tuple(outcomes), contended=contended, interrupted=interrupted)
        return replace(known, layers_simulated=times.num_simulated)

    def tell(outcomes: Sequence[StepOutcome], contended: int) -> None:
        if answered is not None:
            answered(so_far(outcomes, contended))

    watch = _Watch(progress or silent, should_stop or never, tell, submit)
    watch.ahead([StepLayout(scenario, schedule, ()) for schedule in scenario.schedules], times)
    declared = _declared(scenario, times, watch.stop, as_written=as_written)
    fitting, space = space_of(scenario, compile_with, watch.report, watch.stop)
    found = replace(space, declared=declared, framework=framework)
    tell((), 0)
    apart = replace(times, contended=False)
    queue = _Queue(_by_bound(fitting, times), len(fitting) if every else shown, framework)
    watch.ahead(queue.promising, apart)
    while True:
        interrupted = _simulated(queue, apart, watch) or space.interrupted
        if interrupted:
            return so_far(queue.done, 0)
        others = [each for each in queue.done if not can_run(each, framework)]
        watch.ahead(queue.close(shown), times)
        usable, contended, interrupted = _contended(queue.usable, shown, times, watch)
        queue.limit = queue.limit_of(usable)
        if interrupted or queue.is_done:
            compared = so_far([*usable, *others], contended, interrupted=interrupted)
            return replace(compared, slower=len(queue.left))


@dataclass(frozen=True, slots=True)
class _Watch:
    """Those who wait: told how far it is, and outcomes with how many of these have traffic beside their layers.

    ``submit`` has layers simulated side by side, if that is not None.
    """

    report: Progress
    stop: ShouldStop
    tell: Callable[[Sequence[StepOutcome], int], None]
    submit: Submit | None

    def ahead(self, layouts: Sequence[StepLayout], times: LayerTimes) -> None:
        """Have the layers of layouts simulated side by side, if they can be; what is stopped is not known."""
        if self.submit is not None:
            with suppress(Cancelled):
                simulate_ahead(layouts, times, self.submit, self.report, self.stop)


@dataclass(slots=True)
class _Queue:
    """Layouts that are ``left``, each behind the least ticks that it takes, in order; and outcomes of the others.

    ``wanted`` is how many of the ``framework`` are to be found; ``limit`` the ticks from which on none of them is.
    """

    left: list[tuple[int, StepLayout]]
    wanted: int
    framework: str
    done: list[StepOutcome] = field(default_factory=list)
    limit: float = 0.0

    @property
    def usable(self) -> list[StepOutcome]:
        """Outcomes of the framework, the fastest first."""
        return [each for each in self.done if can_run(each, self.framework)]

    @property
    def promising(self) -> list[StepLayout]:
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


def _by_bound(fitting: Sequence[StepLayout], times: LayerTimes) -> list[tuple[int, StepLayout]]:
    """Layouts in the order of the least ticks that they take; 0 where a layer cannot be simulated."""
    least, found = replace(times, least=True), []
    for each in fitting:
        ticks = 0
        with suppress(ScheduleError):
            ticks = run_of(each.scenario, each.schedule, least).makespan_ticks
        found.append((ticks, each))
    return sorted(found, key=lambda each: each[0])


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


def simulate_ahead(
    layouts: Sequence[StepLayout],
    times: LayerTimes,
    submit: Submit,
    report: Progress,
    should_stop: ShouldStop,
) -> None:
    """Let ``times`` know all layers of ``layouts``, simulated side by side.

    Raises
    ------
    Cancelled
        If ``should_stop`` returned true first; what was known by then is kept.
    """
    again, asked = True, set[LayerQuestion]()
    while again:
        unknown = dict.fromkeys(each for layout in layouts for each in _unknown(layout, times) if each not in asked)
        futures = [(question, submit(_answered, question)) for question in unknown]
        for number, (question, future) in enumerate(futures):
            report("layers ahead", number, len(futures))
            with suppress(ScheduleError):  # whoever asks again is told
                times.take(question, result_of(future, should_stop))
        asked.update(unknown)
        # How long each takes alone is asked only of what is known to be simulated together.
        again = any(isinstance(question, LayerBeside) for question in unknown)


def _answered(question: LayerQuestion, should_stop: ShouldStop) -> LayerAnswer:
    return question.ticks(should_stop)


def _is_known(layout: StepLayout, times: LayerTimes) -> bool:
    """Whether ``times`` has all layers of a layout, which can be."""
    with suppress(ScheduleError):
        chunks_of(layout.scenario, layout.schedule)
        return not _unknown(layout, times)
    return False


def _unknown(layout: StepLayout, times: LayerTimes) -> tuple[LayerQuestion, ...]:
    """What a layout would ask that is not known; nothing of one that cannot be."""
    scenario, schedule, noted = layout.scenario, layout.schedule, dict[LayerQuestion, None]()
    with suppress(ScheduleError):
        updated = updated_of(scenario, schedule, chunks_of(scenario, schedule))
        ticks_of(scenario, schedule, replace(times, noted=noted), updated)
    return tuple(noted)


def _simulated(queue: _Queue, times: LayerTimes, watch: _Watch) -> bool:
    """Simulate what may be wanted of a queue, and return whether that was stopped: then with all that is known."""
    every, total = -(-len(queue.left) // MOST_REPORTED), len(queue.left) + len(queue.done)
    while not queue.is_done:
        number = total - len(queue.left)
        watch.report("layouts", number, total)
        if watch.stop():
            for _, other in queue.left:
                if _is_known(other, times):
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
            watch.tell(queue.done, 0)
    watch.report("layouts", total, total)
    return False


def _contended(
    outcomes: Sequence[StepOutcome], shown: int, times: LayerTimes, watch: _Watch
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
        watch.tell([*done, *left], len(done))
        watch.report("contention", len(done), most)
        if watch.stop():
            return [*done, *left], len(done), True
        each = left[0]
        try:
            done.append(outcome_of(each.scenario, each.schedule, times, each.settings))
        except Cancelled:
            return [*done, *left], len(done), True
        del left[0]
    return [*sorted(done, key=_order), *left], len(done), False


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
