"""``all_to_all(x)``: row block r + k of every rank r goes to rank r + k; ``rows=[...]`` says how many rows each has.

They are counted for k = 0, 1, ...; a list of lists counts the rows [from][to] of absolute ranks, and ``rows_to=[...]``
those to each absolute rank. A rank has all rows, and where columns are sharded its own ones: then it ends with a row
block of all columns, those of the ranks side by side.
"""

from dataclasses import replace

from ..tensors import Pattern, Shard, Tensor
from .base import (
    CallArgument,
    CallArgumentKind,
    CallResult,
    CollectiveOperation,
    Exchange,
    OperationCall,
    mismatch,
)
from .checks import check_rows, check_whole

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
