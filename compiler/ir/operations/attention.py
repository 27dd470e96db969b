"""``attention(q, k, v, heads=32)``: queries, keys and values apart or packed, alone, before or after a collective.

q is [batch * queries, heads * head_dim], k and v are alike with kv_heads. Packed as FlashAttention has it
(``flash_attn_kvpacked_func``, ``flash_attn_qkvpacked_func``): in ``attention(q, kv)`` a row of kv holds keys and values
of one position, in ``attention(qkv)`` queries as well. Columns go head by head, so that those of some heads lie
together (Megatron-LM, ``linear_qkv``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..tensors import DType, Pattern, Shard, Tensor
from .base import CallArgument, CallArgumentKind, CallResult, KernelOperation, OperationCall, mismatch, not_simulated
from .checks import check_local, check_peak, check_types
from .kernel_shape import Adds, Cutting, KernelShape


@dataclass(frozen=True, slots=True)
class AttentionShape(KernelShape):
    """Attention, forward: softmax(Q K^T) V for each of ``batch * heads``, where Q is [q_len, head_dim].

    ``kv_heads`` divides ``heads``; each of them serves as many query heads. ``causal`` aligns the last query with the
    last key: query i sees keys up to i + kv_len - q_len. ``partial`` is over some of the keys only, and leaves what
    the others are to be added to (``accumulator_bytes``).
    """

    operation: ClassVar[str] = "attention"
    tiled: ClassVar[bool] = True

    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    dtype: DType
    causal: bool
    partial: bool = False

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees, of one head."""
        if not self.causal:
            return self.q_len * self.kv_len
        seeing = min(self.q_len, self.kv_len)  # queries that see a key: the last sees all, each before it one less
        return seeing * self.kv_len - seeing * (seeing - 1) // 2

    @property
    def flops(self) -> int:
        """Operations of both products without what the mask hides, multiply and add counted as two; no softmax."""
        return 4 * self.batch * self.heads * self.pairs * self.head_dim

    @property
    def operand_bytes(self) -> int:
        """Queries, keys and values."""
        rows = self.heads * self.q_len + 2 * self.kv_heads * self.kv_len
        return self.batch * rows * self.head_dim * self.dtype.num_bytes

    @property
    def output_bytes(self) -> int:
        """A row for each query of each head."""
        return self.batch * self.heads * self.q_len * self.head_dim * self.dtype.num_bytes

    @property
    def accumulator_bytes(self) -> int:
        """The output over some of the keys: in fp32, with the maximum and the sum of each row of the softmax.

        Online softmax rescales them when more keys come (Dao et al., FlashAttention, arXiv 2205.14135, algorithm 1;
        Liu et al., Ring Attention, arXiv 2310.01889).
        """
        return 4 * self.batch * self.heads * self.q_len * (self.head_dim + 2)

    @property
    def text(self) -> str:
        """Queries x keys and the heads."""
        lengths = f"{self.q_len} x {self.kv_len}" + (" causal" if self.causal else "")
        return f"{self.dtype.value} {lengths}, {self.heads} heads of {self.head_dim}"

    def cutting(self, pattern: Pattern, moved: Tensor) -> Cutting:
        """Heads are independent, and stay whole.

        Rows of gathered keys and values add to one output by online softmax (Ring Attention, arXiv 2310.01889). An
        all_to_all before attention brings queries too, and each needs the keys of all rows (DeepSpeed-Ulysses, arXiv
        2309.14509).
        """
        head = moved.cols // self.kv_heads
        if pattern.gathers:
            return Cutting(Adds.ROWS, head=head)
        return Cutting(by_rows=not pattern.consumes, head=head)

    def tile_extent(self, pattern: Pattern, moved: Tensor | None) -> tuple[int, int]:
        """Columns of all heads; after a collective tiles are sliced along its columns, which are heads."""
        if moved is None:
            return 1, 1
        return self.heads * self.head_dim, moved.cols if pattern.consumes else 1


def _infer(call: OperationCall) -> CallResult:
    _check_origins(call)
    tensors = call.tensors
    check_types(tensors)
    first, last, batch = tensors[0], tensors[-1], call.arguments.get("batch", 1)
    heads = call.arguments["heads"]
    kv_heads = call.arguments.get("kv_heads", heads)
    head_dim = head_dim_of(tensors, heads, kv_heads)
    q_rows = first.rows // (call.num_ranks if first.shard is Shard.ROWS else 1)
    if q_rows % batch or last.rows % batch:
        raise mismatch(f"{batch} sequences do not divide {q_rows} rows of {first.name} and {last.rows} of {last.name}")
    causal = call.arguments.get("causal", False)
    if causal and call.operands[-1].origin == "all_gather" and first.rows != last.rows:
        message = f"causal attention of {first.rows} queries to {last.rows} gathered keys"
        raise mismatch(message, "both are of one sequence, dealt to the ranks alike")
    check_peak(call.gpu, first.dtype)
    lengths = q_rows // batch, last.rows // batch
    output = Tensor(call.result, first.dtype, first.rows, heads * head_dim, first.shard)
    return CallResult(output, AttentionShape(batch, heads, kv_heads, *lengths, head_dim, first.dtype, causal))


def _check_origins(call: OperationCall) -> None:
    """Reject what a collective brought, unless it is kv next to queries sharded by rows, or qkv."""
    first, rest = call.operands[0], call.operands[1:]
    origins = [operand.origin for operand in call.operands]
    if len(origins) == 2 and rest[0].origin == "all_gather" and not first.origin:
        q = first.tensor
        if q.shard is not Shard.ROWS:
            message = f"{q.name} is {q.layout}; each rank attends with its own rows of queries"
            raise mismatch(message, f"declare it with 'shard rows': {q.name} = tensor ... shard rows")
        return
    if origins == ["all_to_all"]:
        return
    if "all_gather" in origins:
        hint = "attention(q, all_gather(kv), heads=64, kv_heads=8)"
        raise not_simulated("keys and values are gathered as one tensor, and queries not at all", hint)
    if "all_to_all" in origins:
        hint = "attention(all_to_all(qkv), heads=8, kv_heads=1)"
        raise not_simulated("an all_to_all brings queries, keys and values as one tensor", hint)
    check_local(call, call.operands)


def head_dim_of(tensors: Sequence[Tensor], heads: int, kv_heads: int) -> int:
    """The size of a head, by the columns of the tensor with the queries; those of the others have to fit.

    Raises
    ------
    OperationError
        If they do not.
    """
    first = tensors[0]
    in_first = heads + (2 * kv_heads if len(tensors) == 1 else 0)
    if heads % kv_heads or first.cols % in_first:
        raise mismatch(
            f"{in_first} heads do not divide {first.cols} columns of {first.name}, "
            f"or {heads} are no multiple of {kv_heads} kv_heads"
        )
    head_dim = first.cols // in_first
    for tensor in tensors[1:]:
        rows, cols = tensors[1].rows, kv_heads * head_dim * (2 if len(tensors) == 2 else 1)
        if (tensor.rows, tensor.cols) != (rows, cols):
            what = f"[{tensor.rows}, {tensor.cols}]; {kv_heads} kv_heads of {head_dim}"
            raise mismatch(f"{tensor.name} is {what} need [{rows}, {cols}]")
    return head_dim


OPERATION = KernelOperation(
    name="attention",
    example="attention(q, k, v, heads=32, kv_heads=8, causal=yes)",
    infer=_infer,
    num_tensors=(1, 3),  # keys and values may be one tensor, and queries with them
    arguments=(
        CallArgument("heads", CallArgumentKind.COUNT, required=True),
        CallArgument("kv_heads", CallArgumentKind.COUNT),
        CallArgument("batch", CallArgumentKind.COUNT),
        CallArgument("causal", CallArgumentKind.TRUTH),
    ),
    after=("all_gather", "all_to_all"),
    before=("all_to_all",),
)
