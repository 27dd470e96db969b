"""Collectives that copy or sum: all_gather, broadcast, send_recv, reduce_scatter and all_reduce.

An all_gather brings rows of all ranks side by side to every rank, a broadcast and a send_recv what rank 0 holds to all
or to rank 1. A reduce_scatter leaves row block r of the sum of what all ranks hold on rank r, as many rows on each; an
all_reduce leaves all of it on all, and takes any number of rows, see ``ir/tensors.py``.
"""

from dataclasses import replace
from math import gcd

from ..tensors import Pattern, Shard, Tensor
from .base import (
    CallArgument,
    CallArgumentKind,
    CallResult,
    CollectiveOperation,
    Exchange,
    KernelOperation,
    OperationCall,
    OperationError,
    check_blocks,
    check_rows,
    check_scales,
    check_whole,
    mismatch,
    not_simulated,
    parts_of,
    reject_share,
)


def _gathered(call: OperationCall) -> CallResult:
    (tensor,) = call.tensors
    if tensor.shard is Shard.FLAT:
        check_blocks(f"a part of {tensor.name}", tensor.dtype, tensor.rows * tensor.cols // call.num_ranks)
        return CallResult(replace(tensor, name=call.result), moved=_in_rows(tensor, call))
    if tensor.shard is not Shard.ROWS:
        hint = f"declare it with 'shard rows': {tensor.name} = tensor ... shard rows"
        raise mismatch(f"all_gather joins rows, but {tensor.name} is {tensor.layout}", hint)
    gathered = replace(tensor, name=call.result)
    return CallResult(gathered, moved=gathered)


def _in_rows(tensor: Tensor, call: OperationCall) -> Tensor:
    """What moves of a tensor in flat shards: rows of equal parts of all elements, as many as the ranks share evenly."""
    parts = call.num_ranks // gcd(tensor.rows, call.num_ranks)
    return replace(tensor, name=call.result, rows=tensor.rows * parts, cols=tensor.cols // parts, shard=Shard.ROWS)


def _from_first(call: OperationCall) -> CallResult:
    (tensor,) = call.tensors
    check_whole(tensor, f"{call.operation.name} moves what rank 0 holds in full")
    parts = parts_of(call, tensor)
    return CallResult(replace(tensor, name=call.result), moved=replace(parts.moved, shard=Shard.NONE), in_parts=parts)


ALL_GATHER = CollectiveOperation(
    name="all_gather",
    example="all_gather(x)",
    infer=_gathered,
    result_suffix="gathered",
    alone=Pattern.ALL_GATHER,
    before_kernel=Pattern.AG_GEMM,
    independent_kernel=Pattern.GEMM_BESIDE_AG,
)
BROADCAST = CollectiveOperation(name="broadcast", example="broadcast(x)", infer=_from_first, alone=Pattern.BROADCAST)
SEND_RECV = CollectiveOperation(name="send_recv", example="send_recv(x)", infer=_from_first, alone=Pattern.SEND_RECV)


def _summed(call: OperationCall) -> Tensor:
    """The tensor of which every rank holds a part of the sum."""
    (operand,), (tensor,) = call.operands, call.tensors
    check_scales(call, tensor.dtype)
    opaque = isinstance(operand.made_by, KernelOperation) and operand.made_by.opaque
    if operand.made_by is not None and not operand.partial and not opaque:
        hint = "shard the inner dimension: x by cols and w by rows"
        raise not_simulated(f"{call.operation.name} needs partial sums to add", hint)
    if operand.made_by is None or opaque:
        check_whole(tensor, f"{call.operation.name} adds what every rank holds in full")
    return tensor


def _scattered(call: OperationCall) -> CallResult:
    tensor = _summed(call)
    check_rows(call, tensor, "all_reduce takes any number of rows")
    moved = replace(tensor, shard=Shard.ROWS)
    return CallResult(replace(moved, name=call.result), moved=moved)


MOST_PLANS = 1000
"""Ranks with parts of their own in a sum at most: n plans have 2 n (n - 1) steps, 4.5 million of 1,500 ranks."""


def _everywhere(call: OperationCall) -> CallResult:
    tensor = _summed(call)
    parts, unfit = parts_of(call, tensor), reject_share(tensor.rows, "rows", call.num_ranks)
    if parts.loads and unfit is not None and call.num_ranks > MOST_PLANS:
        message = f"{unfit.message}: each has a plan of its own then, and at most {MOST_PLANS} are made"
        raise OperationError(replace(unfit, message=message))
    return CallResult(replace(tensor, name=call.result, shard=Shard.NONE), moved=parts.moved, in_parts=parts)


REDUCE_SCATTER = CollectiveOperation(
    name="reduce_scatter",
    example="reduce_scatter(x)",
    infer=_scattered,
    operand_suffix="partial",
    alone=Pattern.REDUCE_SCATTER,
    after_kernel=Pattern.GEMM_RS,
)
ALL_REDUCE = CollectiveOperation(
    name="all_reduce",
    example="all_reduce(x)",
    infer=_everywhere,
    operand_suffix="partial",
    alone=Pattern.ALL_REDUCE,
    after_kernel=Pattern.GEMM_AR,
)


# ``all_to_all(x)``: row block r + k of every rank r goes to rank r + k; ``rows=[...]`` says how many rows each has.
#
# They are counted for k = 0, 1, ...; a list of lists counts the rows [from][to] of absolute ranks, and
# ``rows_to=[...]`` those to each absolute rank. A rank has all rows, and where columns are sharded its own ones: then
# it ends with a row block of all columns, those of the ranks side by side.

_Table = tuple[tuple[int, ...], ...]


def _infer(call: OperationCall) -> CallResult:
    tensor, table = _of_a_rank(call), _table(call)
    ranks, (whole,) = call.num_ranks, call.tensors
    rows = table[0] if table else call.counts("rows")
    # All ranks send alike, seen from themselves.
    alike = all(sent[rank:] + sent[:rank] == rows for rank, sent in enumerate(table))
    if not alike:
        return _uneven(call, tensor, table)
    if not rows:
        check_rows(call, tensor, "rows=[...] says how many each rank gets")
    elif len(rows) != ranks or sum(rows) != tensor.rows:
        message = f"rows are {len(rows)} counts with the sum {sum(rows)}; {tensor.name} has {tensor.rows} rows"
        raise mismatch(message, f"one count for each of {ranks} ranks, the own first")
    elif not any(rows[1:]):
        raise mismatch("nothing leaves a rank", "rows counts the own rank first")
    largest = max(rows) if rows else tensor.rows // ranks
    shard = Shard.ROWS if whole.shard is Shard.COLS else Shard.NONE
    return CallResult(
        replace(whole, name=call.result, shard=shard),
        moved=replace(tensor, rows=largest * ranks),
        exchange=Exchange(split=rows if len(set(rows)) > 1 else (), table=table),
    )


def _uneven(call: OperationCall, tensor: Tensor, loads: _Table) -> CallResult:
    """Loads that differ from rank to rank: every rank is as the busiest one."""
    (whole,), exchange = call.tensors, Exchange(loads=loads, table=loads)
    if whole.shard is Shard.COLS:
        raise mismatch("blocks side by side have as many rows each", "leave rows out")
    return CallResult(
        replace(whole, name=call.result, rows=max(exchange.received)),
        moved=replace(tensor, rows=max(map(max, loads)) * call.num_ranks),
        exchange=exchange,
    )


def _table(call: OperationCall) -> _Table:
    """Rows [from][to] of absolute ranks, empty where they are not said; they are of as many rows as ranks have."""
    ranks, to, table = call.num_ranks, call.counts("rows_to"), call.counts_by_rank("rows")
    if to and "rows" in call.arguments:
        raise mismatch("all_to_all says rows or rows_to", "rows=[[...], ...] says both ends of each")
    table = (to,) * ranks if to else table
    if table:
        _check_table(call, table)
    return table


def _check_table(call: OperationCall, table: _Table) -> None:
    ranks, (tensor,) = call.num_ranks, call.tensors
    if len(table) != ranks:
        message = f"there are lists of rows of {len(table)} ranks, and the system has {ranks}"
        raise mismatch(message, "rows=[[...], ...] has a list for each rank")
    for rank, sent in enumerate(table):
        if len(sent) != ranks:
            message = f"rank {rank} has {len(sent)} counts of rows, and there are {ranks} ranks"
            raise mismatch(message, "one count for each rank, itself too")
    for rank, sent in enumerate(table):
        if sum(sent) != tensor.rows:
            message = f"rank {rank} sends {sum(sent)} rows; {tensor.name} has {tensor.rows}"
            raise mismatch(message, "what a rank keeps counts too")
    if not all(map(sum, zip(*table, strict=True))):
        raise mismatch("a rank gets no rows at all", "each has at least one, its own or another's")
    if not any(rows for rank, sent in enumerate(table) for to_rank, rows in enumerate(sent) if rank != to_rank):
        raise mismatch("nothing leaves a rank", "rows=[from][to]: what stays is on the diagonal")


def _of_a_rank(call: OperationCall) -> Tensor:
    """The tensor that a rank sends: all rows, and its own columns where they are sharded."""
    (tensor,) = call.tensors
    if tensor.shard is Shard.COLS:
        return replace(tensor, cols=tensor.cols // call.num_ranks, shard=Shard.NONE)
    check_whole(tensor, "all_to_all cuts what every rank holds in full")
    return tensor


OPERATION = CollectiveOperation(
    name="all_to_all",
    example="all_to_all(x)",
    infer=_infer,
    arguments=(CallArgument("rows", CallArgumentKind.TABLE), CallArgument("rows_to", CallArgumentKind.COUNTS)),
    result_suffix="exchanged",
    alone=Pattern.ALL_TO_ALL,
    before_kernel=Pattern.A2A_GEMM,
    after_kernel=Pattern.GEMM_A2A,
    independent_kernel=Pattern.GEMM_BESIDE_A2A,
    between_kernels=Pattern.GEMM_A2A_GEMM,
)
