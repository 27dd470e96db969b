"""Join the parts of one operation that a group of threadblocks shares: one transfer of a plan, by several SMs."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from .buffers import BufferSpace
from .values import Event


def joined(events: Sequence[Event], seen: Sequence[int], space: BufferSpace) -> tuple[list[Event], list[int]]:
    """Return the events with groups joined, each behind those that it knows, and which of them are seen at each rank.

    Groups whose parts wait for each other stay apart.
    """
    groups = list(_groups(events, space))
    if not groups:
        return list(events), list(seen)
    first = list(range(len(events)))  # the event that stands for each
    for group in groups:
        for number in group:
            first[number] = group[0]
    known: dict[int, set[int]] = defaultdict(set)
    for number, event in enumerate(events):
        known[first[number]] |= {first[other] for other in _numbers(event.known)}
    try:
        order = list(TopologicalSorter({number: sorted(before) for number, before in known.items()}).static_order())
    except CycleError:
        return list(events), list(seen)
    places = {number: place for place, number in enumerate(order)}
    counts = {group[0]: sum(events[number].count for number in group) for group in groups}
    made, closed = list[Event](), list[int]()
    for number in order:
        bits = 0
        for other in known[number]:
            bits |= 1 << places[other] | closed[places[other]]
        closed.append(bits)
        made.append(replace(events[number], known=bits, count=counts.get(number, events[number].count)))
    shown = [sum({1 << places[first[number]] for number in _numbers(each)}) for each in seen]
    return made, shown


def _groups(events: Sequence[Event], space: BufferSpace) -> Iterator[list[int]]:
    """Yield the numbers of the events of each group, in the order of their parts, which lie one behind the other."""
    parts: dict[object, list[list[int]]] = {}
    for number, event in enumerate(events):
        op = event.op
        if op.group > 1:
            key = event.rank, op.name, op.sources, op.targets, op.group, event.action
            parts.setdefault(key, [[] for _ in range(op.group)])[op.part].append(number)
    for found in parts.values():
        if len({len(each) for each in found}) == 1:
            for group in map(list, zip(*found, strict=True)):
                if _is_whole([events[number] for number in group], space):
                    yield group


def _is_whole(group: Sequence[Event], space: BufferSpace) -> bool:
    pairs = pairwise(group)
    one_behind = all(one.piece + one.count == other.piece for one, other in pairs)
    return one_behind and len({event.piece // space.per_block for event in group}) == 1


def _numbers(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low
