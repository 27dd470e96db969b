"""``magus advise`` and ``magus simulate`` of a training step."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ....advisor.answer.stages import either, lateness
from ....advisor.steps.answer import StepAdvice, check_schedules, marks_of
from ....advisor.steps.answer import advise_step as answer_of
from ....advisor.steps.layer_times import LayerTimes
from ....advisor.steps.outcome import StepOutcome, outcome_of
from ....advisor.steps.search import SHOWN
from ....advisor.steps.space import nearest_fitting
from ....advisor.work.on_dask import on_cluster
from ....advisor.work.pools import Submit, open_processes
from ....compiler import compile_text
from ....compiler.codes import Code
from ....compiler.ir import JsonObject, Settings, ShouldStop
from ....compiler.ir.step import StepScenario, StepSchedule
from ....compiler.planning.build import ScheduleError
from ....compiler.text.diagnostics import CompileError, Diagnostic, Source, Span, did_you_mean
from ....compiler.text.load import declared_at
from ...drawing import Shows
from ...text.door import Exit, interruptible, print_json, put, put_text, say
from ...text.progress import progress_line
from ...text.step import aligned, how_text, nothing_lines, outcome_text, searched_text, swept_table
from ..inputs import ScenarioInput, show, source_of
from ..out import NO_PICTURES, Pictures, SimulateOptions
from ..running import exit_code_if_strict
from .sweep import SweepForm, SweepRequest, csv_text

if TYPE_CHECKING:
    from .advise import AdviseOptions

__all__ = ["advise_step", "advise_step_text", "named_schedule", "simulate_step", "step_error", "sweep_step"]


def advise_step(source: ScenarioInput, step: StepScenario, options: "AdviseOptions") -> Exit:
    """Print which layout of a step to use, and draw it where that is asked for."""
    advice = options.advice
    requested = {"--how": options.how, "--threshold": advice.threshold, "--seeds": options.num_seeds > 0}
    requested |= {"--sensitivity": advice.sensitivity, "--over": options.over is not None}
    requested |= {name: name in options.given for name in ("--bespoke", "--no-verify")}
    _reject_options(source, step, requested, options.pictures)
    shown = advice.top if "--top" in options.given else SHOWN
    form = _Form(shown, options.full, "", options.pictures, options.strict, options.as_json, advice.workers)
    return _advise(source_of(source.file), source.settings, step.name, form, advice.within_s)


def advise_step_text(text: str, path: str, *, framework: str, as_json: bool) -> Exit:
    """Print which layout of the step in ``text`` to use, as ``framework`` switches it on."""
    return _advise(Source(path, text), (), None, _Form(framework=framework, as_json=as_json))


@dataclass(frozen=True, slots=True)
class _Form:
    """How an answer is printed: ``shown`` layouts or ``full``, all; the settings of one ``framework``, or of each."""

    shown: int = SHOWN
    full: bool = False
    framework: str = ""
    pictures: Pictures = NO_PICTURES
    strict: bool = False
    as_json: bool = False
    workers: int = 1


def _advise(text: Source, settings: Settings, name: str | None, form: _Form, within_s: float | None = None) -> Exit:
    with progress_line() as progress, interruptible() as stopped:
        stop = either(stopped, lateness(within_s))
        answer = partial(answer_of, text.text, text.path, settings, name, framework=form.framework)
        with open_processes(form.workers) if form.workers > 1 else nullcontext() as submit:
            found = answer(progress=progress, should_stop=stop, shown=form.shown, submit=submit, every=form.full)
    drawn = Exit.DONE if found.recommended is None else form.pictures.save_step(found.recommended)
    if form.as_json:
        print_json(found.document())
    else:
        rows = len(found.searched.outcomes) if form.full else form.shown
        put(searched_text(found.scenario, found.searched, found.marks, rows))
    if stopped() or (found.interrupted and found.recommended is None):
        return Exit.INTERRUPTED
    if found.recommended is None:
        name = found.scenario.name
        span = declared_at(text, name, explored=True) or _place_of(text, found.scenario)
        why, _, _ = " ".join(nothing_lines(found.searched)).partition(". ")
        show([Diagnostic(Code.MGS510, f"no layout of {name} can be used. {why.rstrip('.')}", span)])
        return Exit.NOT_FEASIBLE
    return max(drawn, _strict(found.scenario, strict=form.strict))


def _strict(step: StepScenario, *, strict: bool) -> Exit:
    """NOT_FEASIBLE under ``--strict`` if what the layers rest on is not validated; all are on the same GPU."""
    layers = (part.forward for block in step.step.blocks for part in block.parts)
    with_products = (layer for layer in layers if any(case.shape.gemm for case in layer.cases))
    layer = next(with_products, step.step.blocks[0].parts[0].forward)
    return exit_code_if_strict(layer, strict)


def simulate_step(source: ScenarioInput, step: StepScenario, options: SimulateOptions) -> Exit:
    """Print one schedule of a step, by default the first of its file, and draw it where that is asked for."""
    requested = {"--seed": options.seed is not None, "--seeds": options.num_seeds > 0}
    requested |= {"--record-writes": options.record is not None, "--no-fold": not options.fold}
    requested |= {"--granularity": "--granularity" in options.given}
    _reject_options(source, step, requested, options.pictures)
    chosen, text = named_schedule(source, step, options.schedule), source_of(source.file)
    check_schedules(text, step, (chosen,))
    with interruptible() as stopped:
        outcome = outcome_of(step, chosen, LayerTimes(stopped), source.settings)
        marks = (*_nearest(outcome, text, stopped), *marks_of(step, chosen))
    drawn = options.pictures.save_step(outcome)
    if options.as_json:
        print_json({"step": step.name, **outcome.document(), "marks": list(marks)})
    else:
        put(outcome_text(outcome, marks))
    return max(drawn, _strict(step, strict=options.strict))


def _nearest(outcome: StepOutcome, text: Source, stopped: ShouldStop) -> Iterator[str]:
    """What fits, if the schedule does not."""
    if outcome.fits:
        return

    def compiled(more: Settings) -> StepScenario:
        found = compile_text(text.text, text.path, (*outcome.settings, *more)).step(outcome.scenario.name)
        assert found is not None, "it was compiled before"
        return found

    nearest = nearest_fitting(outcome.scenario, outcome.schedule, compiled, stopped)
    yield "nothing that the file explores fits" if nearest is None else f"the nearest that fits: {how_text(*nearest)}"


def _reject_options(
    source: ScenarioInput, step: StepScenario, requested: Mapping[str, bool], pictures: Pictures
) -> None:
    """Raise what a step has nothing to say about: it is one run, without lines and without seeds."""
    for option, given in (*requested.items(), ("--draw waterfall", pictures.shows is Shows.WATERFALL)):
        if given:
            raise step_error(source.file, f"{option} is not about a training step, which {step.name} is", step)


def sweep_step(request: SweepRequest, step: StepScenario, points: Sequence[Settings], form: SweepForm) -> Exit:
    """Print which layout of a step to use at each point: what is swept is not explored."""
    if form.plot is not None:
        raise step_error(request.file, f"--plot is not about a training step, which {step.name} is", step)
    text, code = source_of(request.file), Exit.DONE
    found: list[tuple[Settings, StepAdvice]] = []
    with progress_line() as progress, interruptible() as stopped, ExitStack() as side:
        times, submit = LayerTimes(stopped), side.enter_context(_submitter(request))
        for place, settings in enumerate(points):
            progress("sweep", place, len(points))
            try:
                question = text.text, text.path, settings, step.name
                advice = answer_of(*question, times=times, should_stop=stopped, submit=submit)
            except CompileError as error:
                code = Exit.INPUT
                show(error.diagnostics)
            except ScheduleError as error:
                code = Exit.NOT_FEASIBLE
                say(f"magus: with {', '.join(f'{name} = {value}' for name, value in settings)}: {error}")
            else:
                if advice.interrupted:
                    break
                found.append((settings, advice))
        interrupted = stopped()
    _put_sweep(found, form)
    return Exit.INTERRUPTED if interrupted else code


def _submitter(request: SweepRequest) -> AbstractContextManager[Submit | None]:
    """What simulates layers in parallel: a dask scheduler, processes, or nothing."""
    if request.scheduler is not None:
        return on_cluster(request.scheduler)
    workers = request.advice.workers
    return open_processes(workers) if workers > 1 else nullcontext()


def _put_sweep(found: Sequence[tuple[Settings, StepAdvice]], form: SweepForm) -> None:
    if form.as_json:
        print_json({"points": [{"settings": dict(settings), **each.document()} for settings, each in found]})
        return
    if form.as_csv:
        outcomes = [(settings, each.recommended) for settings, each in found]
        put_text(csv_text([dict(settings) | _flat(each) for settings, each in outcomes if each is not None]))
    elif found:
        put("\n".join(aligned(swept_table(found), len(found[0][0]) + 2)) + "\n")


def _flat(outcome: StepOutcome) -> JsonObject:
    """The figures of an outcome that have one value."""
    kept = {key: value for key, value in outcome.document().items() if not isinstance(value, list | dict)}
    return {"layout": outcome.layout, **kept, "memory_bytes": outcome.memory_bytes}


def step_error(file: Path, message: str, step: StepScenario) -> CompileError:
    """Return what is not answered about a step, with the workloads that it is answered about."""
    layers = " or ".join(dict.fromkeys(part.forward.name for block in step.step.blocks for part in block.parts))
    hint = f"about its layers: --workload {layers}"
    return CompileError([Diagnostic(Code.MGS573, message, _place_of(source_of(file), step), hint)])


def _place_of(text: Source, step: StepScenario) -> Span:
    """Where a step is declared, in its file or in one that this includes."""
    return declared_at(text, step.name) or Span(text, 0, 0)


def named_schedule(source: ScenarioInput, step: StepScenario, name: str | None) -> StepSchedule:
    """Return the schedule of a step of that name, None: the first one, else the usual one.

    Raises
    ------
    CompileError
        If there is none.
    """
    known = {each.name: each for each in step.schedules}
    if name is None:
        return next(iter(known.values()), StepSchedule("usual"))
    if name in known:
        return known[name]
    hint = did_you_mean(name, known) or f"schedules of {step.name}: {', '.join(known) or 'none'}"
    raise CompileError(
        [Diagnostic(Code.MGS203, f"unknown schedule '{name[:64]}'", _place_of(source_of(source.file), step), hint)]
    )
