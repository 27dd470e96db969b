"""Neighbours of a schedule: one knob changed at a time, and a best-first search over such changes by the estimate.

Knobs are the engine, the streams, the protocol of copies by SMs, launched or persistent kernels, and for templates the
number of chunks; for ``pipelined`` also the algorithm, the waves in a kernel and the streams of its sums. Changes that
the estimator cannot model, such as graphs, are in ``advisor/candidates/variations.py``; only simulations rate them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ...compiler.ir import Choice, CopyProtocol, EngineChoice, EngineKind, Kernels, Scenario
from ...compiler.planning.knobs.execution import USUAL_WAIT
from ...compiler.templates import BY_NAME
from .mutations import STREAMS, lanes_of
from .plan_estimator import INFEASIBLE, PlanEstimator
from .uniform import MAX_PIECES

# Algorithms in which every rank does the same; the empty one is the default of the template, ring.
ALGORITHMS = ("", "double_ring", "direct")
# Numbers of streams for sums: a launch takes longer than the sum of a chunk, and several streams hide it.
SUM_STREAMS = (1, 2, 4)
# Steps without a better plan after which the best-first search ends.
PATIENCE = 4


def single_knob_changes(scenario: Scenario, choice: Choice, engines: Sequence[EngineChoice]) -> Iterator[Choice]:
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


def _with_kernel(choice: Choice, kernel: Kernels) -> Choice:
    """Change the kernel; sums after a persistent kernel have one stream."""
    tactics = replace(choice.tactics, kernel=kernel, wait=USUAL_WAIT[kernel])
    return replace(choice, tactics=tactics, sums=choice.sums if kernel is Kernels.LAUNCHED else 1)


def _with_engine(engine: EngineChoice, scenario: Scenario, choice: Choice) -> Choice:
    """Change the engine; keep the lanes if it has as many, and the protocol if SMs copy."""
    lanes = choice.lanes if choice.lanes in lanes_of(engine, scenario.num_ranks - 1) else 0
    protocol = choice.tactics.protocol if engine.kind is EngineKind.SM else CopyProtocol.SIMPLE
    return replace(choice, engine=engine, lanes=lanes, tactics=replace(choice.tactics, protocol=protocol))


def _chunk_changes(choice: Choice, num_ranks: int) -> Iterator[Choice]:
    """Yield finer and coarser transfers; if kernels can have several waves, also with kernels of the same size."""
    pieces = choice.chunks // num_ranks
    for other in sorted({pieces // 2, pieces - 1, pieces + 1, 2 * pieces}):
        if 0 < other <= MAX_PIECES:
            finer = replace(choice, chunks=other * num_ranks)
            yield finer
            if BY_NAME[choice.template].has("waves"):
                yield replace(finer, waves=max(1, round(choice.waves * other / pieces)))


def _wave_changes(choice: Choice) -> Iterator[Choice]:
    """Yield larger and smaller kernels."""
    for waves in sorted({choice.waves // 2, choice.waves - 1, choice.waves + 1, 2 * choice.waves}):
        if waves > 0:
            yield replace(choice, waves=waves)


def start_points(choices: Iterable[Choice]) -> list[Choice]:
    """Return the first of ``choices`` for each template that overlaps and each algorithm, without choices with parts.

    Templates with waves come first: their time at the usual values of their knobs says least about their best time.
    """
    first: dict[tuple[str, str], Choice] = {}
    for choice in choices:
        if not choice.parts and BY_NAME[choice.template].overlaps:
            first.setdefault((choice.template, choice.algorithm), choice)
    return sorted(first.values(), key=lambda choice: not BY_NAME[choice.template].has("waves"))


def best_first_search(
    estimator: PlanEstimator, start: Choice, budget: int, engines: Sequence[EngineChoice]
) -> list[Choice]:
    """Search best first from ``start``, until ``PATIENCE`` steps find nothing better or ``budget`` is spent.

    Return every feasible choice that was estimated.
    """
    seen, expanded, limit = dict.fromkeys([start]), set[Choice](), estimator.count + budget
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
