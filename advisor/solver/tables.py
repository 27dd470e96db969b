"""The rules of a space as tables: which values of the knobs that a rule reads cannot be together, and why.

CP-SAT's clauses, the generator's masks and the explanation of an empty space all come from these tables. Tables are
made template by template, as most rules read the template.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product

import numpy as np
import numpy.typing as npt

from ...compiler.codes import Code
from ...compiler.ir import (
    Cancelled,
    Direction,
    ExecutionOptions,
    Kernels,
    LaunchMode,
    OpCase,
    OpChoice,
    PeerOrder,
    Rejection,
    ShouldStop,
)
from ...compiler.ir.stopping import never
from ...compiler.planning.build import all_rules
from ...compiler.planning.knobs import Knob, Rule, ScheduleRequest, with_values
from ...compiler.planning.knobs.base import CountValues, TileValues
from ...compiler.planning.knobs.engine import ENGINE, default_engine
from ...compiler.planning.knobs.execution import KERNEL, LAUNCH, persistent_rejection
from ...compiler.planning.knobs.structure import ALGORITHM, CHUNKS, DEPTH, ORDER, TEMPLATE
from ...compiler.planning.staging import template_input
from ...compiler.templates import BY_NAME, Template
from ...compiler.templates.collective import DEFAULT_ALGORITHM
from ...compiler.text.units import bytes_text
from .domains import Domains, Knobs, candidates_of, has_knob, knobs_of, searched, shown
from .memory import StagingRules


def listed(words: Sequence[str], last: str = "and") -> str:
    """``a, b and c``."""
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else "".join(words)


_TWIN = Rejection(Code.MGS511, "the same schedule has another name")


def one_name(scenario: OpCase, domains: Domains) -> Iterator[Rule]:
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


def repeated_orders(scenario: OpCase, direction: Direction, orders: tuple[PeerOrder, ...]) -> frozenset[PeerOrder]:
    """Those of ``orders`` by which every rank serves its peers as by one before them."""
    seen: set[tuple[tuple[int, ...], ...]] = set()
    repeated = set()
    for order in (each for each in PeerOrder if each in orders and len(orders) > 1):
        engine = default_engine(scenario.system)
        choice = OpChoice(TEMPLATE.usual, scenario.num_ranks, engine, tactics=ExecutionOptions(direction), order=order)
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


def requested_for(scenario: OpCase, domains: Domains) -> Iterator[Rule]:
    """Rules that keep to the values that a file names, or that are tried by default."""
    for knob in searched():
        if knob not in (TEMPLATE, ENGINE, ALGORITHM):
            reject = partial(_reject_unexplored, domains, knob)
            yield Rule((TEMPLATE.word, knob.word), reject, partial(_requested_sentence, domains, knob))


def _reject_unexplored(domains: Domains, knob: Knob, request: ScheduleRequest) -> Rejection | None:
    if not has_knob(request.scenario, request.template, knob):
        return None
    requested = candidates_of(request.scenario, domains, request.template, knob)
    return None if knob.of(request.choice) in requested else Rejection(Code.MGS501, f"{knob.word} is not asked for")


def _requested_sentence(domains: Domains, knob: Knob, scenario: OpCase) -> str:
    templates = [BY_NAME[name] for name in domains[TEMPLATE]]
    having = [template for template in templates if has_knob(scenario, template, knob)]
    found = {value for template in having for value in candidates_of(scenario, domains, template, knob)}
    counted = isinstance(knob.values, CountValues | TileValues)
    values = sorted(found) if counted else [v for v in knob.every() if v in found]
    verb = "are" if isinstance(knob.values, CountValues) else "is"
    return f"{knob.word} {verb} {listed([str(shown(knob, value)) for value in values], 'or')}"


def limits(scenario: OpCase, domains: Domains) -> Iterator[Rule]:
    """Rules on what a search leaves out although it could run, and on memory."""
    yield Rule((KERNEL.word,), _reject_persistent)
    yield Rule((LAUNCH.word,), _reject_graph)
    if scenario.shape.moved is not None:
        yield Rule((TEMPLATE.word, CHUNKS.word), _reject_below_line, _line)
    yield from StagingRules(scenario, domains).rules()


def _reject_persistent(request: ScheduleRequest) -> Rejection | None:
    persistent = request.choice.tactics.kernel is Kernels.PERSISTENT
    return persistent_rejection(request.scenario.shape) if persistent else None


def _reject_graph(request: ScheduleRequest) -> Rejection | None:
    """A graph differs from a stream where there are kernels, and the profile says what it costs."""
    workload, gpu = request.scenario.shape, request.scenario.gpu
    if request.choice.tactics.launch is LaunchMode.STREAM:
        return None
    if gpu.sync.graph_launch_ticks is None:
        why = f"the profile of {gpu.name} has no graph_launch: a graph is launched like a stream"
        return Rejection(Code.MGS501, why)
    if workload.compute is None and not workload.pattern.sums:
        return Rejection(Code.MGS501, f"a graph launches kernels, {workload.label} has none")
    return None


def _shard_bytes(scenario: OpCase) -> int:
    moved = scenario.shape.moved
    return 0 if moved is None else moved.num_bytes // scenario.num_ranks


def _reject_below_line(request: ScheduleRequest) -> Rejection | None:
    """A transfer below a line moves a line: more chunks would only cost more."""
    scenario, pieces = request.scenario, max(1, request.choice.chunks // request.scenario.num_ranks)
    if not request.template.cuts_shards or scenario.gpu.line_bytes * pieces <= _shard_bytes(scenario):
        return None
    return Rejection(Code.MGS501, _line(scenario))


def _line(scenario: OpCase) -> str:
    shard = bytes_text(_shard_bytes(scenario))
    return f"a transfer moves a line of {scenario.gpu.line_bytes} B or more, a shard has {shard}"


Place = tuple[int, ...]
"""One digit for each of a few knobs."""
# How many values are looked at between two questions whether to stop.
_LOOK_EVERY = 1024


@dataclass(frozen=True)
class Table:
    """The places that one rule forbids, with the message for each.

    ``knobs`` are those it reads but the template. ``sentence`` says what the rule is, None where each message is a
    rule of its own. Rules that are not ``explained`` only keep two solutions from being one schedule. Tables that are
    not ``of_template`` are the same for all; ``order`` is the place of the rule among all.
    """

    knobs: tuple[Knob, ...]
    forbidden: Mapping[Place, str]
    sentence: Callable[[], str] | None = None
    explained: bool = True
    of_template: bool = True
    order: int = 0

    def mask(self, axes: Knobs) -> npt.NDArray[np.bool_]:
        """Whether the rule allows each place, an axis for each knob."""
        allowed = np.ones([len(axes.values[knob]) for knob in self.knobs], bool)
        if self.forbidden:
            allowed[tuple(np.array(list(self.forbidden)).T)] = False
        return allowed


@dataclass(frozen=True, slots=True)
class _Read:
    """A rule with the knobs of this space that it reads, but the template.

    ``feasible`` says whether it is one of what is feasible; the others are of the search.
    """

    rule: Rule
    knobs: tuple[Knob, ...]
    explained: bool
    feasible: bool
    order: int


class RuleTables:
    """The tables of one scenario; ``axes`` has the values of every knob.

    Rules of several knobs are tabulated for values that no rule of one knob forbids: of all rules, or if ``guarded``
    of those that are always in force.
    """

    def __init__(
        self, scenario: OpCase, domains: Domains, *, guarded: bool = False, is_over: ShouldStop = never
    ) -> None:
        self.axes = knobs_of(scenario, domains)
        self._scenario, self._guarded, self._is_over = scenario, guarded, is_over
        by_word = {knob.word: knob for knob in self.axes.values if knob is not TEMPLATE}
        rules = (
            *((rule, False, False) for rule in one_name(scenario, domains)),
            *((rule, True, False) for rule in requested_for(scenario, domains)),
            *((rule, True, True) for rule in all_rules()),
            *((rule, True, False) for rule in limits(scenario, domains)),
        )
        read = (
            _Read(rule, tuple(by_word[word] for word in rule.knobs if word in by_word), explained, feasible, order)
            for order, (rule, explained, feasible) in enumerate(rules)
        )
        self._rules = sorted(read, key=lambda each: len(each.knobs))
        self._for_all: dict[int, Table] = {}
        self._looked = 0

    def of(self, template: Template) -> tuple[Table, ...]:
        """The tables of every rule for one template; of one for another pattern few others mean anything."""
        usual = OpChoice(template.name, self._scenario.num_ranks, default_engine(self._scenario.system))
        allowed = {knob: list(range(len(values))) for knob, values in self.axes.values.items()}
        fits = self._scenario.shape.pattern in template.patterns
        found: list[Table] = []
        for read in self._rules:
            if not fits and read.feasible and read.knobs and TEMPLATE.word in read.rule.knobs:
                continue
            table = self._table(read, usual, allowed)
            if not table.forbidden:
                continue
            found.append(table)
            if not (table.knobs or self._guarded):
                return (table,)
            if len(table.knobs) == 1 and not (table.explained and self._guarded):
                (knob,) = table.knobs
                allowed[knob] = [digit for digit in allowed[knob] if (digit,) not in table.forbidden]
        return tuple(found)

    def _table(self, read: "_Read", usual: OpChoice, allowed: Mapping[Knob, list[int]]) -> Table:
        if TEMPLATE.word in read.rule.knobs:
            return self._tabulated(read, usual, allowed, of_template=True)
        if read.order not in self._for_all:
            every = {knob: list(range(len(values))) for knob, values in self.axes.values.items()}
            self._for_all[read.order] = self._tabulated(read, usual, every, of_template=False)
        return self._for_all[read.order]

    def _tabulated(
        self, read: "_Read", usual: OpChoice, allowed: Mapping[Knob, list[int]], *, of_template: bool
    ) -> Table:
        forbidden: dict[Place, str] = {}
        for place in product(*(allowed[knob] for knob in read.knobs)):
            self._look()
            values = {knob: self.axes.values[knob][digit] for knob, digit in zip(read.knobs, place, strict=True)}
            rejection = read.rule.reject(ScheduleRequest(self._scenario, with_values(usual, values)))
            if rejection is not None:
                forbidden[place] = rejection.message
        sentence = None if read.rule.sentence is None else partial(read.rule.sentence, self._scenario)
        return Table(read.knobs, forbidden, sentence, read.explained, of_template, read.order)

    def _look(self) -> None:
        self._looked += 1
        if self._looked % _LOOK_EVERY == 0 and self._is_over():
            raise Cancelled
