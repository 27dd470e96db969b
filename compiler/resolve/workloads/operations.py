"""Calls of operations: how many tensors each takes, and the arguments that have names."""

from fractions import Fraction

from ...codes import Code
from ...text import syntax as ast
from ...text.diagnostics import Report, did_you_mean, listing
from ...text.units import NUMBER
from ...text.vocabulary import MAX_EXTENT, MAX_RANKS, OPERATIONS, Property
from ..values.device_numbers import FigureReader
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.sentences import single

_EXAMPLES = {
    "gemm": "gemm(x, w)",
    "gemv": "gemv(w, x)",
    "grouped_gemm": "grouped_gemm(x, w, rows=[512, 256])",
    "attention": "attention(q, k, v, heads=32, kv_heads=8, causal=true)",
    "add": "add(x, y)",
}
# Keys and values may be one tensor, and queries with them.
_FEWEST = {"attention": 1}
_ROWS = Property("rows", NUMBER, Fraction(0), Fraction(MAX_EXTENT), whole=True)


class Named:
    """The named arguments of one call."""

    def __init__(self, call: ast.Call, place: Place, evaluator: ExpressionEvaluator, report: Report) -> None:
        self._call, self._place, self._report = call, place, report
        self._numbers = FigureReader(report, evaluator)
        self._given = {
            argument.name: single(argument.values, report, in_call=True)
            for argument in call.arguments
            if argument.name is not None
        }

    def count(self, name: str, default: int) -> int:
        """A positive whole number."""
        if name not in self._given:
            return default
        wanted = Property(name, NUMBER, Fraction(1), Fraction(MAX_EXTENT), whole=True)
        return int(self._numbers.value(wanted, (self._given[name],), self._place).amount)

    def truth(self, name: str) -> bool:
        """``true`` or ``false``, which is also the default."""
        match self._given.get(name):
            case None:
                return False
            case ast.Name(text="true" | "false" as text):
                return text == "true"
            case other:
                raise self._report.fail(Code.MGS116, "true or false is expected here", other.span)

    def says(self, name: str) -> bool:
        """Whether the argument is given."""
        return name in self._given

    def rows(self, name: str = "rows") -> tuple[int, ...]:
        """``rows=[512, 256]``; empty if it is not said."""
        written = self._given.get(name)
        return () if written is None else self._counts(name, written)

    def of_ranks(self) -> tuple[tuple[int, ...], ...]:
        """``rows=[[512, 256], [128, 640]]``, a list for each rank; empty if it is not said, or as one list."""
        match self._given.get("rows"):
            case ast.Listed(items=items) as listed if items and isinstance(items[0], ast.Listed):
                if len(items) > MAX_RANKS:
                    raise self._report.fail(Code.MGS305, f"at most {MAX_RANKS} lists of rows", listed.span)
                return tuple([self._counts("rows", item) for item in items])
            case _:
                return ()

    def _counts(self, name: str, written: ast.Expression) -> tuple[int, ...]:
        if not isinstance(written, ast.Listed) or not written.items:
            raise self._report.fail(Code.MGS116, f"{name} are a list", written.span, f"{name}=[512, 256]")
        if len(written.items) > MAX_RANKS:
            raise self._report.fail(Code.MGS305, f"at most {MAX_RANKS} counts of rows", written.span)
        return tuple([int(self._numbers.value(_ROWS, (item,), self._place).amount) for item in written.items])

    def require(self, name: str) -> None:
        """Report an argument that is missing."""
        if name not in self._given:
            assert isinstance(self._call.function, ast.Name), "operations are called by name"
            operation = self._call.function.text
            raise self._report.fail(
                Code.MGS209, f"{operation} does not say its {name}", self._call.span, _EXAMPLES.get(operation, "")
            )


def tensors_of(operation: str, call: ast.Call, report: Report) -> list[ast.Expression]:
    """The tensors of a call of a known operation, whose named arguments are checked for being known."""
    count, names = OPERATIONS[operation]
    seen: set[str] = set()
    for argument in call.arguments:
        name = argument.name
        if name is None:
            continue
        if name not in names:
            known = f"it has: {listing(names)}" if names else ""
            what = f"no argument '{name[:64]}'" if names else "no named arguments"
            raise report.fail(Code.MGS201, f"{operation} has {what}", call.span, did_you_mean(name, names) or known)
        if name in seen:
            raise report.fail(Code.MGS206, f"{name} is said twice", argument.span)
        seen.add(name)
    values = [single(each.values, report, in_call=True) for each in call.arguments if each.name is None]
    fewest = _FEWEST.get(operation, count)
    if not fewest <= len(values) <= count:
        example, many = _EXAMPLES.get(operation, f"{operation}(x)"), f"{fewest} to {count}" if fewest < count else count
        raise report.fail(Code.MGS116, f"{operation} takes {many} tensor{'s' * (count > 1)}", call.span, example)
    return values
