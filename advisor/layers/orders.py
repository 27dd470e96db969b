"""Schedules of whole layers that people have today: baselines, and the best order of each implementation."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from ...compiler.ir import (
    EngineKind,
    HandOff,
    OpChoice,
    OpMode,
    Pattern,
    Scenario,
    Schedule,
    Workload,
    WorkloadCut,
    even_groups,
)
from ...compiler.planning.build import expression_of
from ...compiler.planning.handoff import sole_chain
from ...compiler.planning.knobs.engine import default_engine
from ...compiler.planning.knobs.library import library_serial
from ...compiler.planning.plan import build_plan
from ...compiler.resolve.schedules.explore import BATCHES, GROUPS
from ...compiler.resolve.schedules.from_text import SERIAL
from ...compiler.resolve.schedules.implementation import shipped_implementations
from ..answer.switches import weights_gathered
from ..candidates.candidate import Candidate, ScheduleOrigin, joint_candidate
from ..candidates.predicted import library_unfit
from ..implementations.offers import LayerTable, OpSetting, Order
from .joint import JointRuns
from .options import OpOption, fastest_alone, fastest_with_next
from .transformer_engine import NAME as TE
from .transformer_engine import TeSearch, taken_ticks

IN_TURN, OP_BY_OP, BY_BLOCKS = "in_turn", "two_batches", "half_batches"

NO_OVERLAP = "no overlap"

LIBRARY = "library"
BY_LIBRARY = "the library, one op after the other"

EACH_ITS_BEST = "each pair's own best, one after the other"


@dataclass(frozen=True, slots=True)
class Known:
    """A schedule that people have today, and in words what it is."""

    choice: Schedule
    what: str


def baselines_of(workload: Workload, op_options: Mapping[str, Sequence[OpOption]]) -> Iterator[Known]:
    """Yield the baselines of a workload, by the options of its ops; without pairs only the serial schedule."""
    yield Known(SERIAL, NO_OVERLAP)
    if not any(op.is_pair for op in workload.ops):
        return
    best = tuple(fastest_alone(of).mode for of in op_options.values() if len(of) > 1)
    lone = tuple(
        option.mode for of in op_options.values() for option in of if len(of) == 1 and option.mode.body is not None
    )
    in_turn = (*(mode for mode in best if mode.body is not None), *lone)
    yield Known(Schedule(IN_TURN, in_turn, handoff=HandOff.WHOLE), EACH_ITS_BEST)


def by_library(scenario: Scenario) -> tuple[Known | None, tuple[str, ...]]:
    """Return the schedule with all collectives by the library, and why some are not, as sentences.

    Those whose time by the library is not known go by the direct exchange; None where it is known of none.
    """
    modes, unknown = [], list[str]()
    for case in scenario.cases:
        unfit = None if case.shape.moved is None else library_unfit(case)
        if unfit is not None:
            unknown.append(f"{case.name} goes by the direct exchange in the baseline: {unfit.message}")
        elif case.shape.moved is not None:
            modes.append(OpMode(case.name, library_serial(case)))
    if not modes:
        return None, ()
    name = next(free_names(LIBRARY, scenario.schedules))
    return Known(Schedule(name, tuple(modes), handoff=HandOff.WHOLE), BY_LIBRARY), tuple(unknown)


def apart(workload: Workload, modes: Iterable[OpMode]) -> tuple[OpMode, ...]:
    """Return ``modes`` with collectives of pairs that wait for no chunks as parts of their own."""
    return tuple(
        replace(mode, body=None, separate=mode.body)
        if workload.op(mode.op).is_pair and isinstance(mode.body, OpChoice)
        else mode
        for mode in modes
    )


def in_turn_of(scenario: Scenario, options: Sequence[Candidate]) -> Iterator[tuple[Known, ScheduleOrigin]]:
    """Yield a schedule for each of the ``options`` of the op that alone has a choice, and where that comes from.

    The library's and that of ``SERIAL`` are compared in any case. Of two kernels with an all_to_all between them, which
    are two ops here, the second is chained to the first, beside it as in the plan of one op.
    """
    chain = None if scenario.sole is not None else sole_chain(scenario)
    sole = chain[0] if chain is not None else scenario.sole
    assert sole is not None, "there is such an op"
    op, names = sole.name, free_names(IN_TURN, scenario.schedules)
    usual = {part.schedule.expression for part in build_plan(scenario.system, scenario.workload, SERIAL, 1).parts}
    for option in options:
        if option.choice is None or option.is_library or option.is_estimate or option.expression in usual:
            continue
        origin = option.origin if option.is_serial or option.origin is ScheduleOrigin.BESPOKE else ScheduleOrigin.KNOWN
        what = f"{op}: {expression_of(option.choice)}"
        chained = () if chain is None or option.is_serial else (chain[1],)
        streams = tuple((name, 1) for name in chained)
        modes = (OpMode(op, option.choice),)
        choice = Schedule(next(names), modes, streams=streams, handoff=HandOff.WHOLE, chained=chained)
        yield Known(choice, what), origin


def free_names(name: str, declared: Sequence[Schedule]) -> Iterator[str]:
    """Yield ``name``, ``name_2`` and so on, without those of the schedules that the file declares."""
    taken = {choice.name for choice in declared}
    for number in count(1):
        each = name if number == 1 else f"{name}_{number}"
        if each not in taken:
            yield each


def in_batches_of(workload: Workload, op_options: Mapping[str, Sequence[OpOption]], batches: int) -> Iterator[Known]:
    """Yield the orders that people write for ``workload``, written out in batches, with collectives apart."""
    modes = tuple(next((option for option in of if option.is_separate), of[0]).mode for of in op_options.values())
    modes = tuple(mode for mode in modes if mode != OpMode(mode.op))
    ops = [op.name for op in workload.ops]
    yield Known(
        Schedule(OP_BY_OP, modes, tuple(ops), sums_first=True, batches=batches),
        f"{batches} batches op by op, as two-batch overlap does",
    )
    yield Known(
        Schedule(BY_BLOCKS, modes, tuple(_by_blocks(workload)), sums_first=True, batches=batches),
        f"{batches} batches block by block, as Domino does",
    )


SHORT = 4
"""How many times as large groups of experts are as the first and the last, whose copies nothing hides."""


def short_at_the_ends(experts: int, count: int) -> tuple[int, ...]:
    """So many groups, of which the first and the last have a fourth of the experts of the others.

    >>> short_at_the_ends(48, 4), short_at_the_ends(4, 4), short_at_the_ends(8, 2)
    ((5, 19, 19, 5), (1, 1, 1, 1), (4, 4))
    """
    inner = count - 2
    if inner < 1:
        return even_groups(experts, count)
    end = max(1, round(experts / (SHORT * inner + 2)))
    return (end, *even_groups(experts - 2 * end, inner), end)


def group_by_group(
    workload: Workload, op_options: Mapping[str, Sequence[OpOption]], name: str, cut: WorkloadCut
) -> Iterator[Schedule]:
    """Yield schedules of a workload whose experts are in groups, each dispatch before the kernels of the group before.

    Kernels that nothing of the experts needs, such as those of a shared one, run beside the first dispatch, or the
    later ones of them beside the last combine.
    """
    modes = tuple(of[0].mode for of in op_options.values() if of[0].mode != OpMode(of[0].mode.op))
    moving = {op.name for op in workload.ops if op.shape.routing is not None}
    before = moving.union(*map(workload.made_from, moving))
    free = [op.name for op in workload.ops if op.name not in before and not workload.made_from(op.name) & moving]
    rest = [op.name for op in workload.ops if op.name not in free]
    first, last = (find(place for place, name in enumerate(rest) if name in moving) + 1 for find in (min, max))
    for early in range(len(free) + 1):
        order = (*rest[:first], *free[:early], *rest[first:last], *free[early:], *rest[last:])
        yield Schedule(name, modes, order, sums_first=True, batches=cut.batches, groups=cut.groups)


def _by_blocks(workload: Workload) -> Iterator[str]:
    """The ops of one batch up to a collective that sums or exchanges, then those of the next batch."""
    blocks: dict[int, list[list[str]]] = {}
    for op in workload.ops:
        own = blocks.setdefault(op.batch, [[]])
        own[-1].append(op.name)
        if op.shape.moved is not None and not op.shape.pattern.consumes:
            own.append([])
    for place in range(max(map(len, blocks.values()))):
        for own in blocks.values():
            yield from own[place] if place < len(own) else ()


def in_one_program(choice: Schedule, name: str) -> Schedule:
    """The same with hand-offs by chunks and sums first, as a start of the search."""
    return replace(choice, name=name, handoff=HandOff.CHUNKS, sums_first=True)


def cut_as(
    workload: Workload,
    op_options: Mapping[str, Sequence[OpOption]],
    following: Mapping[str, Sequence[str]],
    choice: Schedule,
) -> Schedule:
    """The same, the longest GEMM ``following`` a pair cut along it and right behind it, as is best for both."""
    best = {pair: option for pair in following if not (option := fastest_with_next(op_options[pair])).is_separate}
    modes = {mode.op: mode for mode in choice.modes} | {pair: option.mode for pair, option in best.items()}
    chained_ops = tuple(following[pair][0] for pair in best)
    order = [op.name for op in workload.ops]
    for name in chained_ops:
        order.remove(name)
        order.insert(1 + max(order.index(read.made_by) for read in workload.op(name).reads if read.made_by), name)
    moved = order != [op.name for op in workload.ops]
    return replace(
        choice, modes=tuple(modes.values()), chained=chained_ops, order=tuple(order) if moved else choice.order
    )


DOMINO, TWO_BATCHES = "domino", "two_batch_overlap"
"""Orders that are no implementations of pairs."""

AHEAD, AHEAD_BY_ENGINES = "weights_ahead", "weights_ahead_by_engines"
"""Gathers of weights a layer before they are taken: by the library, as FSDP2 does, and by copy engines."""

TE_ORDER = "te_table"
"""The schedule of the table of Transformer Engine, without what it leaves out."""

EXCHANGES = (Pattern.ALL_TO_ALL, Pattern.A2A_GEMM, Pattern.GEMM_A2A)


@dataclass(slots=True)
class OfferSearch:
    """Finds the best order of each implementation; ``found`` has those so far, also when it is stopped.

    ``library`` is the schedule by the library, ``known`` are those that people have, with what they are, and ``times``
    their ticks of all layers.
    """

    scenario: Scenario
    runs: JointRuns
    library: Known | None
    known: Mapping[Schedule, str]
    times: Mapping[Schedule, int]
    found: dict[str, Order] = field(default_factory=dict)

    def run(self) -> None:
        """Find all.

        Raises
        ------
        Cancelled
            If the caller is asked to stop; what was found is there.
        """
        for search in (self._transformer_engine, self._in_batches, self._weights_ahead, self._without_costs):
            for offer in search():
                self.found[offer.implementation] = offer

    def candidates(self, known: Sequence[Candidate]) -> Iterator[Candidate]:
        """The schedules of implementations that are not among the ``known``; what a file explores limits none."""
        limited = any(word not in (BATCHES, GROUPS) for word, _ in self.scenario.explore.requested)
        for offer in self.found.values():
            if all(one.expression != offer.schedule for one in known):
                what = offer.about + (", which is not explored" if limited else "")
                offered = joint_candidate(offer.table.choice, ScheduleOrigin.KNOWN, what, offer.ticks)
                yield replace(offered, is_outside=limited)

    def timed(self, candidates: Sequence[Candidate]) -> tuple[Order, ...]:
        """Return the orders with the times of their schedules among ``candidates``, as exact as what is compared."""
        ticks = {one.expression: one.ticks for one in candidates}
        return tuple(replace(each, ticks=ticks.get(each.schedule, each.ticks)) for each in self.found.values())

    def _has_te(self) -> bool:
        """Whether Transformer Engine is known for this system, and the file asks about it, if it asks."""
        system = self.scenario.system
        requested = [each.name for each in self.scenario.explore.implementations]
        one_node = system.fabric.node_size in (None, 0, system.num_ranks)
        known = (each for each in shipped_implementations(system) if each.name == TE)
        by_tp = one_node and not weights_gathered(self.scenario)  # those gathers are of data parallel ranks
        return by_tp and (not requested or TE in requested) and any(system.gpu.name in each.gpus for each in known)

    def _name(self, name: str) -> str:
        """A name that no schedule of the file has."""
        return next(free_names(name, self.scenario.schedules))

    def _transformer_engine(self) -> Iterator[Order]:
        if not self._has_te():
            return
        library = () if self.library is None else self.library.choice.modes
        search = TeSearch(self.scenario.system, self.scenario.workload, self._name(TE_ORDER), library)
        if not search.layers:
            return
        layers = self.scenario.workload.num_layers
        for table, ticks in search.found(self.runs.ticks):
            extra = taken_ticks(self.scenario.system, self.scenario.workload, table.settings) * layers
            what = "the best table of Transformer Engine"
            yield Order(TE, what, table, ticks, extra, "the costs of its calls")

    def _in_batches(self) -> Iterator[Order]:
        """What the search has compared already: batches op by op where ranks exchange, else block by block."""
        exchanges = any(op.shape.pattern in EXCHANGES for op in self.scenario.workload.ops)
        name, usual = (TWO_BATCHES, OP_BY_OP) if exchanges else (DOMINO, BY_BLOCKS)
        what = "two-batch overlap of SGLang and vLLM" if exchanges else "Domino of DeepSpeed: two half batches"
        requested = self.scenario.explore.implementations
        mine = [one for one in self.known if one.name.startswith(usual) and one.batches > 1] if not requested else []
        if mine:
            best = min(mine, key=self.times.__getitem__)
            yield Order(name, what, LayerTable(best), self.times[best], unknown="the costs of its calls")

    def _weights_ahead(self) -> Iterator[Order]:
        """Weights of the next layer gathered beside the kernels of one, and gradients scattered beside others."""
        scenario, library = self.scenario, self.library
        gathers, requested = weights_gathered(scenario), scenario.explore.implementations
        if library is None or not gathers or scenario.num_layers < 2 or requested:
            return
        separated = apart(scenario.workload, library.choice.modes)
        engine = default_engine(scenario.system)
        copied = tuple(
            replace(mode, body=replace(mode.body, engine=engine))
            if mode.op in gathers and isinstance(mode.body, OpChoice)
            else mode
            for mode in separated
        )
        ways = (
            (AHEAD, "weights gathered a layer ahead, as FSDP2 does", separated, ""),
            (AHEAD_BY_ENGINES, "weights gathered a layer ahead by copy engines", copied, "the costs of its calls"),
        )
        for name, what, modes, unknown in ways if engine.kind is EngineKind.DMA else ways[:1]:
            choice = Schedule(self._name(name), modes, handoff=HandOff.WHOLE, prefetch=1)
            ticks = self.runs.ticks(choice)
            if ticks is not None:
                yield Order(name, what, LayerTable(choice), ticks, unknown=unknown)

    def _without_costs(self) -> Iterator[Order]:
        """What the file names, other than Transformer Engine, whose costs are not known: each pair by its method."""
        for each in self.scenario.explore.implementations:
            modes = {} if self.library is None else {mode.op: mode for mode in self.library.choice.modes}
            own = [(case, each.method_of(case.shape)) for case in self.scenario.moving]
            done = {case.name: method.choice for case, method in own if method and method.missing}
            if not done or each.name == TE or self.scenario.gpu.name not in each.gpus:
                continue
            modes |= {name: OpMode(name, body) for name, body in done.items()}
            choice = Schedule(self._name(each.name), tuple(modes.values()), handoff=HandOff.WHOLE)
            ticks = self.runs.ticks(choice)
            if ticks is not None:
                settings = tuple(OpSetting(name, name, expression_of(body)) for name, body in done.items())
                what, table = f"each pair as {each.name} does it", LayerTable(choice, settings)
                yield Order(each.name, what, table, ticks, unknown="the costs of its calls")
