"""Layers written out: a graph with ``repeat`` as one graph of so many layers, and its schedule likewise."""

from dataclasses import replace

from ..ir import Graph, GraphChoice, GraphOp, Made, Read
from .graph_batches import in_batches


def written_out(graph: Graph, choice: GraphChoice, layers: int = 1) -> tuple[Graph, GraphChoice]:
    """``graph`` in the batches of ``choice`` and so many layers, and ``choice`` for all of them.

    Raises
    ------
    GraphPlanError
        If the graph cannot be computed in so many batches.
    """
    graph, choice = in_batches(graph, choice.batches), replace(choice, batches=1)
    return (graph, choice) if layers == 1 else (layers_of(graph, layers), choice_of_layers(choice, layers))


def in_layer(name: str, layer: int) -> str:
    """The name of an op, or a tensor, in a layer, counted from 1; in the first it is its own.

    >>> in_layer("dh", 1), in_layer("dh", 3)
    ('dh', 'dh@3')
    """
    return name if layer == 1 else f"{name}@{layer}"


def part_in_layer(name: str, layer: int) -> str:
    """The name of a part, which may be the collective of an op, in a layer.

    >>> part_in_layer("dh.all_gather", 3)
    'dh@3.all_gather'
    """
    op, dot, collective = name.partition(".")
    return f"{in_layer(op, layer)}{dot}{collective}"


def own_name(name: str) -> str:
    """The name of an op in the first layer, from that in any.

    >>> own_name("dh@3")
    'dh'
    """
    return name.partition("@")[0]


def layers_of(graph: Graph, layers: int) -> Graph:
    """``graph`` with so many layers, each of which takes the result of the one before as its input."""
    made = {tensor: (op, what) for tensor, op, what in graph.results}
    ops = tuple(_op(graph, op, layer, made) for layer in range(1, layers + 1) for op in graph.ops)
    results = tuple(
        (in_layer(tensor, layer), in_layer(op, layer), what)
        for layer in range(1, layers + 1)
        for tensor, op, what in graph.results
    )
    return replace(graph, ops=ops, results=results, repeat=None)


def _op(graph: Graph, op: GraphOp, layer: int, made: dict[str, tuple[str, Made]]) -> GraphOp:
    reads = tuple(_read(graph, read, layer, made) for read in op.reads)
    return replace(op, name=in_layer(op.name, layer), reads=reads, layer=layer)


def _read(graph: Graph, read: Read, layer: int, made: dict[str, tuple[str, Made]]) -> Read:
    if read.made_by:
        return replace(read, tensor=in_layer(read.tensor, layer), made_by=in_layer(read.made_by, layer))
    carried = graph.repeat.carried if graph.repeat is not None and layer > 1 else {}
    if read.tensor not in carried:
        return read
    result = carried[read.tensor]
    op, what = made[result]
    return replace(read, tensor=in_layer(result, layer - 1), made_by=in_layer(op, layer - 1), what=what)


def choice_of_layers(choice: GraphChoice, layers: int) -> GraphChoice:
    """``choice`` for each of so many layers; the order is that of one after the other."""
    numbers = range(1, layers + 1)
    return replace(
        choice,
        modes=tuple(replace(mode, op=in_layer(mode.op, layer)) for layer in numbers for mode in choice.modes),
        order=tuple(part_in_layer(name, layer) for layer in numbers for name in choice.order),
        streams=tuple((in_layer(name, layer), stream) for layer in numbers for name, stream in choice.streams),
        beside=tuple((in_layer(name, n), in_layer(kernel, n)) for n in numbers for name, kernel in choice.beside),
        low=tuple(in_layer(name, layer) for layer in numbers for name in choice.low),
        along=tuple(in_layer(name, layer) for layer in numbers for name in choice.along),
        late=tuple(part_in_layer(name, layer) for layer in numbers for name in choice.late),
    )
