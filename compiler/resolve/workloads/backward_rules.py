"""What goes back through each operation: terms of the gradients of its operands, from the gradient of its result.

A product ``y = gemm(x, w)`` gives ``gemm(d_y, w.t)`` and ``gemm(x.t, d_y)``. What gathers rows forward sums them
backward, and the other way round (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
2022, section 4.2.2): where a product leaves each rank with a part of the sum, that sum is what is scattered.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ...ir import DType, Shard, Tensor
from ...ir.operations import attention, routing
from ...text import syntax as ast
from ...text.diagnostics import Span
from .calls import ADD, EXPERTS, GATHER, GEMM, CallOperand, WorkloadCall

DISPATCH, COMBINE, CAST, TYPE = routing.DISPATCH.name, routing.COMBINE.name, "cast", "type"
ATTENTION, ATTENTION_BACK = attention.OPERATION.name, attention.BACK.name
_TURNED = {Shard.ROWS: Shard.COLS, Shard.COLS: Shard.ROWS, Shard.NONE: Shard.NONE}


class SyntaxWriter:
    """Makes syntax whose place is ``span``, where mistakes in it are reported."""

    def __init__(self, span: Span) -> None:
        self.span = span

    def name(self, text: str) -> ast.Name:
        """A name."""
        return ast.Name(text, span=self.span)

    def turned(self, expression: ast.Expression) -> ast.Expression:
        """``x.t`` of ``x``, and ``x`` of ``x.t``."""
        if isinstance(expression, ast.Member) and expression.name == "t":
            return expression.base
        return self.part(expression, "t")

    def part(self, expression: ast.Expression, word: str) -> ast.Expression:
        """``x.q``."""
        return ast.Member(expression, word, span=self.span)

    def call(
        self, word: str, operands: Sequence[ast.Expression], arguments: Sequence[ast.Argument] = ()
    ) -> ast.Expression:
        """``word(operands, arguments)``."""
        unnamed = tuple(ast.Argument(None, (each,), span=self.span) for each in operands)
        return ast.Call(self.name(word), (*unnamed, *arguments), span=self.span)

    def argument(self, word: str, value: ast.Expression) -> ast.Argument:
        """``word=value``."""
        return ast.Argument(word, (value,), span=self.span)

    def define(self, name: str, expression: ast.Expression) -> ast.Define:
        """``name = expression``."""
        return ast.Define(name, (ast.GroupNode((expression,), span=self.span),), span=self.span)

    def tensor(self, name: str, tensor: Tensor, sizes: tuple[ast.Expression, ast.Expression]) -> ast.Define:
        """``name = tensor bf16[rows, cols] shard rows``."""
        shape = ast.Index(self.name(tensor.dtype.value), sizes, span=self.span)
        shard = () if tensor.shard is Shard.NONE else (self.name("shard"), self.name(tensor.shard.value))
        return ast.Define(name, (ast.GroupNode((self.name("tensor"), shape, *shard), span=self.span),), span=self.span)

    def repeat(self, count: int, result: str, as_input: str) -> ast.Say:
        """``repeat 80 dx as dy``."""
        number = ast.NumberNode(str(count), span=self.span)
        words = (self.name("repeat"), number, self.name(result), self.name("as"), self.name(as_input))
        return ast.Say((ast.GroupNode(words, span=self.span),), span=self.span)

    def batch(self, names: Sequence[str], sequence: ast.Expression) -> ast.Say:
        """``batch x, y by 4096``."""
        *others, last = (self.name(each) for each in names)
        groups = [ast.GroupNode((each,), span=self.span) for each in others]
        end = ast.GroupNode((last, self.name("by"), sequence), span=self.span)
        first, *rest = (*groups, end)
        begun = ast.GroupNode((self.name("batch"), *first.parts), span=self.span)
        return ast.Say((begun, *rest), span=self.span)

    def scaled(self, size: ast.Expression, factor: Fraction) -> ast.Expression:
        """A size times ``factor``; a number is computed."""
        if factor == 1:
            return size
        if isinstance(size, ast.NumberNode) and (Fraction(size.text) * factor).denominator == 1:
            return ast.NumberNode(str(Fraction(size.text) * factor), span=self.span)
        first = ast.Parens((size,), span=self.span) if isinstance(size, ast.ChainNode) else size
        parts = (("*", factor.numerator), ("/", factor.denominator))
        rest = tuple((sign, ast.NumberNode(str(each), span=self.span)) for sign, each in parts if each != 1)
        return ast.ChainNode(first, rest, span=self.span)


@dataclass(frozen=True, slots=True)
class GradientTerm:
    """A term of a gradient. ``needs`` are the tensors of the forward pass that it reads.

    ``partial``: each rank has a part of a sum. ``name`` is for a term that is all of the gradient.
    With ``parts`` it is the gradients of several operands, side by side, and these are their words in turn.
    """

    expression: ast.Expression
    needs: tuple[str, ...] = ()
    partial: bool = False
    name: str = ""
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BackCall:
    """A call of the forward pass: ``names`` are those of its operands in the derived text, ``result`` of its result.

    ``arguments`` are the named ones, as they are written; ``routing`` are those of the dispatch before a combine.
    """

    call: WorkloadCall
    names: tuple[str, ...]
    result: str
    arguments: tuple[ast.Argument, ...]
    routing: tuple[ast.Argument, ...]
    write: SyntaxWriter


Terms = Iterator[tuple[int, GradientTerm]]
"""Terms of gradients, each with the position of the operand that it is for."""


@dataclass(frozen=True, slots=True)
class _Factor:
    """A factor of a product as it lies on the ranks; ``needs`` it of the forward pass."""

    expression: ast.Expression
    shard: Shard
    write: SyntaxWriter
    needs: tuple[str, ...] = ()

    @property
    def turned(self) -> "_Factor":
        return replace(self, expression=self.write.turned(self.expression), shard=_TURNED[self.shard])

    def times(self, other: "_Factor", arguments: Sequence[ast.Argument]) -> GradientTerm:
        partial = self.shard is Shard.COLS and other.shard is Shard.ROWS
        product = self.write.call(GEMM, (self.expression, other.expression), arguments)
        return GradientTerm(product, (*self.needs, *other.needs), partial)


def _gemm(back: BackCall, gradient: GradientTerm) -> Terms:
    left, right = (_factor(back, operand, name) for operand, name in zip(back.call.operands, back.names, strict=True))
    result, typed = _Factor(gradient.expression, back.call.result.shard, back.write), _typed(back)
    for position, (operand, term) in enumerate(
        zip(back.call.operands, ((result, right.turned), (left.turned, result)), strict=True)
    ):
        first, second = term
        factors = (second.turned, first.turned) if operand.transposed else term
        yield position, factors[0].times(factors[1], typed)


def _typed(back: BackCall) -> tuple[ast.Argument, ...]:
    """The type of a product, where it is said: gradients have it too."""
    return tuple(each for each in back.arguments if each.name == TYPE)


def _factor(back: BackCall, operand: CallOperand, name: str) -> _Factor:
    factor = _Factor(back.write.name(name), operand.tensor.shard, back.write, (name,))
    return factor.turned if operand.transposed else factor


def _gathered(back: BackCall, gradient: GradientTerm) -> Terms:
    yield 0, GradientTerm(back.write.call("reduce_scatter", (gradient.expression,)), gradient.needs)


def _scattered(back: BackCall, gradient: GradientTerm) -> Terms:
    assert isinstance(gradient.expression, ast.Name), "only a gathered tensor has a gradient without a name"
    yield 0, GradientTerm(back.write.call(GATHER, (gradient.expression,)), name=f"{gradient.expression.text}_gathered")


def _through(back: BackCall, gradient: GradientTerm) -> Terms:
    """Operands have the gradient of the result."""
    for position in range(len(back.names)):
        yield position, gradient


def _row_wise(back: BackCall, gradient: GradientTerm) -> Terms:
    operand = back.write.name(back.names[0])
    made = back.write.call(f"{back.call.operation.name}_back", (operand, gradient.expression), back.arguments)
    yield 0, GradientTerm(made, back.names)


def _attention(back: BackCall, gradient: GradientTerm) -> Terms:
    operands = [back.write.name(name) for name in (*back.names, back.result)]
    made = back.write.call(ATTENTION_BACK, (*operands, gradient.expression), back.arguments)
    parts = attention.PARTS.get(len(back.names), ())
    yield 0, GradientTerm(made, (*back.names, back.result), name=f"{back.result}_back" if parts else "", parts=parts)


def _experts(back: BackCall, gradient: GradientTerm) -> Terms:
    """Weights of an expert go transposed, and their gradient is a sum over its rows."""
    rows, weights = (back.write.name(name) for name in back.names)
    arguments = tuple(each for each in back.arguments if each.name in ("rows", TYPE))
    through = (gradient.expression, back.write.turned(weights))
    yield 0, GradientTerm(back.write.call(EXPERTS, through, arguments), (back.names[1], *gradient.needs))
    summed = (back.write.turned(rows), gradient.expression)
    yield 1, GradientTerm(back.write.call(EXPERTS, summed, arguments), (back.names[0], *gradient.needs))


def _dispatched(back: BackCall, gradient: GradientTerm) -> Terms:
    """What goes to several experts has the sum of their gradients, which come back as their results do."""
    yield 0, GradientTerm(back.write.call(COMBINE, (gradient.expression,), _as_before(back)), gradient.needs)


def _combined(back: BackCall, gradient: GradientTerm) -> Terms:
    """The gradient of a row goes to the experts that the row went to."""
    sent = tuple(each for each in back.routing if each.name != TYPE)
    yield 0, GradientTerm(back.write.call(DISPATCH, (gradient.expression,), (*sent, *_as_before(back))), gradient.needs)


def _cast(back: BackCall, gradient: GradientTerm) -> Terms:
    yield 0, GradientTerm(back.write.call(CAST, (gradient.expression,), (_type_before(back),)), gradient.needs)


def _as_before(back: BackCall) -> tuple[ast.Argument, ...]:
    """The type of the operand, where a call changes it."""
    before, after = back.call.operands[0].tensor.dtype, back.call.result.dtype
    return (_type_before(back),) if before is not after else ()


def _type_before(back: BackCall) -> ast.Argument:
    return back.write.argument(TYPE, back.write.name(back.call.operands[0].tensor.dtype.value))


def narrowed(call: WorkloadCall) -> DType | None:
    """The type that a gradient is cast to before its products, that of the other factor; None where it has it.

    That is a recipe of products in 8 bits (Transformer Engine): all three have both factors in them.
    """
    left, product = call.operands[0].tensor.dtype, call.result.dtype
    return left if call.operation.name in (GEMM, EXPERTS) and left is not product else None


RULES: Mapping[str, Callable[[BackCall, GradientTerm], Terms]] = {
    GEMM: _gemm,
    ADD: _through,
    GATHER: _gathered,
    "reduce_scatter": _scattered,
    "all_reduce": _through,
    "norm": _row_wise,
    "swiglu": _row_wise,
    "gelu": _row_wise,
    ATTENTION: _attention,
    EXPERTS: _experts,
    DISPATCH: _dispatched,
    COMBINE: _combined,
    CAST: _cast,
}
"""By the word of the operation; others have no backward pass."""


def why_not(call: WorkloadCall, calls: Iterable[WorkloadCall]) -> str:
    """Why nothing goes back through a call, one of all ``calls``; empty if it does."""
    if call.operation.name not in RULES:
        return f"no backward pass of {call.operation.name} is known"
    if call.operation.name == ATTENTION and len({operand.seen.rows for operand in call.operands}) > 1:
        return "gradients of queries and of keys with other rows are no columns of one tensor"
    combined = (each.exchange for each in calls if each.operation.name == COMBINE)
    if call.operation.name == EXPERTS and "rows" not in call.arguments and call.exchange not in combined:
        return "gradients come to experts as rows do, by a dispatch, and no combine brings these rows back"
    routing = call.exchange.routing
    if call.operation.name in (DISPATCH, COMBINE) and routing is not None and not routing.sent:
        return "rows that all ranks hold go to experts without an exchange"
    if call.operation.name != GEMM and any(operand.transposed for operand in call.operands):
        return f"no backward pass of {call.operation.name} of a transposed tensor is known"
    return ""
