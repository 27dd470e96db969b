"""``magus advise`` and ``magus simulate`` of a training step."""

from pathlib import Path

from ....advisor.steps.outcome import StepOutcome, outcome_of
from ....advisor.steps.search import Searched, search
from ....advisor.steps.times import LayerTimes
from ....compiler import compile_text
from ....compiler.codes import Code
from ....compiler.ir import JsonObject, Settings
from ....compiler.ir.step import StepScenario, StepSchedule
from ....compiler.text.diagnostics import CompileError, Diagnostic, Span, did_you_mean
from ...drawing import Shows
from ...exit_codes import Exit
from ...text.door import print_json, put
from ...text.progress import progress_line
from ...text.step import outcome_text, searched_text
from ..inputs import ScenarioInput, source_of
from ..interrupts import interruptible
from ..simulate_options import SimulateOptions

__all__ = ["advise_step", "advise_step_text", "simulate_step"]


def advise_step(source: ScenarioInput, step: StepScenario, *, as_json: bool) -> Exit:
    """Print which layout of a step to use."""
    text = source_of(source.file)
    return _advise(text.text, text.path, source.settings, step, "", as_json=as_json)


def advise_step_text(text: str, path: str, *, framework: str, as_json: bool) -> Exit:
    """Print which layout of the step in ``text`` to use, as ``framework`` switches it on."""
    step = compile_text(text, path).step()
    assert step is not None, "the text is of a step"
    return _advise(text, path, (), step, framework, as_json=as_json)


def _advise(text: str, path: str, given: Settings, step: StepScenario, framework: str, *, as_json: bool) -> Exit:
    def compiled(settings: Settings) -> StepScenario:
        found = compile_text(text, path, (*given, *settings)).step(step.name)
        assert found is not None, "the file has this step"
        return found

    with progress_line() as progress, interruptible() as stopped:
        searched = search(step, compiled, LayerTimes(stopped), progress, stopped)
    marks = marks_of(step)
    if as_json:
        print_json(searched_document(step, searched, marks))
    else:
        put(searched_text(step, searched, marks, framework))
    return Exit.INTERRUPTED if searched.interrupted else Exit.DONE


def simulate_step(source: ScenarioInput, step: StepScenario, options: SimulateOptions) -> Exit:
    """Print one schedule of a step, by default the first of its file, and draw it where that is asked for."""
    _reject_options(source, step, options)
    chosen = _named(source, step, options.schedule)
    with interruptible() as stopped:
        outcome = outcome_of(step, chosen, LayerTimes(stopped), source.settings)
    marks, drawn = marks_of(step), options.pictures.save_step(outcome)
    if options.as_json:
        print_json({"step": step.name, **outcome.document(), "marks": list(marks)})
    else:
        put(outcome_text(outcome, marks))
    return drawn


def _reject_options(source: ScenarioInput, step: StepScenario, options: SimulateOptions) -> None:
    """Raise what a step has nothing to say about: it is one run, without lines and without seeds."""
    asked = {
        "--seed": options.seed is not None,
        "--seeds": options.num_seeds > 0,
        "--record-writes": options.record is not None,
        "--draw waterfall": options.pictures.shows is Shows.WATERFALL,
    }
    for option, given in asked.items():
        if given:
            raise step_error(source.file, f"{option} is not about a step, which {step.name} is", step)


def step_error(file: Path, message: str, step: StepScenario) -> CompileError:
    """Return what is not answered about a step, with the workloads that it is answered about."""
    layers = " or ".join(dict.fromkeys(part.forward.name for block in step.step.blocks for part in block.parts))
    hint = f"about its layers: --workload {layers}"
    return CompileError([Diagnostic(Code.MGS573, message, Span(source_of(file), 0, 0), hint)])


def _named(source: ScenarioInput, step: StepScenario, name: str | None) -> StepSchedule:
    known = {each.name: each for each in step.schedules}
    if name is None:
        return next(iter(known.values()), StepSchedule("usual"))
    if name in known:
        return known[name]
    hint = did_you_mean(name, known) or f"schedules of {step.name}: {', '.join(known) or 'none'}"
    raise CompileError(
        [Diagnostic(Code.MGS203, f"unknown schedule '{name[:64]}'", Span(source_of(source.file), 0, 0), hint)]
    )


def marks_of(step: StepScenario) -> tuple[str, ...]:
    """What to know before trusting the figures of a step."""
    return (f"steps on {step.system.gpu.name} were not compared with measured ones",)


def searched_document(step: StepScenario, searched: Searched, marks: tuple[str, ...]) -> JsonObject:
    """Return the answer as JSON."""

    def documents(outcomes: tuple[StepOutcome, ...]) -> list[JsonObject]:
        return [each.document() for each in outcomes]

    return {
        "step": step.name,
        "layouts": searched.num_layouts,
        "impossible": searched.impossible,
        "too_large": searched.too_large,
        "layers_simulated": searched.layers_simulated,
        "outcomes": documents(searched.outcomes),
        "declared": documents(searched.declared),
        "interrupted": searched.interrupted,
        "marks": list(marks),
    }
