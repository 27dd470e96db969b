"""Neighbours of a schedule, drawn or with one knob changed, and a best-first search by the estimate.

Knobs are the engine, the streams, the protocol of copies by SMs, launched or persistent kernels, and for templates the
number of chunks; for ``pipelined`` also the algorithm, the waves in a kernel and the streams of its sums. Changes that
the estimator cannot model, such as graphs, are in ``advisor/candidates/shortlist.py``; only simulations rate them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

from ...compiler.ir import (
    CopyProtocol,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    Explore,
    Kernels,
    OpCase,
    OpChoice,
    ShouldStop,
)
from ...compiler.planning.build import OPTIONS, ScheduleError, build_op_plan, options_of
from ...compiler.planning.knobs import KNOBS
from ...compiler.planning.knobs.execution import SPLIT_K, TILE, USUAL_WAIT
from ...compiler.planning.knobs.structure import ALGORITHM, DEPTH, ORDER, TEMPLATE
from ...compiler.templates import BY_NAME
from ...compiler.templates.bespoke import MAX_KERNELS, MAX_PARTS
from ..candidates.candidate import may_deadlock
from ..estimate.makespan import makespans
from .batches import GRAIN, Lengths, RowBatch, batches_of, with_batches
from .cp_sat import MAX_PIECES

Value = TypeVar("Value")


TOLD = (TILE, SPLIT_K)
"""What a persistent kernel is told of how it computes tiles."""


def is_explored(explore: Explore, choice: OpChoice) -> bool:
    """Whether all knobs of ``choice`` have values that ``explore`` allows.

    A knob that its template does not have may have any value, except the order: without that knob it is the usual one.
    So may the usual algorithm, and the usual tile and split.
    """
    template, named = BY_NAME[choice.template], dict(explore.requested)
    for knob in (each for each in KNOBS if each.word in named):
        requested, value = explore.values(knob.word), knob.of(choice)
        lacking = not knob.has(template) and knob is not ORDER
        free = lacking or knob in (TEMPLATE, DEPTH) or (knob in (ALGORITHM, *TOLD) and value == knob.usual)
        if requested and not free and value not in requested:
            return False
    return True


def usual_options(explore: Explore) -> ExecutionOptions:
    """Return the usual execution options; a knob that ``explore`` names without its usual value has the first named."""
    requested = {knob: explore.values(word) for word, knob in OPTIONS.items() if knob not in TOLD}  # tried at the end
    return options_of({knob: usual_or_first(values, knob.usual) for knob, values in requested.items() if values})


def usual_or_first(explored: tuple[Value, ...], usual: Value) -> Value:
    """Return ``usual`` if ``explored`` is empty or contains it, else the first of the explored values."""
    return usual if not explored or usual in explored else explored[0]


INFEASIBLE = float("inf")
"""The time of a plan that cannot run."""


@dataclass(slots=True)
class PlanEstimator:
    """Estimates choices, each once; a search ends after ``limit`` of them, so that it does the same on any machine.

    ``known`` holds the times in ticks of all estimated choices, ``INFEASIBLE`` for those that cannot run; ``foreseen``
    those of choices that were looked at ahead.
    """

    scenario: OpCase
    limit: int
    should_stop: ShouldStop = lambda: False
    count: int = 0
    known: dict[OpChoice, float] = field(default_factory=dict)
    foreseen: dict[OpChoice, float] = field(default_factory=dict)

    def copy(self, should_stop: ShouldStop) -> "PlanEstimator":
        """Return one that counts for itself, and foresees for both."""
        return replace(self, known=dict(self.known), should_stop=should_stop)

    @property
    def spent(self) -> bool:
        """Whether the budget is spent, or the caller asked to stop."""
        return self.count >= self.limit or self.should_stop()

    def ticks(self, choice: OpChoice) -> float:
        """Return the estimated makespan."""
        known = self.known.get(choice)  # a choice is hashed by all its parts
        if known is None:
            self.count += 1
            known = self.known[choice] = self.foresee(choice)
        return known

    def foresee(self, choice: OpChoice) -> float:
        """Return the estimated makespan without counting it."""
        known = self.known.get(choice, self.foreseen.get(choice))
        if known is None:
            known = self.foreseen[choice] = self._estimate(choice)
        return known

    def _estimate(self, choice: OpChoice) -> float:
        if may_deadlock(choice) or not is_explored(self.scenario.explore, choice):
            return INFEASIBLE
        try:
            return next(makespans(self.scenario, (build_op_plan(self.scenario, choice),)))
        except ScheduleError:
            return INFEASIBLE


STREAMS = (1, 2, 3)
# Rows to shift, in grains (one tile or a few), or as shares of a batch.
_SHIFT_GRAINS = (1, 2, 4, 8, 16, 32)
_SHIFT_SHARES = (0.1, 0.25, 0.5, 1.0)
_SPLIT_SHARES = (0.25, 0.5, 0.75)
# Share of mutations that change the cuts of a batch; of these, the share along the inner dimension if both can be cut.
CUT_SHARE, SLICED_SHARE = 0.2, 0.7


@dataclass(slots=True)
class _Draft:
    """A batch that is being mutated."""

    rows: list[int]
    slices: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def kernels(self) -> int:
        return max(1, len(self.slices)) * max(1, len(self.columns))


_Plan = list[_Draft]


def neighbour(random: Random, choice: OpChoice, engines: Sequence[EngineChoice], lengths: Lengths) -> OpChoice:
    """Return a random neighbour of ``choice``, or ``choice`` itself if the mutation drawn is impossible."""
    kind = random.random()
    if kind < 0.03:
        return replace(choice, engine=random.choice(engines), lanes=0)
    if kind < 0.06:
        return replace(choice, streams=random.choice(STREAMS))
    if kind < 0.09:
        return replace(choice, lanes=random.choice(lanes_of(choice.engine, choice.chunks - 1)))
    plan = [_Draft(list(batch.rows), batch.slices, batch.columns) for batch in batches_of(choice)]
    if random.random() < CUT_SHARE:
        _cut(random, random.choice(plan), lengths)
    else:
        change = random.choices((_shift_all, _shift_own, _shift_one, _split, _merge, _swap), (40, 20, 15, 10, 10, 5))[0]
        change(random, plan)
    plan = [draft for draft in plan if any(draft.rows)]
    if len(plan) > MAX_PARTS or sum(draft.kernels for draft in plan) > MAX_KERNELS:
        return choice
    return with_batches(choice, (RowBatch(tuple(draft.rows), draft.slices, draft.columns) for draft in plan))


def lanes_of(engine: EngineChoice, peers: int) -> tuple[int, ...]:
    """Return the numbers of lanes to try: none, and one or two for each peer (all engines if there are fewer)."""
    if engine.kind is EngineKind.SM or engine.mode not in (EngineMode.OWN, EngineMode.PRELAUNCHED):
        return (0,)
    return tuple(dict.fromkeys((0, min(engine.count, peers), min(engine.count, 2 * peers))))


def _cut(random: Random, draft: _Draft, lengths: Lengths) -> None:
    """Change the cuts of a batch: slices of the inner dimension, or bands of columns, which are sent one by one."""
    if not lengths.produces or random.random() < SLICED_SHARE:
        draft.slices = _recut(random, draft.slices or (lengths.inner,), lengths.step)
    else:
        draft.columns = _recut(random, draft.columns or (lengths.cols,), lengths.step)


def _recut(random: Random, sizes: tuple[int, ...], step: int) -> tuple[int, ...]:
    """Return one piece more, one less, or a shifted edge; no sizes if one piece is left."""
    pieces, index = list(sizes), random.randrange(len(sizes))
    kind = random.choices((_divide, _join, _lend), (4, 2, 4))[0]
    kind(random, pieces, index, step)
    return tuple(pieces) if len(pieces) > 1 else ()


def _divide(random: Random, sizes: list[int], index: int, step: int) -> None:
    first = int(sizes[index] * random.choice(_SPLIT_SHARES)) // step * step
    if first:
        sizes[index : index + 1] = [first, sizes[index] - first]


def _join(random: Random, sizes: list[int], index: int, step: int) -> None:
    sizes[index : index + 2] = [sum(sizes[index : index + 2])]


def _lend(random: Random, sizes: list[int], index: int, step: int) -> None:
    """Move a part of one piece to any other."""
    count = min((sizes[index] - 1) // step, random.choice(_SHIFT_GRAINS[:-1])) * step
    to = random.randrange(len(sizes))
    sizes[index] -= count
    sizes[to] += count


def _draw_two(random: Random, plan: _Plan) -> tuple[list[int], list[int]]:
    """Draw two batches, often adjacent ones."""
    source = random.randrange(len(plan))
    near = [index for index in (source - 1, source + 1) if 0 <= index < len(plan)]
    target = random.choice([*near, random.randrange(len(plan))])
    return plan[source].rows, plan[target].rows


def _shift(source: list[int], target: list[int], block: int, rows: int) -> None:
    count = min(source[block], rows)
    source[block] -= count
    target[block] += count


def _shift_all(random: Random, plan: _Plan) -> None:
    """Shift rows of every peer from one batch to another."""
    source, target = _draw_two(random, plan)
    step, share = random.choice(_SHIFT_GRAINS) * GRAIN, random.choice(_SHIFT_SHARES) if random.random() < 0.3 else 0.0
    for block in range(1, len(source)):
        _shift(source, target, block, int(source[block] * share) // GRAIN * GRAIN if share else step)


def _shift_own(random: Random, plan: _Plan) -> None:
    """Shift own rows from one batch to any other, at times all of them."""
    source, target = random.choice(plan).rows, random.choice(plan).rows
    _shift(source, target, 0, random.choice(_SHIFT_GRAINS) * GRAIN if random.random() < 0.7 else source[0])


def _shift_one(random: Random, plan: _Plan) -> None:
    """Shift rows of one peer from one batch to any other."""
    source, target = random.choice(plan).rows, random.choice(plan).rows
    block = random.randrange(1, len(source))
    _shift(source, target, block, random.choice(_SHIFT_GRAINS) * GRAIN if random.random() < 0.7 else source[block])


def _split(random: Random, plan: _Plan) -> None:
    index, share = random.randrange(len(plan)), random.choice(_SPLIT_SHARES)
    whole = plan[index]
    first = [int(count * share) // GRAIN * GRAIN for count in whole.rows]
    rest = [count - taken for count, taken in zip(whole.rows, first, strict=True)]
    plan[index : index + 1] = [replace(whole, rows=first), replace(whole, rows=rest)]


def _merge(random: Random, plan: _Plan) -> None:
    """Merge two batches into one with the cuts of the larger."""
    index = random.randrange(len(plan))
    both = plan[index : index + 2]
    rows = [sum(counts) for counts in zip(*(draft.rows for draft in both), strict=True)]
    plan[index : index + 2] = [replace(max(both, key=lambda draft: sum(draft.rows)), rows=rows)]


def _swap(random: Random, plan: _Plan) -> None:
    index = random.randrange(len(plan))
    plan[index : index + 2] = plan[index : index + 2][::-1]


# Algorithms in which every rank does the same; the empty one is the default of the template, ring.
ALGORITHMS = ("", "double_ring", "direct")
# Numbers of streams for sums: a launch takes longer than the sum of a chunk, and several streams hide it.
SUM_STREAMS = (1, 2, 4)
# Steps without a better plan after which the best-first search ends.
PATIENCE = 4


def single_knob_changes(scenario: OpCase, choice: OpChoice, engines: Sequence[EngineChoice]) -> Iterator[OpChoice]:
    """Yield ``choice`` with one knob changed, the engine to one of ``engines``; some results may be illegal."""
    for engine in engines:
        yield _with_engine(engine, scenario, choice)
    template, explore = BY_NAME[choice.template], scenario.explore
    if template.has("streams"):
        yield from (replace(choice, streams=streams) for streams in explore.values("streams") or STREAMS)
    if choice.engine.kind is EngineKind.SM:
        protocols = explore.values("protocol") or scenario.system.fabric.link.protocols
        yield from (replace(choice, tactics=replace(choice.tactics, protocol=protocol)) for protocol in protocols)
    kernels = {
        kernel: _with_kernel(choice, kernel)
        for kernel in explore.values("kernel") or Kernels
        if not explore.values("wait") or USUAL_WAIT[kernel] in explore.values("wait")
    }
    yield from kernels.values()
    if not choice.parts and template.cuts_shards:
        yield from _chunk_changes(choice, scenario.num_ranks)
    if template.has("waves"):
        yield from _wave_changes(choice)
        launched = kernels.get(Kernels.LAUNCHED)
        if launched is not None:
            yield from (replace(launched, sums=sums) for sums in SUM_STREAMS)
        yield from (replace(choice, algorithm=name) for name in explore.values("algorithm") or ALGORITHMS)


def _with_kernel(choice: OpChoice, kernel: Kernels) -> OpChoice:
    """Change the kernel; sums after a persistent kernel have one stream."""
    tactics = replace(choice.tactics, kernel=kernel, wait=USUAL_WAIT[kernel])
    return replace(choice, tactics=tactics, sums=1 if kernel is Kernels.PERSISTENT else choice.sums)


def _with_engine(engine: EngineChoice, scenario: OpCase, choice: OpChoice) -> OpChoice:
    """Change the engine; keep the lanes if it has as many, and the protocol if SMs copy."""
    lanes = choice.lanes if choice.lanes in lanes_of(engine, scenario.num_ranks - 1) else 0
    protocol = choice.tactics.protocol if engine.kind is EngineKind.SM else CopyProtocol.SIMPLE
    return replace(choice, engine=engine, lanes=lanes, tactics=replace(choice.tactics, protocol=protocol))


def _chunk_changes(choice: OpChoice, num_ranks: int) -> Iterator[OpChoice]:
    """Yield finer and coarser transfers; if kernels can have several waves, also with kernels of the same size."""
    pieces = choice.chunks // num_ranks
    for other in sorted({pieces // 2, pieces - 1, pieces + 1, 2 * pieces}):
        if 0 < other <= MAX_PIECES:
            finer = replace(choice, chunks=other * num_ranks)
            yield finer
            if BY_NAME[choice.template].has("waves"):
                yield replace(finer, waves=max(1, round(choice.waves * other / pieces)))


def _wave_changes(choice: OpChoice) -> Iterator[OpChoice]:
    """Yield larger and smaller kernels."""
    for waves in sorted({choice.waves // 2, choice.waves - 1, choice.waves + 1, 2 * choice.waves}):
        if waves > 0:
            yield replace(choice, waves=waves)


def start_points(choices: Iterable[OpChoice]) -> list[OpChoice]:
    """Return the first of ``choices`` for each template that overlaps and each algorithm, without choices with parts.

    Templates with waves come first: their time at the usual values of their knobs says least about their best time.
    """
    first: dict[tuple[str, str], OpChoice] = {}
    for choice in choices:
        if not choice.parts and BY_NAME[choice.template].overlaps:
            first.setdefault((choice.template, choice.algorithm), choice)
    return sorted(first.values(), key=lambda choice: not BY_NAME[choice.template].has("waves"))


def best_first_search(
    estimator: PlanEstimator, start: OpChoice, budget: int, engines: Sequence[EngineChoice]
) -> list[OpChoice]:
    """Search best first from ``start``, until ``PATIENCE`` steps find nothing better or ``budget`` is spent.

    Return every feasible choice that was estimated.
    """
    seen, expanded, limit = dict.fromkeys([start]), set[OpChoice](), estimator.count + budget
    best, steps_in_vain = start, 0
    while steps_in_vain < PATIENCE and estimator.count < limit and not estimator.spent:
        base = min((choice for choice in seen if choice not in expanded), key=estimator.ticks, default=None)
        if base is None or estimator.ticks(base) == INFEASIBLE:
            break
        expanded.add(base)
        seen |= dict.fromkeys(single_knob_changes(estimator.scenario, base, engines))
        fastest = min(seen, key=estimator.ticks)
        improves = estimator.ticks(fastest) < estimator.ticks(best)
        best, steps_in_vain = (fastest, 0) if improves else (best, steps_in_vain + 1)
    return [choice for choice in seen if estimator.ticks(choice) < INFEASIBLE]
