"""Advice: the answer as data, which the command line, the terminal UI, the service and programs all show."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from typing import ClassVar

from ...compiler.ir import TICKS_PER_US, EngineKind, JsonObject, OpCase, OpChoice, Plan, Scenario
from ...compiler.planfile.write import op_plan_document, plan_document
from ...compiler.planning.build import short_text_of, words_of
from ...compiler.planning.knobs.engine import usual_engine
from ...compiler.planning.plan import build_plan
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.text.records import Tabular
from ...simcore.figures.result import Result
from ..bounds.lower_bound import Bound
from ..implementations.offers import Offer, Offers
from ..implementations.predict import Promise
from .candidate import Candidate, ScheduleOrigin, given_up
from .sensitivity import RoutingDraws, Sensitivity

LONGEST = 48
"""Expressions with lists of sizes that are longer have a short name."""


def short_names(schedules: Iterable[tuple[str, OpChoice | None]]) -> Mapping[str, str]:
    """Return the short name of each long expression, such as ``bespoke (3 parts, dma(7), 2 streams)``.

    ``schedules`` are expressions with their choices, None for a plan. Several short names are numbered in their order,
    so that no two are the same.
    """
    texts = {
        expression: short_text_of(choice)
        for expression, choice in schedules
        if choice is not None
        and len(expression) > LONGEST
        and (choice.parts or choice.slices or choice.columns or choice.trees)
    }
    if len(texts) < 2:
        return texts
    return {
        expression: text.replace(" ", f" {number} ", 1) for number, (expression, text) in enumerate(texts.items(), 1)
    }


SERIAL = "serial"
"""The name of the baseline if that is not the library."""


class Confidence(Enum):
    """How far to trust the answer."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class AnswerSource(Enum):
    """Where an answer comes from: kept from before, estimated schedules that a model proposed, or simulations."""

    CACHE = "cache"
    MODEL = "model"
    SIMULATION = "simulation"


def baseline_name(is_algorithm_choice: bool, baseline: Candidate) -> str:
    """Return the name of ``baseline``; ``is_algorithm_choice`` says whether the question is about a lone collective."""
    if baseline.is_library:
        return "the library"
    return "the direct exchange" if is_algorithm_choice else SERIAL


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall times of the stages in seconds."""

    enumerate_s: float
    predict_s: float
    shortlist_s: float
    confirm_s: float


@dataclass(frozen=True, slots=True)
class Threshold:
    """The number of rows of the GEMM from which on overlap pays, the rest of the scenario staying as it is.

    Attributes
    ----------
    rows
        The rows at which the answer changes; None if it is the same for all rows that were tried.
    pays_above
        Whether overlap pays from ``rows`` on; else it pays below. With ``rows`` None: whether it pays at all.
    simulated
        Whether the answers on both sides were simulated; else they were predicted.
    tried
        The rows next to the change, below and above; without a change the fewest and the most rows that were tried.
    param
        For several ops: the parameter of the file that was changed in place of rows; ``rows`` are then its values.
    """

    rows: int | None
    pays_above: bool
    simulated: bool
    tried: tuple[int, int]
    param: str = ""


@dataclass(frozen=True, slots=True)
class OpAdvice:
    """What one of several ops does in the recommended schedule. Times are ticks of 10 fs.

    Attributes
    ----------
    name, label
        The name of the op, and its pattern for people.
    how
        Its schedule: an expression, ``separate, by ...``, ``serial`` or a written plan; empty for a kernel.
    begin_ticks, end_ticks
        Begin and end of the op, in a layer that has other layers before and behind it.
    comm_ticks
        How long its copies run.
    exposed_ticks
        How long its copies run while no kernel does.
    hidden_by
        (op, share) of the ops whose kernels run during its copies, with the share of the time of these copies; the
        largest share first.
    alone, alone_ticks
        The schedule that is fastest for this op alone, empty if that is what it does; and the time of the fastest, 0 if
        the op has no choice.
    whole_ticks
        The time of this op alone with kernel and collective as separate parts; 0 if it cannot be separated.
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


@dataclass(frozen=True, slots=True, repr=False)
class Advice(Tabular):
    """Which schedule to use, its gain, and the evidence.

    Attributes
    ----------
    scenario
        The question.
    verdict
        Whether to overlap; for a lone collective LIBRARY if ``recommended`` is the library's own choice, else USE.
    recommended
        The schedule to use. For a lone collective the best algorithm; if the time of the library is not known and
        nothing gains over the direct exchange, that.
    serial
        The baseline, see ``baseline_of``.
    speedup
        The time of ``serial`` over that of ``recommended``.
    candidates
        All ranked schedules, best first: simulated ones by simulated time, then the rest by predicted time.
    num_feasible
        The number of feasible schedules; None if they were not enumerated.
    bound
        A lower bound on any schedule; None if it could not be computed.
    result, serial_result
        The confirming simulations of ``recommended`` and ``serial``; None without verification. Of several ops the
        results are those of the candidates.
    ties
        Schedules that the profile cannot tell from the recommended one.
    confidence, confidence_reason
        How far to trust the answer, and why.
    reasons
        Why this schedule, in sentences.
    marks
        All warnings for the reader: ``notes``, ``outside_calibration``, and what is not validated.
    timing
        Wall times of the stages.
    outside_calibration
        Sizes outside those that the profile was fitted to.
    interrupted
        Whether the search was stopped before its end.
    notes
        What failed or was left out.
    offers
        What can be switched on today; None if no implementations are known here.
    promise
        The gain of a kernel with its interval; None for the baseline and for a lone collective.
    threshold
        None if not requested, if rows cannot be changed, or if nothing overlaps.
    sensitivity
        None if not requested, or if there is only one schedule.
    draws
        The answer under several draws of the routing; None if there are not several.
    ops
        What each of several ops does.
    kernels_ticks
        The time of all kernels alone, one after the other, in all layers. No schedule with these kernels in one stream
        is faster.
    copier
        What copies in the recommended schedule of several ops.
    searched
        How many schedules of several ops were simulated.
    source
        Where the answer comes from. It does not count in comparisons: the same advice may come from any source.
    """

    scenario: Scenario
    verdict: Verdict
    recommended: Candidate
    serial: Candidate
    speedup: float
    candidates: tuple[Candidate, ...]
    num_feasible: int | None
    bound: Bound | None
    result: Result | None
    serial_result: Result | None
    ties: tuple[str, ...]
    confidence: Confidence
    confidence_reason: str
    reasons: tuple[str, ...]
    marks: tuple[str, ...]
    timing: Timing
    outside_calibration: tuple[str, ...] = ()
    interrupted: bool = False
    notes: tuple[str, ...] = ()
    offers: Offers | None = None
    promise: Promise | None = None
    threshold: Threshold | None = None
    sensitivity: Sensitivity | None = None
    draws: RoutingDraws | None = None
    ops: tuple[OpAdvice, ...] = ()
    kernels_ticks: int = 0
    copier: str = ""
    searched: int = 0
    source: AnswerSource = field(default=AnswerSource.SIMULATION, compare=False)

    ROWS: ClassVar[str] = "candidates"

    def document(self) -> JsonObject:
        """Return the document of ``magus advise --json``; its rows are the candidates."""
        # the writer belongs to a room above, which every answer has loaded
        writer = import_module("...answer.export", __name__)
        return writer.advice_document(self)  # type: ignore[no-any-return]

    @property
    def summary(self) -> str:
        """The verdict, the schedule, its time and its gain in a line."""
        chosen = self.recommended
        how = "predicted" if chosen.simulated_us is None else "simulated"
        gain = f"{self.gain:.2f}x over {self.baseline_text}, {self.serial.best_us:.1f} us"
        word = self.verdict.value.replace("_", " ")
        return f"{word}, {self.name_of(chosen.expression)}, {chosen.best_us:.1f} us {how}, {gain}"

    @property
    def case(self) -> OpCase:
        """The one op that there is, on its system."""
        return self.scenario.case

    def plan(self) -> JsonObject | None:
        """Return the recommended schedule as ``magus-plan/2``; None where it is a call of the library.

        Of layers that repeat it is that of the first.
        """
        if self.recommended.is_library:
            return None
        if self.recommended.several is None:
            return op_plan_document(self.case, self.recommended.schedule)
        return plan_document(self.scenario.system, self.scenario.workload, self.plan_of(self.recommended))

    def plan_of(self, candidate: Candidate) -> Plan:
        """Return the plan of a schedule, of layers that repeat that of the first."""
        if candidate.several is not None:
            return build_plan(self.scenario.system, self.scenario.workload, candidate.several)
        return Plan.of_one(self.case.shape.output, self.case.shape, candidate.schedule)

    @property
    def gain(self) -> float:
        """The speedup that is promised; that of simulated times where nothing is."""
        return self.speedup if self.promise is None else self.promise.speedup

    @property
    def interval(self) -> tuple[float, float] | None:
        """The speedups that the error of predictions leaves possible, as (low, high); None for the baseline."""
        return None if self.promise is None else self.promise.interval

    @property
    def given_up(self) -> tuple[Candidate, float] | None:
        """What simplicity costs: the fastest candidate, and by how much it is faster; None up to 1 %."""
        return given_up(self.candidates, self.recommended)

    def named(self, expression: str) -> Candidate | None:
        """The candidate with that expression, None if there is none."""
        return next((candidate for candidate in self.candidates if candidate.expression == expression), None)

    @property
    def no_overlap(self) -> Candidate:
        """The serial schedule by what the system copies with as a rule; the baseline where there is no other."""
        serial = (candidate for candidate in self.candidates if candidate.origin is ScheduleOrigin.SERIAL)
        return next(serial, self.serial)

    def offer(self, implementation: str) -> Offer | None:
        """What is known of an implementation, None if nothing is."""
        return None if self.offers is None else self.offers.named(implementation)

    @property
    def faster_offer(self) -> Offer | None:
        """The implementation that is faster than the recommended schedule of several ops, and no such schedule itself.

        None where there is none, it does not pay, or it reads weights of fewer bits than the file has: another model.
        """
        if self.offers is None or self.recommended.several is None:
            return None
        own = (one for one in self.offers.offers if one.order is None and not one.saved_us)
        pays = (one for one in own if one.promise.verdict is not Verdict.SERIAL)
        return next((one for one in pays if one.us < self.recommended.best_us), None)

    @property
    def why_serial(self) -> str:
        """The reason of a serial verdict in a few words: overlap loses, or there was none to try."""
        if all(case.shape.moved is None for case in self.scenario.cases):
            return "there is one kernel and nothing to move"
        if all(candidate.is_serial for candidate in self.candidates):
            return "no overlap schedule was " + ("ranked in time" if self.interrupted else "in the space")
        overlapping = (candidate for candidate in self.candidates if not candidate.is_serial)
        times_us = (one.best_us for one in overlapping if one.simulated_ticks is not None)
        gain = self.recommended.best_us / min(times_us, default=float("inf"))
        resolution = self.scenario.resolution
        if 1 < gain < 1 + resolution:
            return f"{gain:.2f}x by overlap is less than the profile can tell apart ({resolution:.0%})"
        return "overlap does not pay here"

    def name_of(self, expression: str) -> str:
        """The name of a schedule where it is not copied: its short name if it has one, else its expression."""
        return self.short_names.get(expression, expression)

    def what_of(self, candidate: Candidate) -> str:
        """What a schedule does, in words; empty for a plan written out, and where only an algorithm is chosen."""
        if candidate.what or candidate.choice is None or self.scenario.is_algorithm_choice:
            return candidate.what
        return words_of(candidate.choice, self.case.shape.pattern, self.scenario.num_ranks)

    @property
    def recommended_text(self) -> str:
        """The recommended schedule as something to switch: beside the library's order the same one has other copies."""
        best, name = self.recommended, self.name_of(self.recommended.expression)
        if not best.is_serial or best.is_library or not self.serial.is_library or self.scenario.is_algorithm_choice:
            return name
        engine = None if best.choice is None else best.choice.engine
        engine = engine or usual_engine(self.scenario.system, self.scenario.moving[0].shape)
        return f"the same order, copies by {'engines' if engine.kind is EngineKind.DMA else 'other kernels'} ({name})"

    @property
    def short_names(self) -> Mapping[str, str]:
        """The short names of its candidates, by their expressions; most have none."""
        return short_names((candidate.expression, candidate.choice) for candidate in self.candidates)

    @property
    def baseline(self) -> Candidate:
        """What ``recommended`` is compared with."""
        return self.serial

    @property
    def baseline_text(self) -> str:
        """The baseline in words."""
        return baseline_name(self.scenario.is_algorithm_choice, self.serial)

    @property
    def against(self) -> str:
        """The baseline behind its time: ``serial``, ``by the library``."""
        return SERIAL if self.baseline_text == SERIAL else f"by {self.baseline_text}"

    @property
    def gap_to_bound(self) -> float | None:
        """Time of the recommended schedule over the lower bound, minus one; None without a bound."""
        return None if self.bound is None else self.recommended.best_us * TICKS_PER_US / self.bound.ticks - 1
