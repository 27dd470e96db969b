"""Advice: the answer as data. The command line, the terminal UI and the API all show this one object."""

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
"""What the baseline is called where it is not the library's."""


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
    """Return what ``baseline`` is called; ``is_algorithm_choice``: the question is which algorithm."""
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
    """The rows of the GEMM at which the answer flips, the rest of the scenario staying as it is.

    Overlap pays from ``rows`` on if it ``pays_above``, else below; with ``rows`` None it pays at all rows that were
    tried, or at none. ``tried`` are the rows next to the flip on both sides, at which it was ``simulated`` or else
    predicted; without a flip the fewest and the most rows. Of several ops these are values of the ``param``.
    """

    rows: int | None
    pays_above: bool
    simulated: bool
    tried: tuple[int, int]
    param: str = ""


@dataclass(frozen=True, slots=True)
class OpAdvice:
    """What to do with one of several ops in the recommended schedule, with times in ticks in a layer with neighbours.

    ``how`` is its schedule, ``separate, by ...``, ``serial``, a written plan, or empty for a kernel.
    ``exposed_ticks`` is how long its copies run beside no kernel, ``hidden_by`` are the ops whose kernels run meanwhile
    with the shares of the time of the copies, the largest first. ``alone`` is what is fastest for it alone,
    empty where that is what it does.
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

    ``serial`` is the baseline, see ``baseline_of``, and ``speedup`` the gain of ``recommended`` over it. For a lone
    collective the verdict is LIBRARY if ``recommended`` is the library's own choice, else USE: it is then the best
    algorithm, or a direct exchange where nothing gains over that and the library's time is not known.
    ``candidates`` are ranked, best first: simulated ones by simulated time, then the rest by predicted time.
    ``result`` and ``serial_result`` are the confirming simulations (None without verification). ``ties`` are schedules
    that the profile cannot tell from the recommended one. ``marks`` are warnings for the reader: ``notes`` (failures,
    and whether the advice was ``interrupted``), ``outside_calibration`` (sizes outside those that the profile was
    fitted to), and what is not validated. ``bound`` is None if it could not be computed.
    ``num_feasible`` is None if the space was not enumerated.
    ``offers`` are what can be switched on today, None if nothing is known of implementations here. ``promise`` is the
    interval of ``speedup``, None for the baseline and for a lone collective. ``threshold`` is None where it
    was not asked for, rows cannot be changed, or nothing overlaps. ``sensitivity`` is None where it was not asked for,
    or there is one schedule alone. ``draws`` is None where the routing is not drawn, or once. ``source`` is no part of
    what advice is: the same advice may come from either.

    Of several ops the results are those of the candidates. ``ops`` is what each does, ``kernels_ticks`` are all kernels
    alone, one after the other, in all layers: no schedule with these kernels in one stream is faster. ``copier`` is who
    copies, and ``searched`` how many schedules were simulated.
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
