"""Sequences that lie on several ranks: what the exchange of keys and values adds to a layer (context parallelism).

Attention of a layer has its share of the pairs of a sequence (``compiler/ir/operations/attention.py``). The keys and
values of the other ranks come from them in every forward pass and again in every backward pass, whose gradients of keys
and values go back to their ranks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...compiler.ir import AttentionShape, DType, Made, Pattern, Scenario, System
from ...compiler.ir.step import ContextKind
from ...compiler.resolve.schedules.from_text import SERIAL
from ..layers.beside import LayerBeside, SharedTraffic, crosses_nodes
from .layer_times import TRAFFIC_PACKET, LayerPass, LayerTimes, PassOf


@dataclass(frozen=True, slots=True)
class _Ring:
    """The ranks of a ring, times of what they do, and whether gradients go along."""

    context: System
    times: LayerTimes
    backward: bool


def exchanged_bytes(scenario: Scenario) -> int:
    """Bytes of keys and values of whole sequences that attention of a layer sees on one rank, 0 without an exchange."""
    return sum(each.dtype.bytes_of(each.exchanged) for each in scenario.workload.in_context)


def buffer_bytes(scenario: Scenario, kind: ContextKind) -> int:
    """Bytes of keys and values of others that a rank has at once: of all ranks, or two blocks of a ring.

    Backward it has as many for their gradients.
    """
    whole = exchanged_bytes(scenario)
    context = max((each.context for each in scenario.workload.in_context), default=1)
    return whole if kind is ContextKind.GATHERED else -(-min(2, context) * whole // context)


def exchange_ticks(of: PassOf, context: System, kind: ContextKind, times: LayerTimes, *, backward: bool) -> int:
    """How much longer a pass of a layer takes than with keys and values of all ranks there.

    Parameters
    ----------
    of
        The pass.
    context
        The ranks that each have a part of a sequence.
    kind
        GATHERED: nothing is computed meanwhile. RING: attention with one block runs beside the exchange of the next.
    backward
        Whether gradients of keys and values go back.
    """
    if kind is ContextKind.RING:
        ring = _Ring(context, times, backward)
        return sum(_beyond(*each, ring) for each in _attentions(of.for_seconds()))
    moved = exchanged_bytes(of.scenario)
    patterns = (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER)[: 1 + backward]
    return sum(times.traffic(context, SharedTraffic(pattern, DType.FP8, moved)) for pattern in patterns)


def _beyond(blocks: Scenario, whole: Scenario, shape: AttentionShape, ring: _Ring) -> int:
    """By how much attention in blocks is longer than attention to all keys at once.

    While a rank attends to one block the next one comes; with the last one nothing is moved. Backward, gradients of a
    block go with it (Ring Attention, section 3).
    """
    blocks_bytes = shape.dtype.bytes_of(shape.exchanged) * (1 + ring.backward)
    ranks, elements = _neighbours(ring.context, -(-blocks_bytes // shape.context))
    traffic = SharedTraffic(Pattern.ALL_GATHER, DType.FP8, elements, sends=True)
    times, alone = ring.times, ring.times.by_itself(LayerPass(blocks, SERIAL)).ticks
    both = times.both(LayerBeside(blocks, SERIAL, ranks, traffic, TRAFFIC_PACKET, alike=True))
    beside = (alone, times.traffic(ranks, traffic)) if both is None else (both.layer_beside, both.traffic_beside)
    return max(0, (shape.context - 1) * max(beside) + alone - times.by_itself(LayerPass(whole, SERIAL)).ticks)


def _neighbours(context: System, block: int) -> tuple[System, int]:
    """Ranks that gather so many elements that each of them sends a ``block`` and gets one, as in a step of a ring.

    Two of them exchange theirs, if they are as far from each other as any: in one node, or in several. Else all
    gather as much in parts, which has the latency of more steps.
    """
    pair = replace(context, num_ranks=2)
    everywhere = [crosses_nodes(each) for each in (pair, context)]
    return (
        (pair, 2 * block)
        if len(set(everywhere)) == 1
        else (context, -(-block * context.num_ranks // (context.num_ranks - 1)))
    )


def _attentions(scenario: Scenario) -> Iterator[tuple[Scenario, Scenario, AttentionShape]]:
    """Each attention of a layer that takes what others have: to one block of keys, to all of them, and its shape."""
    workload = scenario.workload
    for op in workload.ops:
        shape = op.shape.kernel
        if isinstance(shape, AttentionShape) and shape.context > 1:
            block = replace(op.shape, kernel=replace(shape, kv_len=-(-shape.kv_len // shape.context)))
            reads = tuple(replace(each, made_by="", what=Made.OUTPUT) for each in op.reads)
            results = tuple(each for each in workload.results if each[1] == op.name)
            own = (
                replace(workload, ops=(replace(op, shape=of, reads=reads),), results=results, repeat=None, batch=None)
                for of in (block, op.shape)
            )
            one, whole = (replace(scenario, workload=each) for each in own)
            yield one, whole, shape
