"""``--trace``, ``--svg`` and ``--png``: a run as a trace for Perfetto, or as a drawing; how runs of simulate end."""

import gzip
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ...advisor import AdviceOptions, Advisor
from ...advisor.answer.export import advice_document
from ...advisor.answer.stages import either
from ...advisor.candidates.advice import Advice
from ...advisor.policy.sweep import Sweep, swept
from ...advisor.steps.outcome import StepOutcome
from ...advisor.work.pools import in_threads
from ...compiler.ir import Cancelled, Progress, Scenario, Settings, ShouldStop
from ...compiler.pipeline import Compiled, compile_text
from ...compiler.resolve.values.params import Param
from ...compiler.text.diagnostics import CompileError, Source
from ...compiler.text.writing import write_whole
from ...simcore import Result, RunOutcome, ShownRun
from ..drawing import RANK, Shows, of_rank
from ..drawing.step_svg import drawn_run
from ..report import ReportData, report_html
from ..text.door import Exit, interruptible, say
from ..text.next_steps import next_steps
from ..text.progress import progress_line
from .inputs import ScenarioInput, name_of, reporting, save, show, source_of
from .running import command

MAX_FILES = 64
"""Files of one trace at most."""


@dataclass(frozen=True, slots=True)
class Pictures:
    """The files to draw a run to, None for those that nobody asked for."""

    trace: Path | None = None
    svg: Path | None = None
    png: Path | None = None
    shows: Shows = Shows.TIMELINE

    @property
    def wanted(self) -> tuple[str, ...]:
        """The options that were given."""
        given = {"--trace": self.trace, "--svg": self.svg, "--png": self.png}
        return tuple(name for name, path in given.items() if path is not None)

    def save(self, run: ShownRun) -> Exit:
        """Write the files of a run and say so; errors are reported, so that the answer can still be printed."""
        codes = [Exit.DONE]
        if self.trace is not None:
            codes.append(_save_trace(self.trace, run))
        if self.svg is not None or self.png is not None:
            codes.append(self._save_drawing(run))
        return max(codes)

    def save_step(self, outcome: StepOutcome) -> Exit:
        """Write the files of a training step, and say so."""
        if not self.wanted:
            return Exit.DONE
        from ..drawing.step_svg import memory_svg, step_svg, step_trace  # few files have one

        codes = [Exit.DONE]
        if self.trace is not None:
            about = "the trace of a rank of each stage; open it in https://ui.perfetto.dev"
            codes.append(save(self.trace, _packed(self.trace, step_trace(outcome)), about))
        if self.shows is Shows.LOADS:
            return max(*codes, self.save_drawing(memory_svg(outcome), "the memory of each stage"))
        return max(*codes, self.save_drawing(step_svg(outcome), "the timeline"))

    def _save_drawing(self, run: ShownRun) -> Exit:
        from ..drawing.svg import waterfall_svg  # most runs are not drawn
        from ..drawing.timeline_svg import loads_svg, timeline_svg

        if self.shows is Shows.WATERFALL:
            losses = run.result.waterfall
            if losses is None:
                say("magus: nothing is drawn: this run has no losses; simulate it for itself, with what it is in lines")
                return Exit.INPUT
            return self.save_drawing(waterfall_svg(losses), "the losses")
        if self.shows is Shows.LOADS:
            return self.save_drawing(loads_svg(run), "the use of memory and links")
        return self.save_drawing(timeline_svg(run), "the timeline")

    def save_drawing(self, drawing: str, about: str) -> Exit:
        """Write a drawing to the files that were asked for, and say so."""
        from ..drawing.svg import png_of

        codes = [Exit.DONE]
        for path, content in ((self.svg, drawing), (self.png, drawing if self.png is None else png_of(drawing))):
            if path is not None:
                codes.append(save(path, content, f"{about} as a drawing"))
        return max(codes)

    def save_advice(self, advice: Advice) -> Exit:
        """Write the files of the run of the recommended schedule, which is simulated in packets if it was not."""
        if not self.wanted:
            return Exit.DONE
        run = drawn_run(advice)
        return Exit.INPUT if run is None else self.save(run)


NO_PICTURES = Pictures()


def _save_trace(path: Path, run: ShownRun) -> Exit:
    from ..drawing.chrome_trace import chrome_trace

    if RANK in path.name:
        return _save_each_rank(path, run)
    trace = chrome_trace(run)
    last = trace.ranks[-1]
    which = "" if last + 1 == trace.num_ranks else f"ranks 0 to {last} of " if last else "rank 0 of "
    about = f"the trace of {which}{trace.num_ranks} ranks; open it in https://ui.perfetto.dev"
    return save(path, _packed(path, trace.text), about)


@reporting
def _save_each_rank(path: Path, run: ShownRun) -> Exit:
    from ..drawing.chrome_trace import chrome_trace

    ranks = range(min(MAX_FILES, run.num_ranks))

    for rank in ranks:
        trace = chrome_trace(run, range(rank, rank + 1))
        write_whole(of_rank(path, rank), _packed(path, trace.text))
    say(f"{of_rank(path, 0)} to {of_rank(path, ranks[-1]).name}: {len(ranks)} of {run.num_ranks} ranks")
    return Exit.DONE


def _packed(path: Path, text: str) -> str | bytes:
    """Return what a file of this name holds: packed if it ends in .gz, the same bytes each time."""
    return gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text


# ``magus report``: an answer as a page to send.

MAX_POINTS = 9
"""Values of a sweep at most: a parameter with more has them spread evenly."""
SWEPT_TOP = 4
"""Schedules that are simulated at each of them, beside the baseline."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Options of ``magus report``: ``sweep_s`` are the seconds for the sweep, 0 for none."""

    out: Path
    advice: AdviceOptions
    sweep_s: float = 30.0


@command
def report_file(source: ScenarioInput, options: ReportOptions) -> Exit:
    """Advise, sweep, and write the page."""
    text = source_of(source.file)
    compiled = compile_text(text.text, text.path, source.settings)
    show(compiled.warnings)
    step = compiled.step(source.workload)
    if step is not None:
        return _report_step(text, source, step.name, compiled, options.out)
    scenario, advisor = compiled.scenario(source.workload), Advisor.load()
    with progress_line() as progress, interruptible() as stopped:
        # Of several ops the page shows all declared schedules, which those who watch are told first.
        watched = None if scenario.only_case is not None else _unreported
        advice = advisor.recommend(scenario, options.advice, progress=progress, should_stop=stopped, answered=watched)
        run = drawn_run(advice)
        sweeps = options.sweep_s and not stopped() and scenario.only_case is not None
        param = swept_param(compiled, source.settings) if sweeps else None
        sweep, note = None, ""
        if param is not None:
            sweep, note = _sweep(text, source, param, advisor, options, progress, stopped)
    if run is None:
        say("magus: the recommended schedule could not be simulated, so there is nothing to draw")
        return Exit.INPUT
    report = ReportData(
        advice=advice,
        run=run,
        data=advice_document(advice, results=True),
        file=name_of(source.file),
        settings=source.settings,
        numbers=compiled.numbers,
        top=options.advice.top,
        todo=next_steps(advice, source.words, how=False),
        sweep=sweep,
        swept=param.name if param is not None else "",
        sweep_note=note,
    )
    done = save(options.out, report_html(report), f"{scenario.title}, one page")
    return Exit.INTERRUPTED if advice.interrupted and stopped() else done


def _report_step(text: Source, source: ScenarioInput, name: str, compiled: Compiled, out: Path) -> Exit:
    """Write the page about a training step."""
    from ...advisor.steps.answer import advise_step  # few files have one
    from ..report.page import step_html

    with progress_line() as progress, interruptible() as stopped:
        found = advise_step(text.text, text.path, source.settings, name, progress=progress, should_stop=stopped)
    page = step_html(found, name_of(source.file), source.settings, compiled.numbers)
    done = save(out, page, f"{name}, one page")
    return Exit.INTERRUPTED if found.searched.interrupted else done


def _unreported(advice: Advice) -> None:
    """Nobody sees what would be answered now."""


def swept_param(compiled: Compiled, settings: Settings) -> Param | None:
    """Return the first parameter with values to sweep that ``settings`` do not fix; None without one."""
    fixed = {name for name, _ in settings}
    return next((each for each in compiled.params if len(each.choices) > 1 and each.name not in fixed), None)


def swept_values(param: Param) -> Sequence[str]:
    """Return the values of ``param`` to sweep, the first and the last among them."""
    values, most = param.choices, min(MAX_POINTS, len(param.choices))
    return [values[place * (len(values) - 1) // (most - 1)] for place in range(most)]


def _sweep(
    text: Source,
    source: ScenarioInput,
    param: Param,
    advisor: Advisor,
    options: ReportOptions,
    progress: Progress,
    stopped: ShouldStop,
) -> tuple[Sweep | None, str]:
    """Return the sweep as far as there was time for it, and what is to be said of it."""
    values = swept_values(param)
    points = _points(text, source, param, values)
    deadline, done = time.monotonic() + options.sweep_s, 0
    given = AdviceOptions(SWEPT_TOP, options.advice.verify, bespoke=0, workers=options.advice.workers)

    def late() -> bool:
        return stopped() or time.monotonic() > deadline

    def advise(scenario: Scenario, stop: ShouldStop) -> Advice:
        nonlocal done
        progress("sweep", min(done, len(points)), len(points))
        advice = advisor.recommend(scenario, given, should_stop=either(late, stop))
        if late():
            raise Cancelled
        done += 1
        return advice

    try:
        with in_threads(advise, 1) as ask:
            sweep = swept(points, ask, options=given)
    except Cancelled:
        return None, f"The sweep over {param.name} was left out: one value takes more than {options.sweep_s:g} s."
    left = len(values) - len(sweep.points) - len(sweep.failed)
    note = f"{left} of {len(values)} values of {param.name} were left out: they do not fit, or time was over."
    return sweep, note if left else ""


def _points(
    text: Source, source: ScenarioInput, param: Param, values: Sequence[str]
) -> list[tuple[Settings, Scenario]]:
    """Return the scenario at each of ``values``; those with which the file has errors are left out."""
    points: list[tuple[Settings, Scenario]] = []
    for value in values:
        with suppress(CompileError):
            found = compile_text(text.text, text.path, (*source.settings, (param.name, value)))
            points.append((((param.name, value),), found.scenario(source.workload)))
    return points


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """Options of ``magus simulate``.

    ``schedule`` None is the first that the file declares, else serial. ``at_line`` simulates cache lines, else packets;
    ``fold`` simulates one rank for all that are alike. ``num_seeds`` adds percentiles over so many seeds from ``seed``
    on, in packets. ``record`` is the file for the writes to rank 0, and ``pictures`` those that show the run.
    ``given`` has ``--granularity`` if that was said.
    """

    schedule: str | None = None
    at_line: bool = True
    fold: bool = True
    seed: int | None = None
    num_seeds: int = 0
    record: Path | None = None
    pictures: Pictures = NO_PICTURES
    strict: bool = False
    as_json: bool = False
    given: frozenset[str] = frozenset()

    def seeds(self, scenario: Scenario) -> range:
        """The seeds to take percentiles over: as asked for, else those that the law of its routing names."""
        return seeds_of(scenario, self.num_seeds, self.seed or 0)


def seeds_of(scenario: Scenario, asked: int, first: int = 0) -> range:
    """So many seeds as were ``asked`` for; with 0 those that the file says for its routing, if there are several."""
    law = scenario.drawn
    if asked or law is None or law.draws == 1:
        return range(first, first + asked)
    return range(law.seed, law.seed + law.draws)


@contextmanager
def stoppable() -> Iterator[ShouldStop]:
    """Ctrl-C asks the run to stop; before there is anything to show it interrupts as usual."""
    try:
        with interruptible() as pressed:
            yield pressed
    except Cancelled:
        raise KeyboardInterrupt from None


def explain_outcome(result: Result) -> Exit:
    """Say why a run did not end."""
    say(f"magus: {result.outcome.value}")
    for sentence in result.deadlock:
        say(f"  {sentence}")
    if result.outcome is RunOutcome.CANCELLED:
        raise KeyboardInterrupt
    return Exit.INPUT
