"""Calls of a workload one by one: the tensor that each makes, as it lies on the ranks, and the kernel of one rank.

Operations say what a call on one rank makes. Here their operands lie on all ranks: a kernel that is no product takes
the part of a rank, and its result lies as its first operand does. ``dispatch`` and ``combine`` are calls of what they
are made of: casts, the exchange, what deals and adds rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...ir import ColumnPart, DType, Gpu, Shard, System, Tensor
from ...ir.operations import (
    CallResult,
    CollectiveOperation,
    Exchange,
    KernelOperation,
    Operand,
    Operation,
    OperationCall,
)
from ...ir.operations.base import EVEN, mismatch
from ...ir.operations.routing import COLLAPSE, COMBINE, DISPATCH, EXPAND, MERGE, SEND, SEND_BACK
from ...ir.operations.row_wise import CAST
from ...text.source import Span

GEMM, EXPERTS, ADD, GATHER, EXCHANGE = "gemm", "grouped_gemm", "add", "all_gather", "all_to_all"
ATTENTION = ("attention", "attention_back")
SUMS = ("reduce_scatter", "all_reduce")
_HEADS = ("heads", "kv_heads")
_TURNED = {Shard.ROWS: Shard.COLS, Shard.COLS: Shard.ROWS}


@dataclass(frozen=True, slots=True)
class CallOperand:
    """An operand of a call: a tensor as it lies on the ranks, or some of its columns, transposed or not."""

    tensor: Tensor
    transposed: bool = False
    part: ColumnPart | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is the tensor as it is."""
        return not self.transposed and self.part is None

    @property
    def seen(self) -> Tensor:
        """The tensor as the call sees it."""
        tensor = self.tensor if self.part is None else self.tensor.part(self.part)
        if not self.transposed:
            return tensor
        shard = _TURNED.get(tensor.shard, tensor.shard)
        return replace(tensor, name=f"{tensor.name}.t", rows=tensor.cols, cols=tensor.rows, shard=shard)


@dataclass(frozen=True, slots=True)
class WorkloadCall:
    """A call: its ``result`` is a tensor of the graph; ``partial``: ranks hold terms of a sum.

    ``arguments`` are those of the text, of all ranks.
    ``definition`` is the name that the text defines with it: its own, or that of a call around it.
    ``takes`` is the position of the operand that a collective may bring in parts.
    """

    operation: KernelOperation | CollectiveOperation
    operands: tuple[CallOperand, ...]
    arguments: Mapping[str, Any]
    made: CallResult
    result: Tensor
    definition: str
    span: Span
    partial: bool = False
    exchange: Exchange = EVEN
    takes: int = 0

    @property
    def name(self) -> str:
        """The name of its result."""
        return self.result.name

    @property
    def parts(self) -> dict[str, ColumnPart]:
        """Columns of its result that have words of their own."""
        found: dict[str, ColumnPart] = {}
        first, ranks = 0, self.result.cols // self.made.tensor.cols  # as many as have columns of it
        for word, cols in self.made.parts:
            found[word] = ColumnPart(word, first, cols * ranks, self.result.cols)
            first += cols * ranks
        return found


def call_of(
    operation: KernelOperation | CollectiveOperation,
    name: str,
    operands: tuple[CallOperand, ...],
    arguments: Mapping[str, Any],
    makers: Mapping[str, WorkloadCall],
    num_ranks: int,
    gpu: Gpu,
    definition: str,
    span: Span,
) -> WorkloadCall:
    """The call of ``operation`` on tensors of the graph; ``makers`` are the calls that made them, by tensor.

    Raises
    ------
    OperationError
        If the call cannot be.
    """
    exchange = _exchange_of(operands, makers)
    partial = _all_partial(operation, operands, makers)
    gathered = _gathers_keys(operation, operands, makers)
    seen = tuple(Operand(each.seen) if partial else _operand(operation, each, makers, gathered) for each in operands)
    heads = num_ranks if operation.name in ATTENTION and seen[0].tensor.shard is Shard.COLS else 1
    laid = seen[0].tensor.shard
    if operation.name == EXPERTS and seen[0].transposed:
        laid = _TURNED.get(laid, laid)  # the result has the experts of each rank, as the rows have
    of_all_ranks = gathered or operation.name == GEMM or isinstance(operation, CollectiveOperation)
    shared = dict(arguments)
    if not of_all_ranks:
        seen = tuple(_on_one_rank(operation, operand, laid, num_ranks) for operand in seen)
        shared = {word: _share(word, value, heads) for word, value in arguments.items()}
    made = operation.infer(OperationCall(operation, name, seen, shared, num_ranks, gpu, exchange))
    result = made.tensor if of_all_ranks else _laid_out(made.tensor, laid, num_ranks)
    if operation.name == GATHER:
        result = replace(result, shard=Shard.NONE)
    partial |= made.partial
    exchange = made.exchange or exchange
    return WorkloadCall(
        operation, operands, arguments, made, result, definition, span, partial, exchange, takes=int(gathered)
    )


def _exchange_of(operands: tuple[CallOperand, ...], makers: Mapping[str, WorkloadCall]) -> Exchange:
    """How the rows of the first operand that says it were sent."""
    made = (makers[each.tensor.name].exchange for each in operands if each.tensor.name in makers)
    return next((exchange for exchange in made if exchange != EVEN), EVEN)


def _all_partial(operation: Operation, operands: tuple[CallOperand, ...], makers: Mapping[str, WorkloadCall]) -> bool:
    """Whether terms of two sums are added on each rank, which gives those of one sum."""
    terms = [each.tensor.name in makers and makers[each.tensor.name].partial for each in operands]
    return operation.name == ADD and all(terms)


def _gathers_keys(operation: Operation, operands: tuple[CallOperand, ...], makers: Mapping[str, WorkloadCall]) -> bool:
    """Whether queries of each rank attend to keys and values that are gathered."""
    if operation.name != ATTENTION[0] or operands[0].seen.shard is Shard.COLS:
        return False
    first, *rest = (makers.get(each.tensor.name) for each in operands)
    gathered = [call is not None and call.operation.name == GATHER for call in (first, *rest)]
    return not gathered[0] and any(gathered)


def _operand(operation: Operation, operand: CallOperand, makers: Mapping[str, WorkloadCall], gathered: bool) -> Operand:
    """An operand as an operation sees it: declared, but for what a sum or a block of an exchange comes from.

    So do keys and values that are ``gathered``.
    """
    maker = makers.get(operand.tensor.name)
    if maker is None or not operand.is_plain:
        return Operand(operand.seen, transposed=operand.transposed)
    sums = operation.name in SUMS
    takes_blocks = isinstance(operation, KernelOperation) and EXCHANGE in operation.after
    exchanged = takes_blocks and maker.operation.name == EXCHANGE
    if sums or exchanged or (gathered and maker.operation.name == GATHER):
        return Operand(operand.tensor, maker.operation, maker.partial)
    if maker.partial:
        raise mismatch(f"{operand.tensor.name} is a part of a sum on each rank", "add it up: reduce_scatter(...)")
    return Operand(operand.seen)


def _on_one_rank(operation: Operation, operand: Operand, laid: Shard, num_ranks: int) -> Operand:
    """The part of a rank, as a whole; operands of a call lie alike, and of experts as they are seen."""
    tensor = operand.tensor
    if operation.name == EXPERTS and operand.transposed:
        laid = _TURNED.get(laid, laid)
    if operand.made_by is not None:
        return operand
    if tensor.shard is Shard.FLAT:
        raise mismatch(f"{tensor.name} is in flat shards, which are gathered first", f"all_gather({tensor.name})")
    if tensor.shard is not laid:
        raise mismatch(f"operands of {operation.name} lie alike, but {tensor.name} is {tensor.layout}")
    rows = tensor.rows // num_ranks if laid is Shard.ROWS else tensor.rows
    cols = tensor.cols // num_ranks if laid is Shard.COLS else tensor.cols
    return Operand(replace(tensor, rows=rows, cols=cols, shard=Shard.NONE), transposed=operand.transposed)


def _share(word: str, value: Any, ranks: int) -> Any:
    """The heads of one rank."""
    if word not in _HEADS or ranks == 1:
        return value
    if value % ranks:
        raise mismatch(f"{value} {word} do not divide among {ranks} ranks")
    return value // ranks


def _laid_out(tensor: Tensor, laid: Shard, num_ranks: int) -> Tensor:
    """The result of one rank on all ranks."""
    rows = tensor.rows * num_ranks if laid is Shard.ROWS else tensor.rows
    cols = tensor.cols * num_ranks if laid is Shard.COLS else tensor.cols
    return replace(tensor, rows=rows, cols=cols, shard=laid)


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
