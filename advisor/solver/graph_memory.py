"""Memory of a rank for a graph: what the tensors of its file take, layer by layer, and what a schedule stages."""

from ...compiler.codes import Code
from ...compiler.ir import Graph, GraphScenario, Rejection
from ...compiler.planning.build import ScheduleError
from ...compiler.text.quantities import bytes_text
from .memory import share_of_rank


def held_bytes(graph: Graph, num_ranks: int) -> int:
    """Memory of a rank for the tensors that the file declares: each layer has its own, but for what it is handed."""
    made = {tensor for tensor, _, _ in graph.results}
    layers, handed = (graph.repeat.count, graph.repeat.as_input) if graph.repeat is not None else (1, "")
    declared = (tensor for tensor in graph.tensors if tensor.name not in made)
    return sum(share_of_rank(tensor, num_ranks) * (1 if tensor.name == handed else layers) for tensor in declared)


def check_graph_memory(scenario: GraphScenario, staging_bytes: int = 0) -> None:
    """Refuse a graph whose tensors, with ``staging_bytes``, do not fit into the memory of a GPU.

    Raises
    ------
    ScheduleError
        If they do not.
    """
    graph, gpu = scenario.graph, scenario.system.gpu
    held = held_bytes(graph, scenario.num_ranks)
    if held + staging_bytes > gpu.hbm.capacity_bytes:
        layers = f" of {graph.repeat.count} layers" if graph.repeat is not None else ""
        message = f"the tensors{layers} take {bytes_text(held)} of a rank"
        if staging_bytes:
            message += f", and the schedule stages {bytes_text(staging_bytes)}"
        has = f"{gpu.name} has {bytes_text(gpu.hbm.capacity_bytes)}"
        raise ScheduleError(Rejection(Code.MGS402, f"{message}, but {has}", "repeat fewer layers, or use more GPUs"))
