"""Other ways to carry out a schedule: one knob changed at a time, and a best-first search over them by the estimate.

A knob is the engine, the streams, the protocol of copies by SMs, whether the kernel is persistent, and of templates the
number of chunks; of ``pipelined`` also the algorithm, the waves that a kernel takes and the streams of its sums. What
the estimate knows nothing of, such as graphs, is in ``advisor/candidates/variations.py`` and shown by simulations
alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ...compiler.ir import Choice, CopyProtocol, EngineChoice, EngineKind, Kernels, Scenario
from ...compiler.planning.knobs.execution import USUAL_WAIT
from ...compiler.templates import BY_NAME
from .mutations import STREAMS, lanes_of
from .plan_estimator import NEVER, PlanEstimator
from .uniform import MOST_PIECES

# Those in which every rank has the same part; the empty one is the template's own, ring.
ALGORITHMS = ("", "double_ring", "direct")
# Streams of sums: a launch takes some times as long as the sum of a chunk, and so many hide it.
SUMS = (1, 2, 4)
PATIENCE = 4


def other_ways(scenario: Scenario, choice: Choice, engines: Sequence[EngineChoice]) -> Iterator[Choice]:
    """``choice`` with one knob changed, by ``engines`` among others; some of them may be illegal."""
    for engine in engines:
        yield _by(engine, scenario, choice)
    template, asked = BY_NAME[choice.template], scenario.explore
    if template.has_streams:
        yield from (replace(choice, streams=streams) for streams in asked.values("streams") or STREAMS)
    if choice.engine.kind is EngineKind.SM:
        protocols = asked.values("protocol") or scenario.system.fabric.link.protocols
        yield from (replace(choice, tactics=replace(choice.tactics, protocol=each)) for each in protocols)
    kernels = {
        kernel: _with_kernel(choice, kernel)
        for kernel in asked.values("kernel") or Kernels
        if not asked.values("wait") or USUAL_WAIT[kernel] in asked.values("wait")
    }
    yield from kernels.values()
    if not choice.parts and template.cuts_shards:
        yield from _in_other_chunks(choice, scenario.num_ranks)
    if template.has_waves:
        yield from _in_other_waves(choice)
        launched = kernels.get(Kernels.LAUNCHED)
        if launched is not None:
            yield from (replace(launched, sums=sums) for sums in SUMS)
        yield from (replace(choice, algorithm=name) for name in asked.values("algorithm") or ALGORITHMS)


def _with_kernel(choice: Choice, kernel: Kernels) -> Choice:
    """Sums behind a persistent kernel have one stream."""
    tactics = replace(choice.tactics, kernel=kernel, wait=USUAL_WAIT[kernel])
    return replace(choice, tactics=tactics, sums=choice.sums if kernel is Kernels.LAUNCHED else 1)


def _by(engine: EngineChoice, scenario: Scenario, choice: Choice) -> Choice:
    """The same by another engine: lanes as far as it has them, and a protocol where it has several."""
    lanes = choice.lanes if choice.lanes in lanes_of(engine, scenario.num_ranks - 1) else 0
    protocol = choice.tactics.protocol if engine.kind is EngineKind.SM else CopyProtocol.SIMPLE
    return replace(choice, engine=engine, lanes=lanes, tactics=replace(choice.tactics, protocol=protocol))


def _in_other_chunks(choice: Choice, num_ranks: int) -> Iterator[Choice]:
    """Finer and coarser transfers, with kernels of the same size where waves can be joined, and with smaller ones."""
    pieces = choice.chunks // num_ranks
    for other in sorted({pieces // 2, pieces - 1, pieces + 1, 2 * pieces}):
        if 0 < other <= MOST_PIECES:
            finer = replace(choice, chunks=other * num_ranks)
            yield finer
            if BY_NAME[choice.template].has_waves:
                yield replace(finer, waves=max(1, round(choice.waves * other / pieces)))


def _in_other_waves(choice: Choice) -> Iterator[Choice]:
    """Larger and smaller kernels."""
    for waves in sorted({choice.waves // 2, choice.waves - 1, choice.waves + 1, 2 * choice.waves}):
        if waves > 0:
            yield replace(choice, waves=waves)


def starts_of(choices: Iterable[Choice]) -> list[Choice]:
    """The first of ``choices`` of each template that overlaps and each algorithm, but those with parts.

    What has waves comes first: its time at the usual values of its knobs says least about it.
    """
    found: dict[tuple[str, str], Choice] = {}
    for choice in choices:
        if not choice.parts and BY_NAME[choice.template].overlaps:
            found.setdefault((choice.template, choice.algorithm), choice)
    return sorted(found.values(), key=lambda choice: not BY_NAME[choice.template].has_waves)


def search_ways(evaluate: PlanEstimator, start: Choice, budget: int, engines: Sequence[EngineChoice]) -> list[Choice]:
    """Best first from ``start``, until ``PATIENCE`` steps found nothing better or ``budget`` evaluations are spent.

    Returns every way that was looked at and can run.
    """
    seen, tried, most, best, vain = dict.fromkeys([start]), set[Choice](), evaluate.count + budget, start, 0
    while vain < PATIENCE and evaluate.count < most and not evaluate.spent:
        base = min((way for way in seen if way not in tried), key=evaluate, default=None)
        if base is None or evaluate(base) == NEVER:
            break
        tried.add(base)
        seen |= dict.fromkeys(other_ways(evaluate.scenario, base, engines))
        now = min(seen, key=evaluate)
        best, vain = (now, 0) if evaluate(now) < evaluate(best) else (best, vain + 1)
    return [way for way in seen if evaluate(way) < NEVER]
