"""An operation of a workload, the call that it is given, and the result of the call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

from ...codes import Code
from ..hardware import Gpu
from ..stopping import RejectedError, Rejection
from ..tensors import DType, Pattern, RankParts, Shard, Tensor, rank_parts
from .kernel_shape import KernelShape
from .routing_laws import UNIFORM, RoutingLaw


class OperationError(RejectedError):
    """A call that cannot be, and why."""


def mismatch(message: str, hint: str = "") -> OperationError:
    """Shapes, types or layouts that do not go together."""
    return OperationError(Rejection(Code.MGS310, message, hint))


def not_simulated(message: str, hint: str) -> OperationError:
    """A combination that is not simulated."""
    return OperationError(Rejection(Code.MGS520, message, hint))


class CallArgumentKind(Enum):
    """How a named argument of a call is written, and what is made of it."""

    COUNT = auto()  # a positive whole number: an int
    TRUTH = auto()  # yes or no: a bool
    COUNTS = auto()  # a list of whole numbers: a tuple of int
    TYPE = auto()  # an element type: a DType
    ROUTING = auto()  # uniform, power_law(1.2, seed=3), loads([...]) and so on: a RoutingLaw
    TIMES = auto()  # 12 us, or a list of them, one for each rank: a tuple of ticks
    NAME = auto()  # a name of the file or of the library: a str
    AXIS = auto()  # an axis of the mesh: its name, and how many ranks lie along it
    TABLE = auto()  # a list of whole numbers, or such a list for each rank: a tuple of int or of such tuples


@dataclass(frozen=True, slots=True)
class CallArgument:
    """A named argument of a call."""

    name: str
    kind: CallArgumentKind
    required: bool = False


@dataclass(frozen=True, slots=True)
class Routing:
    """Routing of ``rows`` rows of a rank: each goes to ``top`` of ``experts``.

    ``sent`` is how many rows a rank sends and gets, itself among those it sends to, and ``home`` how many come back to
    it. ``dealt`` are the rows of each expert that is taken, of the rank with most, for which the others wait; some may
    have none. Where all ranks hold all rows, nothing is sent. ``nodes`` are those that the experts of a row lie in, 0
    where that is not said; ``by`` is the implementation that sends them, empty if the text names none. ``tokens`` of
    all ranks are routed by ``law`` to experts and ``replicas``, placed one after the other unless ``greedy``.
    """

    rows: int
    experts: int
    top: int
    sent: int
    dealt: tuple[int, ...]
    ranks: int
    home: int
    tokens: int
    nodes: int = 0
    by: str = ""
    law: RoutingLaw = UNIFORM
    replicas: int = 0
    greedy: bool = False

    @property
    def taken(self) -> int:
        """The experts of each rank that are taken."""
        return len(self.dealt)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Rows that a rank sends, those that it has, copies of them if each expert gets one, and experts.

        Of experts in groups a rank has the share of its rows: all are counted and laid out once, whatever the groups.
        """
        experts = self.taken * self.ranks
        own = self.rows * experts // (self.experts + self.replicas)
        return self.sent, own, sum(self.dealt), experts


@dataclass(frozen=True, slots=True)
class Exchange:
    """Rows that ranks send each other in an all_to_all, where they are not the same for all; see ``OpShape``.

    ``table`` holds the rows [from][to] wherever a call says them so, even if all ranks send alike. ``routing`` is that
    of a dispatch.
    """

    split: tuple[int, ...] = ()
    loads: tuple[tuple[int, ...], ...] = ()
    table: tuple[tuple[int, ...], ...] = ()
    experts: tuple[tuple[int, ...], ...] = ()
    routing: Routing | None = None

    @property
    def received(self) -> tuple[int, ...]:
        """Rows that each rank has after an all_to_all whose loads differ from rank to rank; empty without one."""
        return tuple(map(sum, zip(*self.loads, strict=True)))

    @property
    def busiest(self) -> int:
        """The rank that stands for all: the first of those that get most."""
        return self.received.index(max(self.received)) if self.loads else 0


EVEN = Exchange()


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor and the operation that made it, None where it is declared; ``partial``: ranks hold terms of a sum.

    ``transposed``: ``tensor`` is the transpose of what a text names.
    """

    tensor: Tensor
    made_by: "Operation | None" = None
    partial: bool = False
    transposed: bool = False

    @property
    def origin(self) -> str:
        """The name of the operation that made it, empty where it is declared."""
        return self.made_by.name if self.made_by is not None else ""


@dataclass(frozen=True, slots=True)
class OperationCall:
    """A call as an operation sees it: ``result`` is the name of the tensor it makes, ``arguments`` are by name.

    ``exchange`` is that of the all_to_all before it.
    """

    operation: "Operation"
    result: str
    operands: tuple[Operand, ...]
    arguments: Mapping[str, Any]
    num_ranks: int
    gpu: Gpu
    exchange: Exchange = EVEN

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of the operands."""
        return tuple(operand.tensor for operand in self.operands)

    def counts(self, name: str) -> tuple[int, ...]:
        """``rows=[512, 256]``; empty if it is not said, or by rank."""
        value: tuple[Any, ...] = self.arguments.get(name, ())
        return () if value and isinstance(value[0], tuple) else value

    def counts_by_rank(self, name: str) -> tuple[tuple[int, ...], ...]:
        """``rows=[[512, 256], [128, 640]]``, a list for each rank; empty if it is not said, or as one list."""
        value: tuple[Any, ...] = self.arguments.get(name, ())
        return value if value and isinstance(value[0], tuple) else ()


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call: a tensor, and the kernel of one rank that computes it or the tensor that moves for it.

    ``exchange`` is None where the call leaves it as it was. ``parts`` are columns of the tensor side by side that have
    words of their own, each with their number. ``in_parts`` says in which parts what ranks hold in full moves.
    ``layout`` is how what a kernel of one rank makes lies on all, None if as its first operand does.
    """

    tensor: Tensor
    kernel: KernelShape | None = None
    moved: Tensor | None = None
    partial: bool = False
    exchange: Exchange | None = None
    parts: tuple[tuple[str, int], ...] = ()
    in_parts: RankParts | None = None
    layout: Shard | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation: its word, what a call of it takes, and what the call makes.

    ``num_tensors`` is (fewest, most). ``infer`` raises OperationError for a call that cannot be. A tensor that the call
    makes or takes inside another call has no name of its own: it is named after the operand or the result with one of
    the suffixes.
    """

    name: str
    example: str
    infer: Callable[[OperationCall], CallResult] = field(repr=False)
    num_tensors: tuple[int, int] = (1, 1)
    arguments: tuple[CallArgument, ...] = ()
    result_suffix: str = ""
    operand_suffix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOperation(Operation):
    """An operation that computes, and where it may stand: by the names of other operations.

    ``after``: collectives whose result its first tensor or tensors may be. ``before``: collectives that take its
    result. ``beside``: collectives that need nothing of it. ``follows``: kernels whose result an all_to_all may bring.
    ``ends``: kernels whose result it may take before that is written, as the end of the same kernel.
    ``opaque``: what it computes is not known: operands may be anything, and its result may be terms of a sum.
    ``uneven``: whether that all_to_all may give ranks different numbers of rows; see ``KernelShape.at_rank``.
    """

    alone: Pattern = Pattern.KERNEL
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    uneven: bool = False
    opaque: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveOperation(Operation):
    """An operation that moves a tensor, and the pattern that it forms with kernels; None where it forms none."""

    alone: Pattern
    before_kernel: Pattern | None = None
    after_kernel: Pattern | None = None
    independent_kernel: Pattern | None = None
    between_kernels: Pattern | None = None


# Checks that operations share. Each raises OperationError.


def lone_tensors(call: OperationCall) -> tuple[Tensor, ...]:
    """The tensors of a kernel that stands alone: declared, whole on the rank, of one type."""
    check_local(call, call.operands)
    check_types(call.tensors)
    return call.tensors


def check_local(call: OperationCall, operands: Sequence[Operand]) -> None:
    """Reject operands that another operation made or that are not whole on the rank."""
    for operand in operands:
        if operand.made_by is not None:
            message = f"{call.operation.name} of the result of {operand.origin} is not simulated"
            raise not_simulated(message, f"{call.operation.name} takes what is declared or what a kernel makes")
        tensor = operand.tensor
        if tensor.shard is not Shard.NONE:
            message = f"{call.operation.name} runs on one rank, but {tensor.name} is {tensor.layout}"
            raise mismatch(message, f"say the size of one rank and drop the shard of {tensor.name}")


def check_whole(tensor: Tensor, why: str) -> None:
    """Reject a tensor that is sharded; ``why`` it must not be."""
    if tensor.shard is not Shard.NONE:
        raise mismatch(f"{why}, but {tensor.name} is {tensor.layout}", f"drop the shard of {tensor.name}")


def check_types(tensors: Sequence[Tensor]) -> None:
    """Reject tensors of several element types."""
    first = tensors[0]
    for other in tensors[1:]:
        if other.dtype is not first.dtype:
            raise mismatch(f"types differ: {first.name} is {first.dtype.value}, {other.name} is {other.dtype.value}")


def product_types(call: OperationCall, x: Tensor, w: Tensor) -> tuple[DType | None, DType | None]:
    """The types of the weights ``w`` and of the product as the shape has them; None where they follow from ``x``.

    Weights may be of a narrower type than ``x``, at whose rate they are multiplied: kernels widen them on the way.
    Reject others.
    """
    narrower = (w.dtype.block > 1 or w.dtype is DType.FP8) and w.dtype.mean_bytes < x.dtype.mean_bytes
    if not narrower:
        check_types([x, w])
    return w.dtype if narrower else None, call.arguments.get("type")


def check_inner(left: str, cols: int, right: Tensor) -> None:
    """Reject a product whose left factor, of so many columns, does not meet the rows of the right one."""
    if cols != right.rows:
        raise mismatch(f"inner dimensions differ: {left} has {cols} columns, {right.name} has {right.rows} rows")


def check_peak(gpu: Gpu, dtype: DType) -> None:
    """Reject an element type that the GPU has no peak for."""
    if not gpu.peak(dtype):
        known = ", ".join(each.value for each, _ in gpu.peak_flops)
        message = f"{gpu.name} has no peak rate for {dtype.value}"
        raise OperationError(Rejection(Code.MGS405, message, f"it has: {known}"))


def reject_share(size: int, what: str, num_ranks: int) -> Rejection | None:
    """Why the ranks cannot get the same share, None if they can."""
    if size % num_ranks == 0:
        return None
    less = size // num_ranks * num_ranks
    hint = f"use {less + num_ranks}{f' or {less}' if less else ''}, a multiple of {num_ranks}"
    return Rejection(Code.MGS304, f"{size} {what} do not divide among {num_ranks} ranks", hint)


def reject_blocks(name: str, dtype: DType, size: int) -> Rejection | None:
    """Why ``size`` elements side by side of ``name`` are no whole blocks of one scale each, None if they are."""
    block = dtype.block
    if size % block == 0:
        return None
    message = f"{dtype.value} has a scale for each {block} elements, and {size} of {name} are not whole blocks"
    return Rejection(Code.MGS304, message, f"use {-(-size // block) * block}, a multiple of {block}")


def check_inner_blocks(x: Tensor, w: Tensor, inner: int) -> None:
    """Reject a product of ``inner`` elements of each rank that are not whole blocks of one scale each."""
    for tensor in (x, w):
        check_blocks(f"the inner dimension of {tensor.name}", tensor.dtype, inner)


def check_blocks(name: str, dtype: DType, size: int) -> None:
    """Reject ``size`` elements side by side that are not whole blocks of one scale each."""
    OperationError.require(reject_blocks(name, dtype, size))


def check_scales(call: OperationCall, dtype: DType) -> None:
    """Reject a type with scales where the elements of several tensors meet, as in a sum or in attention."""
    if dtype.block > 1:
        message = f"{call.operation.name} of {dtype.value}, whose blocks have scales of their own, is not simulated"
        raise not_simulated(message, "in bf16: a cast before it, or gemm(x, w, type=bf16)")


def parts_of(call: OperationCall, tensor: Tensor) -> RankParts:
    """The parts of a tensor that ranks hold in full, one for each rank; reject one that is too small."""
    parts = rank_parts(tensor, call.num_ranks)
    if parts is None:
        message = f"{tensor.name} of {tensor.rows} x {tensor.cols} has no part for each of {call.num_ranks} ranks"
        raise OperationError(Rejection(Code.MGS304, message, f"{call.num_ranks} or more rows or columns"))
    return parts


def check_rows(call: OperationCall, tensor: Tensor, instead: str) -> None:
    """Reject rows of which not every rank gets the same share; ``instead`` says what takes any number of them."""
    rejection = reject_share(tensor.rows, "rows", call.num_ranks)
    if rejection is not None:
        raise OperationError(replace(rejection, hint=f"{rejection.hint}; {instead}"))
