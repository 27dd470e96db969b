"""``magus sweep``: advice over a grid of parameters, and the rules that follow."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from ....advisor import Advice, AdviceOptions, Advisor
from ....advisor.answer.stages import either
from ....advisor.policy.layer_rules import Simulate, across
from ....advisor.policy.sweep import OtherSizes, Sweep, swept
from ....advisor.sensitivity.several import ParamAxis, values_around
from ....advisor.work.pools import counted, in_threads
from ....compiler import Compiled, CompileError
from ....compiler.ir import Cancelled, JsonObject, Progress, Scenario, Schedule, Settings, ShouldStop
from ....compiler.ir.step import StepScenario
from ....compiler.pipeline import compile_text
from ....compiler.resolve.values.params import is_swept, points_of
from ....compiler.text.load import declared_at
from ....simcore.lower.variability import check_compared
from ...text.door import Exit, interruptible, print_json, put, put_text, say
from ...text.progress import progress_line
from ...text.sweep import sweep_text
from ..inputs import ScenarioInput, compiled, is_stdin, placed, say_rejection, show, source_of
from ..out import Pictures
from ..running import command


@dataclass(frozen=True, slots=True)
class SweepForm:
    """As JSON, as CSV, or for people; and as a picture in the file ``plot``."""

    as_json: bool
    as_csv: bool
    plot: Path | None = None


def put_sweep(sweep: Sweep, num_points: int, form: SweepForm, varied: tuple[str, ...], *, some_failed: bool) -> Exit:
    """Print a sweep of ``num_points`` that ``varied`` parameters; ``some_failed``: other points did not compile."""
    say_failed(sweep)
    if form.as_json:
        print_json(sweep.document())
    elif not sweep.points:
        return Exit.NOT_FEASIBLE
    elif form.as_csv:
        put_text(csv_text([_flat(point.document()) for point in sweep.points]))
    else:
        put(sweep_text(sweep, varied))
    if sweep.interrupted:
        say(f"magus: stopped early: {len(sweep.points)} of {num_points} points, no rules")
        return ended_early(sweep)
    if sweep.failed:
        return Exit.NOT_FEASIBLE
    return Exit.INPUT if some_failed else Exit.DONE


def ended_early(sweep: Sweep) -> Exit:
    """Say why those who worked on a sweep were lost, if they were; return the exit code of one that ended early."""
    if sweep.lost is None:
        return Exit.INTERRUPTED
    say_rejection(sweep.lost)
    return Exit.INPUT


def say_failed(sweep: Sweep) -> None:
    """Say at which points no schedule is feasible, and why."""
    for settings, reason in sweep.failed:
        where = ", ".join(f"{name} = {text}" for name, text in settings)
        say(f"magus: with {where}: {reason}" if where else f"magus: {reason}")


def csv_text(rows: Sequence[JsonObject]) -> str:
    """Return rows as CSV; those without a column leave it empty."""
    columns = dict.fromkeys(name for row in rows for name in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def axis_over(source: ScenarioInput, name: str | None) -> ParamAxis | None:
    """Return the values of a parameter, and the scenario at each; None where there is none, which is said.

    Without a ``name`` it is the only parameter with a whole number.

    Raises
    ------
    CompileError
        If the file has an error.
    """
    if is_stdin(source.file):
        say("magus: --threshold of several ops reads the file again: give its name")
        return None
    text = source_of(source.file)
    params = compile_text(text.text, text.path, source.settings).params
    whole = {each.name: each for each in params if each.value.isdecimal()}
    if name not in whole and (name is not None or len(whole) != 1):
        names = f"one of {', '.join(whole)}" if whole else "but the file has no parameter with a whole number"
        say(f"magus: --threshold of several ops is about a parameter: name it with --over, {names}")
        return None
    param = whole[name] if name is not None else next(iter(whole.values()))
    others = tuple((key, value) for key, value in source.settings if key != param.name)

    def at(value: int) -> Scenario:
        return compile_text(text.text, text.path, (*others, (param.name, str(value)))).scenario(source.workload)

    listed = tuple(sorted(int(each) for each in param.choices if each.isdecimal()))
    now = int(param.value)
    return ParamAxis(param.name, now, listed or values_around(now), at)


LEAST_SIMULATED, LEAST_ESTIMATED = 4, 16
"""Points from which processes pay: one takes 1.5 s to begin, a simulated point 2 s, another 0.4 s."""


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """The points of ``workload`` in ``file`` that ``settings`` give, what to spend on each, and the cluster for it."""

    file: Path
    settings: Settings
    workload: str | None
    advice: AdviceOptions
    tolerance: float
    scheduler: str | None = None

    @property
    def varied(self) -> tuple[str, ...]:
        """The parameters that have several values."""
        return tuple(name for name, text in self.settings if is_swept(text))


@command
def sweep_file(request: SweepRequest, form: SweepForm) -> Exit:
    """Print the advice for every point."""
    if form.plot is not None and len(request.varied) not in (1, 2):
        say(f"magus: --plot draws one param or two that vary, not {len(request.varied)}: --set M=64..4096")
        return Exit.USAGE
    steps = steps_of(request)
    if steps is not None:
        from .step import sweep_step  # few files have one

        return sweep_step(request, *steps, form)
    subjects, failed = subjects_of(request)
    sweep = sweep_of(request, subjects)
    varied = request.varied or tuple(name for name, _ in subjects[0][0])
    drawn = Exit.DONE
    if form.plot is not None and sweep.points:
        from ...drawing.svg import swept_svg  # most sweeps are not drawn

        as_png = form.plot.suffix.lower() == ".png"
        pictures = Pictures(png=form.plot) if as_png else Pictures(svg=form.plot)
        drawn = pictures.save_drawing(swept_svg(sweep.points, varied), "the sweep")
    return max(drawn, put_sweep(sweep, len(subjects), form, varied, some_failed=failed))


def sweep_of(request: SweepRequest, points: Sequence[tuple[Settings, Scenario]]) -> Sweep:
    """Return the advice for ``points``, with progress; Ctrl-C ends it with what was found."""
    for name, scenario in {each.name: each for _, each in points}.items():
        with placed(declared_at(source_of(request.file), name)):
            check_compared(scenario.system)
    options, advisor = request.advice, Advisor.load()
    with (
        _begun(advisor, request, [scenario for _, scenario in points]) as several,
        progress_line() as progress,
        interruptible() as stopped,
    ):

        def advise(scenario: Scenario, stop: ShouldStop) -> Advice:
            advice = several.recommend(scenario, options, should_stop=either(stop, stopped))
            if stopped():
                raise Cancelled
            return advice

        def reported(done: int, _: int) -> None:
            if done > len(points):  # sizes beside them, as many as it takes
                progress("between", done - len(points), 0)
            else:
                progress("sweep", done, len(points))

        others = OtherSizes(_at(request), _counting(across(stopped), progress))
        with in_threads(advise, several.at_once) as ask:
            reported(0, len(points))
            asked = counted(ask, reported, len(points))
            return swept(points, asked, options=options, tolerance=request.tolerance, others=others)


def _at(request: SweepRequest) -> Callable[[Settings], Scenario]:
    """The scenario of a request under settings; ``CompileError`` where it cannot be."""
    source = source_of(request.file)

    def scenario_at(settings: Settings) -> Scenario:
        return compile_text(source.text, source.path, settings).scenario(request.workload)

    return scenario_at


def _counting(simulate: Simulate, progress: Progress) -> Simulate:
    """Return ``simulate``, which tells how often it was called."""
    calls = count()

    def reported(scenario: Scenario, choice: Schedule, advice: Advice) -> int | None:
        progress("across", next(calls), 0)
        return simulate(scenario, choice, advice)

    return reported


def _begun(advisor: Advisor, request: SweepRequest, scenarios: Sequence[Scenario]) -> Advisor:
    """Return the advisor on a cluster, or in processes here where these pay: for points that are not known."""
    if request.scheduler is not None:
        return advisor.on_cluster(request.scheduler)
    options = request.advice
    least = LEAST_SIMULATED if options.verify else LEAST_ESTIMATED
    pays = options.workers > 1 and advisor.num_unknown(scenarios, options) >= least
    return advisor.in_processes(options.workers if pays else 0)


def _unswept(request: SweepRequest) -> Compiled:
    """The file with the settings that do not vary."""
    return compiled(request.file, tuple(pair for pair in request.settings if not is_swept(pair[1])))


def steps_of(request: SweepRequest) -> tuple[StepScenario, list[Settings]] | None:
    """Return the training step that a request is about, with the settings of each point; None if it is of none.

    Raises
    ------
    CompileError
        If the file has an error as it stands.
    """
    found = _unswept(request)
    step = found.step(request.workload)
    return None if step is None else (step, list(points_of(request.settings, found.params)))


def subjects_of(request: SweepRequest) -> tuple[list[tuple[Settings, Scenario]], bool]:
    """Return each point with its scenario, and whether some have errors.

    Raises
    ------
    CompileError
        If all have.
    """
    found, scenario_at = _unswept(request), _at(request)
    show(found.warnings)
    points: list[tuple[Settings, Scenario]] = []
    errors: list[CompileError] = []
    for settings in points_of(request.settings, found.params):
        try:
            points.append((settings, scenario_at(settings)))
        except CompileError as error:
            errors.append(error)
    if not points:
        raise errors[0]
    for each in errors:
        show(each.diagnostics)
    return points, bool(errors)


def _flat(document: JsonObject) -> JsonObject:
    """The row of a point: its params first, as ``param.NAME`` where a column has the name already."""
    settings, times = document.pop("settings"), document.pop("schedules_us", {})
    params = {(f"param.{name}" if name in document else name): text for name, text in settings.items()}
    return params | document | {f"us.{name}": us for name, us in times.items()}
