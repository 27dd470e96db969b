"""``attention_back(qkv, a, da, heads=32)``: gradients of queries, keys and values, as ``attention`` takes them.

``a`` is the result of the forward pass, and ``da`` its gradient. The kernel computes the scores again (Dao et al.,
FlashAttention, arXiv 2205.14135, algorithm 4). It has one result: the gradients side by side. Those of packed tensors
are packed as in ``attention(qkv)``; of ``d = attention_back(q, kv, a, da, heads=32)`` they are ``d.q`` and ``d.kv``.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from ..tensors import Shard
from .attention import OPERATION as FORWARD
from .attention import AttentionShape, head_dim_of
from .base import CallResult, KernelOperation, OperationCall, mismatch
from .checks import check_local, check_peak, check_types

PARTS = {2: ("q", "kv"), 3: ("q", "k", "v")}
"""Words of the gradients of queries, keys and values, by the number of tensors that hold them."""


@dataclass(frozen=True, slots=True)
class AttentionBackShape(AttentionShape):
    """Attention, backward: five products for each pair of a query and a key, where the forward pass has two."""

    operation: ClassVar[str] = "attention_back"

    @property
    def flops(self) -> int:
        """Operations of the five products without what the mask hides."""
        return 10 * self.batch * self.heads * self.pairs * self.head_dim

    @property
    def operand_bytes(self) -> int:
        """Queries, keys and values, the result and its gradient."""
        queries = self.batch * self.heads * self.q_len
        keys = self.batch * self.kv_heads * self.kv_len
        return (3 * queries + 2 * keys) * self.head_dim * self.dtype.num_bytes

    @property
    def output_bytes(self) -> int:
        """Gradients of queries, keys and values."""
        rows = self.heads * self.q_len + 2 * self.kv_heads * self.kv_len
        return self.batch * rows * self.head_dim * self.dtype.num_bytes

    @property
    def accumulator_bytes(self) -> int:
        """Gradients of queries in fp32, to which each block of keys adds."""
        return 4 * self.batch * self.heads * self.q_len * self.head_dim


def _infer(call: OperationCall) -> CallResult:
    check_local(call, call.operands)
    check_types(call.tensors)
    *operands, result, gradient = call.tensors
    first, last = operands[0], operands[-1]
    heads = call.arguments["heads"]
    kv_heads, batch = call.arguments.get("kv_heads", heads), call.arguments.get("batch", 1)
    head_dim = head_dim_of(operands, heads, kv_heads)
    if last.rows != first.rows:
        message = f"{first.name} has {first.rows} rows and {last.name} {last.rows}"
        raise mismatch(message, "gradients of queries, keys and values are columns of one tensor")
    for tensor in (result, gradient):
        if (tensor.rows, tensor.cols) != (first.rows, heads * head_dim):
            needed = f"{heads} heads of {head_dim} beside {first.name} need [{first.rows}, {heads * head_dim}]"
            raise mismatch(f"{tensor.name} is [{tensor.rows}, {tensor.cols}]; {needed}")
    if first.rows % batch:
        raise mismatch(f"{batch} sequences do not divide {first.rows} rows of {first.name}")
    check_peak(call.gpu, first.dtype)
    length, causal = first.rows // batch, call.arguments.get("causal", False)
    output = replace(first, name=call.result, cols=sum(tensor.cols for tensor in operands), shard=Shard.NONE)
    shape = AttentionBackShape(batch, heads, kv_heads, length, length, head_dim, first.dtype, causal)
    parts = zip(PARTS.get(len(operands), ()), (tensor.cols for tensor in operands), strict=False)
    return CallResult(output, shape, parts=tuple(parts))


OPERATION = KernelOperation(
    name="attention_back",
    example="attention_back(qkv, a, da, heads=32, kv_heads=8, causal=yes)",
    infer=_infer,
    num_tensors=(3, 5),
    arguments=FORWARD.arguments,
)
