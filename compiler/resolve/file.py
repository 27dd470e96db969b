"""From names to scenarios: every workload with its hardware, its schedules, its space and what is expected of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..codes import Code
from ..ir import Explore, NamedSchedule, Scenario, System, Workload
from ..outline.outline import Outline
from ..outline.write import rejections_on, written_out
from ..planfile.file import import_plan, imported
from ..text import syntax as ast
from ..text.diagnostics import Report
from ..text.names import Entry, Kind, Scope
from ..text.units import Quantity
from .devices.device import DeviceResolver
from .devices.system import SystemResolver
from .expect.expect import ExpectReader
from .expect.expectation import Expectation
from .schedules.explore import ExploreReader
from .schedules.outline import OutlineReader
from .schedules.outline_block import is_outline, place_of
from .schedules.plan import PlanReader
from .schedules.template import ChoiceReader
from .values.evaluate import ExpressionEvaluator, Place
from .values.params import Param, check_params
from .values.sentences import single
from .workloads.workload import resolve_workload


@dataclass(frozen=True, slots=True)
class Resolved:
    """Everything that a file says, under one setting of its parameters."""

    scenarios: tuple[Scenario, ...]
    expectations: tuple[Expectation, ...]
    params: tuple[Param, ...]


def resolve(scope: Scope, settings: Mapping[str, Quantity], report: Report, with_questions: bool = True) -> Resolved:
    """Resolve all declarations of a file, its expectations on request; what is wrong is reported, each cause once."""
    return _Resolver(scope, settings, report).run(with_questions)


class _Resolver:
    def __init__(self, scope: Scope, settings: Mapping[str, Quantity], report: Report) -> None:
        self._scope, self._report, self._settings = scope, report, settings
        self._evaluator = ExpressionEvaluator(report, settings)
        self._devices = DeviceResolver(report, self._evaluator)
        self._systems = SystemResolver(report, self._evaluator, self._devices)
        self._workloads: dict[Entry, tuple[System, Workload] | None] = {}

    def run(self, with_questions: bool) -> Resolved:
        params = check_params(self._scope, self._settings, self._evaluator, self._report)
        self._check_unused()
        for entry in self._scope.of_kind(Kind.WORKLOAD):
            self._workloads[entry] = None
            with self._report.attempt():
                self._workloads[entry] = resolve_workload(entry, self._systems, self._evaluator, self._report)
        schedules = self._schedules()
        spaces = self._spaces()
        expectations = self._expectations() if with_questions else ()
        scenarios = tuple(
            Scenario(entry.name, *found, tuple(schedules[entry]), spaces.get(entry, Explore()))
            for entry, found in self._workloads.items()
            if found is not None
        )
        return Resolved(scenarios, expectations, params)

    def _check_unused(self) -> None:
        """Resolve what no workload needs too, so that a mistake in it does not wait for its first use."""
        for entry in self._scope.of_kind(Kind.LET):
            assert isinstance(entry.declaration, ast.Let)
            with self._report.attempt():
                self._evaluator(ast.Name(entry.name, span=entry.declaration.span), Place(self._scope))
        for kind, resolve_one in (
            (Kind.GPU, self._devices.gpu),
            (Kind.LINK, self._devices.link),
            (Kind.SWITCH, self._devices.switch),
            (Kind.SYSTEM, self._systems.system),
        ):
            for entry in self._scope.of_kind(kind):
                with self._report.attempt():
                    resolve_one(entry)

    def _system(self, path: ast.Path) -> tuple[Entry, System]:
        """The workload that ``path`` names and its system, which is known even where the workload is wrong."""
        entry = self._scope.find(path, Kind.WORKLOAD, self._report)
        declaration = entry.declaration
        assert isinstance(declaration, ast.Workload)
        return entry, self._systems.system(entry.scope.find(declaration.system, Kind.SYSTEM, self._report))

    def _workload(self, entry: Entry) -> Workload:
        found = self._workloads[entry]
        if found is None:
            raise self._report.stop()
        return found[1]

    def _schedules(self) -> dict[Entry, list[NamedSchedule]]:
        found: dict[Entry, list[NamedSchedule]] = {entry: [] for entry in self._workloads}
        for schedule in self._scope.of_kind(Kind.SCHEDULE):
            declaration = schedule.declaration
            assert isinstance(declaration, ast.Template | ast.Plan)
            with self._report.attempt():
                entry, system = self._system(declaration.workload)
                choices = self._choices(system)
                path = imported(declaration, self._report)
                if path is not None:
                    scenario = Scenario(entry.name, system, self._workload(entry))
                    found[entry].append(NamedSchedule(schedule.name, import_plan(scenario, path, self._report)))
                elif isinstance(declaration, ast.Template):
                    found[entry].append(NamedSchedule(schedule.name, choices.choice(declaration)))
                elif is_outline(declaration, self._report):
                    scenario = Scenario(entry.name, system, self._workload(entry))
                    outline = self._outline(system, choices, declaration)
                    if self._fits(scenario, outline, declaration):
                        found[entry].append(NamedSchedule(schedule.name, written_out(scenario, outline)))
                else:
                    workload = self._workload(entry)
                    reader = PlanReader(system, workload, choices, self._place, self._evaluator, self._report)
                    found[entry].append(NamedSchedule(schedule.name, reader.read(declaration)))
        return found

    def _outline(self, system: System, choices: ChoiceReader, declaration: ast.Plan) -> Outline:
        return OutlineReader(system, choices, self._place, self._evaluator, self._report).read(declaration)

    def _fits(self, scenario: Scenario, outline: Outline, declaration: ast.Plan) -> bool:
        """Report what keeps an outline from being a plan; with sizes set from outside it is only left out."""
        found = tuple(rejections_on(scenario, outline))
        for rejection in found:
            span = place_of(declaration, rejection.statement)
            if self._settings:
                message = f"{declaration.name} is left out: {rejection.message}"
                self._report.warn(rejection.code, message, span, rejection.hint)
            else:
                self._report.error(rejection.code, rejection.message, span, rejection.hint)
        return not found

    def _spaces(self) -> dict[Entry, Explore]:
        found: dict[Entry, Explore] = {}
        for question in self._scope.questions:
            if isinstance(question, ast.Explore):
                with self._report.attempt():
                    entry, system = self._system(question.workload)
                    if entry in found:
                        message = f"{entry.name} is explored twice"
                        raise self._report.fail(Code.MGS206, message, question.workload.span)
                    reader = ExploreReader(self._choices(system), self._place, self._evaluator, self._report)
                    found[entry] = reader.read(question)
        return found

    def _expectations(self) -> tuple[Expectation, ...]:
        found: list[Expectation] = []
        for question in self._scope.questions:
            if isinstance(question, ast.Expect):
                with self._report.attempt():
                    found.append(self._expectation(question))
        return tuple(found)

    def _expectation(self, question: ast.Expect) -> Expectation:
        entry, failures = self._subject(question), self._report.num_failures
        for binding in question.bindings:
            with self._report.attempt():
                self._check_binding(binding)
        names = tuple(
            each.name for each in self._scope.of_kind(Kind.SCHEDULE) if self._is_for(each.declaration, entry.name)
        )
        settable = self._report.num_failures == failures
        expectation = ExpectReader(names, self._place, self._evaluator, self._report).read(question, entry.name)
        if not settable:
            raise self._report.stop()
        return expectation

    def _subject(self, question: ast.Expect) -> Entry:
        if question.workload is not None:
            return self._scope.find(question.workload, Kind.WORKLOAD, self._report)
        entries = self._scope.of_kind(Kind.WORKLOAD)
        if len(entries) == 1:
            return entries[0]
        names = ", ".join(entry.name for entry in entries) or "none"
        message = "expect says which workload it is about"
        raise self._report.fail(Code.MGS203, message, question.span, f"workloads are: {names}")

    def _check_binding(self, binding: ast.Binding) -> None:
        entry = self._scope.value(ast.Name(binding.name, span=binding.span), self._report)
        if entry.kind is not Kind.PARAM:
            hint = f"make it one: param {binding.name} = ..."
            raise self._report.fail(
                Code.MGS210, f"'{binding.name}' is a let, 'with' sets parameters", binding.span, hint
            )
        self._evaluator(single(binding.values, self._report), self._place)

    @staticmethod
    def _is_for(declaration: object, workload: str) -> bool:
        return isinstance(declaration, ast.Template | ast.Plan) and declaration.workload.names == (workload,)

    def _choices(self, system: System) -> ChoiceReader:
        return ChoiceReader(system, self._place, self._evaluator, self._report)

    @property
    def _place(self) -> Place:
        return Place(self._scope)
