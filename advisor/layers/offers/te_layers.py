"""The layers of Transformer Engine in a graph: which op is ``fc1_dgrad``, and what its weight gradient gathers.

A column-parallel layer (``qkv``, ``fc1``) gathers before its product, a row-parallel one (``proj``, ``fc2``) scatters
behind it; backward it is the other way round. The two with an attention between them are ``qkv`` and ``proj``. Names
are those of ``initialize_ub`` in transformer_engine/pytorch/module/base.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ....compiler.ir import Graph, GraphOp, Made, Pattern, Read

GATHERS, SCATTERS = Pattern.AG_GEMM, Pattern.GEMM_RS


@dataclass(frozen=True, slots=True)
class TeLayer:
    """A product of the graph with a collective.

    ``op`` is the pair, ``wgrad`` the product of its weight's gradient, ``gather`` what brings an operand of that;
    both empty where the graph has none.
    """

    name: str
    op: str
    gathers: bool
    backward: bool
    wgrad: str = ""
    gather: str = ""

    @property
    def wgrad_name(self) -> str:
        """What the layer is called while its weight's gradient is computed."""
        return self.name.replace("_dgrad", "_wgrad")


def te_layers(graph: Graph) -> tuple[TeLayer, ...]:
    """Return the layers of ``graph``, in its order; several ops may have one name."""
    return tuple(layer for op in graph.ops if (layer := _layer(graph, op)) is not None)


def _layer(graph: Graph, op: GraphOp) -> TeLayer | None:
    weight = _weight(op)
    if weight is None:
        return None
    gathers = op.workload.pattern is GATHERS
    beside_attention = _meets_attention(graph, op, "attention_back" if weight.transposed else "attention")
    if gathers is not weight.transposed:
        block = "qkv" if beside_attention else "fc1"
    else:
        block = "proj" if beside_attention else "fc2"
    if not weight.transposed:
        return TeLayer(f"{block}_fprop", op.name, gathers, backward=False)
    wgrad = _wgrad(graph, op)
    gather = "" if wgrad is None or gathers else _gather(graph, wgrad)
    return TeLayer(f"{block}_dgrad", op.name, gathers, True, "" if wgrad is None else wgrad.name, gather)


def _weight(op: GraphOp) -> Read | None:
    """The declared operand of the product of a pair; None where the op is no pair of a product."""
    if op.workload.pattern not in (GATHERS, SCATTERS) or op.workload.kernel is not None or len(op.reads) != 2:
        return None
    declared = [read for read in op.reads if not read.made_by and not read.moves]
    return declared[-1] if declared else None


def _meets_attention(graph: Graph, op: GraphOp, kernel: str) -> bool:
    """Whether that kernel lies behind a pair that gathers, or before one that scatters, with no collective between."""
    seen, ahead = {op.name}, [op]
    while ahead:
        at = ahead.pop()
        near = _readers(graph, at) if op.workload.pattern is GATHERS else _makers(graph, at)
        for each in near:
            if each.workload.kernel is not None and each.workload.kernel.operation == kernel:
                return True
            if each.workload.moved is None and each.name not in seen:
                seen.add(each.name)
                ahead.append(each)
    return False


def _readers(graph: Graph, op: GraphOp) -> Iterator[GraphOp]:
    return (each for each in graph.ops if any(read.made_by == op.name for read in each.reads))


def _makers(graph: Graph, op: GraphOp) -> Iterator[GraphOp]:
    return (graph.op(read.made_by) for read in op.reads if read.made_by)


def _wgrad(graph: Graph, op: GraphOp) -> GraphOp | None:
    """The product of the gradient of a pair's weight: it takes the pair's gradient, and its activation transposed."""
    taken = next((read for read in op.reads if read.moves or read.made_by), None)
    for each in graph.ops:
        if each.workload.pattern is not Pattern.GEMM or not any(read.transposed for read in each.reads):
            continue
        gathered = any(read.made_by == op.name and read.what is Made.MOVED for read in each.reads)
        same = taken is not None and any(read.name == taken.name for read in each.reads)
        if gathered or (same and op.workload.pattern is SCATTERS):
            return each
    return None


def _gather(graph: Graph, wgrad: GraphOp) -> str:
    """The collective of its own that brings an operand of ``wgrad``, empty without one."""
    makers = (each for each in _makers(graph, wgrad) if each.workload.pattern is Pattern.ALL_GATHER)
    return next((each.name for each in makers), "")
