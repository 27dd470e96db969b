"""A candidate: one schedule in the ranking, where it comes from, and what is known of its time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import product

from ...compiler.collectives.direct import NVLS
from ...compiler.ir import (
    TICKS_PER_US,
    CopyProtocol,
    Direction,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    HandOff,
    Kernels,
    LaunchMode,
    OpCase,
    OpChoice,
    OpPlan,
    Pattern,
    PeerOrder,
    Schedule,
    Wait,
    WaitPer,
)
from ...compiler.planning.build import reject_choice
from ...compiler.planning.knobs.engine import default_engine, tiles_engine
from ...compiler.templates import hetero, pipelined
from ...compiler.templates import serial as uniform
from ...compiler.templates.bespoke import cuts_tiles
from ...simcore import Result

# Share of time by which a more complex schedule must be faster, however fine the profile resolves.
MIN_LEAD = 0.01


class ScheduleOrigin(Enum):
    """Where a schedule comes from: the library's, serial, of a template, declared, in use today, or found."""

    LIBRARY = "library"
    SERIAL = "serial"
    TEMPLATE = "template"
    DECLARED = "declared"
    KNOWN = "known"
    PROPOSED = "proposed"
    SEARCHED = "searched"
    BESPOKE = "bespoke"


NO_OVERLAP = frozenset({ScheduleOrigin.LIBRARY, ScheduleOrigin.SERIAL})

_COMPLEXITY = {
    ScheduleOrigin.LIBRARY: 0,
    ScheduleOrigin.SERIAL: 0,
    ScheduleOrigin.SEARCHED: 2,
    ScheduleOrigin.BESPOKE: 3,
}
"""Of all others 1."""


@dataclass(frozen=True, slots=True)
class SearchProvenance:
    """The search that found a bespoke schedule, so that it can be repeated.

    ``why`` holds (bespoke feature, share of the time that is lost without it). ``solver`` is the version of OR-tools,
    and ``reproducible`` says whether the same version finds the same schedule again.
    """

    found_by: str
    seed: int
    evaluations: int
    simulations: int
    reproducible: bool
    solver: str
    why: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """One schedule in the ranking, with what is known of its time.

    Attributes
    ----------
    expression
        Its identity: the expression of a template, or for several ops the name of the schedule.
    origin, provenance
        Where it comes from, and the search that found it (None unless it is bespoke).
    what
        What it does, in words, if the file does not declare it.
    choice, plan
        For one op: template and knobs (None for a plan written out in the file), and the steps.
    several
        For several ops: what each does. Their plans are made when they are simulated.
    predicted_us, interval_us
        The predicted time in us with its interval. It is None for a plan written out in the file; for several ops it is
        the time of all layers, from a few that were simulated in coarse packets.
    gain_error
        The relative error of the predicted gain over an estimated baseline; None if not known.
    simulated_ticks, unit_bytes
        The simulated makespan in ticks, and the granularity of that simulation; None without one.
    result, problem
        For several ops: the simulation, or why there is none.
    is_outside
        Whether it is outside of what the file explores: it is then compared, and never recommended.
    least_ticks
        The time of its busiest link alone, if it was not simulated because another schedule takes no longer than that.
    """

    expression: str
    choice: OpChoice | None
    plan: OpPlan | None
    origin: ScheduleOrigin
    predicted_us: float | None = None
    simulated_ticks: int | None = None
    unit_bytes: int | None = None
    provenance: SearchProvenance | None = None
    interval_us: tuple[float, float] | None = None
    gain_error: float | None = None
    several: Schedule | None = None
    what: str = ""
    result: Result | None = None
    problem: str = ""
    is_outside: bool = False
    least_ticks: int | None = None

    @property
    def schedule(self) -> OpPlan:
        """The steps of the one op that there is."""
        assert self.plan is not None, "of several ops each has a plan"
        return self.plan

    @property
    def joint(self) -> Schedule:
        """What each of several ops does."""
        assert self.several is not None, "there is one op"
        return self.several

    @property
    def staging_bytes(self) -> int | None:
        """Memory of a rank at one time for what is neither input nor output; of several ops known once they ran."""
        if self.plan is not None:
            return self.plan.staging_bytes
        return None if self.result is None else self.result.schedule.staging_bytes

    @property
    def is_serial(self) -> bool:
        """Whether nothing overlaps."""
        return self.origin in NO_OVERLAP

    @property
    def is_library(self) -> bool:
        """Whether the library's kernels and its collectives run one after the other."""
        return self.origin is ScheduleOrigin.LIBRARY if self.plan is None else self.plan.engine.by_library

    @property
    def is_searched(self) -> bool:
        """Whether it is what a search has found for all ops together, and neither known nor declared."""
        return self.origin is ScheduleOrigin.SEARCHED

    @property
    def is_in_turn(self) -> bool:
        """Whether ops run one after the other, each whole and by itself as measured kernels; a chain is one."""
        schedule = self.several
        if schedule is None or self.is_serial:
            return True
        whole = Schedule(schedule.name, schedule.modes, schedule.order, handoff=HandOff.WHOLE)
        chained = replace(whole, chained=schedule.chained, streams=schedule.streams)
        return (
            schedule == chained and not schedule.side_by_side and all(mode.separate is None for mode in schedule.modes)
        )

    @property
    def side_by_side(self) -> bool:
        """Whether kernels share the SMs, to which no profile is fitted."""
        return self.several is not None and self.several.side_by_side

    @property
    def complexity(self) -> tuple[int, bool]:
        """How much it asks of who carries it out: nothing overlaps, a template, searched, bespoke.

        Of equal kind those ask more that have unusual options, and bespoke ones that compute tiles in two parts.
        """
        rank = _COMPLEXITY.get(self.origin, 1)
        if self.origin is ScheduleOrigin.BESPOKE:
            return rank, self.cuts_tiles
        return rank, not self.has_usual_options

    @property
    def cuts_tiles(self) -> bool:
        """Whether a part of it begins within a tile of the kernels."""
        return self.choice is not None and cuts_tiles(self.choice.parts, self.choice.chunks)

    @property
    def has_usual_options(self) -> bool:
        """Whether it is carried out in the usual way, or a plan says how."""
        of_ops = () if self.several is None else (mode.body or mode.separate for mode in self.several.modes)
        choices = [choice for choice in (self.choice, *of_ops) if isinstance(choice, OpChoice)]
        return all(choice.tactics == ExecutionOptions() for choice in choices)

    @property
    def engines(self) -> frozenset[EngineKind]:
        """What copies, as far as choices of ops say it."""
        if self.plan is not None:
            return frozenset({self.plan.engine.kind})
        of_ops = (each for mode in self.joint.modes for each in (mode.body, mode.separate))
        return frozenset(each.engine.kind for each in of_ops if isinstance(each, OpChoice))

    @property
    def simulated_us(self) -> float | None:
        """Simulated makespan in us, None without a simulation."""
        return None if self.simulated_ticks is None else self.simulated_ticks / TICKS_PER_US

    @property
    def best_us(self) -> float:
        """Best known time: simulated, else predicted, else infinite."""
        if self.simulated_us is not None:
            return self.simulated_us
        return self.predicted_us if self.predicted_us is not None else float("inf")

    @property
    def predicted_ticks(self) -> int:
        """The predicted time in ticks, of one that is predicted."""
        assert self.predicted_us is not None, "it is not predicted"
        return round(self.predicted_us * TICKS_PER_US)

    @property
    def ticks(self) -> int:
        """The best known time in ticks, of one that has any."""
        return self.predicted_ticks if self.simulated_ticks is None else self.simulated_ticks

    @property
    def is_estimate(self) -> bool:
        """Whether that is not simulated, of all layers or of so many that the others repeat them."""
        return self.simulated_ticks is None or (self.result is not None and self.result.is_estimate)

    def with_result(self, result: Result) -> "Candidate":
        """Return the candidate with the simulation of its several ops."""
        return replace(self, result=result, simulated_ticks=result.total_ticks, unit_bytes=result.unit_bytes)


def joint_candidate(schedule: Schedule, origin: ScheduleOrigin, what: str = "", ticks: int | None = None) -> Candidate:
    """Return the candidate of a schedule of several ops, with the predicted ``ticks`` of all layers."""
    us = None if ticks is None else ticks / TICKS_PER_US
    return Candidate(schedule.name, None, None, origin, predicted_us=us, several=schedule, what=what)


def by_time(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Sort candidates: simulated ones first, by time; then the rest by their estimates."""
    return sorted(candidates, key=lambda c: (c.is_estimate, c.best_us, c.expression))


def baseline_of(candidates: Sequence[Candidate]) -> Candidate:
    """Return the schedule with which others are compared: the library's if there is one, else the fastest serial one.

    One with other than the usual options must lead by ``MIN_LEAD``. ``candidates`` are in the order of their times.
    """
    serial = [candidate for candidate in candidates if candidate.is_serial]
    usual = next((candidate for candidate in serial if candidate.has_usual_options), serial[0])
    leads = serial[0].best_us * (1 + MIN_LEAD) < usual.best_us
    return next((candidate for candidate in serial if candidate.is_library), serial[0] if leads else usual)


def given_up(candidates: Sequence[Candidate], recommended: Candidate) -> tuple[Candidate, float] | None:
    """Return the fastest candidate, and by how much it is faster than the simpler one that is recommended.

    Simulated times compete where ``recommended`` has one. None up to ``MIN_LEAD``.
    """
    known = [each for each in candidates if each.is_estimate is recommended.is_estimate] or candidates
    fastest = min(known, key=lambda each: each.best_us)
    faster = recommended.best_us / fastest.best_us - 1
    return (fastest, faster) if faster > MIN_LEAD else None


# Other forms of a schedule, and kernels that no space has: how they are carried out, and the tiles of their GEMM.

# Pieces of each rank's rows that the switch sums at a time, none with fewer rows; and knobs that leave this open.
PIECES_IN_SWITCH, LEAST_ROWS = (1, 8, 16, 32), 32
_OF_TILES = ("schedules", "chunks", "engine", "algorithm", "kernel", "wait", "per", "tile")
# Pieces of each shard of a kernel with a given tile, and the least side of these.
PIECES_IN_TILES, LEAST_SIDE = (1, 2, 4), 64
PER_TILE = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL, per=WaitPer.TILE)


def summed_in_switch(scenario: OpCase) -> Iterator[OpChoice]:
    """Yield the schedules in which the switch sums what tiles have computed, where the file leaves that open.

    Then partial sums cross each link once, in place of nearly twice. Estimates of these are up to a quarter too long,
    so that all are simulated: the best number of pieces depends on what computes longer than it sends.
    """
    named = any(scenario.explore.values(word) for word in _OF_TILES)
    if named or scenario.shape.pattern is not Pattern.GEMM_AR or scenario.shape.moved is None:
        return
    rows = scenario.shape.moved.rows // scenario.num_ranks
    for pieces in (each for each in PIECES_IN_SWITCH if rows >= each * LEAST_ROWS or each == 1):
        form = OpChoice(
            pipelined.TEMPLATE.name,
            pieces * scenario.num_ranks,
            tiles_engine(scenario.gpu),
            algorithm=NVLS.name,
            tactics=PER_TILE,
        )
        if reject_choice(scenario, form) is None:
            yield form


def persistent_forms(scenario: OpCase) -> Iterator[OpChoice]:
    """Yield persistent kernels with each tile, which wait tile by tile, if the file leaves open how work is cut.

    The tile that is fastest alone is large. With smaller ones the first results leave, or the first data serve, sooner.
    """
    gemm, named = scenario.shape.gemm, any(values for _, values in scenario.explore.requested)
    if named or gemm is None or scenario.shape.loads or not scenario.network.symmetric:
        return
    blocks = dict.fromkeys(block for block, _ in scenario.gpu.tiles_of(gemm.dtype) if min(block) >= LEAST_SIDE)
    own = () if scenario.shape.pattern.consumes else (tiles_engine(scenario.gpu),)  # no kernel that pulls was measured
    engines = (*own, default_engine(scenario.system))
    templates = (hetero.UNFUSED.name, uniform.ROWS.name)
    for engine, template, pieces, tile in product(engines, templates, PIECES_IN_TILES, blocks):
        form = OpChoice(template, pieces * scenario.num_ranks, engine, tactics=replace(PER_TILE, tile=tile))
        if reject_choice(scenario, form) is None:
            yield form


def may_deadlock(choice: OpChoice) -> bool:
    """Whether a persistent kernel may hold the SMs that the copies it waits for need.

    Only a simulation shows whether it does, so that such plans are not searched.
    """
    return choice.engine.mode is EngineMode.SHARED and choice.tactics.kernel is Kernels.PERSISTENT


def forms_of(scenario: OpCase, base: OpChoice | None) -> Iterator[OpChoice]:
    """Yield ``base`` with all execution options that it may have, and in other orders of unequal peers.

    Of a knob that the ``explore`` block names, only the named values are tried. Graphs and monitors are not, unless it
    names them.
    """
    if base is None:
        return
    requested = scenario.explore.values
    directions = requested("transfer") or tuple(Direction)
    if base.engine.kind is not EngineKind.SM and scenario.explore.dominance:
        directions = (base.tactics.direction,)  # a get by a copy engine gains nothing
    protocols = requested("protocol") or tuple(CopyProtocol)
    kernels, waits = requested("kernel") or tuple(Kernels), requested("wait") or (Wait.EVENT, Wait.POLL)
    orders = requested("order") or (base.order, PeerOrder.LARGE_FIRST, PeerOrder.SMALL_FIRST)
    for direction, protocol, kernel, wait, launch, order in product(
        directions, protocols, kernels, waits, launches_of(scenario, base), orders
    ):
        tactics = replace(base.tactics, direction=direction, protocol=protocol, kernel=kernel, wait=wait, launch=launch)
        sums = 1 if kernel is Kernels.PERSISTENT else base.sums
        form = replace(base, tactics=tactics, sums=sums, order=order)
        if form != base and not may_deadlock(form) and reject_choice(scenario, form) is None:
            yield form


def launches_of(scenario: OpCase, base: OpChoice) -> Sequence[LaunchMode]:
    """Return how ``base`` may be launched; as a graph only if the file asks for it and the profile has its cost."""
    has_graphs = scenario.gpu.sync.graph_launch_ticks is not None
    requested = scenario.explore.values("launch")
    return [mode for mode in requested if has_graphs or mode is not LaunchMode.GRAPH] or [base.tactics.launch]


def in_other_tiles(scenario: OpCase, base: OpChoice | None) -> Iterator[OpChoice]:
    """Yield ``base`` as a persistent kernel with each other tile that it may have, and splits that the file names.

    The one that is fastest alone is large: tiles half its size begin sooner and end earlier what others wait for.
    """
    gemm, requested = scenario.shape.gemm, scenario.explore.values
    waits = [each for each in requested("wait") or Wait if each is not Wait.EVENT]
    if base is None or gemm is None or not waits or Kernels.PERSISTENT not in (requested("kernel") or Kernels):
        return
    tactics = base.tactics
    if tactics.kernel is not Kernels.PERSISTENT:
        tactics = replace(tactics, kernel=Kernels.PERSISTENT, wait=waits[0])
    tiles = requested("tile") or dict.fromkeys(block for block, _ in scenario.gpu.tiles_of(gemm.dtype))
    forms = [replace(tactics, tile=tile) for tile in tiles]
    splits = [split for split in requested("split_k") if split > 1]
    forms += [replace(each, split_k=split) for each in (tactics, *forms) for split in splits]
    for form in (replace(base, sums=1, tactics=each) for each in forms):
        if form != base and not may_deadlock(form) and reject_choice(scenario, form) is None:
            yield form
