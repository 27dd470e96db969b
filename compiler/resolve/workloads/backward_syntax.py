"""Workloads that say they are derived, and their statements as syntax, which all stand at one place of the text."""

from collections.abc import Sequence
from fractions import Fraction

from ...ir import Shard, Tensor
from ...text import syntax as ast
from ...text.source import Span
from ...text.vocabulary import BACKWARD_WORDS
from ..values.sentences import head_of


def is_backward(declaration: ast.Workload) -> bool:
    """Whether a workload says that it is derived."""
    heads = (head_of(each) for each in declaration.block.statements if isinstance(each, ast.Say))
    return any(head is not None and head.text in BACKWARD_WORDS for head in heads)


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
        return ast.Define(name, (ast.Group((expression,), span=self.span),), span=self.span)

    def tensor(self, name: str, tensor: Tensor, sizes: tuple[ast.Expression, ast.Expression]) -> ast.Define:
        """``name = tensor bf16[rows, cols] shard rows``."""
        shape = ast.Index(self.name(tensor.dtype.value), sizes, span=self.span)
        shard = () if tensor.shard is Shard.NONE else (self.name("shard"), self.name(tensor.shard.value))
        return ast.Define(name, (ast.Group((self.name("tensor"), shape, *shard), span=self.span),), span=self.span)

    def repeat(self, count: int, result: str, as_input: str) -> ast.Say:
        """``repeat 80 dx as dy``."""
        number = ast.Number(str(count), span=self.span)
        words = (self.name("repeat"), number, self.name(result), self.name("as"), self.name(as_input))
        return ast.Say((ast.Group(words, span=self.span),), span=self.span)

    def batch(self, names: Sequence[str], sequence: ast.Expression) -> ast.Say:
        """``batch x, y by 4096``."""
        *others, last = (self.name(each) for each in names)
        groups = [ast.Group((each,), span=self.span) for each in others]
        end = ast.Group((last, self.name("by"), sequence), span=self.span)
        first, *rest = (*groups, end)
        begun = ast.Group((self.name("batch"), *first.parts), span=self.span)
        return ast.Say((begun, *rest), span=self.span)

    def scaled(self, size: ast.Expression, factor: Fraction) -> ast.Expression:
        """A size times ``factor``; a number is computed."""
        if factor == 1:
            return size
        if isinstance(size, ast.Number) and (Fraction(size.text) * factor).denominator == 1:
            return ast.Number(str(Fraction(size.text) * factor), span=self.span)
        first = ast.Parens((size,), span=self.span) if isinstance(size, ast.Chain) else size
        parts = (("*", factor.numerator), ("/", factor.denominator))
        rest = tuple((sign, ast.Number(str(each), span=self.span)) for sign, each in parts if each != 1)
        return ast.Chain(first, rest, span=self.span)
