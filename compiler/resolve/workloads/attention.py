"""``attention``: queries, keys and values apart or packed, alone or after a collective.

Packed as FlashAttention has it (``flash_attn_kvpacked_func``, ``flash_attn_qkvpacked_func``): in ``attention(q, kv)`` a
row of kv holds keys and values of one position, in ``attention(qkv)`` queries as well. Columns go head by head, so that
those of some heads lie together (Megatron-LM, ``linear_qkv``).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir import AttentionShape, Shard, Tensor
from ...text import syntax as ast
from ...text.source import Span
from .kernels import check_declared, check_peak, check_types, made
from .operands import Making, Operand
from .operations import Named
from .tensors import layout


@dataclass(frozen=True, slots=True)
class _Heads:
    """``heads=32, kv_heads=8, batch=2`` of a call."""

    queries: int
    keys: int
    batch: int


def attention(making: Making, operands: Sequence[Operand], call: ast.Call, name: str, named: Named) -> Operand:
    """``attention(q, k, v, heads=32)``: q is [batch * queries, heads * head_dim], k and v are alike with kv_heads."""
    _check_origin(making, operands, call.span)
    tensors = [operand.tensor for operand in operands]
    check_types(making, tensors, call.span)
    named.require("heads")
    count = named.count("heads", 1)
    heads = _Heads(count, named.count("kv_heads", count), named.count("batch", 1))
    first, last = tensors[0], tensors[-1]
    shards = making.system.num_ranks if first.shard is Shard.ROWS else 1
    head_dim = _head_dim(making, tensors, heads, call.span)
    q_rows = first.rows // shards
    if q_rows % heads.batch or last.rows % heads.batch:
        message = f"{heads.batch} sequences do not divide {q_rows} rows of {first.name} and {last.rows} of {last.name}"
        raise making.misfit(message, call.span)
    causal = named.truth("causal")
    if causal and operands[-1].gathered and first.rows != last.rows:
        message = f"causal attention of {first.rows} queries to {last.rows} gathered keys"
        raise making.misfit(message, call.span, "both are of one sequence, dealt to the ranks alike")
    check_peak(making, first.dtype, call.span)
    lengths = q_rows // heads.batch, last.rows // heads.batch
    shape = AttentionShape(heads.batch, heads.queries, heads.keys, *lengths, head_dim, first.dtype, causal)
    return made(making, shape, Tensor(name, first.dtype, first.rows, heads.queries * head_dim, first.shard))


def _check_origin(making: Making, operands: Sequence[Operand], span: Span) -> None:
    """Which operands a collective may have brought: kv next to queries by rows, or qkv."""
    first, rest = operands[0], operands[1:]
    if len(operands) == 2 and rest[0].made_by == "all_gather" and not first.made_by:
        if first.tensor.shard is not Shard.ROWS:
            q = first.tensor.name
            message = f"{q} is {layout(first.tensor)}; each rank attends with its own rows of queries"
            raise making.misfit(message, span, f"declare it with 'shard rows': {q} = tensor ... shard rows")
        return
    if len(operands) == 1 and first.made_by == "all_to_all":
        return
    if any(operand.made_by == "all_gather" for operand in operands):
        hint = "attention(q, all_gather(kv), heads=64, kv_heads=8)"
        raise making.refused("keys and values are gathered as one tensor, and queries not at all", span, hint)
    if any(operand.made_by == "all_to_all" for operand in operands):
        hint = "attention(all_to_all(qkv), heads=8, kv_heads=1)"
        raise making.refused("an all_to_all brings queries, keys and values as one tensor", span, hint)
    check_declared(making, operands, "attention", span)


def _head_dim(making: Making, tensors: Sequence[Tensor], heads: _Heads, span: Span) -> int:
    """The size of a head, by the columns of what holds queries; those of the others have to fit."""
    first = tensors[0]
    in_first = heads.queries + (2 * heads.keys if len(tensors) == 1 else 0)
    if heads.queries % heads.keys or first.cols % in_first:
        message = (
            f"{in_first} heads do not divide {first.cols} columns of {first.name}, "
            f"or {heads.queries} are no multiple of {heads.keys} kv_heads"
        )
        raise making.misfit(message, span)
    head_dim = first.cols // in_first
    for tensor in tensors[1:]:
        rows, cols = tensors[1].rows, heads.keys * head_dim * (2 if len(tensors) == 2 else 1)
        if (tensor.rows, tensor.cols) != (rows, cols):
            what = f"[{tensor.rows}, {tensor.cols}]; {heads.keys} kv_heads of {head_dim}"
            raise making.misfit(f"{tensor.name} is {what} need [{rows}, {cols}]", span)
    return head_dim
