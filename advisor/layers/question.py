"""What a program may ask about a layer: a request, or the graph of a file."""

from ...compiler.from_model.request import LayerRequest, layer_scenario
from ...compiler.ir import GraphScenario


def graph_of(question: LayerRequest | GraphScenario) -> GraphScenario:
    """Return the graph that a question is about.

    Raises
    ------
    RequestError
        If a request does not fit together.
    """
    if isinstance(question, GraphScenario):
        return question
    if not isinstance(question, LayerRequest):
        raise TypeError(f"a question about a layer is a LayerRequest or a GraphScenario, not {type(question).__name__}")
    return layer_scenario(question)
