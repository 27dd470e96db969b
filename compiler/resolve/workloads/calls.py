"""Calls of a workload one by one: the tensor that each makes, as it lies on the ranks, and the kernel of one rank.

Operations say what a call on one rank makes. Here their operands lie on all ranks: a kernel that is no product takes
the part of a rank, and its result lies as its first operand does. ``dispatch`` and ``combine`` are calls of what they
are made of: casts, the exchange, what deals and adds rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ...codes import Code
from ...ir import TICKS_PER_SECOND, ColumnPart, DType, Gpu, Rejection, Shard, System, Tensor
from ...ir.operations import (
    CallArgumentKind,
    CallResult,
    CollectiveOperation,
    Exchange,
    KernelOperation,
    Operand,
    Operation,
    OperationCall,
)
from ...ir.operations.base import EVEN, mismatch
from ...ir.operations.checks import reject_blocks, reject_share
from ...ir.operations.routing import COLLAPSE, COMBINE, DISPATCH, EXPAND, GIVE, MERGE, PICK, SEND, SEND_BACK
from ...ir.operations.routing_laws import DRAWN_LAWS, EVEN_LAWS, RoutingLaw
from ...ir.operations.row_wise import CAST
from ...text import syntax as ast
from ...text.diagnostics import Report, Span, did_you_mean, listing
from ...text.load import path_beside, read_source
from ...text.names import dotted
from ...text.units import NUMBER, TIME, round_half_up
from ...text.vocabulary import MAX_EXTENT, MAX_RANKS, TENSOR_WORDS, Property
from ..values.device_numbers import FigureReader
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.sentences import Words, single, truth

GEMM, EXPERTS, BY_HEAD = "gemm", "grouped_gemm", "batched_gemm"
ADD, GATHER, EXCHANGE = "add", "all_gather", "all_to_all"
ATTENTION = ("attention", "attention_back")
SUMS = ("reduce_scatter", "all_reduce")
_HEADS = ("heads", "kv_heads")
_TURNED = {Shard.ROWS: Shard.COLS, Shard.COLS: Shard.ROWS}
_SPLIT_EXPERTS = {(Shard.NONE, Shard.COLS): Shard.COLS, (Shard.COLS, Shard.ROWS): Shard.NONE}


@dataclass(frozen=True, slots=True)
class CallOperand:
    """An operand of a call: a tensor as it lies on the ranks, or some of its columns, transposed or not."""

    tensor: Tensor
    transposed: bool = False
    part: ColumnPart | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is the tensor as it is."""
        return not self.transposed and self.part is None

    @property
    def seen(self) -> Tensor:
        """The tensor as the call sees it."""
        tensor = self.tensor if self.part is None else self.tensor.part(self.part)
        if not self.transposed:
            return tensor
        shard = _TURNED.get(tensor.shard, tensor.shard)
        return replace(tensor, name=f"{tensor.name}.t", rows=tensor.cols, cols=tensor.rows, shard=shard)


@dataclass(frozen=True, slots=True)
class WorkloadCall:
    """A call: its ``result`` is a tensor of the workload; ``partial``: ranks hold terms of a sum.

    ``arguments`` are those of the text, of all ranks.
    ``definition`` is the name that the text defines with it: its own, or that of a call around it.
    ``takes`` is the position of the operand that a collective may bring in parts.
    """

    operation: KernelOperation | CollectiveOperation
    operands: tuple[CallOperand, ...]
    arguments: Mapping[str, Any]
    made: CallResult
    result: Tensor
    definition: str
    span: Span
    partial: bool = False
    exchange: Exchange = EVEN
    takes: int = 0

    @property
    def name(self) -> str:
        """The name of its result."""
        return self.result.name

    @property
    def parts(self) -> dict[str, ColumnPart]:
        """Columns of its result that have words of their own."""
        found: dict[str, ColumnPart] = {}
        first, ranks = 0, self.result.cols // self.made.tensor.cols  # as many as have columns of it
        for word, cols in self.made.parts:
            found[word] = ColumnPart(word, first, cols * ranks, self.result.cols)
            first += cols * ranks
        return found


def call_of(
    operation: KernelOperation | CollectiveOperation,
    name: str,
    operands: tuple[CallOperand, ...],
    arguments: Mapping[str, Any],
    makers: Mapping[str, WorkloadCall],
    num_ranks: int,
    gpu: Gpu,
    definition: str,
    span: Span,
) -> WorkloadCall:
    """The call of ``operation`` on tensors of the workload; ``makers`` are the calls that made them, by tensor.

    Raises
    ------
    OperationError
        If the call cannot be.
    """
    exchange = _exchange_of(operands, makers)
    partial = _all_partial(operation, operands, makers)
    gathered = _gathers_keys(operation, operands, makers)
    seen = tuple(Operand(each.seen) if partial else _operand(operation, each, makers, gathered) for each in operands)
    layout = seen[0].tensor.shard
    if operation.name == EXPERTS and seen[0].transposed:
        layout = _TURNED.get(layout, layout)  # the result has the experts of each rank, as the rows have
    split = _split_experts(operation, seen)
    opaque = isinstance(operation, KernelOperation) and operation.opaque
    of_all_ranks = gathered or opaque or operation.name == GEMM or isinstance(operation, CollectiveOperation)
    shared = dict(arguments)
    if not of_all_ranks:
        lying = _lying(operation, seen, layout, arguments) if split is None else [one.tensor.shard for one in seen]
        seen = tuple(_on_one_rank(operation, *each, num_ranks) for each in zip(seen, lying, strict=True))
        if operation.name in (*ATTENTION, BY_HEAD) and layout is Shard.COLS:
            whole = ("kv_heads",) if lying[-1] is Shard.NONE else ()
            shared = {w: v if w in whole else _share(w, v, num_ranks) for w, v in arguments.items()}
    made = operation.infer(OperationCall(operation, name, seen, shared, num_ranks, gpu, exchange))
    layout = split or made.layout or layout
    result = made.tensor if of_all_ranks else _layout_out(made.tensor, layout, num_ranks)
    if operation.name == GATHER:
        result = replace(result, shard=Shard.NONE)
    partial |= made.partial or split is Shard.NONE
    exchange = made.exchange or exchange
    return WorkloadCall(
        operation, operands, arguments, made, result, definition, span, partial, exchange, takes=int(gathered)
    )


def _lying(operation: Operation, seen: tuple[Operand, ...], layout: Shard, arguments: Mapping[str, Any]) -> list[Shard]:
    """How the operands of a call lie whose first lies as ``layout``: alike, but for what all heads read.

    Weights of heads lie below each other; the one head of keys is whole on every rank that has some of the queries'.
    """
    rest = layout
    if operation.name == BY_HEAD:
        rest = Shard.ROWS if layout is Shard.COLS else Shard.NONE
    elif operation.name == ATTENTION[0] and layout is Shard.COLS and arguments.get("kv_heads") == 1 and seen[1:]:
        rest = Shard.NONE
    return [layout, *(rest for _ in seen[1:])]


def _split_experts(operation: Operation, seen: tuple[Operand, ...]) -> Shard | None:
    """How products lie of rows and weights of all experts, of which each rank has some columns; None of others.

    Products of the second weights are terms of a sum on all ranks.
    """
    if operation.name != EXPERTS or any(operand.transposed for operand in seen):
        return None
    rows, weights = (operand.tensor.shard for operand in seen)
    return _SPLIT_EXPERTS.get((rows, weights))


def _exchange_of(operands: tuple[CallOperand, ...], makers: Mapping[str, WorkloadCall]) -> Exchange:
    """How the rows of the first operand that says it were sent."""
    made = (makers[each.tensor.name].exchange for each in operands if each.tensor.name in makers)
    return next((exchange for exchange in made if exchange != EVEN), EVEN)


def _all_partial(operation: Operation, operands: tuple[CallOperand, ...], makers: Mapping[str, WorkloadCall]) -> bool:
    """Whether terms of sums are added on each rank, which gives those of one sum."""
    terms = [each.tensor.name in makers and makers[each.tensor.name].partial for each in operands]
    return operation.name in (ADD, GIVE.name) and all(terms)


def _gathers_keys(operation: Operation, operands: tuple[CallOperand, ...], makers: Mapping[str, WorkloadCall]) -> bool:
    """Whether queries of each rank attend to keys and values that are gathered."""
    if operation.name != ATTENTION[0] or operands[0].seen.shard is Shard.COLS:
        return False
    first, *rest = (makers.get(each.tensor.name) for each in operands)
    gathered = [call is not None and call.operation.name == GATHER for call in (first, *rest)]
    return not gathered[0] and any(gathered)


def _operand(operation: Operation, operand: CallOperand, makers: Mapping[str, WorkloadCall], gathered: bool) -> Operand:
    """An operand as an operation sees it: declared, but for what a sum or a block of an exchange comes from.

    So do keys and values that are ``gathered``.
    """
    maker = makers.get(operand.tensor.name)
    if maker is None or not operand.is_plain:
        return Operand(operand.seen, transposed=operand.transposed)
    sums = operation.name in SUMS
    takes_blocks = isinstance(operation, KernelOperation) and EXCHANGE in operation.after
    exchanged = takes_blocks and maker.operation.name == EXCHANGE
    if sums or exchanged or (gathered and maker.operation.name == GATHER):
        return Operand(operand.tensor, maker.operation, maker.partial)
    opaque = isinstance(operation, KernelOperation) and operation.opaque
    if maker.partial and not opaque:
        raise mismatch(f"{operand.tensor.name} is a part of a sum on each rank", "add it up: reduce_scatter(...)")
    return Operand(operand.seen)


def _on_one_rank(operation: Operation, operand: Operand, layout: Shard, num_ranks: int) -> Operand:
    """The part of a rank, as a whole; operands of a call lie alike, and of experts as they are seen."""
    tensor = operand.tensor
    if operation.name == EXPERTS and operand.transposed:
        layout = _TURNED.get(layout, layout)
    if operand.made_by is not None:
        return operand
    if tensor.shard is Shard.FLAT:
        raise mismatch(f"{tensor.name} is in flat shards, which are gathered first", f"all_gather({tensor.name})")
    if tensor.shard is not layout:
        hint = "rows that all ranks hold go to their experts by dispatch(x, experts=..., top=...)"
        message = f"operands of {operation.name} lie alike, but {tensor.name} is {tensor.layout}"
        raise mismatch(message, hint if operation.name == EXPERTS else "")
    rows = tensor.rows // num_ranks if layout is Shard.ROWS else tensor.rows
    cols = tensor.cols // num_ranks if layout is Shard.COLS else tensor.cols
    return Operand(replace(tensor, rows=rows, cols=cols, shard=Shard.NONE), transposed=operand.transposed)


def _share(word: str, value: Any, ranks: int) -> Any:
    """The heads of one rank."""
    if word not in _HEADS or ranks == 1:
        return value
    if value % ranks:
        raise mismatch(f"{value} {word} do not divide among {ranks} ranks")
    return value // ranks


def _layout_out(tensor: Tensor, layout: Shard, num_ranks: int) -> Tensor:
    """The result of one rank on all ranks."""
    rows = tensor.rows * num_ranks if layout is Shard.ROWS else tensor.rows
    cols = tensor.cols * num_ranks if layout is Shard.COLS else tensor.cols
    return replace(tensor, rows=rows, cols=cols, shard=layout)


Link = tuple[KernelOperation | CollectiveOperation, Mapping[str, Any]]
"""A call of a chain with its arguments; it takes what the one before makes."""


def chain_of(
    operation: KernelOperation | CollectiveOperation,
    arguments: Mapping[str, Any],
    operands: tuple[CallOperand, ...],
    makers: Mapping[str, WorkloadCall],
    system: System,
) -> tuple[Link, ...]:
    """The calls in turn that ``operation`` is made of, on ``operands`` that calls of ``makers`` made; most are one.

    Raises
    ------
    OperationError
        If rows go to more nodes than the system has, or to none where it says where they go.
    """
    if operation is DISPATCH:
        tensor = operands[0].seen
        _check_sent(arguments, tensor, system)
        sent = {name: value for name, value in arguments.items() if name != "type"}
        wanted = arguments.get("type", tensor.dtype)
        cast: tuple[Link, ...] = ((CAST, {"type": wanted}),) if wanted is not tensor.dtype else ()
        return (*cast, (PICK, sent)) if tensor.shard is Shard.NONE else (*cast, (SEND, sent), (EXPAND, {}))
    if operation is COMBINE:
        routing = _exchange_of(operands, makers).routing
        is_sent = routing is None or routing.sent > 0
        return ((COLLAPSE, arguments), (SEND_BACK, {}), (MERGE, {})) if is_sent else ((GIVE, arguments),)
    return ((operation, arguments),)


def _check_sent(arguments: Mapping[str, Any], tensor: Tensor, system: System) -> None:
    for word in ("nodes", "by", "routing", "replicas", "placed"):
        if tensor.shard is Shard.NONE and word in arguments:
            raise mismatch(f"all ranks hold {tensor.name}, whose rows are sent nowhere", f"leave {word} out")
    if tensor.shard is not Shard.NONE and "ep" in arguments:
        message = f"ep says where experts are of rows that all ranks hold, but {tensor.name} is {tensor.layout}"
        raise mismatch(message, "leave ep out, or gather the rows first: dispatch(all_gather(x), ...)")
    size = system.fabric.node_size
    nodes, known = arguments.get("nodes", 1), system.num_ranks // size if size else 1
    if nodes > known:
        raise mismatch(f"rows go to {nodes} nodes, and the system has {known}", "leave nodes out")


_LAW = 'power_law(1.2, seed=0), sampled(1.9), uniform, stride, loads([512, 256]) or histogram("counts.csv")'
MAX_TIME = Fraction(10)
"""Seconds that a kernel may take."""
MAX_DRAWS = 4096
_EXPONENT = Property("an exponent", NUMBER, Fraction(1, 10), Fraction(10))
_EXAMPLE = "x = tensor bf16[8192, 8192] shard rows"
_EXTENT = Property("a size", NUMBER, Fraction(1), Fraction(MAX_EXTENT), whole=True)


class ArgumentReader:
    """Reads the arguments of calls in one workload on ``whole``, or on a group of it."""

    def __init__(self, report: Report, evaluator: ExpressionEvaluator, place: Place, whole: System) -> None:
        self._report, self._place, self._seed, self._system = report, place, evaluator.seed, whole
        self._numbers = FigureReader(report, evaluator)
        self._readers: Mapping[CallArgumentKind, Callable[[str, ast.Expression], Any]] = {
            CallArgumentKind.COUNT: lambda name, written: self._whole(name, written, low=1),
            CallArgumentKind.TIME: self._ticks,
            CallArgumentKind.TRUTH: lambda _, written: truth(written, self._report),
            CallArgumentKind.COUNTS: self._counts,
            CallArgumentKind.TYPE: lambda _, written: dtype_named(written, self._report),
            CallArgumentKind.TABLE: self._table,
            CallArgumentKind.NAME: self._name,
            CallArgumentKind.AXIS: self._axis,
            CallArgumentKind.ROUTING: self._law,
        }

    def tensors(self, operation: Operation, call: ast.Call) -> list[ast.Expression]:
        """The tensors of a call whose named arguments are checked for being known."""
        names = [argument.name for argument in operation.arguments]
        seen: set[str] = set()
        for argument in call.arguments:
            name = argument.name
            if name is None:
                continue
            if name not in names:
                known = f"it has: {listing(names)}" if names else ""
                what = f"no argument '{name[:64]}'" if names else "no named arguments"
                hint = did_you_mean(name, names) or known
                raise self._report.fail(Code.MGS201, f"{operation.name} has {what}", call.span, hint)
            if name in seen:
                raise self._report.fail(Code.MGS206, f"{name} is said twice", argument.span)
            seen.add(name)
        values = [single(each.values, self._report, in_call=True) for each in call.arguments if each.name is None]
        fewest, most = operation.num_tensors
        if not fewest <= len(values) <= most:
            many = f"{fewest} to {most}" if fewest < most else most
            message = f"{operation.name} takes {many} tensor{'s' * (most > 1)}"
            raise self._report.fail(Code.MGS116, message, call.span, operation.example)
        return values

    def arguments(self, operation: Operation, call: ast.Call) -> dict[str, Any]:
        """The named arguments that the call says, as values of their kinds."""
        written = {
            argument.name: single(argument.values, self._report, in_call=True)
            for argument in call.arguments
            if argument.name is not None
        }
        for argument in operation.arguments:
            if argument.required and argument.name not in written:
                message = f"{operation.name} does not say its {argument.name}"
                raise self._report.fail(Code.MGS209, message, call.span, operation.example)
        kinds = {argument.name: argument.kind for argument in operation.arguments}
        return {name: self._readers[kinds[name]](name, expression) for name, expression in written.items()}

    def _whole(self, name: str, written: ast.Expression, low: int = 0) -> int:
        wanted = Property(name, NUMBER, Fraction(low), Fraction(MAX_EXTENT), whole=True)
        return int(self._numbers.value(wanted, (written,), self._place).amount)

    def _ticks(self, name: str, written: ast.Expression) -> int:
        wanted = Property(name, TIME, Fraction(0), MAX_TIME)
        return round_half_up(self._numbers.value(wanted, (written,), self._place).amount * TICKS_PER_SECOND)

    def _name(self, name: str, written: ast.Expression) -> str:
        if not isinstance(written, ast.Name):
            raise self._report.fail(Code.MGS116, f"{name} is a name", written.span, f"{name}=deepep")
        return written.text

    def _axis(self, name: str, written: ast.Expression) -> tuple[str, int]:
        """An axis of the mesh of the whole system, and its size."""
        names = dotted(written)
        if names is None or len(names) > 1:
            raise self._report.fail(Code.MGS116, f"{name} names an axis", written.span, f"{name}=cp")
        axes = self._system.axes(names)
        if isinstance(axes, Rejection):
            raise self._report.fail(axes.code, axes.message, written.span, axes.hint)
        return axes[0].name, axes[0].size

    def _law(self, name: str, written: ast.Expression) -> RoutingLaw:
        """What ``_LAW`` names."""
        match written:
            case ast.Name(text=word) if word in EVEN_LAWS:
                return RoutingLaw(word)
            case ast.Call(function=ast.Name(text=word)) if word in DRAWN_LAWS:
                return self._drawn(word, written)
            case ast.Call(function=ast.Name(text="loads"), arguments=(ast.Argument(name=None, values=(counts,)),)):
                return RoutingLaw("loads", counts=self._counts("loads", counts))
            case ast.Call(function=ast.Name(text="histogram"), arguments=(ast.Argument(values=(ast.Text() as path,)),)):
                return RoutingLaw("histogram", counts=self._histogram(path))
            case ast.Name() | ast.Call(function=ast.Name()):
                word = written.text if isinstance(written, ast.Name) else written.span.text
                raise self._report.fail(Code.MGS204, f"unknown routing '{word[:64]}'", written.span, f"routing={_LAW}")
            case _:
                raise self._report.fail(Code.MGS116, f"{name} is a law", written.span, f"routing={_LAW}")

    def _drawn(self, law: str, call: ast.Call) -> RoutingLaw:
        """``power_law(1.2)``, ``sampled(1.9, seed=3)`` or with several seeds, ``seed=0..9``."""
        match call.arguments:
            case (ast.Argument(name=None) as first,):
                seed, draws = 0, 1
            case (ast.Argument(name=None) as first, ast.Argument(name="seed") as said):
                seed, draws = self._seeds(single(said.values, self._report, in_call=True))
            case _:
                message = f"{law} takes an exponent and a seed"
                raise self._report.fail(Code.MGS116, message, call.span, f"routing={law}(1.2, seed=0)")
        exponent = self._numbers.value(_EXPONENT, (single(first.values, self._report),), self._place).amount
        if self._seed is not None:
            seed = self._seed
        return RoutingLaw(law, exponent, seed, draws=draws)

    def _seeds(self, written: ast.Expression) -> tuple[int, int]:
        """The first seed, and how many there are."""
        if not isinstance(written, ast.Range):
            return self._whole("seed", written), 1
        first, last = (self._whole("seed", each) for each in (written.low, written.high))
        if first > last:
            message = f"the range {written.span.text} is empty"
            raise self._report.fail(Code.MGS306, message, written.span, "the smaller end stands first")
        if last - first >= MAX_DRAWS:
            message = f"{last - first + 1:,} seeds, the limit is {MAX_DRAWS:,}"
            raise self._report.fail(Code.MGS305, message, written.span, "a range of fewer seeds, such as 0..9")
        return first, last - first + 1

    def _histogram(self, path: ast.Text) -> tuple[int, ...]:
        """Counts of a file, one a line or separated by commas, in the order of experts."""
        source = read_source(path_beside(path, "histogram", self._report), self._report, path.span)
        words = source.text.replace(",", " ").split()
        wrong = next((word for word in words if not (word.isascii() and word.isdecimal() and len(word) < 16)), None)
        if wrong is not None or not words:
            message = f"'{wrong[:40]}' is no count of rows" if wrong is not None else "the file has no counts"
            raise self._report.fail(Code.MGS136, message, path.span, "whole numbers, one for each expert")
        return tuple(map(int, words))

    def _counts(self, name: str, written: ast.Expression) -> tuple[int, ...]:
        if not isinstance(written, ast.Listed) or not written.items:
            raise self._report.fail(Code.MGS116, f"{name} are a list", written.span, f"{name}=[512, 256]")
        if len(written.items) > MAX_RANKS:
            raise self._report.fail(Code.MGS305, f"at most {MAX_RANKS} counts of {name}", written.span)
        return tuple([self._whole(name, item) for item in written.items])

    def _table(self, name: str, written: ast.Expression) -> tuple[Any, ...]:
        match written:
            case ast.Listed(items=(ast.Listed(), *_) as items):
                if len(items) > MAX_RANKS:
                    raise self._report.fail(Code.MGS305, f"at most {MAX_RANKS} lists of {name}", written.span)
                return tuple([self._counts(name, item) for item in items])
            case _:
                return self._counts(name, written)


class TensorReader:
    """Reads the tensors of a workload on ``num_ranks`` ranks; where it ``routes``, rows are filled up.

    With ``one_rank`` its group has one, which has all of each tensor.
    """

    def __init__(
        self, report: Report, evaluator: ExpressionEvaluator, num_ranks: int, routes: bool, one_rank: bool = False
    ) -> None:
        self._report, self._num_ranks, self._routes, self._one_rank = report, num_ranks, routes, one_rank
        self.said: dict[int, int] = {}
        """The rows that the text says, by those that fill up the ranks."""
        self._numbers = FigureReader(report, evaluator)

    def tensor(self, statement: ast.Define, place: Place) -> Tensor:
        """Read ``name = tensor dtype[rows, cols] shard rows``."""
        words = Words(statement.phrase, self._report)
        words.take("tensor")
        written = words.take("a type with a shape")
        match written:
            case ast.Index(base=ast.Name() as base, subscripts=(rows, cols)):
                pass
            case ast.Index(base=ast.Name(), subscripts=subscripts):
                message = f"a tensor has 2 dimensions, this one {len(subscripts)}"
                raise self._report.fail(Code.MGS116, message, written.span, _EXAMPLE)
            case _:
                raise self._report.fail(Code.MGS116, "a type with a shape is expected here", written.span, _EXAMPLE)
        dtype = dtype_named(base, self._report)
        num_rows = int(self._numbers.value(_EXTENT, (rows,), place).amount)
        num_cols = int(self._numbers.value(_EXTENT, (cols,), place).amount)
        shard = self._shard(words)
        words.end(TENSOR_WORDS)
        if shard is Shard.ROWS and self._routes:
            num_rows = self._filled_up(num_rows, rows.span)
        elif shard is Shard.ROWS:
            self._check_share(num_rows, "rows", rows.span)
        elif shard is Shard.FLAT:
            self._check_share(num_rows * num_cols, "elements", written.span)
        elif shard is Shard.COLS:
            self._check_share(num_cols, "columns", cols.span)
        shard = Shard.NONE if self._one_rank else shard
        tensor = Tensor(statement.name, dtype, num_rows, num_cols, shard)
        rejection = reject_blocks(tensor.name, dtype, num_cols // (self._num_ranks if shard is Shard.COLS else 1))
        if rejection is not None:
            raise self._report.fail(rejection.code, rejection.message, cols.span, rejection.hint)
        return tensor

    def _filled_up(self, num_rows: int, span: Span) -> int:
        """The rows if each rank has as many as the one with most: the others wait for it."""
        most = -(-num_rows // self._num_ranks)
        if num_rows % self._num_ranks:
            rows = f"{num_rows} row{'s' * (num_rows > 1)}"
            message = f"{rows} on {self._num_ranks} ranks: each is taken to have {most}"
            self._report.warn(Code.MGS304, message, span, "as many as the rank with most, for which the others wait")
            self.said[most * self._num_ranks] = num_rows
        return most * self._num_ranks

    def _check_share(self, size: int, what: str, span: Span) -> None:
        """Check that every rank gets the same share."""
        rejection = reject_share(size, what, self._num_ranks)
        if rejection is not None:
            raise self._report.fail(rejection.code, rejection.message, span, rejection.hint)

    def _shard(self, words: Words) -> Shard:
        if not words.take_word("shard"):
            return Shard.NONE
        dimension = words.take_name("rows, cols or flat")
        by_word = {shard.value: shard for shard in (Shard.ROWS, Shard.COLS, Shard.FLAT)}
        if dimension.text not in by_word:
            hint = did_you_mean(dimension.text, by_word) or "shard rows, shard cols or shard flat"
            raise self._report.fail(
                Code.MGS201, f"a tensor has no dimension '{dimension.text[:64]}'", dimension.span, hint
            )
        return by_word[dimension.text]


def is_tensor(statement: ast.Define) -> bool:
    """Whether a definition declares a tensor."""
    first = statement.phrase[0].parts[0]
    return isinstance(first, ast.Name) and first.text == "tensor"


def dtype_named(written: ast.Expression, report: Report) -> DType:
    """The element type that a word names."""
    types = [dtype.value for dtype in DType]
    text = written.text if isinstance(written, ast.Name) else written.span.text
    if text not in types:
        hint = did_you_mean(text, types) or f"types are {listing(types)}"
        raise report.fail(Code.MGS203, f"unknown type '{text[:64]}'", written.span, hint)
    return DType(text)
