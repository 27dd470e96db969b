"""Collective operations of a workload: what each needs, which tensor moves, and what it leaves."""

from dataclasses import replace

from . import syntax as ast
from .operands import Making, Operand
from .operations import Named
from .scenario import Shard, Tensor
from .source import Span
from .tensors import layout


def all_gather(making: Making, operand: Operand, call: ast.Call, name: str) -> Operand:
    """Rows of all ranks side by side, on every rank."""
    tensor = _declared(making, operand, "all_gather", call.span)
    if tensor.shard is not Shard.ROWS:
        hint = f"declare it with 'shard rows': {tensor.name} = tensor ... shard rows"
        raise making.misfit(f"all_gather joins rows, but {tensor.name} is {layout(tensor)}", call.span, hint)
    making.moved = replace(tensor, name=name)
    making.output = making.output or name
    return Operand(making.moved, "all_gather", gathered=True)


def summed(making: Making, operand: Operand, call: ast.Call, name: str, operation: str) -> Operand:
    """reduce_scatter and all_reduce: the sum of what all ranks hold, row block r of it on rank r or all on all."""
    tensor = operand.tensor
    if operand.made_by and not operand.partial:
        hint = "shard the inner dimension: x by cols and w by rows"
        raise making.refused(f"{operation} needs partial sums to add", call.span, hint)
    if not operand.made_by:
        _whole(making, tensor, f"{operation} adds what every rank holds in full", call.span)
        making.output = name
    making.reader.check_divides(tensor.rows, "rows", call.span)
    making.moved = replace(tensor, shard=Shard.ROWS)
    shard = Shard.ROWS if operation == "reduce_scatter" else Shard.NONE
    return Operand(replace(tensor, name=name, shard=shard), operation)


def all_to_all(making: Making, operand: Operand, call: ast.Call, name: str, named: Named) -> Operand:
    """Row block r + k of every rank r goes to rank r + k; ``rows=[...]`` says how many rows, for k = 0, 1, ...

    A rank has all rows, and where columns are sharded its own ones: then it ends with a row block of all columns, those
    of the ranks side by side.
    """
    tensor = _of_a_rank(making, operand, call.span)
    rows, ranks = named.rows(), making.system.num_ranks
    if not rows:
        making.reader.check_divides(tensor.rows, "rows", call.span)
    elif len(rows) != ranks or sum(rows) != tensor.rows:
        message = f"rows are {len(rows)} counts with the sum {sum(rows)}; {tensor.name} has {tensor.rows} rows"
        raise making.misfit(message, call.span, f"one count for each of {ranks} ranks, the own first")
    elif not any(rows[1:]):
        raise making.misfit("nothing leaves a rank", call.span, "rows counts the own rank first")
    making.split = rows if len(set(rows)) > 1 else ()
    largest = max(rows) if rows else tensor.rows // ranks
    making.moved = replace(tensor, rows=largest * ranks)
    making.output = making.output or name
    shard = Shard.ROWS if operand.tensor.shard is Shard.COLS else Shard.NONE
    return Operand(replace(operand.tensor, name=name, shard=shard), "all_to_all")


def _of_a_rank(making: Making, operand: Operand, span: Span) -> Tensor:
    """What a rank has to send in an all_to_all: all rows, and its own columns where they are sharded."""
    tensor = operand.tensor
    if operand.partial:
        hint = "an all_to_all does not add: reduce_scatter(gemm(x, w))"
        raise making.refused("each rank holds a part of the sum only", span, hint)
    if operand.made_by not in ("gemm", "grouped_gemm", "attention"):
        tensor = _declared(making, operand, "all_to_all", span)
    if tensor.shard is Shard.COLS:
        return replace(tensor, cols=tensor.cols // making.system.num_ranks, shard=Shard.NONE)
    _whole(making, tensor, "all_to_all cuts what every rank holds in full", span)
    return tensor


def from_first(making: Making, operand: Operand, call: ast.Call, name: str, operation: str) -> Operand:
    """broadcast and send_recv: what rank 0 holds, on every rank or on rank 1."""
    tensor = _declared(making, operand, operation, call.span)
    _whole(making, tensor, f"{operation} moves what rank 0 holds in full", call.span)
    making.reader.check_divides(tensor.rows, "rows", call.span)
    making.moved, making.output = tensor, name
    return Operand(replace(tensor, name=name), operation)


def _declared(making: Making, operand: Operand, operation: str, span: Span) -> Tensor:
    if operand.made_by:
        raise making.refused(f"{operation} of the result of {operand.made_by} is not simulated", span)
    return operand.tensor


def _whole(making: Making, tensor: Tensor, what: str, span: Span) -> None:
    if tensor.shard is not Shard.NONE:
        raise making.misfit(f"{what}, but {tensor.name} is {layout(tensor)}", span, f"drop the shard of {tensor.name}")
