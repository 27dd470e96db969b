"""Candidates before any simulation: feasible choices, the library and the file's schedules, with times."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

from ...compiler.codes import Code
from ...compiler.ir import (
    TICKS_PER_US,
    Cancelled,
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Gpu,
    OpCase,
    OpChoice,
    OpPlan,
    Origin,
    Pattern,
    Reach,
    Rejection,
    ShouldStop,
    Transfer,
    WrittenPlan,
    heeding,
)
from ...compiler.planning.build import (
    ScheduleError,
    build_op_plan,
    build_schedules,
    declared,
    expression_of,
    reject_choice,
)
from ...compiler.planning.knobs import KNOBS
from ...compiler.planning.knobs.engine import usual_engine
from ...compiler.planning.knobs.library import library_rejection, library_scaling, library_serial
from ...compiler.planning.knobs.structure import ALGORITHM, TEMPLATE
from ...compiler.planning.parts import collective_alone
from ...compiler.templates import BASELINE, BY_NAME
from ...compiler.templates.collective import DEFAULT_ALGORITHM, usual_algorithm
from ...compiler.text.units import ticks_text, us_text
from ...simcore.kernels.dispatch import whole_works
from ...simcore.kernels.nccl import CollectiveTime, NcclCollective
from ...simcore.lower.collective import library_collective_time, library_operation
from ..bounds.lower_bound import quick_bound_ticks
from ..estimate.makespan import MAX_STEPS, makespans
from .candidate import Candidate, ScheduleOrigin


@dataclass(frozen=True, slots=True)
class LibraryTime:
    """The time of a collective of a library like NCCL, alone; ``error`` is the mean error of the form.

    ``scaled`` says from what to what it is scaled where it was fitted on other links or fewer GPUs, else it is empty.
    """

    operation: NcclCollective
    time: CollectiveTime
    error: float
    scaled: str = ""
    assumed: bool = False

    @property
    def us(self) -> float:
        """The time in us."""
        return self.time.us

    @property
    def sentence(self) -> str:
        """The parts of the time and its error."""
        start, steps, rest = (
            ticks / TICKS_PER_US
            for ticks in (self.time.start_ticks, self.time.step_ticks, self.time.transfer_ticks + self.time.own_ticks)
        )
        parts = f"{us_text(start)} start, {us_text(steps)} steps, {us_text(rest)} bytes"
        known = f"+-{self.error:.0%}" if not self.scaled else f"scaled {self.scaled}, where it was not measured"
        sort = "measured and assumed" if self.assumed else "measured"
        return (
            f"The library's {self.operation.value} is a closed form of {sort} times ({known}, "
            f"{self.time.protocol.value}): {parts}."
        )


def library_time(scenario: OpCase) -> LibraryTime | None:
    """Return the library's time of the collective of ``scenario``, None where it is not known."""
    model = scenario.gpu.collectives
    if model is None or library_unfit(scenario) is not None:
        return None
    time, scaled = library_collective_time(scenario), library_scaling(scenario.system)
    return LibraryTime(library_operation(scenario), time, float(model.error), scaled, _is_assumed(scenario.gpu))


def _is_assumed(gpu: Gpu) -> bool:
    """Whether numbers of the library's times are assumed, beyond its error and the links that they were fitted on."""
    assumed = (note.path for note in gpu.provenance if note.origin is Origin.ASSUMED)
    return any(".collectives." in path and ".link_" not in path and not path.endswith(".error") for path in assumed)


@lru_cache(maxsize=64)
def library_unfit(scenario: OpCase) -> Rejection | None:
    """Why the time of the library is not told here, None if it is: it is not known, or below what links allow."""
    unfit = library_rejection(scenario)
    if unfit is not None:
        return unfit
    ticks = library_collective_time(scenario).ticks
    least = quick_bound_ticks(replace(scenario, shape=collective_alone(scenario.shape)), beside=ticks)
    if ticks >= least:
        return None
    message = f"its closed form gives {ticks_text(ticks)}, below the bound of {ticks_text(least)}"
    return Rejection(Code.MGS407, message, "its constants were fitted on another machine")


# Patterns of the drawn scenarios in which estimates were compared with simulations.
JUDGED_ON = (Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.A2A_GEMM)
# Algorithms whose fastest schedule is tried with other protocols and directions.
NUM_VARIED_ALGORITHMS = 3
# What no protocol or direction gains: on a ring of 1,500 GPUs direct copies take 370 times as long as `double_ring`,
# and their variants as much of the CPU time as all else.
MOST_GAINED = 10
# Most values of a knob of which the best candidate each is simulated; more are a range to search.
MAX_NAMED_VALUES = 8

LIBRARY = "library"
"""What stands for the algorithm that the library picks."""

AlgorithmAndEngine = tuple[str, EngineKind]


def is_judged(scenario: OpCase) -> bool:
    """Whether estimates were compared with simulations of such scenarios: GEMMs in ``JUDGED_ON`` on one node."""
    shape, fabric = scenario.shape, scenario.system.fabric
    return shape.gemm is not None and shape.pattern in JUDGED_ON and fabric.node_size == 0


def predicted_us(
    scenario: OpCase, choices: Sequence[OpChoice], schedules: Sequence[OpPlan], max_steps: int = MAX_STEPS
) -> tuple[float, ...]:
    """Return the times of ``choices``, whose ``schedules`` are given: estimates, and the closed form of the library.

    ``max_steps`` is that of ``makespans``.
    """
    own = [schedule for choice, schedule in zip(choices, schedules, strict=True) if not choice.engine.by_library]
    estimated = (ticks / TICKS_PER_US for ticks in makespans(scenario, own, max_steps))
    return tuple(library_us(scenario) if choice.engine.by_library else next(estimated) for choice in choices)


def library_us(scenario: OpCase) -> float:
    """Return the time of the library: that of its kernels, and the closed form of its collective."""
    kernels = sum(work.alone_ticks for work in whole_works(scenario))
    return (kernels + library_collective_time(scenario).ticks) / TICKS_PER_US


def chosen_algorithm(choice: OpChoice) -> str:
    """Return the algorithm of a lone collective; the library picks its own."""
    if choice.engine.by_library:
        return LIBRARY
    return choice.algorithm or BY_NAME[choice.template].default_algorithm or choice.template


def algorithm_beside(scenario: OpCase, choice: OpChoice) -> str:
    """Return the algorithm of a collective beside kernels."""
    default = BY_NAME[choice.template].default_algorithm
    return choice.algorithm or (usual_algorithm(scenario.shape.pattern, default) if default else DEFAULT_ALGORITHM)


def shortlisted(candidates: Sequence[Candidate], top: int, *, by_algorithm: bool) -> list[Candidate]:
    """Return the first ``top`` of candidates ordered by prediction; ``by_algorithm`` with the best of each first."""
    if not by_algorithm:
        return list(candidates[:top])
    seen, ranks = Counter[AlgorithmAndEngine](), list[tuple[int, int]]()
    for index, candidate in enumerate(candidates):
        key = _algorithm_and_engine(candidate)
        ranks.append((seen[key], index))
        seen[key] += 1
    return [candidates[index] for _, index in sorted(ranks)[: max(top, len(seen))]]


# What moves and computes, in what pieces and in which order; execution options are varied one at a time.
_NAMED = tuple(knob for knob in KNOBS if knob.explored and not knob.option and knob not in (TEMPLATE, ALGORITHM))


def best_of_explored(scenario: OpCase, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the best candidate of each algorithm, and of each template and value of a knob that the file names.

    ``candidates`` are in the order of their predictions. Knobs with more than ``MAX_NAMED_VALUES`` values do not count.
    """
    explore, alone, best = scenario.explore, scenario.is_algorithm_choice, dict[tuple[str, object], Candidate]()
    few = [knob for knob in _NAMED if 0 < len(explore.values(knob.word)) <= MAX_NAMED_VALUES]
    for candidate in candidates:
        choice = candidate.choice
        if choice is None:
            continue
        named = choice.template if choice.template in explore.values("schedules") else ""
        algorithm = chosen_algorithm(choice) if alone else algorithm_beside(scenario, choice)
        best.setdefault((named, algorithm), candidate)
        for knob in few:
            if knob.of(choice) in explore.values(knob.word):
                best.setdefault((knob.word, knob.of(choice)), candidate)
    return list({candidate.expression: candidate for candidate in best.values()}.values())


def baselines(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return of the serial candidates, the best first, all with the usual algorithm and the best of each other one.

    The library's is among them.

    The baseline must not depend on predictions: bad predictions would make overlap look good.
    """
    best = dict[str, Candidate]()
    for candidate in candidates:
        if candidate.is_serial:
            algorithm = "" if candidate.choice is None else candidate.choice.algorithm
            best.setdefault(algorithm or candidate.expression, candidate)
    return list(best.values())


def protocol_variants(scenario: OpCase, candidates: Sequence[Candidate]) -> list[OpChoice]:
    """Return the fastest algorithms, by copy engines and by SMs, with get instead of put and in other protocols.

    ``candidates`` are in the order of their times; ``NUM_VARIED_ALGORITHMS`` of the simulated algorithms are varied,
    none that takes ``MOST_GAINED`` times as long as the fastest. Illegal choices and those among the candidates are
    left out. Copies and sums by a switch have no variants.
    """
    best: dict[AlgorithmAndEngine, OpChoice] = {}
    simulated = [candidate for candidate in candidates if candidate.simulated_ticks is not None]
    for candidate in simulated:
        near = candidate.ticks <= MOST_GAINED * simulated[0].ticks
        if near and candidate.choice is not None and not _in_switch(candidate):
            best.setdefault(_algorithm_and_engine(candidate), candidate.choice)
    best = {key: choice for key, choice in best.items() if not choice.engine.by_library}
    fastest = list(dict.fromkeys(name for name, _ in best))[:NUM_VARIED_ALGORITHMS]
    options = [ExecutionOptions(direction, protocol) for direction in Direction for protocol in CopyProtocol]
    varied = [replace(best[key], tactics=each) for key in best if key[0] in fastest for each in options]
    known = {candidate.expression for candidate in candidates}
    return [
        choice for choice in varied if expression_of(choice) not in known and reject_choice(scenario, choice) is None
    ]


def _algorithm_and_engine(candidate: Candidate) -> AlgorithmAndEngine:
    name = candidate.expression if candidate.choice is None else chosen_algorithm(candidate.choice)
    return name, candidate.schedule.engine.kind


def _in_switch(candidate: Candidate) -> bool:
    """Whether a switch copies or sums."""
    steps = candidate.schedule.steps
    return any(isinstance(step, Transfer) and step.reach is Reach.ALL for step in steps)


BATCH = 8
"""Choices that are ranked together where time is limited."""


def predicted_candidates(
    scenario: OpCase,
    space: Sequence[OpChoice],
    time_up: ShouldStop | None = None,
    grace_over: ShouldStop | None = None,
) -> list[Candidate]:
    """Return a candidate for each choice of ``space`` and of the file, by predicted time; plans have no prediction.

    What users have today is always among them, even where the space leaves it out: see ``usual_serials``. Once it is
    ``time_up`` the rest is left out, the choices with most pieces; what is being ranked then is given up. Once it is
    ``grace_over`` for those who are always among them, one rank stands for all.
    """
    requested = (
        *usual_serials(scenario),
        *(named.body for named in scenario.schedules if isinstance(named.body, OpChoice)),
    )
    choices = sorted({expression_of(choice): choice for choice in (*space, *requested)}.values(), key=_plan_of)
    candidates: list[Candidate] = []
    for batch in (choices,) if time_up is None else _batches(choices, requested):
        if time_up is None:
            candidates += _ranked(scenario, batch)
        elif not candidates:
            candidates += _ranked_soon(scenario, batch, grace_over)
        elif time_up():
            break
        else:
            with suppress(Cancelled), heeding(time_up):
                candidates += list(_ranked(scenario, batch))
    plans = [declared(scenario, named) for named in scenario.schedules if isinstance(named.body, WrittenPlan)]
    candidates.extend(_candidate(scenario, None, plan) for plan in plans)
    return sorted(candidates, key=lambda candidate: (candidate.best_us, candidate.expression))


def _plan_of(choice: OpChoice) -> str:
    """Return the expression of ``choice`` without its engine; in a row, those of one plan share its graph."""
    return expression_of(replace(choice, engine=EngineChoice(EngineKind.DMA, 1)))


def _batches(choices: Sequence[OpChoice], requested: Sequence[OpChoice]) -> Iterator[Sequence[OpChoice]]:
    """Yield the ``requested`` choices, then the others: those with fewest pieces first, whose plans are short."""
    others = sorted((choice for choice in choices if choice not in requested), key=lambda choice: choice.chunks)
    yield [choice for choice in choices if choice in requested]
    for first in range(0, len(others), BATCH):
        yield others[first : first + BATCH]


def _ranked_soon(scenario: OpCase, choices: Sequence[OpChoice], grace_over: ShouldStop | None) -> list[Candidate]:
    """Rank by all ranks, or if that takes too long by one, which takes a fraction of a second."""
    try:
        with heeding(grace_over):
            return list(_ranked(scenario, choices))
    except Cancelled:
        return list(_ranked(scenario, choices, max_steps=0))


def _ranked(scenario: OpCase, choices: Sequence[OpChoice], max_steps: int = MAX_STEPS) -> Iterator[Candidate]:
    schedules = list(build_schedules(scenario, choices))
    times_us = predicted_us(scenario, choices, schedules, max_steps=max_steps)
    for choice, schedule, time_us in zip(choices, schedules, times_us, strict=True):
        yield Candidate(schedule.expression, choice, schedule, origin_of(scenario, choice), time_us)


def unpredicted_candidates(scenario: OpCase) -> list[Candidate]:
    """Return the usual serial schedules, and what the file declares as far as it can be built."""
    usual = usual_serials(scenario)
    candidates = [_candidate(scenario, choice, build_op_plan(scenario, choice)) for choice in usual]
    for named in scenario.schedules:
        with suppress(ScheduleError):
            choice = named.body if isinstance(named.body, OpChoice) else None
            candidates.append(_candidate(scenario, choice, declared(scenario, named)))
    return list({candidate.expression: candidate for candidate in candidates}.values())


def _candidate(scenario: OpCase, choice: OpChoice | None, schedule: OpPlan) -> Candidate:
    return Candidate(schedule.expression, choice, schedule, origin_of(scenario, choice, ScheduleOrigin.DECLARED))


def usual_serials(scenario: OpCase) -> tuple[OpChoice, ...]:
    """The usual serial schedules: by copy engines, or SMs, and by the library where its time is known."""
    direct = OpChoice(BASELINE.name, scenario.num_ranks, usual_engine(scenario.system, scenario.shape))
    return (direct, library_serial(scenario)) if library_unfit(scenario) is None else (direct,)


def is_serial(scenario: OpCase, choice: OpChoice | None) -> bool:
    """Whether nothing overlaps in ``choice``, None for a plan written out.

    Every schedule of a lone kernel is serial. Serial schedules of a lone collective exchange directly, in one piece, or
    are the library's.
    """
    if scenario.shape.moved is None:
        return True
    return choice is not None and choice.template == BASELINE.name


def origin_of(
    scenario: OpCase, choice: OpChoice | None, else_of: ScheduleOrigin = ScheduleOrigin.TEMPLATE
) -> ScheduleOrigin:
    """Return where a schedule comes from: ``else_of`` unless nothing overlaps in it."""
    if not is_serial(scenario, choice):
        return else_of
    return ScheduleOrigin.LIBRARY if choice is not None and choice.engine.by_library else ScheduleOrigin.SERIAL
