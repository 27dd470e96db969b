"""``attention_back(qkv, a, da, heads=32)``: gradients of queries, keys and values, packed as in ``attention(qkv)``.

``a`` is the result of the forward pass, and ``da`` its gradient. The kernel computes the scores again (Dao et al.,
FlashAttention, arXiv 2205.14135, algorithm 4).
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from ..workloads.tensors import Shard
from .attention import OPERATION as FORWARD
from .attention import AttentionShape
from .base import CallResult, KernelOperation, OperationCall, mismatch
from .checks import check_local, check_peak, check_types


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
    qkv, result, gradient = call.tensors
    heads = call.arguments["heads"]
    kv_heads, batch = call.arguments.get("kv_heads", heads), call.arguments.get("batch", 1)
    packed = heads + 2 * kv_heads
    if heads % kv_heads or qkv.cols % packed:
        raise mismatch(
            f"{packed} heads do not divide {qkv.cols} columns of {qkv.name}, "
            f"or {heads} are no multiple of {kv_heads} kv_heads"
        )
    head_dim = qkv.cols // packed
    for tensor in (result, gradient):
        if (tensor.rows, tensor.cols) != (qkv.rows, heads * head_dim):
            needed = f"{heads} heads of {head_dim} beside {qkv.name} need [{qkv.rows}, {heads * head_dim}]"
            raise mismatch(f"{tensor.name} is [{tensor.rows}, {tensor.cols}]; {needed}")
    if qkv.rows % batch:
        raise mismatch(f"{batch} sequences do not divide {qkv.rows} rows of {qkv.name}")
    check_peak(call.gpu, qkv.dtype)
    length, causal = qkv.rows // batch, call.arguments.get("causal", False)
    output = replace(qkv, name=call.result, shard=Shard.NONE)
    return CallResult(output, AttentionBackShape(batch, heads, kv_heads, length, length, head_dim, qkv.dtype, causal))


OPERATION = KernelOperation(
    name="attention_back",
    example="attention_back(qkv, a, da, heads=32, kv_heads=8, causal=true)",
    infer=_infer,
    num_tensors=(3, 3),
    arguments=FORWARD.arguments,
)
