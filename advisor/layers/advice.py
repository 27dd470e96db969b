"""Advice on a graph as data: which joint schedule to use, what it is compared with, and what each op does in it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...compiler.ir import TICKS_PER_US, GraphChoice, GraphScenario
from ...compiler.resolve.expect.expectation import Verdict
from ...simcore.simulate_layers import LayersResult
from ..bounds.lower_bound import Bound
from .offers.offer import LayerOffer, promised


@dataclass(frozen=True, slots=True)
class GraphCandidate:
    """One schedule of a graph, and in words what it is.

    ``estimated_ticks`` are of all layers, from a few that were simulated in coarse packets; ``result`` is that of all
    layers in packets, None where the few have told enough. ``is_baseline`` is what people have today or the file
    declares, else it was searched. One that ``is_outside`` what the file explores is compared, and never recommended.
    """

    choice: GraphChoice
    what: str
    estimated_ticks: int
    result: LayersResult | None = None
    unit_bytes: int | None = None
    is_baseline: bool = False
    is_outside: bool = False

    @property
    def name(self) -> str:
        """The name of the schedule."""
        return self.choice.name

    @property
    def side_by_side(self) -> bool:
        """Whether kernels share the SMs, to which no profile is fitted."""
        return self.choice.side_by_side

    @property
    def ticks(self) -> int:
        """The best known time of all layers."""
        return self.estimated_ticks if self.result is None else self.result.makespan_ticks

    @property
    def is_estimate(self) -> bool:
        """Whether that is not simulated, of all layers or of so many that the others repeat them."""
        return self.result is None or self.result.estimated

    @property
    def us(self) -> float:
        """The same in us."""
        return self.ticks / TICKS_PER_US


@dataclass(frozen=True, slots=True)
class OpAdvice:
    """What to do with one op of the recommended schedule, with times in ticks in a layer that has neighbours.

    ``how`` is its template, ``apart``, or empty for a kernel. ``exposed_ticks`` is how long its copies run beside no
    kernel, ``hidden_by`` are the ops whose kernels run meanwhile with the shares of the time of the copies, the largest
    first. ``alone`` is what is fastest for it alone, empty where that is what it does.
    """

    name: str
    label: str
    how: str
    begin_ticks: int
    end_ticks: int
    comm_ticks: int
    exposed_ticks: int
    hidden_by: tuple[tuple[str, float], ...] = ()
    alone: str = ""
    alone_ticks: int = 0
    whole_ticks: int = 0


@dataclass(frozen=True, slots=True)
class GraphAdvice:
    """Which schedule to use for a graph, and the evidence.

    ``serial`` is the one without overlap. ``candidates`` are by their times, best first. ``kernels_ticks`` are all
    kernels alone, one after the other, in all layers: no schedule with these kernels in one stream is faster.
    ``reasons`` are sentences. ``copier`` is who copies. ``searched`` is how many schedules were simulated. ``offers``
    are what can be switched on today, the fastest first.
    """

    scenario: GraphScenario
    verdict: Verdict
    recommended: GraphCandidate
    serial: GraphCandidate
    candidates: tuple[GraphCandidate, ...]
    ops: tuple[OpAdvice, ...]
    reasons: tuple[str, ...]
    bound: Bound | None
    kernels_ticks: int
    copier: str
    searched: int
    seconds: float = field(default=0.0, compare=False)
    marks: tuple[str, ...] = ()
    interrupted: bool = False
    outside_calibration: tuple[str, ...] = ()
    offers: tuple[LayerOffer, ...] = ()

    @property
    def speedup(self) -> float:
        """The gain of the recommended schedule over no overlap."""
        return self.serial.ticks / self.recommended.ticks

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return self.scenario.graph.num_layers

    @property
    def gap_to_bound(self) -> float | None:
        """Time of the recommended schedule over the lower bound, minus one; None without a bound."""
        return None if self.bound is None else self.recommended.ticks / self.bound.ticks - 1

    def gain_of(self, offer: LayerOffer) -> float:
        """The gain of an implementation over no overlap, both as they are estimated."""
        return self.serial.estimated_ticks / offer.all_ticks

    def loss_of(self, offer: LayerOffer) -> float:
        """How far an implementation is behind the recommended schedule, as a share of its time."""
        return offer.all_ticks / self.recommended.estimated_ticks - 1

    def verdict_on(self, offer: LayerOffer) -> Verdict:
        """What the gain of an implementation promises."""
        return promised(self.gain_of(offer), float(self.scenario.system.gpu.gemm.resolution), offer.unknown)

    def offer(self, implementation: str) -> LayerOffer | None:
        """What is known of an implementation here, None if nothing is."""
        return next((each for each in self.offers if each.implementation == implementation), None)

    def named(self, name: str) -> GraphCandidate | None:
        """The candidate of that name, None if there is none."""
        return next((candidate for candidate in self.candidates if candidate.name == name), None)


def by_time(candidates: Sequence[GraphCandidate]) -> tuple[GraphCandidate, ...]:
    """The candidates by their times; those that all layers were simulated of come first."""
    return tuple(sorted(candidates, key=lambda each: (each.result is None, each.ticks, each.name)))
