"""An answer about a graph as data: its schedules with their runs, one of them recommended, and why.

It is shown as the advice on a pair is: the same names say the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...compiler.ir import TICKS_PER_US, GraphChoice, GraphScenario
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.text.quantities import ticks_text, us_text
from ...simcore import ShownRun, run_of_graph
from ...simcore.op_spans import OpSummary, op_times
from ...simcore.simulate_layers import LayersResult
from ..bounds.lower_bound import Bound
from ..candidates.advice import MIN_LEAD, SERIAL, Confidence

NOT_VALIDATED = "a whole layer, simulated; measurements of layers were not compared"


@dataclass(frozen=True)
class ShownSchedule:
    """One schedule of a graph; ``result`` is None until it is simulated, ``problem`` says why it cannot be.

    ``estimated_ticks`` is the makespan of all layers as a search has it, from a few in coarse packets. ``what`` says
    where a schedule comes from that the file does not declare.
    """

    scenario: GraphScenario
    choice: GraphChoice
    result: LayersResult | None = None
    problem: str = ""
    estimated_ticks: int | None = None
    what: str = ""

    @property
    def expression(self) -> str:
        """Its name."""
        return self.choice.name

    @property
    def is_serial(self) -> bool:
        """Whether it is the one in which nothing overlaps."""
        return self.choice.name == SERIAL

    @property
    def predicted_us(self) -> float | None:
        """The makespan that the search has found."""
        return None if self.estimated_ticks is None else self.estimated_ticks / TICKS_PER_US

    @property
    def unit_bytes(self) -> int | None:
        """The granularity of the simulation."""
        return None if self.result is None else self.result.simulated.whole.unit_bytes

    @property
    def simulated_ticks(self) -> int | None:
        """The makespan of all layers."""
        return None if self.result is None else self.result.makespan_ticks

    @property
    def simulated_us(self) -> float | None:
        """The makespan of all layers in us, None without a simulation."""
        return None if self.simulated_ticks is None else self.simulated_ticks / TICKS_PER_US

    @property
    def best_us(self) -> float:
        """Best known time: simulated, else that of the search, else infinite."""
        if self.simulated_us is not None:
            return self.simulated_us
        return float("inf") if self.predicted_us is None else self.predicted_us

    @property
    def is_estimate(self) -> bool:
        """Whether that is not simulated, of all layers or of so many that the others repeat them."""
        return self.result is None or self.result.estimated

    @cached_property
    def run(self) -> ShownRun | None:
        """The run as it is shown."""
        return None if self.result is None else run_of_graph(self.scenario, self.choice, self.result)


@dataclass(frozen=True)
class GraphAnswer:
    """``candidates`` are ranked, the fastest first, then those without a simulation.

    ``serial`` is what others are compared with. It is ``interrupted`` while schedules are still being simulated, and if
    that was stopped. ``searched`` is how many schedules a search has simulated. ``notes`` say what failed,
    ``outside_calibration`` what the profile is not fitted to.
    """

    scenario: GraphScenario
    candidates: tuple[ShownSchedule, ...]
    recommended: ShownSchedule
    serial: ShownSchedule
    bound: Bound | None
    reasons: tuple[str, ...]
    searched: int = 0
    notes: tuple[str, ...] = ()
    outside_calibration: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def speedup(self) -> float:
        """The gain of the recommended schedule over the baseline."""
        return self.serial.best_us / self.recommended.best_us

    @property
    def verdict(self) -> Verdict:
        """Whether a schedule that overlaps is clearly faster."""
        return Verdict.OVERLAP if self.speedup >= 1 + MIN_LEAD else Verdict.SERIAL

    @property
    def why_serial(self) -> str:
        """The reason of a serial verdict in a few words."""
        if len(self.candidates) == 1:
            return "the file declares no other schedule"
        return "no other schedule is clearly faster"

    @property
    def confidence(self) -> Confidence:
        """How far to trust the answer."""
        return Confidence.MEDIUM

    @property
    def confidence_reason(self) -> str:
        """Why that far."""
        return NOT_VALIDATED

    @property
    def marks(self) -> tuple[str, ...]:
        """Warnings for the reader."""
        return (*self.notes, *self.outside_calibration)

    @property
    def gap_to_bound(self) -> float | None:
        """Time of the recommended schedule over the lower bound, minus one; None without a bound."""
        return None if self.bound is None else self.recommended.best_us * TICKS_PER_US / self.bound.ticks - 1

    @property
    def ties(self) -> tuple[str, ...]:
        """Simulated schedules that are faster than the recommended one, but by too little to change for."""
        known = (each for each in self.candidates if each.result is not None)
        return tuple(each.expression for each in known if each.best_us < self.recommended.best_us)

    @property
    def baseline(self) -> str:
        """The baseline in words."""
        return self.serial.expression

    @property
    def against(self) -> str:
        """The baseline behind its time."""
        return self.serial.expression

    @property
    def short_names(self) -> Mapping[str, str]:
        """None: names of schedules are short."""
        return {}

    def name_of(self, expression: str) -> str:
        """The name of a schedule."""
        return expression

    @cached_property
    def ops(self) -> tuple[OpSummary, ...]:
        """The ops under the recommended schedule."""
        run = self.recommended.run
        return () if run is None else op_times(run)


def reasons_of(
    best: ShownSchedule, ranked: Sequence[ShownSchedule], serial: ShownSchedule, bound: Bound | None
) -> tuple[str, ...]:
    """Return why ``best`` is recommended among the simulated schedules ``ranked``, in sentences with figures."""
    run = best.run
    if run is None:
        return ()
    said = [_comparison(best, ranked, serial)]
    result, hidden = run.result, run.result.overlap_efficiency
    if hidden is not None:
        layers = f" in {run.num_simulated} layers" if run.num_simulated > 1 else ""
        left = ticks_text(result.exposed_ticks)
        said.append(f"{best.expression} hides {hidden:.0%} of its communication; {left}{layers} stay exposed.")
    return (*said, *sentences_of_ops(best), *bound_sentence(serial, bound))


def sentences_of_ops(schedule: ShownSchedule) -> Iterator[str]:
    """Yield what hides the copies of each op."""
    for op in () if schedule.run is None else op_times(schedule.run):
        if op.comm_ticks:
            yield _beside(op)


def bound_sentence(serial: ShownSchedule, bound: Bound | None) -> Iterator[str]:
    """Yield what no schedule can beat, if it is known."""
    if bound is not None:
        limit = serial.best_us * TICKS_PER_US / bound.ticks
        yield (
            f"No schedule takes less than {ticks_text(bound.ticks)} ({bound.binding}): at most {limit:.2f}x over "
            f"{serial.expression}."
        )


def _comparison(best: ShownSchedule, ranked: Sequence[ShownSchedule], serial: ShownSchedule) -> str:
    name, time = best.expression, us_text(best.best_us)
    if len(ranked) == 1:
        return f"{name} takes {time}; there is no other schedule to compare it with."
    if best is not ranked[0]:
        lead = serial.best_us / ranked[0].best_us - 1
        return f"The fastest of {len(ranked)}, {ranked[0].expression}, is only {lead:.1%} faster than {name}, {time}."
    others = [serial, *(each for each in ranked[1:] if each is not serial)] if best is not serial else ranked[1:]
    gains = ", ".join(f"{each.best_us / best.best_us:.2f}x over {each.expression}" for each in others)
    return f"Of {len(ranked)} schedules {name} is the fastest, {time}: {gains}."


def _beside(op: OpSummary) -> str:
    """What hides the copies of an op."""
    shares = op.beside_text
    by = f"run beside {shares}" if shares else "run beside no kernel"
    left = f"; {ticks_text(op.exposed_ticks)} are exposed" if op.exposed_ticks and shares else ""
    return f"Copies of {op.name}, {ticks_text(op.comm_ticks)}, {by}{left}."
