"""The simulations that the expectations of a graph need, each run once."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ...compiler.ir import GraphScenario, Metric, without_batch
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.graph_layers import in_layer, own_name
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.resolve.schedules.from_text import choice_named
from ...compiler.text.diagnostics import CompileError
from ...simcore import Result, RunOutcome, RunTooLarge
from ...simcore.simulate_layers import SHOWN_LAYER, simulate_layers
from ..bounds.graph_bound import graph_bound
from ..candidates.advice import Advice
from ..candidates.shortlist import packet_bytes
from ..recommend import Advisor
from .simulations import BEST, BOUND, ExpectationError


@dataclass(slots=True)
class GraphRuns:
    """Results of the schedules of a graph by name: declared ones, ``best`` and ``serial``."""

    scenario: GraphScenario
    advisor: Callable[[], Advisor]
    packets: bool = False
    _advice: Advice | None = None
    _bound_ticks: int | None = None
    _results: dict[tuple[str, int | None], Result] = field(default_factory=dict)

    def advice(self) -> Advice:
        """Return the advice for the graph, computed once.

        Raises
        ------
        ExpectationError
            If the graph does not fit, or nothing can be simulated.
        """
        if self._advice is None:
            try:
                self._advice = self.advisor().recommend(self.scenario)
            except (RunTooLarge, ScheduleError) as error:
                raise ExpectationError(str(error)) from error
        return self._advice

    def verdict(self) -> Verdict:
        """Return that of the advice.

        Raises
        ------
        ExpectationError
            As ``advice``.
        """
        return self.advice().verdict

    def bound_ticks(self) -> int:
        """Return the lower bound on any schedule, of all layers."""
        if self._bound_ticks is None:
            self._bound_ticks = graph_bound(self.scenario.system, self.scenario.graph).ticks
        return self._bound_ticks

    def result(self, name: str, *, explained: bool = False) -> Result:
        """Return the result of a schedule; of layers that repeat the makespan is that of all.

        Raises
        ------
        ExpectationError
            If there is none of that name, or it is too large to simulate or does not finish.
        """
        return self._result(name, None)

    def seeded(self, name: str, count: int) -> tuple[Result, ...]:
        """Return results under the seeds 0 to ``count`` - 1 of the variability.

        Raises
        ------
        ExpectationError
            As ``result``.
        """
        return tuple(self._result(name, seed) for seed in range(count))

    def of_op(self, name: str, op: str, metric: Metric, seed: int | None) -> int:
        """Return a figure in ticks of one op; of several layers that of the third, or the last.

        Raises
        ------
        ExpectationError
            As ``result``.
        """
        found = self._layers(name, seed)
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

    def _result(self, name: str, seed: int | None) -> Result:
        found = self._layers(name, seed)
        return replace(found, makespan_ticks=found.total_ticks) if found.num_simulated < found.layers else found

    def _layers(self, name: str, seed: int | None) -> Result:
        if name == BOUND:
            raise ExpectationError("the bound is a time, and has no other figures")
        if (name, seed) not in self._results:
            self._results[name, seed] = self._simulate(name, seed)
        return self._results[name, seed]

    def _simulate(self, name: str, seed: int | None) -> Result:
        scenario = self.scenario
        unit = packet_bytes(scenario.gpu) if self.packets else scenario.gpu.line_bytes
        try:
            choice = self.advice().recommended.joint if name == BEST else choice_named(scenario, name)
            found = simulate_layers(
                scenario.system, scenario.graph, choice, name=scenario.name, unit_bytes=unit, seed=seed
            )
        except CompileError as error:
            raise ExpectationError(f"{name} does not fit these sizes and was left out") from error
        except (RunTooLarge, ScheduleError) as error:
            raise ExpectationError(str(error)) from error
        if found.outcome is not RunOutcome.DONE:
            raise ExpectationError(f"{name} does not finish: {found.outcome.value}")
        return found
