"""The space of a step: its layouts and schedules, and which of them can be and fit into memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from ...compiler.ir import Progress, Settings, ShouldStop
from ...compiler.ir.step import (
    KEEP_WRITTEN,
    ContextKind,
    Overlapped,
    Pipeline,
    StepScenario,
    StepSchedule,
)
from ...compiler.ir.stopping import never, silent
from ...compiler.planning.build import ScheduleError
from ...compiler.text.diagnostics import CompileError
from .outcome import StepLayout, StepOutcome, chunks_of, memory_limit, memory_of
from .plans import can_run
from .times import have_copies

Compile = Callable[[Settings], StepScenario]
"""Compiles the step again with parameters set; raises CompileError where they do not fit."""


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

    outcomes: tuple[StepOutcome, ...] = ()
    declared: tuple[StepOutcome, ...] = ()
    num_layouts: int = 0
    impossible: int = 0
    too_large: int = 0
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


def space_of(
    scenario: StepScenario, compile_with: Compile, report: Progress, stop: ShouldStop
) -> tuple[list[StepLayout], Searched]:
    """All layouts that fit into memory, and what became of the others."""
    fitting, reasons, large = list[StepLayout](), list[str](), list[tuple[Settings, StepSchedule, tuple[int, ...]]]()
    interrupted = False
    for number, settings in enumerate(_settings(scenario)):
        report("layouts that fit", number, scenario.explore.num_layouts)
        if stop():
            interrupted = True
            break
        for each in _layouts(scenario, compile_with, settings):
            if isinstance(each, str):
                said = ", ".join(f"{name} = {value}" for name, value in settings)
                reasons.append(f"with {said}: {each}" if said else each)
                continue
            counts = chunks_of(each.scenario, each.schedule)
            stages = tuple(stage.total for stage in memory_of(each.scenario, each.schedule, counts))
            if max(stages) <= memory_limit(each.scenario):
                fitting.append(each)
            else:
                large.append((settings, each.schedule, stages))
    return fitting, Searched(
        num_layouts=len(fitting) + len(reasons) + len(large),
        impossible=len(reasons),
        too_large=len(large),
        nearest=min(large, key=lambda each: max(each[2]), default=None),
        interrupted=interrupted,
        reason=reasons[0] if reasons else "",
    )


def _layouts(scenario: StepScenario, compile_with: Compile, settings: Settings) -> Iterator[StepLayout | str]:
    """Each schedule of the space with parameters set, or why it does not divide."""
    try:
        compiled = compile_with(settings) if settings else scenario
    except CompileError as error:
        yield error.first.message
        return
    for schedule in schedules_of(compiled):
        try:
            chunks_of(compiled, schedule)
        except ScheduleError as error:
            yield f"{schedule.pipeline.expression}: {error.rejection.message}"
        else:
            yield StepLayout(compiled, schedule, settings)


def nearest_fitting(
    scenario: StepScenario, schedule: StepSchedule, compile_with: Compile, should_stop: ShouldStop = never
) -> tuple[Settings, StepSchedule] | None:
    """Return what fits into memory and differs least from a schedule of a step, of all that the file explores."""

    def differs(each: StepLayout) -> int:
        axes = zip(each.scenario.system.mesh, scenario.system.mesh, strict=True)
        other = each.schedule
        return sum(one != own for one, own in axes) + sum(
            (other.pipeline != schedule.pipeline, other.zero != schedule.zero, other.keep != schedule.keep)
        )

    fitting, _ = space_of(scenario, compile_with, silent, should_stop)
    nearest = min(fitting, key=differs, default=None)
    return None if nearest is None else (nearest.settings, nearest.schedule)


def _settings(scenario: StepScenario) -> Iterator[Settings]:
    explore = scenario.explore
    names = [name for name, _ in explore.settings]
    for values in product(*(each for _, each in explore.settings)):
        yield tuple(zip(names, values, strict=True))
