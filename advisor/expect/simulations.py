"""The simulations that the expectations of one scenario need, each run once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction

from ...compiler.ir import Metric, OpCase, OpChoice, OpPlan, Scenario, without_batch
from ...compiler.ir.step import StepScenario
from ...compiler.planning.build import ScheduleError, build_op_plan, declared
from ...compiler.planning.knobs.library import library_serial
from ...compiler.planning.plan import in_layer, own_name
from ...compiler.resolve.schedules.from_text import choice_named
from ...compiler.templates import BASELINE
from ...compiler.text.diagnostics import CompileError
from ...simcore import Result, RunOutcome, RunTooLarge, WhatIf, affordable_unit, simulate_op
from ...simcore.simulate_layers import SHOWN_LAYER, simulate_layers
from ..answer.stages import AdviceOptions
from ..bounds.lower_bound import lower_bound, workload_bound
from ..candidates.advice import Advice
from ..candidates.candidate import Candidate, ScheduleOrigin, baseline_of, by_time
from ..candidates.predicted import is_serial, library_unfit, usual_serials
from ..candidates.shortlist import packet_bytes, shortlist_unit, variants
from ..questions.advisor import Advisor
from ..questions.one_op import CONFIRM_LINE_HOPS
from ..solver import NoFeasibleSchedule, enumerate_space
from ..steps.layer_times import LayerTimes
from ..steps.outcome import StepOutcome, outcome_of
from ..steps.search import recommended, search
from ..steps.space import Compile


def serial_baseline(scenario: OpCase) -> OpPlan:
    """Return the baseline of advice: the library's schedule where its time is known, else the fastest serial one.

    They are simulated at the granularity of the shortlist, and the fastest with other execution options too. Every
    schedule of a lone kernel is serial.
    """
    if library_unfit(scenario) is None:
        return build_op_plan(scenario, library_serial(scenario))
    candidates = _serial_candidates(scenario)
    if len(candidates) == 1 and scenario.shape.moved is None:
        return candidates[0].schedule
    candidates = _simulated(scenario, candidates)
    if scenario.shape.moved is not None and not scenario.is_algorithm_choice:
        varied = (_candidate(choice, build_op_plan(scenario, choice)) for choice in variants(scenario, candidates))
        candidates = by_time([*candidates, *_simulated(scenario, varied)])
    return baseline_of(candidates).schedule


def _serial_candidates(scenario: OpCase) -> list[Candidate]:
    """Return the serial schedules with usual options, and those that the file declares."""
    only_serial = replace(scenario, explore=scenario.explore.asking("schedules", (BASELINE.name,)))
    try:
        choices = enumerate_space(only_serial).structures
    except NoFeasibleSchedule:
        choices = ()
    candidates = [_candidate(each, build_op_plan(scenario, each)) for each in (*choices, *usual_serials(scenario))]
    for named in scenario.schedules:
        choice = named.body if isinstance(named.body, OpChoice) else None
        if is_serial(scenario, choice):
            candidates.append(_candidate(choice, declared(scenario, named)))
    return list({candidate.expression: candidate for candidate in candidates}.values())


def _candidate(choice: OpChoice | None, schedule: OpPlan) -> Candidate:
    by_library = choice is not None and choice.engine.by_library
    return Candidate(
        schedule.expression, choice, schedule, ScheduleOrigin.LIBRARY if by_library else ScheduleOrigin.SERIAL
    )


def _simulated(scenario: OpCase, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates with their times at the granularity of the shortlist, the fastest first."""
    simulated = []
    for candidate in candidates:
        result = simulate_op(scenario, candidate.schedule, unit_bytes=shortlist_unit(scenario, candidate.schedule))
        simulated.append(replace(candidate, simulated_ticks=result.makespan_ticks, unit_bytes=result.unit_bytes))
    return by_time(simulated)


BEST, SERIAL, BOUND = "best", "serial", "bound"


class ExpectationError(ValueError):
    """An expectation refers to a figure that does not exist, for instance the DIL of a lone collective."""


@dataclass(slots=True)
class Runs:
    """Results of the schedules of ``scenario`` by name: declared ones, ``best`` and ``serial``; each is run once.

    ``serial`` of one op is the baseline of advice, of several it is each after the other. With ``packets`` they are
    simulated in packets, else in lines; advice is always confirmed in lines.
    """

    scenario: Scenario
    advisor: Callable[[], Advisor]
    workers: int = 1
    packets: bool = False
    _advice: Advice | None = None
    _baseline: OpPlan | None = None
    _bound_ticks: int | None = None
    _results: dict[tuple[str, bool], Result] = field(default_factory=dict)
    _seeded: dict[tuple[str, int], tuple[Result, ...]] = field(default_factory=dict)

    def advice(self) -> Advice:
        """Return the advice for the scenario, computed once.

        Raises
        ------
        ExpectationError
            If no schedule is feasible, nothing can be simulated, or advice does not support the system.
        """
        if self._advice is None:
            try:
                self._advice = self.advisor().recommend(self.scenario, AdviceOptions(workers=self.workers))
            except (NoFeasibleSchedule, RunTooLarge, ScheduleError) as error:
                raise ExpectationError(str(error)) from error
        return self._advice

    def bound_ticks(self) -> int:
        """Return the lower bound on any schedule, of all layers."""
        if self._bound_ticks is None:
            case, scenario = self.scenario.only_case, self.scenario
            self._bound_ticks = (workload_bound(scenario) if case is None else lower_bound(case)).ticks
        return self._bound_ticks

    def result(self, name: str, *, explained: bool = False) -> Result:
        """Return the result of a schedule; of layers that repeat the makespan is that of all.

        With ``explained`` a result of one op has the runs behind ``cil``.

        Raises
        ------
        ExpectationError
            If the schedule does not fit the scenario, is too large to simulate or does not finish.
        """
        if self.scenario.only_case is not None and (name == BEST or (name == SERIAL and self._advice is not None)):
            advice = self.advice()
            result = advice.result if name == BEST else advice.serial_result
            assert result is not None, "advice is verified unless asked otherwise"
            return result
        return _of_all_layers(self._simulated(name, explained))

    def seeded(self, name: str, count: int) -> tuple[Result, ...]:
        """Return results of a declared schedule or ``serial`` under the seeds 0 to ``count`` - 1 of the variability.

        Raises
        ------
        ExpectationError
            As ``result``.
        """
        if (name, count) not in self._seeded:
            with _errors_of(name):
                results = self._seeds(name, count)
            self._seeded[name, count] = tuple(_of_all_layers(_done(name, result)) for result in results)
        return self._seeded[name, count]

    def of_op(self, name: str, op: str, metric: Metric, seed: int | None) -> int:
        """Return a figure in ticks of one of several ops; of several layers that of the third, or the last.

        Raises
        ------
        ExpectationError
            As ``result``, and if there is one op.
        """
        if self.scenario.only_case is not None:
            raise ExpectationError(f"{self.scenario.name} has one op, and none called {op}")
        found = self._simulated(name) if seed is None else self.seeded(name, seed + 1)[seed]
        shown = in_layer(op, min(SHOWN_LAYER, found.num_simulated))
        one = next((each for each in found.ops if each.name == shown), None)
        if one is None:
            own = (own_name(each.name) for each in found.ops)
            ops = ", ".join(dict.fromkeys(each for each in own if without_batch(each) == without_batch(op)))
            raise ExpectationError(f"{name} has no op {op}, but {ops}")
        figures = {
            Metric.MAKESPAN: one.makespan_ticks,
            Metric.COMPUTE_TIME: one.compute_ticks,
            Metric.COMM_TIME: one.comm_ticks,
            Metric.EXPOSED_TIME: one.exposed_ticks,
        }
        return figures[metric]

    def _simulated(self, name: str, explained: bool = False) -> Result:
        if (name, explained) not in self._results:
            case = self.scenario.only_case
            with _errors_of(name):
                result = self._layers(name) if case is None else self._of_one_op(case, name, explained)
            self._results[name, explained] = _done(name, result)
        return self._results[name, explained]

    def _of_one_op(self, case: OpCase, name: str, explained: bool) -> Result:
        schedule = self._schedule(case, name)
        what_if = WhatIf(packet_bytes(case.gpu)) if explained else None
        return simulate_op(case, schedule, unit_bytes=self._unit(case, name, schedule), what_if=what_if)

    def _layers(self, name: str, seed: int | None = None) -> Result:
        _check_schedule(name)
        system, workload = self.scenario.system, self.scenario.workload
        choice = self.advice().recommended.joint if name == BEST else choice_named(self.scenario, name)
        return simulate_layers(
            system, workload, choice, name=self.scenario.name, unit_bytes=self._unit_bytes, seed=seed
        )

    def _seeds(self, name: str, count: int) -> Sequence[Result]:
        case = self.scenario.only_case
        if case is None:
            return [self._layers(name, seed) for seed in range(count)]
        # Imported here: expectations without seeds do without it.
        from ...simcore import plan_of, simulate_seeds

        schedule = self._schedule(case, name)
        plan, unit = plan_of(case, schedule), self._unit(case, name, schedule)
        return simulate_seeds(case.system, plan, range(count), name=case.name, unit_bytes=unit)

    def _schedule(self, case: OpCase, name: str) -> OpPlan:
        _check_schedule(name)
        if name == SERIAL:
            if self._baseline is None:
                self._baseline = serial_baseline(case)
            return self._baseline
        named = next((named for named in case.schedules if named.name == name), None)
        if named is None:
            raise ExpectationError(_LEFT_OUT.format(name))
        try:
            return declared(case, named)
        except ScheduleError as error:
            raise ExpectationError(f"{name}: {error}") from error

    def _unit(self, case: OpCase, name: str, schedule: OpPlan) -> int:
        """Return the granularity: lines or packets; coarser for the baseline of a large problem, as in advice."""
        return (
            affordable_unit(case, schedule, self._unit_bytes, CONFIRM_LINE_HOPS) if name == SERIAL else self._unit_bytes
        )

    @property
    def _unit_bytes(self) -> int:
        return packet_bytes(self.scenario.gpu) if self.packets else self.scenario.gpu.line_bytes


_LEFT_OUT = "{} does not fit these sizes and was left out"


@contextmanager
def _errors_of(name: str) -> Iterator[None]:
    """Raise why the schedule ``name`` has no result as an ``ExpectationError``."""
    try:
        yield
    except CompileError as error:
        raise ExpectationError(_LEFT_OUT.format(name)) from error
    except (RunTooLarge, ScheduleError) as error:
        raise ExpectationError(str(error)) from error


def _check_schedule(name: str) -> None:
    if name == BOUND:
        raise ExpectationError("the lower bound has a makespan and nothing else")


def _done(name: str, result: Result) -> Result:
    if result.outcome is not RunOutcome.DONE:
        raise ExpectationError(f"{name} does not finish: {result.outcome.value}")
    return result


def _of_all_layers(result: Result) -> Result:
    """The result with the makespan of all layers."""
    return replace(result, makespan_ticks=result.total_ticks) if result.num_simulated < result.layers else result


# The figures that expectations about a training step need, each schedule simulated once.


@dataclass(slots=True)
class StepRuns:
    """Outcomes of the schedules of ``scenario`` by name: declared ones, and ``best``, which is what advice recommends.

    ``compile_with`` compiles the step with further settings, and ``times`` are those of layers of the whole file.
    """

    scenario: StepScenario
    compile_with: Compile
    times: LayerTimes
    _outcomes: dict[str, StepOutcome] = field(default_factory=dict)

    def figure(self, name: str, metric: Metric) -> Fraction:
        """Return a figure of a schedule: ticks, bytes, shares, tokens for each GPU and second.

        Raises
        ------
        ExpectationError
            If the layout is not possible, or ``best`` is asked for and none fits into memory.
        """
        outcome = self.outcome(name)
        run = outcome.run
        match metric:
            case Metric.MEMORY:
                return Fraction(outcome.memory_bytes)
            case Metric.BUBBLE:
                return Fraction(run.bubble_ticks, run.makespan_ticks)
            case Metric.EXPOSED:
                return Fraction(run.gradients_ticks + run.weights_ticks, run.makespan_ticks)
            case Metric.TOKENS_PER_S:
                return Fraction(outcome.tokens_per_gpu_s)
            case _:
                return Fraction(run.makespan_ticks)

    def outcome(self, name: str) -> StepOutcome:
        """Return a schedule of the step, simulated.

        Raises
        ------
        ExpectationError
            As ``figure``.
        """
        if name not in self._outcomes:
            try:
                self._outcomes[name] = self._best() if name == BEST else self._declared(name)
            except ScheduleError as error:
                raise ExpectationError(f"{name}: {error}") from error
        return self._outcomes[name]

    def _declared(self, name: str) -> StepOutcome:
        schedule = next(each for each in self.scenario.schedules if each.name == name)
        return outcome_of(self.scenario, schedule, self.times)

    def _best(self) -> StepOutcome:
        found = recommended(search(self.scenario, self.compile_with, self.times, as_written=False))
        if found is None:
            raise ExpectationError("no layout that is explored divides the ranks and fits into memory")
        return found
