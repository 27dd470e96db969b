"""``magus replay``: a step of a run as measured, as simulated, and as it could be."""

from dataclasses import dataclass
from pathlib import Path

from ....advisor import AdviceOptions, Advisor
from ....advisor.measured.traces.replay import ReplayedStep, read_step
from ....compiler.text.diagnostics import CompileError, Report
from ...exit_codes import Exit
from ...text.door import print_json, put
from ...text.progress import progress_line
from ...text.replay import replay_document, replay_text
from ..console import save, show
from ..inputs import name_of
from ..interrupts import interruptible
from ..running import run_command


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The GPU that traces do not name, the step, whether to advise, where to write the workload, and the form."""

    gpu: str = ""
    step: int | None = None
    advise: bool = True
    out: Path | None = None
    as_json: bool = False


def replay_trace(file: Path, options: ReplayOptions) -> Exit:
    """Print the times of a step of a trace."""

    def action() -> Exit:
        step = _read(file, options)
        done = Exit.DONE
        if options.out is not None:
            done = save(options.out, step.text, f"{options.out}: workload {step.scenario.name}, {len(step.ops)} ops")
        advice = None
        with progress_line() as progress, interruptible() as stopped:
            result = step.simulated()
            if options.advise:
                advisor = Advisor.load()
                advice = advisor.recommend(step.scenario, AdviceOptions(), progress=progress, should_stop=stopped)
        if options.as_json:
            print_json(replay_document(step, result, advice))
        else:
            put(replay_text(step, result, advice))
        return Exit.INTERRUPTED if advice is not None and advice.interrupted else done

    return run_command(action)


def _read(file: Path, options: ReplayOptions) -> ReplayedStep:
    report = Report()
    with report.trial():
        step = read_step(file, name_of(file), options.gpu, options.step, report)
        show(report.diagnostics)
        return step
    raise CompileError(report.diagnostics)
