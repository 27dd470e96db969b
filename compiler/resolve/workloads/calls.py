"""Calls of a workload one by one: the tensor that each makes, as it lies on the ranks, and the kernel of one rank.

Operations say what a call on one rank makes. Here their operands lie on all ranks: a kernel that is no product takes
the part of a rank, and its result lies as its first operand does. ``dispatch`` and ``combine`` are calls of what they
are made of: casts, the exchange, what deals and adds rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...ir import ColumnPart, Shard, System, Tensor
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
from ...ir.operations.routing import COLLAPSE, COMBINE, DISPATCH, EXPAND, GIVE, MERGE, PICK, SEND, SEND_BACK
from ...ir.operations.row_wise import CAST
from ...text.diagnostics import Span

GEMM, EXPERTS, BY_HEAD = "gemm", "grouped_gemm", "batched_gemm"
ADD, GATHER, EXCHANGE = "add", "all_gather", "all_to_all"
ATTENTION = ("attention", "attention_back")
SUMS = ("reduce_scatter", "all_reduce")
_HEADS = ("heads", "kv_heads")
_TURNED = {Shard.ROWS: Shard.COLS, Shard.COLS: Shard.ROWS}
_SPLIT_EXPERTS = {(Shard.NONE, Shard.COLS): Shard.COLS, (Shard.COLS, Shard.ROWS): Shard.NONE}


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
    """A call: its ``result`` is a tensor of the workload; ``partial``: ranks hold terms of a sum.

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
    system: System,
    definition: str,
    span: Span,
) -> WorkloadCall:
    """The call of ``operation`` on tensors of the workload; ``makers`` are the calls that made them, by tensor.

    Raises
    ------
    OperationError
        If the call cannot be.
    """
    num_ranks, exchange = system.num_ranks, _exchange_of(operands, makers)
    partial = _all_partial(operation, operands, makers)
    gathered = _gathers_keys(operation, operands, makers)
    seen = tuple(Operand(each.seen) if partial else _operand(operation, each, makers, gathered) for each in operands)
    layout = seen[0].tensor.shard
    if operation.name == EXPERTS and seen[0].transposed:
        layout = _TURNED.get(layout, layout)  # the result has the experts of each rank, as the rows have
    split = _split_experts(operation, seen)
    opaque = isinstance(operation, KernelOperation) and operation.opaque
    of_all_ranks = gathered or opaque or operation.name == GEMM or isinstance(operation, CollectiveOperation)
    shared = dict(arguments)
    if not of_all_ranks:
        lying = _lying(operation, seen, layout, arguments) if split is None else [one.tensor.shard for one in seen]
        seen = tuple(_on_one_rank(operation, *each, num_ranks) for each in zip(seen, lying, strict=True))
        if operation.name in (*ATTENTION, BY_HEAD) and layout is Shard.COLS:
            whole = ("kv_heads",) if lying[-1] is Shard.NONE else ()
            shared = {w: v if w in whole else _share(w, v, num_ranks) for w, v in arguments.items()}
    made = operation.infer(OperationCall(operation, name, seen, shared, num_ranks, system.gpu, exchange))
    layout = split or made.layout or layout
    result = made.tensor if of_all_ranks else _layout_out(made.tensor, layout, num_ranks)
    if operation.name == GATHER:
        result = replace(result, shard=Shard.NONE)
    partial |= made.partial or split is Shard.NONE
    exchange = made.exchange or exchange
    return WorkloadCall(
        operation, operands, arguments, made, result, definition, span, partial, exchange, takes=int(gathered)
    )


def _lying(operation: Operation, seen: tuple[Operand, ...], layout: Shard, arguments: Mapping[str, Any]) -> list[Shard]:
    """How the operands of a call lie whose first lies as ``layout``: alike, but for what all heads read.

    Weights of heads lie below each other; the one head of keys is whole on every rank that has some of the queries'.
    """
    rest = layout
    if operation.name == BY_HEAD:
        rest = Shard.ROWS if layout is Shard.COLS else Shard.NONE
    elif operation.name == ATTENTION[0] and layout is Shard.COLS and arguments.get("kv_heads") == 1 and seen[1:]:
        rest = Shard.NONE
    return [layout, *(rest for _ in seen[1:])]


def _split_experts(operation: Operation, seen: tuple[Operand, ...]) -> Shard | None:
    """How products lie of rows and weights of all experts, of which each rank has some columns; None of others.

    Products of the second weights are terms of a sum on all ranks.
    """
    if operation.name != EXPERTS or any(operand.transposed for operand in seen):
        return None
    rows, weights = (operand.tensor.shard for operand in seen)
    return _SPLIT_EXPERTS.get((rows, weights))


def _exchange_of(operands: tuple[CallOperand, ...], makers: Mapping[str, WorkloadCall]) -> Exchange:
    """How the rows of the first operand that says it were sent."""
    made = (makers[each.tensor.name].exchange for each in operands if each.tensor.name in makers)
    return next((exchange for exchange in made if exchange != EVEN), EVEN)


def _all_partial(operation: Operation, operands: tuple[CallOperand, ...], makers: Mapping[str, WorkloadCall]) -> bool:
    """Whether terms of sums are added on each rank, which gives those of one sum."""
    terms = [each.tensor.name in makers and makers[each.tensor.name].partial for each in operands]
    return operation.name in (ADD, GIVE.name) and all(terms)


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
    opaque = isinstance(operation, KernelOperation) and operation.opaque
    if maker.partial and not opaque:
        raise mismatch(f"{operand.tensor.name} is a part of a sum on each rank", "add it up: reduce_scatter(...)")
    return Operand(operand.seen)


def _on_one_rank(operation: Operation, operand: Operand, layout: Shard, num_ranks: int) -> Operand:
    """The part of a rank, as a whole; operands of a call lie alike, and of experts as they are seen."""
    tensor = operand.tensor
    if operation.name == EXPERTS and operand.transposed:
        layout = _TURNED.get(layout, layout)
    if operand.made_by is not None:
        return operand
    if tensor.shard is Shard.FLAT:
        raise mismatch(f"{tensor.name} is in flat shards, which are gathered first", f"all_gather({tensor.name})")
    if tensor.shard is not layout:
        hint = "rows that all ranks hold go to their experts by dispatch(x, experts=..., top=...)"
        message = f"operands of {operation.name} lie alike, but {tensor.name} is {tensor.layout}"
        raise mismatch(message, hint if operation.name == EXPERTS else "")
    rows = tensor.rows // num_ranks if layout is Shard.ROWS else tensor.rows
    cols = tensor.cols // num_ranks if layout is Shard.COLS else tensor.cols
    return Operand(replace(tensor, rows=rows, cols=cols, shard=Shard.NONE), transposed=operand.transposed)


def _share(word: str, value: Any, ranks: int) -> Any:
    """The heads of one rank."""
    if word not in _HEADS or ranks == 1:
        return value
    if value % ranks:
        raise mismatch(f"{value} {word} do not divide among {ranks} ranks")
    return value // ranks


def _layout_out(tensor: Tensor, layout: Shard, num_ranks: int) -> Tensor:
    """The result of one rank on all ranks."""
    rows = tensor.rows * num_ranks if layout is Shard.ROWS else tensor.rows
    cols = tensor.cols * num_ranks if layout is Shard.COLS else tensor.cols
    return replace(tensor, rows=rows, cols=cols, shard=layout)


Link = tuple[KernelOperation | CollectiveOperation, Mapping[str, Any]]
"""A call of a chain with its arguments; it takes what the one before makes."""


def chain_of(
    operation: KernelOperation | CollectiveOperation,
    arguments: Mapping[str, Any],
    operands: tuple[CallOperand, ...],
    makers: Mapping[str, WorkloadCall],
    system: System,
) -> tuple[Link, ...]:
    """The calls in turn that ``operation`` is made of, on ``operands`` that calls of ``makers`` made; most are one.

    Raises
    ------
    OperationError
        If rows go to more nodes than the system has, or to none where it says where they go.
    """
    if operation is DISPATCH:
        tensor = operands[0].seen
        _check_sent(arguments, tensor, system)
        sent = {name: value for name, value in arguments.items() if name != "type"}
        wanted = arguments.get("type", tensor.dtype)
        cast: tuple[Link, ...] = ((CAST, {"type": wanted}),) if wanted is not tensor.dtype else ()
        return (*cast, (PICK, sent)) if tensor.shard is Shard.NONE else (*cast, (SEND, sent), (EXPAND, {}))
    if operation is COMBINE:
        routing = _exchange_of(operands, makers).routing
        is_sent = routing is None or routing.sent > 0
        return ((COLLAPSE, arguments), (SEND_BACK, {}), (MERGE, {})) if is_sent else ((GIVE, arguments),)
    return ((operation, arguments),)


def _check_sent(arguments: Mapping[str, Any], tensor: Tensor, system: System) -> None:
    for word in ("nodes", "by", "routing", "replicas", "placed"):
        if tensor.shard is Shard.NONE and word in arguments:
            raise mismatch(f"all ranks hold {tensor.name}, whose rows are sent nowhere", f"leave {word} out")
    if tensor.shard is not Shard.NONE and "ep" in arguments:
        message = f"ep says where experts are of rows that all ranks hold, but {tensor.name} is {tensor.layout}"
        raise mismatch(message, "leave ep out, or gather the rows first: dispatch(all_gather(x), ...)")
    size = system.fabric.node_size
    nodes, known = arguments.get("nodes", 1), system.num_ranks // size if size else 1
    if nodes > known:
        raise mismatch(f"rows go to {nodes} nodes, and the system has {known}", "leave nodes out")
