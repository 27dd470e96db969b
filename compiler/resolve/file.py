"""Resolve names to scenarios: each workload with its hardware, schedules, search space and expectations."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..codes import Code
from ..ir import Explore, Gpu, Partition, Rejection, Scenario, Schedule, System, Workload
from ..ir.operations.attention import OVER
from ..ir.step import StepScenario
from ..planning.knobs.engine import explored_engines
from ..text import syntax as ast
from ..text.diagnostics import Report, Severity, Span
from ..text.names import Entry, Kind, Scope
from ..text.units import Quantity
from .devices.device import DeviceResolver
from .devices.system import SystemResolver
from .expect.expect import ExpectReader
from .expect.expectation import ON_ALGORITHM, ON_OVERLAP, Expectation, Verdict
from .schedules.explore import ExploreReader, requested_in_vain, told_in_vain
from .schedules.implementation import ImplementationReader, shipped_implementations, usual_systems
from .schedules.schedule import ChoiceReader, ScheduleReader
from .steps.step import is_step
from .values.device_numbers import StatedNumber
from .values.evaluate import ExpressionEvaluator, Place, Reading
from .values.params import Param, check_params
from .values.words import single
from .workloads.workload import resolve_workload


@dataclass(frozen=True, slots=True)
class Resolved:
    """The resolved content of a file, under one setting of its parameters."""

    scenarios: tuple[Scenario, ...]
    expectations: tuple[Expectation, ...]
    params: tuple[Param, ...]
    numbers: tuple[StatedNumber, ...] = ()
    steps: tuple[StepScenario, ...] = ()
    partitions: tuple[Partition, ...] = ()


def resolve(
    scope: Scope,
    settings: Mapping[str, Quantity],
    report: Report,
    with_questions: bool = True,
    seed: int | None = None,
) -> Resolved:
    """Resolve all declarations of a file, with its expectations if asked for; report each error once.

    Drawn routings have the ``seed``, or as the text says.
    """
    return _Resolver(scope, settings, report, seed).run(with_questions)


class _Resolver:
    def __init__(self, scope: Scope, settings: Mapping[str, Quantity], report: Report, seed: int | None) -> None:
        self._scope, self._report, self._settings = scope, report, settings
        self._reading = Reading(Place(scope), ExpressionEvaluator(report, settings, seed), report)
        self._devices = DeviceResolver(self._reading)
        self._systems = SystemResolver(self._reading, self._devices)
        self._workloads: dict[Entry, tuple[System, Workload] | None] = {}
        self._partitions: dict[str, Partition | None] = {}

    def run(self, with_questions: bool) -> Resolved:
        params = check_params(self._settings, self._reading)
        self._check_unused()
        for entry in self._scope.of_kind(Kind.WORKLOAD):
            if is_step(entry.declaration):
                continue
            with self._report.attempt():
                self._read(entry)
        schedules = self._schedules()
        spaces = self._spaces()
        expectations = self._expectations() if with_questions else ()
        scenarios = tuple(
            Scenario(entry.name, *resolved, tuple(schedules[entry]), _explored(*resolved, spaces.get(entry)))
            for entry, resolved in self._workloads.items()
            if resolved is not None
        )
        partitions = tuple(each for each in self._partitions.values() if each is not None)
        numbers, steps = self._devices.stated_numbers(), self._steps(scenarios)
        return Resolved(scenarios, expectations, params, numbers, steps, partitions)

    def _read(self, entry: Entry) -> None:
        if OVER in entry.declaration.span.text:
            from .workloads.over import PartsReader, is_partitioned  # few files say it

            if is_partitioned(entry.declaration):
                self._partitions[entry.name] = None
                reader = PartsReader(entry, self._systems, self._resolved, self._reading)
                self._partitions[entry.name], parts = reader.read(self._scope)
                self._workloads |= parts
                return
        self._workloads[entry] = None
        self._workloads[entry] = self._resolved(entry)

    def _found(self, path: ast.Path) -> Entry:
        """The workload at ``path``, which is on one group."""
        if None in self._partitions.values() and self._scope.lookup(path.names) is None:
            raise self._report.stop()  # a part of a workload that has errors
        entry = self._scope.find(path, Kind.WORKLOAD, self._report)
        if entry.name not in self._partitions:
            return entry
        partition = self._partitions[entry.name]
        if partition is None:
            raise self._report.stop()
        message = f"{entry.name} is on several groups, and this is about a part of it"
        raise self._report.fail(Code.MGS574, message, path.span, f"its parts are: {', '.join(partition.parts)}")

    def _resolved(self, entry: Entry) -> tuple[System, Workload]:
        system, workload = resolve_workload(entry, self._systems, self._reading)
        return self._with_exchange(entry, system, workload), workload

    def _steps(self, scenarios: tuple[Scenario, ...]) -> tuple[StepScenario, ...]:
        entries = [each for each in self._scope.of_kind(Kind.WORKLOAD) if is_step(each.declaration)]
        if not entries:
            return ()
        from .steps.read import StepsReader  # few files have one: the others do not wait for its import

        by_name = {each.name: each for each in scenarios}
        partitions = {name: each for name, each in self._partitions.items() if each is not None}
        reader = StepsReader(self._scope, by_name, partitions, self._systems, self._derived, self._reading)
        steps: list[StepScenario] = []
        for entry in entries:
            with self._report.attempt():
                step = reader.read(entry)
                # What is set is not explored.
                free = (each for each in step.explore.settings if each[0] not in self._settings)
                steps.append(replace(step, explore=replace(step.explore, settings=tuple(free))))
        return tuple(steps)

    def _derived(self, entry: Entry) -> Scenario:
        """A workload that no text has: what it need not have kept is no mistake of the text."""
        report = self._report.beside()
        with report.trial():
            system, workload = resolve_workload(entry, self._systems, replace(self._reading, report=report))
            return Scenario(entry.name, self._with_exchange(entry, system, workload), workload)
        for error in report.diagnostics:
            if error.severity is Severity.ERROR:
                raise self._report.fail(error.code, error.message, error.span, error.hint)
        raise self._report.stop()

    def _with_exchange(self, entry: Entry, system: System, workload: Workload) -> System:
        """The system with the kernels of the framework that sends rows of the workload to experts."""
        routings = [op.shape.routing for op in workload.ops if op.shape.routing is not None]
        if not routings:
            return system
        from .schedules.implementation_blocks import with_exchange  # few files have experts

        declaration = entry.workload
        reader = ImplementationReader(system, self._reading)
        known = {each.name: each for each in shipped_implementations(system)}
        known |= {each.name: reader.read(each) for each in self._scope.of_kind(Kind.IMPLEMENTATION)}
        found = with_exchange(system, workload, routings[0].by, known)
        if isinstance(found, Rejection):
            said = (each.span for each in declaration.block.statements if "by=" in each.span.text)
            raise self._report.refuse(found, next(said, declaration.system.span))
        return found

    def _check_unused(self) -> None:
        """Resolve declarations that no workload uses too, so that their errors are reported."""
        for entry in self._scope.of_kind(Kind.LET):
            with self._report.attempt():
                self._reading.value(ast.Name(entry.name, span=entry.declaration.span))
        for kind, resolve_one in (
            (Kind.GPU, self._devices.gpu),
            (Kind.LINK, self._devices.link),
            (Kind.SWITCH, self._devices.switch),
            (Kind.SYSTEM, self._systems.system),
        ):
            for entry in self._scope.of_kind(kind):
                with self._report.attempt():
                    resolve_one(entry)
        self._check_kernels()
        self._check_implementations()

    def _check_kernels(self) -> None:
        """Read the kernels of the file that no schedule names too."""
        for entry in self._scope.of_kind(Kind.KERNEL):
            from .schedules.group_kernel import GroupKernelReader  # few files have one

            with self._report.attempt():
                GroupKernelReader(self._reading).read(entry)

    def _check_implementations(self) -> None:
        """Read the implementations of the file for its first system, or for a usual one if it has none."""
        for entry in self._scope.of_kind(Kind.IMPLEMENTATION):
            with self._report.attempt():
                system, *_ = (*self._scope.of_kind(Kind.SYSTEM), *usual_systems())
                ImplementationReader(self._systems.system(system), self._reading).read(entry)

    def _system(self, path: ast.Path) -> tuple[Entry, System]:
        """Return the workload at ``path`` and its system, which is known even if the workload has errors."""
        entry = self._found(path)
        return entry, self._systems.of_workload(entry)

    def _is_of_step(self, path: ast.Path) -> bool:
        entry = self._scope.lookup(path.names)
        return entry is not None and is_step(entry.declaration)

    def _workload(self, entry: Entry) -> Workload:
        resolved = self._workloads[entry]
        if resolved is None:
            raise self._report.stop()
        return resolved[1]

    def _schedules(self) -> dict[Entry, list[Schedule]]:
        by_workload: dict[Entry, list[Schedule]] = {entry: [] for entry in self._workloads}
        for schedule in self._scope.of_kind(Kind.SCHEDULE):
            declaration = schedule.schedule
            with self._report.attempt():
                if self._is_of_step(declaration.workload):
                    continue
                entry, system = self._system(declaration.workload)
                resolved = self._workloads[entry]
                workload = resolved[1] if resolved is not None else None
                found = ScheduleReader(system, workload, self._reading, as_written=not self._settings).read(declaration)
                by_workload[entry] += () if found is None else (found,)
        return by_workload

    def _spaces(self) -> dict[Entry, Explore]:
        spaces: dict[Entry, Explore] = {}
        for question in self._scope.questions:
            if isinstance(question, ast.ExploreNode):
                with self._report.attempt():
                    if self._is_of_step(question.workload):
                        continue
                    entry, system = self._system(question.workload)
                    if entry in spaces:
                        raise self._report.fail(Code.MGS206, f"{entry.name} is explored twice", question.workload.span)
                    with_system = ChoiceReader(system, self._reading), ImplementationReader(system, self._reading)
                    spaces[entry] = ExploreReader(*with_system, self._reading).read(question)
                    self._check_requested(spaces[entry], system.gpu, self._workload(entry), question)
        return spaces

    def _check_requested(self, explore: Explore, gpu: Gpu, workload: Workload, question: ast.ExploreNode) -> None:
        """Report what the file asks about and its workload has not: batches, implementations, tiles, parts of k.

        Sizes that a user sets may leave nothing of what the file tells kernels, so that this is then a warning.
        """
        for word, rejection in requested_in_vain(explore, workload):
            self._report.error(rejection.code, rejection.message, _asks(question, word), rejection.hint)
        say = self._report.warn if self._settings else self._report.error
        for word, rejection in told_in_vain(explore, gpu, workload):
            say(rejection.code, rejection.message, _asks(question, word), rejection.hint)

    def _expectations(self) -> tuple[Expectation, ...]:
        expectations: list[Expectation] = []
        for question in self._scope.questions:
            if isinstance(question, ast.Expect):
                with self._report.attempt():
                    expectations.append(self._expectation(question))
        return tuple(expectations)

    def _expectation(self, question: ast.Expect) -> Expectation:
        entry, failures = self._subject(question), self._report.num_failures
        for binding in question.bindings:
            with self._report.attempt():
                self._check_binding(binding)
        schedules = self._scope.of_kind(Kind.SCHEDULE)
        names = tuple(each.name for each in schedules if each.schedule.workload.names == (entry.name,))
        settable = self._report.num_failures == failures
        resolved = self._workloads.get(entry)
        work = None if resolved is None else resolved[1]
        ops = tuple(op.name for op in work.ops) if work is not None and work.only_shape is None else ()
        reader = ExpectReader(names, self._reading, ops, _verdicts_on(work), of_step=is_step(entry.declaration))
        expectation = reader.read(question, entry.name)
        if not settable:
            raise self._report.stop()
        return expectation

    def _subject(self, question: ast.Expect) -> Entry:
        if question.workload is not None:
            return self._found(question.workload)
        entries = self._scope.of_kind(Kind.WORKLOAD)
        if len(entries) == 1 and entries[0].name not in self._partitions:
            return entries[0]
        names = ", ".join(dict.fromkeys(entry.name for entry in (*entries, *self._workloads))) or "none"
        message = "expect says which workload it is about"
        raise self._report.fail(Code.MGS203, message, question.span, f"workloads are: {names}")

    def _check_binding(self, binding: ast.Binding) -> None:
        if self._scope.value(ast.Name(binding.name, span=binding.span), self._report).kind is not Kind.PARAM:
            hint = f"make it one: param {binding.name} = ..."
            raise self._report.fail(
                Code.MGS210, f"'{binding.name}' is a let, 'with' sets parameters", binding.span, hint
            )
        self._reading.value(single(binding.values, self._report))


def _asks(question: ast.ExploreNode, word: str) -> Span:
    """Where a block says ``word``."""
    asks = (each.span for each in question.block.statements if isinstance(each, ast.Say))
    return next((each for each in asks if each.text.startswith(word)), question.span)


def _explored(system: System, workload: Workload, explore: Explore | None) -> Explore:
    """The space of a block, with engines that suit a lone op."""
    space = explore or Explore()
    return explored_engines(system, workload.ops[0].shape, space) if workload.only_shape is not None else space


def _verdicts_on(workload: Workload | None) -> tuple[Verdict, ...]:
    """Return the verdicts that there may be on a workload: any if it is not known for its own errors."""
    if workload is None:
        return tuple(Verdict)
    return ON_ALGORITHM if len(workload.ops) == 1 and workload.ops[0].shape.is_collective else ON_OVERLAP
