"""Batches written out: a graph whose rows are computed in several batches, each with ops of its own.

What is added up over rows, as the gradient of a weight is, has a part in each batch. Where ranks add it up too they do
that once: ops of batches before the last are kernels alone, and the last one adds to what they leave.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..codes import Code
from ..ir import Graph, GraphOp, Pattern, Read, Rejection, in_batch
from .graph_halves import kernel_alone
from .graph_order import GraphPlanError


def batch_counts(graph: Graph) -> tuple[int, ...]:
    """The numbers of batches in which ``graph`` can be computed, 1 among them."""
    return (1, *(count for count, _ in graph.batch.cuts)) if graph.batch is not None else (1,)


def in_batches(graph: Graph, count: int) -> Graph:
    """``graph`` in ``count`` batches: the ops of each on its share of the rows, of one batch behind the other op by op.

    Weights are shared, and so is what is made of them alone. One batch is the graph itself.

    Raises
    ------
    GraphPlanError
        If the graph cannot be computed in so many.
    """
    if count == 1:
        return graph
    cuts = dict(graph.batch.cuts) if graph.batch is not None else {}
    if graph.batch is None or count not in cuts:
        raise GraphPlanError(_rejection(graph, count), "batches")
    cut = cuts[count]
    names = op_names(graph, count)
    own = {*graph.batch.inputs, *(tensor for tensor, op, _ in cut.results if len(names[op]) > 1)}

    def named(name: str, number: int) -> str:
        return in_batch(name, number) if name in own or len(names.get(name, ())) > 1 else name

    def numbers(name: str) -> range:
        return range(count if name in own else 1)

    return replace(
        cut,
        ops=tuple(
            _op(replace(op, reads=tuple(_read(each, number, own, names) for each in op.reads)), names[op.name], number)
            for op in cut.ops
            for number in range(len(names[op.name]))
        ),
        tensors=tuple(replace(one, name=named(one.name, k)) for one in cut.tensors for k in numbers(one.name)),
        results=tuple((named(name, k), named(op, k), what) for name, op, what in cut.results for k in numbers(name)),
        repeat=None if cut.repeat is None else replace(cut.repeat, batches=count),
    )


def op_names(graph: Graph, count: int) -> dict[str, tuple[str, ...]]:
    """For each op of ``graph`` its names in ``count`` batches: one where it takes nothing that is cut."""
    cut = set(graph.batch.inputs) if graph.batch is not None else set[str]()
    made: set[str] = set()  # ops of which each batch has its own
    for op in graph.ops:
        if any(read.tensor in cut or read.made_by in made for read in op.reads):
            made.add(op.name)
    numbers = range(count)
    return {
        op.name: tuple(in_batch(op.name, k) for k in numbers) if count > 1 and op.name in made else (op.name,)
        for op in graph.ops
    }


def labels_of(graph: Graph, count: int) -> dict[str, str]:
    """What each op of ``graph`` in ``count`` batches is, for people."""
    return {op.name: op.label for op in in_batches(graph, count).ops}


def is_summed_last(op: GraphOp) -> bool:
    """Whether ranks add up what an op makes of rows that are cut: behind the last batch, once."""
    return op.workload.pattern in (Pattern.GEMM_RS, Pattern.GEMM_AR) and op.reads[0].transposed


def _op(op: GraphOp, names: Sequence[str], number: int) -> GraphOp:
    """An op in one of its batches."""
    made = replace(op, name=names[number], batch=number)
    if len(names) == 1 or not is_summed_last(op):
        return made
    if number < len(names) - 1:
        return replace(made, workload=kernel_alone(op.workload))
    before = tuple(Read(in_batch(op.workload.output, k), name, adds=True) for k, name in enumerate(names[:-1]))
    return replace(made, reads=(*op.reads, *before))


def _read(read: Read, number: int, own: set[str], names: Mapping[str, tuple[str, ...]]) -> Read:
    """The operand in a batch: a tensor, or what an op makes, of its own or of all."""
    if len(names.get(read.made_by, ())) > 1:
        return replace(read, tensor=in_batch(read.tensor, number), made_by=in_batch(read.made_by, number))
    return replace(read, tensor=in_batch(read.tensor, number)) if read.tensor in own else read


def _rejection(graph: Graph, count: int) -> Rejection:
    if graph.batch is None:
        message = f"{graph.name} does not say which rows may be computed apart"
        return Rejection(Code.MGS209, message, "say it in the workload: batch x by 4096")
    inputs, rows = ", ".join(graph.batch.inputs), graph.batch.rows
    possible = ", ".join(map(str, batch_counts(graph)))
    message = f"{inputs} by {rows} rows cannot be cut into {count} batches"
    return Rejection(Code.MGS304, message, f"numbers of batches that are possible: {possible}")
