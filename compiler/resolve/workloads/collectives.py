"""Collective operations of a workload: what each needs, which tensor moves, and what it leaves."""

from dataclasses import replace

from ...ir import Shard, Tensor
from ...text import syntax as ast
from ...text.source import Span
from .operands import Making, Operand
from .operations import Named
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

    A list of lists counts the rows [from][to] of absolute ranks, and ``rows_to=[...]`` those to each absolute rank.
    A rank has all rows, and where columns are sharded its own ones: then it ends with a row block of all columns, those
    of the ranks side by side.
    """
    tensor = _of_a_rank(making, operand, call.span)
    ranks, loads = making.system.num_ranks, _loads(making, tensor, call, named)
    making.table = loads
    rows = loads[0] if loads else named.rows()
    if loads and all(sent[rank:] + sent[:rank] == rows for rank, sent in enumerate(loads)):
        loads = ()  # all ranks send alike, seen from themselves
    if loads and operand.tensor.shard is Shard.COLS:
        raise making.misfit("blocks side by side have as many rows each", call.span, "leave rows out")
    if loads:
        making.loads, making.output = loads, making.output or name
        making.moved = replace(tensor, rows=max(map(max, loads)) * ranks)
        return Operand(replace(operand.tensor, name=name, rows=max(making.received)), "all_to_all")
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


def _loads(making: Making, tensor: Tensor, call: ast.Call, named: Named) -> tuple[tuple[int, ...], ...]:
    """Rows [from][to] of absolute ranks, empty where they are not said."""
    ranks, to, loads = making.system.num_ranks, named.rows("rows_to"), named.of_ranks()
    if to and named.says("rows"):
        raise making.misfit("all_to_all says rows or rows_to", call.span, "rows=[[...], ...] says both ends of each")
    loads = (to,) * ranks if to else loads
    if not loads:
        return ()
    if len(loads) != ranks:
        message = f"there are lists of rows of {len(loads)} ranks, and the system has {ranks}"
        raise making.misfit(message, call.span, "rows=[[...], ...] has a list for each rank")
    for rank, sent in enumerate(loads):
        if len(sent) != ranks:
            message = f"rank {rank} has {len(sent)} counts of rows, and there are {ranks} ranks"
            raise making.misfit(message, call.span, "one count for each rank, itself too")
    for rank, sent in enumerate(loads):
        if sum(sent) != tensor.rows:
            message = f"rank {rank} sends {sum(sent)} rows; {tensor.name} has {tensor.rows}"
            raise making.misfit(message, call.span, "what a rank keeps counts too")
    if not all(map(sum, zip(*loads, strict=True))):
        raise making.misfit("a rank gets no rows at all", call.span, "each has at least one, its own or another's")
    if not any(rows for rank, sent in enumerate(loads) for to_rank, rows in enumerate(sent) if rank != to_rank):
        raise making.misfit("nothing leaves a rank", call.span, "rows=[from][to]: what stays is on the diagonal")
    return loads


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
