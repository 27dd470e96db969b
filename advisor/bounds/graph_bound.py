"""A lower bound on the time of a graph under any schedule: what its ops need of each resource, added up.

Ops share the SMs, the links and the memory of a rank, and each needs of them at least what it needs alone. An op whose
operand is not there by rows begins behind the op that makes it: so does the longest such path take the bounds of its
ops together.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from ...compiler.ir import Graph, GraphOp, Made, Scenario, ShouldStop, System, Workload, heeding
from ...compiler.planning.graph_batches import batch_counts, in_batches
from ...compiler.text.quantities import bytes_text
from ...simcore.kernels.min_work import least_bytes, least_sm_ticks
from .copy_modes import served_ticks
from .kernels import lone_kernel
from .least_traffic import least_traffic
from .link_loads import ports_of
from .lower_bound import ASSUMPTIONS, Bound, lower_bound
from .terms import Term

GRAPH_ASSUMPTIONS = (
    *ASSUMPTIONS,
    "every op runs; what it reads and writes passes memory, whichever op made it",
    "no library call copies: links are as fast as copy engines and SMs have them",
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
    scenarios = {op.name: Scenario(op.name, system, op.workload) for op in graph.ops}
    terms = tuple(_terms(system, graph, scenarios))
    largest = max(terms, key=lambda term: term.ticks)
    return Bound(max(1, largest.ticks), largest.name, terms, GRAPH_ASSUMPTIONS)


def _terms(system: System, graph: Graph, scenarios: dict[str, Scenario]) -> Iterator[Term]:
    layers = graph.num_layers
    work = layers * sum(map(_sm_ticks, scenarios.values())) // system.gpu.sms
    yield Term("work", work, f"the kernels of {layers * len(graph.ops)} ops fill all {system.gpu.sms} SMs this long")
    memory = layers * sum(map(_memory_bytes, scenarios.values()))
    ticks = served_ticks(memory, system.gpu.hbm.achieved_bytes_per_s, system.gpu.line_bytes)
    yield Term("hbm", ticks, f"{bytes_text(float(memory))} of operands and results pass the memory of a rank")
    links = layers * _link_ticks(scenarios.values(), system.gpu.line_bytes)
    yield Term("links", links, "what the collectives of all ops move passes the links of one rank")
    ticks, path = _longest_path(graph, scenarios)
    yield Term("path", ticks, f"one after the other, in one layer: {', '.join(path)}")


def _sm_ticks(scenario: Scenario) -> int:
    kernel = lone_kernel(scenario)
    return least_sm_ticks(scenario) if kernel is None else kernel.num_units * kernel.unit_ticks


def _memory_bytes(scenario: Scenario) -> int:
    kernel = lone_kernel(scenario)
    return least_bytes(scenario) if kernel is None else kernel.hbm_read_bytes + kernel.hbm_write_bytes


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


def _longest_path(graph: Graph, scenarios: dict[str, Scenario]) -> tuple[int, tuple[str, ...]]:
    """The longest time of ops of which each needs the one before as a whole, and their names."""
    longest: dict[str, tuple[int, tuple[str, ...]]] = {}
    bounds: dict[Workload, int] = {}  # batches are alike

    def path_to(op: GraphOp) -> tuple[int, tuple[str, ...]]:
        if op.name not in longest:
            if op.workload not in bounds:
                bounds[op.workload] = lower_bound(scenarios[op.name]).ticks
            ticks, names = max((path_to(graph.op(name)) for name in _behind(op)), default=(0, ()))
            longest[op.name] = ticks + bounds[op.workload], (*names, op.name)
        return longest[op.name]

    return max(path_to(op) for op in graph.ops)


def _behind(op: GraphOp) -> Iterator[str]:
    """The ops behind whose end all of ``op`` begins: rows, and operands of a kernel behind a collective, come later."""
    for read in op.reads:
        whole = read.what is Made.OUTPUT and not read.by_rows
        if read.made_by and whole and (read.moves or not op.workload.pattern.consumes):
            yield read.made_by
