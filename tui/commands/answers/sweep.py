"""``magus sweep``: advice over a grid of parameters, and the rules that follow."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ....advisor import Advice, AdviceOptions, Advisor
from ....advisor.policy.sweep import Sweep, swept
from ....compiler import CompileError, Scenario
from ....compiler.ir import Cancelled, GraphScenario, JsonObject, Settings
from ....compiler.pipeline import compile_text
from ....compiler.resolve.values.swept import is_swept, points_of
from ...exit_codes import Exit
from ...text.progress import progress_line
from ...text.sweep import sweep_text
from ..console import show
from ..graphs.sweep import sweep_graph
from ..inputs import source_of
from ..interrupts import interruptible
from ..running import run_command
from ..swept import SweepForm, put_sweep

Subject = Scenario | GraphScenario


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """The points of ``workload`` in ``file`` that ``settings`` give, and what to spend on each."""

    file: Path
    settings: Settings
    workload: str | None
    advice: AdviceOptions
    tolerance: float

    @property
    def varied(self) -> tuple[str, ...]:
        """The parameters that have several values."""
        return tuple(name for name, text in self.settings if is_swept(text))


def sweep_file(request: SweepRequest, *, as_json: bool, as_csv: bool) -> Exit:
    """Print the advice for every point."""

    def action() -> Exit:
        subjects, failed = subjects_of(request)
        form = SweepForm(as_json, as_csv)
        if isinstance(subjects[0][1], GraphScenario):
            return sweep_graph(request.advice, request.tolerance, subjects, request.varied, form, some_failed=failed)
        points = pairs_among(subjects)
        sweep = sweep_of(request, points)
        params = request.varied or tuple(name for name, _ in request.settings)
        return put_sweep(
            sweep, len(points), form, lambda: sweep_text(sweep, params), lambda: _rows(sweep), some_failed=failed
        )

    return run_command(action)


def sweep_of(request: SweepRequest, points: Sequence[tuple[Settings, Scenario]]) -> Sweep:
    """Return the advice for ``points``, with progress; Ctrl-C ends it with what was found."""
    advisor, done = Advisor.load(), 0
    with progress_line() as progress, interruptible() as stopped:

        def advise(scenario: Scenario) -> Advice:
            nonlocal done
            progress("sweep", min(done, len(points)), len(points))
            advice = advisor.recommend(scenario, request.advice, should_stop=stopped)
            if stopped():
                raise Cancelled
            done += 1
            return advice

        return swept(points, advise, options=request.advice, tolerance=request.tolerance)


def pairs_among(subjects: Sequence[tuple[Settings, Subject]]) -> list[tuple[Settings, Scenario]]:
    """Return those that are pairs."""
    return [(settings, one) for settings, one in subjects if isinstance(one, Scenario)]


def subjects_of(request: SweepRequest) -> tuple[list[tuple[Settings, Subject]], bool]:
    """Return each point with its scenario, of a pair or a graph, and whether some have errors.

    Raises
    ------
    CompileError
        If all have.
    """
    source = source_of(request.file)
    plain = tuple((name, text) for name, text in request.settings if not is_swept(text))
    compiled = compile_text(source.text, source.path, plain)
    show(compiled.warnings)
    points: list[tuple[Settings, Subject]] = []
    errors: list[CompileError] = []
    for settings in points_of(request.settings, compiled.params):
        try:
            found = compile_text(source.text, source.path, settings)
            graph = found.graph(request.workload)
            points.append((settings, found.scenario(request.workload) if graph is None else graph))
        except CompileError as error:
            errors.append(error)
    if not points:
        raise errors[0]
    for each in errors:
        show(each.diagnostics)
    return points, bool(errors)


def _rows(sweep: Sweep) -> list[JsonObject]:
    return [_flat(point.document()) for point in sweep.points]


def _flat(document: JsonObject) -> JsonObject:
    """The row of a point: its params first, as ``param.NAME`` where a column has the name already."""
    settings = document.pop("settings")
    return {(f"param.{name}" if name in document else name): text for name, text in settings.items()} | document
