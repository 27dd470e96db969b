"""The rules of a search beside what is feasible: what is asked for, what fits memory, and one name for a schedule."""

from collections.abc import Callable, Iterator
from functools import cache, partial

from ...compiler.codes import Code
from ...compiler.ir import (
    Choice,
    Direction,
    ExecutionOptions,
    Kernels,
    LaunchMode,
    PeerOrder,
    Rejection,
    Scenario,
)
from ...compiler.planning.knobs import Knob, Rule, ScheduleRequest
from ...compiler.planning.knobs.base import CountValues
from ...compiler.planning.knobs.engine import ENGINE, default_engine
from ...compiler.planning.knobs.execution import KERNEL, LAUNCH, persistent_rejection
from ...compiler.planning.knobs.structure import ALGORITHM, CHUNKS, DEPTH, ORDER, TEMPLATE
from ...compiler.planning.template_input import template_input
from ...compiler.templates import BY_NAME
from ...compiler.templates.collective import DEFAULT_ALGORITHM
from ...compiler.text.quantities import bytes_text
from .domains import Domains, candidates_of, has_knob
from .knobs import searched, shown
from .memory import StagingRules
from .text import listed

_TWIN = Rejection(Code.MGS511, "the same schedule has another name")


def one_name(scenario: Scenario, domains: Domains) -> Iterator[Rule]:
    """Rules that leave one choice for each schedule: what makes no difference stands at its usual value."""
    for knob in searched():
        yield Rule((TEMPLATE.word, knob.word), partial(_reject_idle, domains, knob))
    yield Rule((TEMPLATE.word, CHUNKS.word), _reject_serial)
    yield Rule((CHUNKS.word, DEPTH.word), _reject_all_held)
    repeated = cache(partial(repeated_orders, scenario, orders=domains[ORDER]))
    yield Rule(("transfer", ORDER.word), partial(_reject_repeated, repeated))


def _reject_idle(domains: Domains, knob: Knob, request: ScheduleRequest) -> Rejection | None:
    scenario, template = request.scenario, request.template
    if has_knob(scenario, template, knob) and knob is not ALGORITHM:
        return None
    return None if knob.of(request.choice) in candidates_of(scenario, domains, template, knob) else _TWIN


def _reject_serial(request: ScheduleRequest) -> Rejection | None:
    """The direct exchange in one piece is serial."""
    whole = request.choice.chunks // request.scenario.num_ranks == 1
    return _TWIN if whole and request.template.name == DEFAULT_ALGORITHM else None


def _reject_all_held(request: ScheduleRequest) -> Rejection | None:
    choice = request.choice
    return _TWIN if choice.depth and choice.depth * request.scenario.num_ranks >= choice.chunks else None


def repeated_orders(scenario: Scenario, direction: Direction, orders: tuple[PeerOrder, ...]) -> frozenset[PeerOrder]:
    """Those of ``orders`` by which every rank serves its peers as by one before them."""
    seen: set[tuple[tuple[int, ...], ...]] = set()
    repeated = set()
    for order in (each for each in PeerOrder if each in orders and len(orders) > 1):
        engine = default_engine(scenario.system)
        choice = Choice(TEMPLATE.usual, scenario.num_ranks, engine, tactics=ExecutionOptions(direction), order=order)
        problem = template_input(scenario, choice)
        served = tuple(problem.of_rank(rank).served for rank in range(scenario.num_ranks))
        if served in seen:
            repeated.add(order)
        seen.add(served)
    return frozenset(repeated)


def _reject_repeated(
    repeated: Callable[[Direction], frozenset[PeerOrder]], request: ScheduleRequest
) -> Rejection | None:
    choice = request.choice
    return _TWIN if choice.order in repeated(choice.tactics.direction) else None


def asked_for(scenario: Scenario, domains: Domains) -> Iterator[Rule]:
    """Rules that keep to the values that a file names, or that are tried unasked."""
    for knob in searched():
        if knob not in (TEMPLATE, ENGINE, ALGORITHM):
            reject = partial(_reject_unasked, domains, knob)
            yield Rule((TEMPLATE.word, knob.word), reject, partial(_asked_sentence, domains, knob))


def _reject_unasked(domains: Domains, knob: Knob, request: ScheduleRequest) -> Rejection | None:
    if not has_knob(request.scenario, request.template, knob):
        return None
    asked = candidates_of(request.scenario, domains, request.template, knob)
    return None if knob.of(request.choice) in asked else Rejection(Code.MGS501, f"{knob.word} is not asked for")


def _asked_sentence(domains: Domains, knob: Knob, scenario: Scenario) -> str:
    templates = [BY_NAME[name] for name in domains[TEMPLATE]]
    having = [template for template in templates if has_knob(scenario, template, knob)]
    found = {value for template in having for value in candidates_of(scenario, domains, template, knob)}
    values = sorted(found) if isinstance(knob.values, CountValues) else [v for v in knob.every() if v in found]
    verb = "are" if isinstance(knob.values, CountValues) else "is"
    return f"{knob.word} {verb} {listed([str(shown(knob, value)) for value in values], 'or')}"


def limits(scenario: Scenario, domains: Domains) -> Iterator[Rule]:
    """Rules on what a search leaves out although it could run, and on memory."""
    yield Rule((KERNEL.word,), _reject_persistent)
    yield Rule((LAUNCH.word,), _reject_graph)
    if scenario.workload.moved is not None:
        yield Rule((TEMPLATE.word, CHUNKS.word), _reject_below_line, _line)
    yield from StagingRules(scenario, domains).rules()


def _reject_persistent(request: ScheduleRequest) -> Rejection | None:
    persistent = request.choice.tactics.kernel is Kernels.PERSISTENT
    return persistent_rejection(request.scenario.workload) if persistent else None


def _reject_graph(request: ScheduleRequest) -> Rejection | None:
    """A graph differs from a stream where there are kernels, and the profile says what it costs."""
    workload, gpu = request.scenario.workload, request.scenario.gpu
    if request.choice.tactics.launch is LaunchMode.STREAM:
        return None
    if gpu.sync.graph_launch_ticks is None:
        why = f"the profile of {gpu.name} has no graph_launch: a graph is launched like a stream"
        return Rejection(Code.MGS501, why)
    if workload.compute is None and not workload.pattern.sums:
        return Rejection(Code.MGS501, f"a graph launches kernels, {workload.label} has none")
    return None


def _shard_bytes(scenario: Scenario) -> int:
    moved = scenario.workload.moved
    return 0 if moved is None else moved.num_bytes // scenario.num_ranks


def _reject_below_line(request: ScheduleRequest) -> Rejection | None:
    """A transfer below a line moves a line: more chunks would only cost more."""
    scenario, pieces = request.scenario, max(1, request.choice.chunks // request.scenario.num_ranks)
    if not request.template.cuts_shards or scenario.gpu.line_bytes * pieces <= _shard_bytes(scenario):
        return None
    return Rejection(Code.MGS501, _line(scenario))


def _line(scenario: Scenario) -> str:
    shard = bytes_text(_shard_bytes(scenario))
    return f"a transfer moves a line of {scenario.gpu.line_bytes} B or more, a shard has {shard}"
