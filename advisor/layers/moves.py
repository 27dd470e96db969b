"""Small changes of a joint schedule: one op carried out or placed differently, one priority; or all seams."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from ...compiler.ir import Graph, GraphChoice, GraphOp, OpMode, Seams
from ...compiler.planning.graph_order import collective_name
from .placement import is_free, leaves
from .way import Way

MOST_AHEAD = 2
"""Layers that collectives of declared tensors are at most ahead: more hold memory and hide no more."""


def small_changes(
    graph: Graph, ways: Mapping[str, Sequence[Way]], following: Mapping[str, Sequence[str]], choice: GraphChoice
) -> Iterator[GraphChoice]:
    """Yield schedules that differ from ``choice`` in one decision; ``following`` may be cut along pairs.

    The order of ``choice`` lists all ops. A change may be one that cannot be carried out.
    """
    for changed in (*_ways(graph, ways, choice), *_along(following, choice)):
        yield _cut(following, changed)
    yield from _fillers(graph, choice)
    yield from _beside(graph, choice)
    yield from _priorities(graph, choice)
    yield from _ahead(graph, choice)
    yield from _swaps(choice)


def with_other_seams(choice: GraphChoice) -> GraphChoice:
    """The same with ops that wait for the rows that they take, or for all that they read. Estimates know no seams."""
    return replace(choice, seams=Seams.ROWS if choice.seams is Seams.WHOLE else Seams.WHOLE)


def with_way(choice: GraphChoice, op: GraphOp, way: Way) -> GraphChoice:
    """Return ``choice`` with one op carried out in that way; a collective that is no part any more leaves the order."""
    modes = {mode.op: mode for mode in choice.modes} | {op.name: way.mode}
    order, late = choice.order, choice.late
    if not way.is_apart and op.is_pair:
        order, late = (tuple(name for name in names if name != collective_name(op)) for names in (order, late))
    modes_said = tuple(mode for mode in modes.values() if mode != OpMode(mode.op))
    return replace(choice, modes=modes_said, order=order, late=late)


def _ways(graph: Graph, ways: Mapping[str, Sequence[Way]], choice: GraphChoice) -> Iterator[GraphChoice]:
    """Each op in each other way."""
    chosen = {mode.op: mode for mode in choice.modes}
    for op in graph.ops:
        for way in ways[op.name]:
            if len(ways[op.name]) > 1 and way.mode != chosen.get(op.name):
                yield with_way(choice, op, way)


def _along(following: Mapping[str, Sequence[str]], choice: GraphChoice) -> Iterator[GraphChoice]:
    """Each GEMM that may be cut along the pair before it, cut so or not."""
    for name in chain.from_iterable(following.values()):
        along = tuple(each for each in choice.along if each != name)
        yield replace(choice, along=along if name in choice.along else (*along, name))


def _cut(following: Mapping[str, Sequence[str]], choice: GraphChoice) -> GraphChoice:
    """``choice`` without GEMMs along pairs that are not cut."""
    cut = {mode.op for mode in choice.modes if mode.body is not None}
    may = {name for pair, names in following.items() if pair in cut for name in names}
    return replace(choice, along=tuple(name for name in choice.along if name in may))


def other_paces(graph: Graph, ways: Mapping[str, Sequence[Way]], choice: GraphChoice) -> Iterator[GraphChoice]:
    """Each collective that is a part of its own, at each lower rate."""
    chosen = {mode.op: mode for mode in choice.modes}
    for op in graph.ops:
        mode = chosen.get(op.name)
        if mode is not None and any(way.is_whole and way.mode == mode for way in ways[op.name]):
            yield from (with_way(choice, op, way) for way in ways[op.name] if way.is_paced and way.mode != mode)


def _fillers(graph: Graph, choice: GraphChoice) -> Iterator[GraphChoice]:
    """Each kernel that nothing waits for, at each other place."""
    for name in leaves(graph):
        rest = [each for each in choice.order if each != name]
        for place in range(len(rest) + 1):
            order = (*rest[:place], name, *rest[place:])
            if order != choice.order:
                yield replace(choice, order=order)


def _beside(graph: Graph, choice: GraphChoice) -> Iterator[GraphChoice]:
    """Each collective that nothing must come before, with each other kernel or behind the kernels before it."""
    kernels = [op.name for op in graph.ops if not op.workload.is_collective]
    beside = dict(choice.beside)
    for op in graph.ops:
        if op.workload.is_collective and is_free(op):
            for kernel in kernels:
                if beside.get(op.name) != kernel:
                    yield replace(choice, beside=tuple((beside | {op.name: kernel}).items()))
            if op.name in beside:
                without = tuple((name, kernel) for name, kernel in choice.beside if name != op.name)
                yield replace(choice, beside=without)


def _priorities(graph: Graph, choice: GraphChoice) -> Iterator[GraphChoice]:
    """Sums first or not, and each kernel that nothing waits for last or not."""
    yield replace(choice, sums_first=not choice.sums_first)
    for name in leaves(graph):
        low = tuple(each for each in choice.low if each != name) if name in choice.low else (*choice.low, name)
        yield replace(choice, low=low)


def _ahead(graph: Graph, choice: GraphChoice) -> Iterator[GraphChoice]:
    """What is brought of declared tensors a layer earlier, or later."""
    if brings_ahead(graph):
        for ahead in {max(0, choice.ahead - 1), min(MOST_AHEAD, choice.ahead + 1)} - {choice.ahead}:
            yield replace(choice, ahead=ahead, beside=() if ahead else choice.beside)


def brings_ahead(graph: Graph) -> bool:
    """Whether layers repeat that begin with collectives of declared tensors, such as weights."""
    carried = {} if graph.repeat is None else graph.repeat.carried
    return graph.repeat is not None and any(
        op.workload.is_collective and is_free(op) and not any(read.tensor in carried for read in op.reads)
        for op in graph.ops
    )


def _swaps(choice: GraphChoice) -> Iterator[GraphChoice]:
    """Each two neighbours of the order the other way round."""
    order = choice.order
    for place in range(len(order) - 1):
        swapped = (*order[:place], order[place + 1], order[place], *order[place + 2 :])
        yield replace(choice, order=swapped)
