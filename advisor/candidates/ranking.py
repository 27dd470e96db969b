"""Estimated times of choices, and the selection of candidates to simulate.

The error of the step-level estimate depends on the algorithm of a collective. So for a lone collective the best of each
algorithm, by copy engines and by SMs, is simulated before the second best of any; beside kernels the best of each
algorithm is simulated as well. If the file names values of a knob, the best candidate of each value is simulated too.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ...compiler.ir import (
    TICKS_PER_US,
    Choice,
    CopyProtocol,
    Direction,
    EngineKind,
    ExecutionOptions,
    Pattern,
    Reach,
    Scenario,
    Schedule,
    ShouldStop,
    Transfer,
    heeding,
)
from ...compiler.planning.build import reject_choice
from ...compiler.planning.expression import expression_of
from ...compiler.planning.knobs import KNOBS
from ...compiler.planning.knobs.structure import ALGORITHM, TEMPLATE
from ...compiler.templates import BY_NAME
from ...compiler.templates.collective import DEFAULT_ALGORITHM, usual_algorithm
from ...simcore.kernels.dispatch import whole_works
from ...simcore.lower.collective import library_collective_time
from ..estimate.makespan import MAX_STEPS, makespans
from .candidate import Candidate

# Patterns of the drawn scenarios in which estimates were compared with simulations.
JUDGED_ON = (Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.A2A_GEMM)
# Algorithms whose fastest schedule is tried with other protocols and directions.
NUM_VARIED_ALGORITHMS = 3
# Most values of a knob of which the best candidate each is simulated; more are a range to search.
MAX_NAMED_VALUES = 8

LIBRARY = "library"
"""What stands for the algorithm that the library picks."""

AlgorithmAndEngine = tuple[str, EngineKind]


def is_judged(scenario: Scenario) -> bool:
    """Whether estimates were compared with simulations of such scenarios: GEMMs in ``JUDGED_ON`` on one node."""
    workload, fabric = scenario.workload, scenario.system.fabric
    return workload.gemm is not None and workload.pattern in JUDGED_ON and fabric.node_size == 0


def predicted_us(
    scenario: Scenario,
    choices: Sequence[Choice],
    schedules: Sequence[Schedule],
    should_stop: ShouldStop | None = None,
    max_steps: int = MAX_STEPS,
) -> tuple[float, ...]:
    """Return the times of ``choices``, whose ``schedules`` are given: estimates, and the closed form of the library.

    ``max_steps`` is that of ``makespans``.

    Raises
    ------
    Cancelled
        If ``should_stop`` returned true.
    """
    own = [schedule for choice, schedule in zip(choices, schedules, strict=True) if not choice.engine.by_library]
    with heeding(should_stop):
        estimated = (ticks / TICKS_PER_US for ticks in makespans(scenario, own, max_steps))
        return tuple(library_us(scenario) if choice.engine.by_library else next(estimated) for choice in choices)


def library_us(scenario: Scenario) -> float:
    """Return the time of the library: that of its kernels, and the closed form of its collective."""
    kernels = sum(work.alone_ticks for work in whole_works(scenario))
    return (kernels + library_collective_time(scenario).ticks) / TICKS_PER_US


def chosen_algorithm(choice: Choice) -> str:
    """Return the algorithm of a lone collective; the library picks its own."""
    if choice.engine.by_library:
        return LIBRARY
    return choice.algorithm or BY_NAME[choice.template].default_algorithm


def algorithm_beside(scenario: Scenario, choice: Choice) -> str:
    """Return the algorithm of a collective beside kernels."""
    default = BY_NAME[choice.template].default_algorithm
    return choice.algorithm or (usual_algorithm(scenario.workload.pattern, default) if default else DEFAULT_ALGORITHM)


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


def best_of_explored(scenario: Scenario, candidates: Sequence[Candidate]) -> list[Candidate]:
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


def protocol_variants(scenario: Scenario, candidates: Sequence[Candidate]) -> list[Choice]:
    """Return the fastest algorithms, by copy engines and by SMs, with get instead of put and in other protocols.

    ``candidates`` are in the order of their times; ``NUM_VARIED_ALGORITHMS`` of the simulated algorithms are varied.
    Illegal choices and those among the candidates are left out. Copies and sums by a switch have no variants.
    """
    best: dict[AlgorithmAndEngine, Choice] = {}
    for candidate in candidates:
        if candidate.choice is not None and candidate.simulated_ticks is not None and not _in_switch(candidate):
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
