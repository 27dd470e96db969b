"""``magus run``: schedules carried out with real data, and whether every rank ends with what it should."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ....advisor import AdviceOptions, Advisor
from ....advisor.candidates.advice import Advice
from ....advisor.measured.traces.replay import read_step
from ....advisor.steps.answer import check_schedules
from ....advisor.steps.carried import job_of
from ....compiler.ir.step import StepScenario, StepSchedule
from ....runtime import RunRefused, carry_out
from ....runtime.over_torch.launch import RankFailed, carry_out_over_torch
from ....runtime.run import Job, jobs_of
from ....runtime.steps.run import carry_out_step
from ...text.door import Exit, interruptible, missing, print_json, put, put_answer, say
from ...text.progress import progress_line
from ...text.result import Carried, run_text, runs_document
from ...text.step import replay_document, replay_text
from ..answers.step import named_schedule, step_error
from ..inputs import ScenarioInput, name_of, reading, save, show, source_of
from ..running import command


def run_file(source: ScenarioInput, *, schedule: str | None, seeds: range, over_torch: bool, as_json: bool) -> Exit:
    """Carry out ``schedule``, by default every one that the file declares, and print what became of it."""
    try:
        return _run(source, schedule, seeds, over_torch, as_json)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return missing(error, "torch")
    except RankFailed as error:
        say(f"magus: {error}")
        return Exit.INPUT


@command
def _run(source: ScenarioInput, schedule: str | None, seeds: range, over_torch: bool, as_json: bool) -> Exit:
    compiled, _ = source.read()
    step = compiled.step(source.workload)
    if step is None:
        scenario = compiled.scenario(source.workload)
        name, ranks = scenario.name, scenario.num_ranks
        runs = (partial(_carried, job, seeds, over_torch) for job in jobs_of(scenario, schedule, show))
    elif over_torch:
        raise step_error(source.file, f"--on torch is not about a training step, which {step.name} is", step)
    else:
        name, ranks = step.name, step.system.num_ranks
        every = step.schedules if schedule is None and step.schedules else (named_schedule(source, step, schedule),)
        check_schedules(source_of(source.file), step, every)
        runs = (partial(_carried_step, step, each, seeds) for each in every)
    carried: list[Carried] = []
    for run in runs:
        carried.append(run())
        if not as_json:
            put(run_text(carried[-1], seeds))
    if as_json:
        print_json(runs_document(name, ranks, seeds, carried))
    return Exit.DONE if all(each.exact for each in carried) else Exit.INPUT


def _carried(job: Job, seeds: range, over_torch: bool) -> Carried:
    system, workload, plan = job
    try:
        if over_torch:
            (report,) = carry_out_over_torch([job], seeds)
        else:
            report = carry_out(system, workload, plan, seeds)
        return Carried(plan.expression, report)
    except RunRefused as error:
        return Carried(plan.expression, None, error.rejection)


def _carried_step(step: StepScenario, schedule: StepSchedule, seeds: range) -> Carried:
    expression = f"{schedule.name}: {schedule.pipeline.expression} zero {schedule.zero}"
    try:
        job = job_of(step, schedule)
        return Carried(job.expression, carry_out_step(job, seeds), notes=job.notes)
    except RunRefused as error:
        return Carried(expression, None, error.rejection)


# ``magus replay``: a step of a run as measured, as simulated, and as it could be.


@command
def replay_trace(
    files: Sequence[Path], *, gpu: str, number: int | None, advise: bool, out: Path | None, as_json: bool
) -> Exit:
    """Print the times of a step of a trace, the first of ``files``; the others are of other ranks.

    ``gpu`` is one that traces do not name; a ``number`` of the step None is the last. The workload is written to
    ``out``.
    """
    with reading() as report:
        step = read_step(files[0], name_of(files[0]), gpu, number, report, files[1:])
    done = Exit.DONE
    if out is not None:
        names = " to ".join(dict.fromkeys(part.scenario.name for part in (step.parts[0], step.parts[-1])))
        ops = sum(len(part.ops) for part in step.parts)
        done = save(out, step.text, f"workload {names}, {ops} ops")
    advices = list[Advice]()
    with progress_line() as progress, interruptible() as stopped:
        results = step.simulated()
        if advise:
            advisor, settings = Advisor.load(), AdviceOptions()
            for part in step.parts:
                advice = advisor.recommend(part.scenario, settings, progress=progress, should_stop=stopped)
                advices.append(advice)
                if advice.interrupted:
                    break
    put_answer(replay_text(step, results, advices), replay_document(step, results, advices), as_json=as_json)
    return Exit.INTERRUPTED if advices and advices[-1].interrupted else done
