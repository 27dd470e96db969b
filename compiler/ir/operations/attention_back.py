"""``attention_back(qkv, a, da, heads=32)``: gradients of queries, keys and values, as ``attention`` takes them.

``a`` is the result of the forward pass, and ``da`` its gradient. The kernel computes the scores again (Dao et al.,
FlashAttention, arXiv 2205.14135, algorithm 4). It has one result: the gradients side by side. Those of packed tensors
are packed as in ``attention(qkv)``; of ``d = attention_back(q, kv, a, da, heads=32)`` they are ``d.q`` and ``d.kv``.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from ..tensors import Shard
from .attention import OPERATION as FORWARD
from .attention import AttentionShape, head_dim_of, window_of
from .base import CallResult, KernelOperation, OperationCall, mismatch, not_simulated
from .checks import check_local, check_peak, check_scales, check_types

PARTS = {2: ("q", "kv"), 3: ("q", "k", "v")}
"""Words of the gradients of queries, keys and values, by the number of tensors that hold them."""


@dataclass(frozen=True, slots=True)
class AttentionBackShape(AttentionShape):
    """Attention, backward: five products for each pair of a query and a key, where the forward pass has two."""

    operation: ClassVar[str] = "attention_back"

    @property
    def flops(self) -> int:
        """Operations of the five products without what the mask hides."""
        return 2 * self.batch * self.heads * self.pairs * (3 * self.head_dim + 2 * self.value_dim)

    @property
    def operand_bytes(self) -> int:
        """Queries, keys and values, the result and its gradient."""
        queries = self.heads * self.q_len * (self.head_dim + 2 * self.value_dim)
        return self.dtype.bytes_of(self.batch * (queries + self.kv_heads * self.kv_len * self.key_cols))

    @property
    def output_bytes(self) -> int:
        """Gradients of queries, keys and values."""
        queries = self.heads * self.q_len * self.head_dim
        return self.dtype.bytes_of(self.batch * (queries + self.kv_heads * self.kv_len * self.key_cols))

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
    values = call.arguments.get("value_dim")
    head_dim, in_keys = head_dim_of(operands, heads, kv_heads, values)
    if in_keys:
        raise not_simulated("a backward pass of values that are columns of keys", "train with keys and values apart")
    if last.rows != first.rows:
        message = f"{first.name} has {first.rows} rows and {last.name} {last.rows}"
        raise mismatch(message, "gradients of queries, keys and values are columns of one tensor")
    cols = heads * (values or head_dim)
    for tensor in (result, gradient):
        if (tensor.rows, tensor.cols) != (first.rows, cols):
            needed = f"{heads} heads of {values or head_dim} beside {first.name} need [{first.rows}, {cols}]"
            raise mismatch(f"{tensor.name} is [{tensor.rows}, {tensor.cols}]; {needed}")
    if first.rows % batch:
        raise mismatch(f"{batch} sequences do not divide {first.rows} rows of {first.name}")
    check_scales(call, first.dtype)
    check_peak(call.gpu, first.dtype)
    length, causal = first.rows // batch, call.arguments.get("causal", False)
    output = replace(first, name=call.result, cols=sum(tensor.cols for tensor in operands), shard=Shard.NONE)
    shape = AttentionBackShape(batch, heads, kv_heads, length, length, head_dim, first.dtype, causal)
    shape = replace(shape, values=None if values == head_dim else values, window=window_of(call, causal))
    parts = zip(PARTS.get(len(operands), ()), (tensor.cols for tensor in operands), strict=False)
    return CallResult(output, shape, parts=tuple(parts))


OPERATION = KernelOperation(
    name="attention_back",
    example="attention_back(qkv, a, da, heads=32, kv_heads=8, causal=yes)",
    infer=_infer,
    num_tensors=(3, 5),
    arguments=FORWARD.arguments,
)
