"""Which candidates to simulate: predicted times, and the shortlist that they make.

The ranker knows the patterns it was trained on, on one node, and templates that a search goes through with their usual
algorithms. Elsewhere the estimate that it corrects stands alone, and how far that is off depends on the algorithm. So
for a lone collective the best of each algorithm, by copy engines and by SMs, is simulated before the second best of
any, and beside kernels the best of each as well. Whoever names values of a knob wants to know what they are worth: the
best of each is simulated too.
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
from ..estimate.makespan import estimate_ticks
from ..ranker.trees import Ranker
from .advice import Candidate, is_algorithm_choice

TRAINED_ON = (Pattern.AG_GEMM, Pattern.GEMM_RS)
# Of how many algorithms the fastest schedule is tried with other protocols and directions.
VARIED = 3

# Values of one knob beyond that are a range to search, and not what a file asks about.
MOST_NAMED = 8

Family = tuple[str, EngineKind]
"""An algorithm and who copies."""


def is_trained(scenario: Scenario) -> bool:
    """Whether the ranker has seen scenarios of this kind: GEMMs in patterns of ``TRAINED_ON`` on one node."""
    workload, fabric = scenario.workload, scenario.system.fabric
    return workload.gemm is not None and workload.pattern in TRAINED_ON and fabric.node_size == 0


def predicted_us(
    scenario: Scenario,
    ranker: Ranker,
    choices: Sequence[Choice],
    schedules: Sequence[Schedule],
    should_stop: ShouldStop | None = None,
) -> tuple[float, ...]:
    """Times of ``choices`` in us, and of ``schedules``, which are built from them: the ranker's, or estimates.

    Raises
    ------
    Cancelled
        If ``should_stop`` said so.
    """
    trained = is_trained(scenario)
    built = {
        choice: schedule
        for choice, schedule in zip(choices, schedules, strict=True)
        if trained and BY_NAME[choice.template].explored and not choice.algorithm
    }
    with heeding(should_stop):
        times = ranker.predict_us(scenario, list(built.values())) if built else ()
        ranked = dict(zip(built, times, strict=True))
        return tuple(
            ranked[choice] if choice in ranked else estimate_ticks(scenario, schedule).makespan_ticks / TICKS_PER_US
            for choice, schedule in zip(choices, schedules, strict=True)
        )


def algorithm_of(choice: Choice) -> str:
    """The algorithm by which a lone collective is done."""
    return choice.algorithm or BY_NAME[choice.template].default_algorithm


def algorithm_beside(scenario: Scenario, choice: Choice) -> str:
    """The algorithm by which a collective is done that kernels run beside."""
    default = BY_NAME[choice.template].default_algorithm
    return choice.algorithm or (usual_algorithm(scenario.workload.pattern, default) if default else DEFAULT_ALGORITHM)


def shortlisted(candidates: Sequence[Candidate], top: int, *, by_algorithm: bool) -> list[Candidate]:
    """The ``top`` first of candidates in the order of their predictions; ``by_algorithm`` the best of each first."""
    if not by_algorithm:
        return list(candidates[:top])
    seen, turns = Counter[Family](), list[tuple[int, int]]()
    for place, candidate in enumerate(candidates):
        family = _family(candidate)
        turns.append((seen[family], place))
        seen[family] += 1
    return [candidates[place] for _, place in sorted(turns)[: max(top, len(seen))]]


# What moves and computes, in what pieces and in which order; how that is carried out is varied one option at a time.
_NAMED = tuple(knob for knob in KNOBS if knob.explored and not knob.option and knob not in (TEMPLATE, ALGORITHM))


def asked(scenario: Scenario, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The best of each algorithm, and of each value that the file names: templates with algorithms, engines, counts.

    ``candidates`` are in the order of their predictions. Of knobs with more than ``MOST_NAMED`` values none counts.
    """
    explore, alone, found = scenario.explore, is_algorithm_choice(scenario), dict[Asked, Candidate]()
    few = [knob for knob in _NAMED if 0 < len(explore.values(knob.word)) <= MOST_NAMED]
    for candidate in candidates:
        choice = candidate.choice
        if choice is None:
            continue
        named = choice.template if choice.template in explore.values("schedules") else ""
        algorithm = algorithm_of(choice) if alone else algorithm_beside(scenario, choice)
        found.setdefault((named, algorithm), candidate)
        for knob in few:
            if knob.of(choice) in explore.values(knob.word):
                found.setdefault((knob.word, knob.of(choice)), candidate)
    return list({candidate.expression: candidate for candidate in found.values()}.values())


Asked = tuple[str, object]
"""A knob and its value, or a template and its algorithm."""


def baselines(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Of the serial ones, which come best first, all with the usual algorithm, and the best of each other.

    What a user has today must not depend on what is predicted, or bad predictions would make overlap look good.
    """
    best = dict[str, Candidate]()
    for candidate in candidates:
        if candidate.is_serial:
            algorithm = "" if candidate.choice is None else candidate.choice.algorithm
            best.setdefault(algorithm or candidate.expression, candidate)
    return list(best.values())


def variants(scenario: Scenario, candidates: Sequence[Candidate]) -> list[Choice]:
    """The fastest algorithms, by copy engines and by SMs, by get instead of put and in other protocols.

    ``candidates`` are in the order of their times; of those that were simulated ``VARIED`` algorithms are varied. What
    cannot be is left out, and what is among the candidates. What a switch copies or sums has no other way to go.
    """
    best: dict[Family, Choice] = {}
    for candidate in candidates:
        if candidate.choice is not None and candidate.simulated_ticks is not None and not _in_switch(candidate):
            best.setdefault(_family(candidate), candidate.choice)
    fastest = list(dict.fromkeys(name for name, _ in best))[:VARIED]
    tactics = [ExecutionOptions(direction, protocol) for direction in Direction for protocol in CopyProtocol]
    found = [replace(best[key], tactics=each) for key in best if key[0] in fastest for each in tactics]
    known = {candidate.expression for candidate in candidates}
    return [each for each in found if expression_of(each) not in known and reject_choice(scenario, each) is None]


def _family(candidate: Candidate) -> Family:
    name = candidate.expression if candidate.choice is None else algorithm_of(candidate.choice)
    return name, candidate.schedule.engine.kind


def _in_switch(candidate: Candidate) -> bool:
    steps = candidate.schedule.steps
    return any(isinstance(step, Transfer) and step.reach is Reach.ALL for step in steps)
