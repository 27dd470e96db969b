"""A lower bound on the time of a graph under any schedule: what its ops need of each resource, added up.

Kernels may be cut into pieces (rows, experts, tiles) and fused with their neighbours, so that ops behind each other
overlap and hand over on chip what they make. What adds up is what pieces cannot save: the SM time of products, the
bytes over the links of a rank, and the traffic of inputs and results. Beside these counts the op that takes most alone.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from ...compiler.ir import (
    ElementwiseShape,
    Graph,
    GraphOp,
    GroupedGemmShape,
    Made,
    Read,
    Scenario,
    Shard,
    ShouldStop,
    System,
    Tensor,
    heeding,
)
from ...compiler.planning.graph_batches import batch_counts, in_batches
from ...compiler.text.quantities import bytes_text
from ...simcore.kernels.dispatch import least_sm_ticks
from ...simcore.lower.collective import with_fastest_links
from .copy_modes import served_ticks
from .kernels import kernel_limits
from .least_traffic import least_traffic
from .link_loads import ports_of
from .lower_bound import ASSUMPTIONS, Bound, lower_bound
from .terms import Term

GRAPH_ASSUMPTIONS = (
    *ASSUMPTIONS,
    "every op runs, in whatever pieces, fused with whichever others; row-wise kernels then cost nothing",
    "inputs lie in memory at the beginning, results at the end; what ops hand to each other need not pass it",
    "tensors have the type that the file says: a kernel whose weights are of fewer bits reads less",
)


def graph_bound(system: System, graph: Graph, should_stop: ShouldStop | None = None) -> Bound:
    """Return the bound for ``graph``, all its layers, in whichever number of batches: the least of all.

    Raises
    ------
    Cancelled
        If ``should_stop`` returned true.
    """
    with heeding(should_stop):
        bounds = [_bound(system, in_batches(graph, count)) for count in batch_counts(graph)]
    return min(bounds, key=lambda bound: bound.ticks)


def _bound(system: System, graph: Graph) -> Bound:
    system = with_fastest_links(system)
    scenarios = {op.name: Scenario(op.name, system, op.workload) for op in graph.ops if not _is_row_wise(op)}
    terms = tuple(_terms(system, graph, scenarios))
    largest = max(terms, key=lambda term: term.ticks)
    return Bound(max(1, largest.ticks), largest.name, terms, GRAPH_ASSUMPTIONS)


def _is_row_wise(op: GraphOp) -> bool:
    """Whether a neighbour may do it in passing."""
    return isinstance(op.workload.compute, ElementwiseShape) and not op.workload.pattern.overlaps


def _terms(system: System, graph: Graph, scenarios: dict[str, Scenario]) -> Iterator[Term]:
    gpu, layers = system.gpu, graph.num_layers
    starts = [limits.start for each in scenarios.values() if least_sm_ticks(each) for limits in kernel_limits(each)]
    work = layers * sum(map(least_sm_ticks, scenarios.values())) // gpu.sms
    products = f"the products of {layers * len(scenarios)} ops"
    yield Term("work", min(starts, default=0) + work, f"{products} fill all {gpu.sms} SMs this long")
    memory = sum(_memory_bytes(system, graph))
    ticks = served_ticks(memory, gpu.hbm.achieved_bytes_per_s, gpu.line_bytes)
    yield Term("hbm", ticks, f"{bytes_text(float(memory))} of inputs and results pass the memory of a rank")
    links = layers * _link_ticks(scenarios.values(), gpu.line_bytes)
    yield Term("links", links, "what the collectives of all ops move passes the links of one rank")
    by_workload = {each.workload: name for name, each in scenarios.items() if each.workload.moved}  # batches are alike
    if by_workload:
        alone = {name: lower_bound(scenarios[name], in_memory=False).ticks for name in by_workload.values()}
        longest = max(alone, key=lambda name: alone[name])
        yield Term("op", alone[longest], f"{longest} takes this long by itself, in whatever pieces")


def _memory_bytes(system: System, graph: Graph) -> Iterator[int]:
    """Bytes of inputs and results at a rank: once in each layer, but what layers hand on once in all."""
    carried = {} if graph.repeat is None else graph.repeat.carried
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    inputs = defaultdict[str, dict[str, int]](dict)  # by tensor: what is read of each of its parts
    for op in graph.ops:
        for read in op.reads:
            if not read.made_by and read.tensor in tensors:
                parts, num_bytes = inputs[read.tensor], _read_bytes(system, tensors[read.tensor], op, read)
                parts[read.name] = max(num_bytes, parts.get(read.name, 0))
    for name, parts in inputs.items():
        num_bytes = min(_rank_bytes(system, tensors[name]), sum(parts.values()))
        yield num_bytes * (1 if name in carried else graph.num_layers)
    taken = {read.made_by for op in graph.ops for read in op.reads if read.what is Made.OUTPUT}
    for op in graph.ops:
        made = [name for name, by, what in graph.results if by == op.name and what is Made.OUTPUT and name in tensors]
        if made and op.name not in taken:
            num_bytes = min(_rank_bytes(system, tensors[name]) for name in made)  # not the parts that are summed
            yield num_bytes * (1 if set(made) & set(carried.values()) else graph.num_layers)


def _read_bytes(system: System, tensor: Tensor, op: GraphOp, read: Read) -> int:
    """What an op reads of an input: of experts the weights of those that have rows."""
    compute, num_bytes = op.workload.compute, _rank_bytes(system, tensor)
    if read.part is not None:
        num_bytes = num_bytes * read.part.cols // read.part.of
    if isinstance(compute, GroupedGemmShape) and read != op.reads[0]:
        return num_bytes * sum(rows > 0 for rows in compute.rows) // len(compute.rows)
    return num_bytes


def _rank_bytes(system: System, tensor: Tensor) -> int:
    return tensor.num_bytes // (1 if tensor.shard is Shard.NONE else system.num_ranks)


def _link_ticks(scenarios: Iterable[Scenario], line_bytes: int) -> int:
    """The time of the busiest links of a rank, in or out, with the bytes of all ops."""
    busiest = 0
    into, out = Counter[int](), Counter[int]()
    ports = None
    for scenario in scenarios:
        moved = least_traffic(scenario)
        if moved is not None:
            ports = ports_of(scenario)
            into.update(dict(enumerate(moved.into)))
            out.update(dict(enumerate(moved.out)))
    if ports is not None:
        for passed, rates in ((into, ports.into), (out, ports.out)):
            times = (served_ticks(passed[rank], rate, line_bytes) for rank, rate in enumerate(rates))
            busiest = max(busiest, *times)
    return busiest
