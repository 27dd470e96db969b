"""``attention(q, k, v, heads=32)``: queries, keys and values apart or packed, alone, before or after a collective.

q is [batch * queries, heads * head_dim], k and v are alike with kv_heads. Packed as FlashAttention has it
(``flash_attn_kvpacked_func``, ``flash_attn_qkvpacked_func``): in ``attention(q, kv)`` a row of kv holds keys and values
of one position, in ``attention(qkv)`` queries as well. Columns go head by head, so that those of some heads lie
together (Megatron-LM, ``linear_qkv``).

In decode ``attention(qkv, cache, heads=8, kv_heads=1, batch=64)`` takes queries, keys and values of new positions, and
a cache that holds keys and values of all, the new ones too.

Values of other sizes than keys (DeepSeek-V2, arXiv 2405.04434, section 2.1) need ``value_dim``: in ``attention(q, kv,
heads=16, value_dim=128)`` a head of kv has its key first. Where kv has columns for keys alone, the first ``value_dim``
of each key are its value: MLA whose projections are absorbed, as it decodes. With ``window=128`` a query of a causal
attention sees the last 128 keys up to its own (Mistral 7B, arXiv 2310.06825). ``by=trtllm`` takes the
kernels of TensorRT-LLM, where the profile of the GPU has their constants.

``attention_back(qkv, a, da, heads=32)`` computes the gradients of queries, keys and values; ``a`` is the result of the
forward pass, and ``da`` its gradient. The kernel computes the scores again (Dao et al., FlashAttention, arXiv
2205.14135, algorithm 4). It has one result: the gradients side by side. Those of packed tensors are packed as in
``attention(qkv)``; of ``d = attention_back(q, kv, a, da, heads=32)`` they are ``d.q`` and ``d.kv``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from ...codes import Code
from ..stopping import Rejection
from ..tensors import DType, Pattern, Shard, Tensor
from .base import (
    CallArgument,
    CallArgumentKind,
    CallResult,
    KernelOperation,
    OperationCall,
    OperationError,
    check_local,
    check_peak,
    check_scales,
    check_types,
    mismatch,
    not_simulated,
)
from .kernel_shape import Adds, Cutting, KernelShape

TRTLLM, OVER = "trtllm", "over"


@dataclass(frozen=True, slots=True)
class AttentionShape(KernelShape):
    """Attention, forward: softmax(Q K^T) V for each of ``batch * heads``, where Q is [q_len, head_dim].

    ``kv_heads`` divides ``heads``; each of them serves as many query heads. ``causal`` aligns the last query with the
    last key: query i sees keys up to i + kv_len - q_len, the last ``window`` of them if there is one. ``partial`` is
    over some of the keys only, and leaves what the others are to be added to (``accumulator_bytes``).

    ``by`` names the library whose kernel it is, empty for the one that the profile was fitted to.

    With ``context`` the sequence lies on as many ranks along the axis ``over``, ``q_len`` of its positions on each, an
    early and a late chunk, so that all have equal work: ``kv_len`` is then what a query sees on the mean.

    ``values`` are columns of a value of one head, None for as many as ``head_dim``, those of a key; values that are
    ``in_keys`` are the first columns of keys, and are not read again.
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
    values: int | None = None
    in_keys: bool = False
    window: int | None = None
    by: str = ""
    context: int = 1
    over: str = ""

    @property
    def value_dim(self) -> int:
        """Columns of a value of one head, and of the output."""
        return self.head_dim if self.values is None else self.values

    @property
    def key_cols(self) -> int:
        """Columns of a key and its value, as they are read."""
        return self.head_dim if self.in_keys else self.head_dim + self.value_dim

    @property
    def product_cols(self) -> int:
        """Columns that both products of a query and a key run over."""
        return self.head_dim + self.value_dim

    @property
    def keys_seen(self) -> int:
        """Keys that some query sees, of one head."""
        return self.kv_len if self.window is None else min(self.kv_len, self.q_len + self.window - 1)

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees, of one head."""
        if not self.causal:
            return self.q_len * self.kv_len
        seeing = min(self.q_len, self.kv_len)  # queries that see a key: the last sees all, each before it one less
        hidden = 0 if self.window is None else max(0, self.kv_len - self.window)  # from the last, by the window
        full = min(seeing, hidden)  # queries with more keys than the window has
        return seeing * self.kv_len - seeing * (seeing - 1) // 2 - (full * hidden - full * (full - 1) // 2)

    @property
    def flops(self) -> int:
        """Operations of both products without what the mask hides, multiply and add counted as two; no softmax."""
        return 2 * self.batch * self.heads * self.pairs * self.product_cols

    @property
    def exchanged(self) -> int:
        """Elements of keys and values of all ranks of a ``context``, of which each has as many."""
        return self.batch * self.context * self.q_len * self.kv_heads * self.key_cols if self.context > 1 else 0

    @property
    def operand_bytes(self) -> int:
        """Queries, keys and values."""
        queries = self.heads * self.q_len * self.head_dim
        return self.dtype.bytes_of(self.batch * (queries + self.kv_heads * self.keys_seen * self.key_cols))

    @property
    def output_bytes(self) -> int:
        """A row for each query of each head."""
        return self.dtype.bytes_of(self.batch * self.heads * self.q_len * self.value_dim)

    @property
    def accumulator_bytes(self) -> int:
        """The output over some of the keys: in fp32, with the maximum and the sum of each row of the softmax.

        Online softmax rescales them when more keys come (Dao et al., FlashAttention, arXiv 2205.14135, algorithm 1;
        Liu et al., Ring Attention, arXiv 2310.01889).
        """
        return 4 * self.batch * self.heads * self.q_len * (self.value_dim + 2)

    @property
    def text(self) -> str:
        """Queries x keys and the heads."""
        lengths = f"{self.q_len} x {self.kv_len}" + (" causal" if self.causal else "")
        lengths += f" of {self.context} ranks" if self.context > 1 else ""
        window = "" if self.window is None else f", window {self.window}"
        values = "" if self.values is None else f" and {self.values}"
        return f"{self.dtype.value} {lengths}{window}, {self.heads} heads of {self.head_dim}{values}"

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
        return (1, 1) if moved is None else (self.heads * self.value_dim, moved.cols if pattern.consumes else 1)


def _infer(call: OperationCall) -> CallResult:
    _check_origins(call)
    tensors = call.tensors
    check_types(tensors)
    first, last, batch = tensors[0], tensors[-1], call.arguments.get("batch", 1)
    heads = call.arguments["heads"]
    kv_heads, values = call.arguments.get("kv_heads", heads), call.arguments.get("value_dim")
    head_dim, in_keys = head_dim_of(tensors, heads, kv_heads, values)
    q_rows = first.rows // (call.num_ranks if first.shard is Shard.ROWS else 1)
    if q_rows % batch or last.rows % batch:
        raise mismatch(f"{batch} sequences do not divide {q_rows} rows of {first.name} and {last.rows} of {last.name}")
    causal = call.arguments.get("causal", False)
    if causal and call.operands[-1].origin == "all_gather" and first.rows != last.rows:
        message = f"causal attention of {first.rows} queries to {last.rows} gathered keys"
        raise mismatch(message, "both are of one sequence, dealt to the ranks alike")
    check_scales(call, first.dtype)
    check_peak(call.gpu, first.dtype)
    lengths = q_rows // batch, last.rows // batch
    shape = AttentionShape(batch, heads, kv_heads, *lengths, head_dim, first.dtype, causal)
    shape = replace(
        shape, values=None if values == head_dim else values, in_keys=in_keys, window=window_of(call, causal)
    )
    shape = in_context(call, replace(shape, by=_library(call)))
    return CallResult(Tensor(call.result, first.dtype, first.rows, heads * shape.value_dim, first.shard), shape)


Attention = TypeVar("Attention", bound=AttentionShape)


def window_of(call: OperationCall, causal: bool) -> int | None:
    """The keys that a query sees, where a call says so."""
    window: int | None = call.arguments.get("window")
    if window is not None and not causal:
        raise mismatch("a window of keys ends at the key of the query", "add causal=yes, or leave window out")
    return window


def in_context(call: OperationCall, shape: Attention) -> Attention:
    """The attention of a rank whose sequence lies on all ranks along an axis, where a call names one.

    The keys and values of the others are exchanged by the step that the layer is of. A causal one has the mean share
    of pairs, in blocks without a mask, as chunks are dealt (Llama 3, arXiv 2407.21783, section 3.3.2).
    """
    axis, ranks = call.arguments.get(OVER, ("", 1))
    if ranks == 1:
        return shape
    if shape.window is not None or shape.q_len != shape.kv_len or any(each.origin for each in call.operands):
        message = f"attention over {axis} with a window, a cache or what a collective brings"
        raise not_simulated(message, f"attention(qkv, heads=32, causal=yes, {OVER}={axis})")
    if shape.causal and shape.q_len % 2:
        message = f"causal attention over {axis} deals a rank two chunks of a sequence, not {shape.q_len} rows"
        raise OperationError(Rejection(Code.MGS304, message, f"{2 * ranks} chunks divide the sequence"))
    keys = shape.q_len * ranks
    pairs = replace(shape, q_len=keys, kv_len=keys).pairs
    return replace(shape, kv_len=-(-pairs // keys), causal=False, context=ranks, over=axis)


def _library(call: OperationCall) -> str:
    """The library whose kernel a call names, empty if it names none."""
    by: str = call.arguments.get("by", "")
    if by not in ("", TRTLLM):
        raise mismatch(f"'{by[:40]}' is no library whose attention is known", f"write by={TRTLLM}, or leave it out")
    if by and call.gpu.trtllm is None:
        raise mismatch(f"{call.gpu.name} has no constants of {by}'s attention", "leave by out")
    return by


def _check_origins(call: OperationCall) -> None:
    """Reject what a collective brought, unless it is kv next to queries sharded by rows, or qkv."""
    first, rest = call.operands[0], call.operands[1:]
    origins = [operand.origin for operand in call.operands]
    if "value_dim" in call.arguments and any(origins):
        raise not_simulated("values of other sizes than keys behind a collective", "leave value_dim out")
    if "window" in call.arguments and "all_gather" in origins:
        raise not_simulated("a window of gathered keys", "leave window out: each rank would need some of them only")
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


def head_dim_of(tensors: Sequence[Tensor], heads: int, kv_heads: int, values: int | None = None) -> tuple[int, bool]:
    """The size of a head, by the columns of the tensor with the queries, and whether values are columns of keys.

    ``values`` is the size of a value where it is said.

    Raises
    ------
    OperationError
        If the columns or rows of the others do not fit.
    """
    first, last, packed = tensors[0], tensors[-1], len(tensors) == 1
    if len(tensors) == 2 and not values and first.cols * 2 * kv_heads == last.cols * (heads + 2 * kv_heads):
        first = replace(first, cols=first.cols // (heads + 2 * kv_heads) * heads)  # in decode, beside a cache
    in_values = kv_heads * (values or 0) if packed else 0
    in_first = heads + (kv_heads if values else 2 * kv_heads) * packed
    if heads % kv_heads:
        raise mismatch(f"{heads} heads are no multiple of {kv_heads} kv_heads")
    if (first.cols - in_values) % in_first or first.cols <= in_values:
        those = f"{heads} heads and {in_first - heads} of keys and values" if packed else f"{heads} heads"
        raise mismatch(f"{those} do not divide {first.cols - in_values} columns of {first.name}")
    head_dim = (first.cols - in_values) // in_first
    value_dim = values or head_dim
    in_keys = values is not None and len(tensors) == 2 and tensors[1].cols == kv_heads * head_dim
    if in_keys and value_dim > head_dim:
        raise mismatch(f"keys of {tensors[1].name} have {head_dim} columns, and values in them {value_dim}")
    sizes = (head_dim, value_dim) if len(tensors) == 3 else (head_dim if in_keys else head_dim + value_dim,)
    for tensor, size in zip(tensors[1:], sizes, strict=False):
        rows, cols = tensors[1].rows, kv_heads * size
        if (tensor.rows, tensor.cols) != (rows, cols):
            of = f"{head_dim}" if value_dim == head_dim else f"{head_dim} and {value_dim}"
            what = f"[{tensor.rows}, {tensor.cols}]; {kv_heads} kv_heads of {of}"
            raise mismatch(f"{tensor.name} is {what} need [{rows}, {cols}]")
    return head_dim, in_keys


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
        CallArgument("value_dim", CallArgumentKind.COUNT),
        CallArgument("window", CallArgumentKind.COUNT),
        CallArgument("by", CallArgumentKind.NAME),
        CallArgument(OVER, CallArgumentKind.AXIS),
    ),
    after=("all_gather", "all_to_all"),
    before=("all_to_all",),
)


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


def _infer_back(call: OperationCall) -> CallResult:
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
    shape = in_context(call, shape)
    parts = zip(PARTS.get(len(operands), ()), (tensor.cols for tensor in operands), strict=False)
    return CallResult(output, shape, parts=tuple(parts))


BACK = KernelOperation(
    name="attention_back",
    example="attention_back(qkv, a, da, heads=32, kv_heads=8, causal=yes)",
    infer=_infer_back,
    num_tensors=(3, 5),
    arguments=tuple(argument for argument in OPERATION.arguments if argument.name != "by"),
)
