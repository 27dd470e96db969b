"""The answer about a training step: which layout and which schedule to use, of those that its file explores."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...compiler import compile_text
from ...compiler.codes import Code
from ...compiler.ir import JsonObject, Progress, Settings, ShouldStop
from ...compiler.ir.step import Step, StepScenario, StepSchedule
from ...compiler.planning.build import ScheduleError
from ...compiler.request.request import RequestError
from ...compiler.text.diagnostics import CompileError, Diagnostic, Source, Span, did_you_mean, listing
from ...compiler.text.load import declared_at
from ..work.pools import Submit
from .layer_times import LayerTimes
from .outcome import StepOutcome, chunks_of
from .plans import FRAMEWORKS, flags_of
from .search import SHOWN, recommended, search
from .space import Searched
from .times import head_shape


@dataclass(frozen=True)
class StepAdvice:
    """The answer about a training step: which layout and schedule to use, and all that were compared.

    Attributes
    ----------
    scenario
        The question.
    searched
        All layouts and schedules that were compared.
    """

    scenario: StepScenario
    searched: Searched

    @property
    def recommended(self) -> StepOutcome | None:
        """The layout and schedule to use; None where none divides the ranks and fits into memory."""
        return recommended(self.searched)

    @property
    def interrupted(self) -> bool:
        """Whether the search was stopped, or goes on."""
        return self.searched.interrupted

    @property
    def marks(self) -> tuple[str, ...]:
        """What to know before trusting the figures of the layout to use; of the file's without one."""
        chosen = self.recommended
        if chosen is not None:
            return marks_of(chosen.scenario, chosen.schedule)
        return marks_of(self.scenario, next(iter(self.scenario.schedules), StepSchedule("usual")))

    def document(self) -> JsonObject:
        """Return the answer as JSON, as ``magus advise --json`` prints it: seconds, bytes, shares."""
        searched, chosen = self.searched, self.recommended
        return {
            "step": self.scenario.name,
            "layouts": searched.num_layouts,
            "impossible": searched.impossible,
            "too_large": searched.too_large,
            "slower": searched.slower,
            "layers_simulated": searched.layers_simulated,
            "framework": searched.framework or None,
            "recommended": None if chosen is None else {**chosen.document(), "flags": dict(flags_of(chosen))},
            "outcomes": [each.document() for each in searched.outcomes],
            "declared": [each.document() for each in searched.declared],
            "interrupted": searched.interrupted,
            "marks": list(self.marks),
        }


def check_schedules(source: Source, step: StepScenario, schedules: Sequence[StepSchedule]) -> None:
    """Raise what no pipeline can take of ``schedules``, with the place of each in the text.

    Raises
    ------
    CompileError
        If there is anything.
    """
    found = []
    for each in schedules:
        try:
            chunks_of(step, each)
        except ScheduleError as error:
            unfit = error.rejection
            span = declared_at(source, each.name) or declared_at(source, step.name) or Span(source, 0, 0)
            found.append(Diagnostic(unfit.code, f"{each.name}: {unfit.message}", span, unfit.hint))
    if found:
        raise CompileError(found)


def advise_step(
    text: str,
    path: str = "<text>",
    settings: Settings = (),
    workload: str | None = None,
    *,
    progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
    times: LayerTimes | None = None,
    as_written: bool = True,
    shown: int = SHOWN,
    submit: Submit | None = None,
    answered: Callable[[StepAdvice], None] | None = None,
    framework: str = "",
    every: bool = False,
) -> StepAdvice:
    """Return which layout of a training step to use.

    Parameters
    ----------
    text, path
        A text in the language of Magus, and the path of its file.
    settings
        Names and values of parameters, which are then not explored.
    workload
        The step, by default the first one of the file.
    progress, should_stop
        The first is called with the work done. The second is called often; once it returns true, the best answer so
        far is returned.
    times
        Times of layers that were simulated before; new ones are added.
    as_written
        Whether a schedule that does not fit is an error; else, and with ``settings``, it is left out.
    shown
        How many of the fastest layouts are simulated in full, with traffic during their layers.
    submit
        Runs simulations of layers in parallel, as ``open_processes`` and ``on_cluster`` do; the answer is the same.
    answered
        Called during the search with the best answer so far.
    framework
        Recommend only what this framework has, a name in ``FRAMEWORKS``; empty for any.
    every
        Whether to simulate layouts too whose kernels alone take longer than the fastest layouts.

    Raises
    ------
    CompileError
        If the file has an error, or no such step, or a schedule that does not fit its layout; with ``settings`` such
        a schedule is left out.
    ScheduleError
        If a layer cannot be simulated as it says.
    RequestError
        If the framework is not known.
    """
    if framework not in ("", *FRAMEWORKS):
        hint = did_you_mean(framework[:64], FRAMEWORKS) or f"known are {listing(FRAMEWORKS)}"
        raise RequestError(Code.MGS203, "framework", f"'{framework[:64]}' is none that is known", hint)

    def compiled(more: Settings) -> StepScenario:
        step = compile_text(text, path, (*settings, *more), as_written=as_written).step(workload)
        if step is None:
            message = "the file has no training step" + (f" '{workload[:64]}'" if workload else "")
            raise CompileError([Diagnostic(Code.MGS203, message, Span(Source(path, text), 0, 0))])
        return step

    scenario = compiled(())
    known = LayerTimes() if times is None else times
    if should_stop is not None:
        known = replace(known, should_stop=should_stop)  # the caller's are as they were

    def so_far(searched: Searched) -> None:
        if answered is not None:
            answered(StepAdvice(scenario, searched))

    written = as_written and not settings
    if written:
        check_schedules(Source(path, text), scenario, scenario.schedules)
    arguments = scenario, compiled, known, progress, should_stop
    searched = search(
        *arguments, as_written=written, shown=shown, submit=submit, answered=so_far, framework=framework, every=every
    )
    return StepAdvice(scenario, searched)


def marks_of(scenario: StepScenario, schedule: StepSchedule) -> tuple[str, ...]:
    """What to know before trusting the figures of a step: how far steps with its stack are from measured ones."""
    gpu, stack = scenario.system.gpu.name, schedule.costs
    if stack is None or schedule.stack is None:
        said = "no stack is said: what a framework adds to the kernels of a layer is not counted"
    elif stack.error is None:
        said = f"steps with {schedule.stack.name} on {gpu} were not compared with measured ones"
    else:
        said = f"steps with {schedule.stack.name} are {float(stack.error):.1%} off on average: {stack.compared}"
    return said, *_padded(scenario.step)


def _padded(step: Step) -> Iterator[str]:
    """That columns of the last product do not divide; frameworks pad them, or have one rank have fewer."""
    shape, ranks = head_shape(step), step.blocks[-1].parts[-1].forward.num_ranks
    if shape is not None and shape.n < step.vocabulary != shape.n * ranks:
        each = f"{shape.n} on each of {ranks} ranks; Megatron-LM pads to a multiple of 128 there"
        yield f"the {step.vocabulary} columns of head are computed as {shape.n * ranks}, {each}"
