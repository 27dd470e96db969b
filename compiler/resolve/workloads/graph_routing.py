"""``dispatch`` and ``combine`` as calls of what they are made of: casts, the exchange, what deals and adds rows."""

from collections.abc import Mapping
from typing import Any

from ...ir import DType, System
from ...ir.operations import CollectiveOperation, KernelOperation
from ...ir.operations.base import mismatch
from ...ir.operations.routing import COLLAPSE, COMBINE, DISPATCH, EXPAND, MERGE, SEND, SEND_BACK
from ...ir.operations.row_wise import CAST

Link = tuple[KernelOperation | CollectiveOperation, Mapping[str, Any]]
"""A call of a chain with its arguments; it takes what the one before makes."""


def chain_of(
    operation: KernelOperation | CollectiveOperation, arguments: Mapping[str, Any], dtype: DType, system: System
) -> tuple[Link, ...]:
    """The calls in turn that ``operation`` is made of, on a tensor of type ``dtype``; most are one.

    Raises
    ------
    OperationError
        If rows go to more nodes than the system has.
    """
    if operation is DISPATCH:
        _check_nodes(arguments, system)
        sent = {name: value for name, value in arguments.items() if name != "type"}
        wanted = arguments.get("type", dtype)
        cast: tuple[Link, ...] = ((CAST, {"type": wanted}),) if wanted is not dtype else ()
        return (*cast, (SEND, sent), (EXPAND, {}))
    if operation is COMBINE:
        return ((COLLAPSE, arguments), (SEND_BACK, {}), (MERGE, {}))
    return ((operation, arguments),)


def _check_nodes(arguments: Mapping[str, Any], system: System) -> None:
    size = system.fabric.node_size
    nodes, known = arguments.get("nodes", 1), system.num_ranks // size if size else 1
    if nodes > known:
        raise mismatch(f"rows go to {nodes} nodes, and the system has {known}", "leave nodes out")
