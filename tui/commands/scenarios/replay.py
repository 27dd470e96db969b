"""``magus replay``: a step of a run as measured, as simulated, and as it could be."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ....advisor import AdviceOptions, Advisor
from ....advisor.candidates.advice import Advice
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


def replay_trace(files: Sequence[Path], options: ReplayOptions) -> Exit:
    """Print the times of a step of a trace, the first of ``files``; the others are of other ranks."""

    def action() -> Exit:
        step = _read(files, options)
        done = Exit.DONE
        if options.out is not None:
            names = " to ".join(dict.fromkeys(part.scenario.name for part in (step.parts[0], step.parts[-1])))
            ops = sum(len(part.ops) for part in step.parts)
            done = save(options.out, step.text, f"{options.out}: workload {names}, {ops} ops")
        advices = list[Advice]()
        with progress_line() as progress, interruptible() as stopped:
            results = step.simulated()
            if options.advise:
                advisor, settings = Advisor.load(), AdviceOptions()
                for part in step.parts:
                    advice = advisor.recommend(part.scenario, settings, progress=progress, should_stop=stopped)
                    advices.append(advice)
                    if advice.interrupted:
                        break
        if options.as_json:
            print_json(replay_document(step, results, advices))
        else:
            put(replay_text(step, results, advices))
        return Exit.INTERRUPTED if advices and advices[-1].interrupted else done

    return run_command(action)


def _read(files: Sequence[Path], options: ReplayOptions) -> ReplayedStep:
    report = Report()
    with report.trial():
        step = read_step(files[0], name_of(files[0]), options.gpu, options.step, report, files[1:])
        show(report.diagnostics)
        return step
    raise CompileError(report.diagnostics)
