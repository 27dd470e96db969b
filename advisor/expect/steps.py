"""The figures that expectations about a training step need, each schedule simulated once."""

from dataclasses import dataclass, field
from fractions import Fraction

from ...compiler.ir import Metric
from ...compiler.ir.step import StepScenario
from ...compiler.planning.build import ScheduleError
from ..steps.layer_times import LayerTimes
from ..steps.outcome import StepOutcome, outcome_of
from ..steps.search import Compile, recommended, search
from .simulations import BEST, ExpectationError


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
