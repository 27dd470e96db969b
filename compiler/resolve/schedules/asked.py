"""What an ``explore`` block asks about and its workload has not: batches of a pair, some implementations of a graph."""

from collections.abc import Iterator

from ...codes import Code
from ...ir import OF_LAYERS, Explore, Graph, Rejection, Workload
from ...text.diagnostics import listing
from .explore import BATCHES, IMPLEMENTATIONS
from .implementation import reject_implementation


def asked_in_vain(explore: Explore, workload: Workload | Graph) -> Iterator[tuple[str, Rejection]]:
    """The words of a block that ask about what a workload has not, and why."""
    batches = explore.values(BATCHES)
    if isinstance(workload, Graph):
        for count in batches:
            rejection = _no_batches(workload, count)
            if rejection is not None:
                yield BATCHES, rejection
        for implementation in explore.implementations:
            if implementation.name not in OF_LAYERS:
                message = f"{workload.name} is a graph: what {implementation.name} does with its ops is not known"
                hint = f"it is known of {listing(OF_LAYERS)}; or ask about each pair as a workload of its own"
                yield IMPLEMENTATIONS, Rejection(Code.MGS520, message, hint)
        return
    if batches:
        message = f"{workload.name} is a pair, and is computed in one batch"
        yield BATCHES, Rejection(Code.MGS520, message, "batches are of graphs; chunks cut a pair")
    for implementation in explore.implementations:
        rejection = reject_implementation(implementation, workload)
        if rejection is not None:
            yield IMPLEMENTATIONS, rejection


def _no_batches(graph: Graph, count: int) -> Rejection | None:
    """Why a graph cannot be computed in so many batches, None if it can."""
    from ...planning.graph_batches import in_batches  # files without graphs do not wait for it
    from ...planning.graph_order import GraphPlanError

    try:
        in_batches(graph, count)
    except GraphPlanError as error:
        return error.rejection
    return None
