"""Walk through a Triton kernel with values in place of numbers: what it loads and stores, and where.

Loops are walked once, as one of their rounds: what a round changes is not followed from one to the next.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .kernel_calls import CALLS, UNKNOWN, KernelAccess, Limit, assigned, name_of, one_of, plain, transposed
from .kernel_values import (
    KernelValue,
    Known,
    added,
    atom,
    combined,
    constant,
    multiplied,
    opaque,
    unfollowed,
    with_axes,
)

_SAME = frozenset(
    ("to", "cast", "multiple_of", "max_contiguous", "max_constancy", "int64", "int32", "float", "int", "assume_aligned")
)
"""Calls whose first operand comes out as it goes in."""
_REDUCTIONS = frozenset(("sum", "max", "min", "argmax", "argmin", "reduce", "xor_sum"))
_RESHAPES = frozenset(
    ("reshape", "view", "ravel", "join", "split", "interleave", "cat", "flip", "gather", "sort", "histogram")
)
"""Calls whose axes are not followed."""
_DEPTH = 8
"""Calls of helpers inside each other that are followed."""


@dataclass(slots=True)
class Walk:
    """One walk. ``known`` has the values of names; ``places`` gives expressions values of their own, by their text."""

    helpers: Mapping[str, ast.FunctionDef]
    parameters: Sequence[str]
    places: Mapping[str, KernelValue] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    loads: list[KernelAccess] = field(default_factory=list)
    stores: list[KernelAccess] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    depth: int = 0

    def run(self, statements: Iterable[ast.stmt]) -> None:
        """Walk through statements."""
        for each in statements:
            self._do(each)

    def _do(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets, value):
                found = self.value(value)
                for target in targets:
                    self.assign(target, found)
            case ast.AnnAssign(target, _, value) if value is not None:
                self.assign(target, self.value(value))
            case ast.AugAssign(target, operator, value):
                self.assign(target, self.value(ast.BinOp(_as_read(target), operator, value)))
            case ast.Expr(value):
                self.value(value)
            case ast.If(test, body, orelse):
                self._either(test, body, orelse)
            case ast.For(target, over, body):
                self.value(over)
                self.forget(statement, assigned([target]))
                self.run(body)
                self.forget(statement)
            case ast.While(test, body):
                self.forget(statement)
                self.value(test)
                self.run(body)
                self.forget(statement)
            case ast.With(_, body):
                self.run(body)

    def assign(self, target: ast.expr, value: Known) -> None:
        """Let names stand for a value; several for its parts."""
        if isinstance(target, ast.Name):
            self.known[target.id] = self.places.get(target.id, value)
        elif isinstance(target, ast.Tuple | ast.List):
            for place, each in enumerate(target.elts):
                self.assign(each, _part(value, place))

    def forget(self, loop: ast.For | ast.While, new: Iterable[str] = ()) -> None:
        """Forget the numbers of what a loop changes; ``new`` are names that it makes."""
        for name in assigned([loop]):
            value = self.known.get(name)
            if value is None or name in new:
                self.known[name] = self.places.get(name, opaque(f"{name}#{loop.lineno}"))
            elif name not in self.places:
                self.known[name] = unfollowed(value, f"{name}#{loop.lineno}")

    def _either(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        requested, before = plain(self.value(test)), dict(self.known)
        self.run(body)
        after, self.known = self.known, before
        self.run(orelse)
        for name in after.keys() | self.known.keys():
            one, other = after.get(name, UNKNOWN), self.known.get(name, UNKNOWN)
            self.known[name] = one if one == other else one_of(requested, one, other)

    # Expressions.

    def plain(self, node: ast.expr) -> KernelValue:
        """Return a value that is one number or tensor."""
        return plain(self.value(node))

    def value(self, node: ast.expr) -> Known:
        """Return what an expression stands for."""
        if self.places and (place := self.places.get(ast.unparse(node))) is not None:
            return place
        match node:
            case ast.Constant(int(number)) if not isinstance(number, bool):
                return constant(number)
            case ast.Name(name):
                return self.known[name] if name in self.known else atom(name, base=set(self.parameters) & {name})
            case ast.Tuple(parts) | ast.List(parts):
                return tuple(map(self.value, parts))
            case ast.BinOp(left, operator, right):
                return self._operation(node, self.plain(left), operator, self.plain(right))
            case ast.UnaryOp(ast.USub(), operand):
                return multiplied(constant(-1), self.plain(operand))
            case ast.Compare(left, [operator], [right]):
                return self._compared(node, self.plain(left), operator, self.plain(right))
            case ast.Subscript(owner, index):
                return self._indexed(self.value(owner), index)
            case ast.Attribute(owner, "T"):
                return transposed(self.plain(owner), ())
            case ast.Attribute():
                return opaque(ast.unparse(node))
            case ast.IfExp(test, body, orelse):
                return one_of(self.plain(test), self.value(body), self.value(orelse))
            case ast.Call():
                return self._called(node)
        values = [self.plain(each) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
        return opaque(f"{type(node).__name__}({ast.unparse(node)})", *values)

    def _operation(self, node: ast.BinOp, left: KernelValue, operator: ast.operator, right: KernelValue) -> KernelValue:
        match operator:
            case ast.Add():
                return added(left, right)
            case ast.Sub():
                return added(left, right, -1)
            case ast.Mult():
                return multiplied(left, right)
            case ast.Mod() if not left.is_number and right.is_number:
                self.limits.append(Limit(node, left, right.base))
                return left  # the same row or column, of what the matrix has
        return opaque(f"({left.text} {type(operator).__name__} {right.text})", left, right)

    def _compared(self, node: ast.Compare, left: KernelValue, operator: ast.cmpop, right: KernelValue) -> KernelValue:
        if isinstance(operator, ast.Lt | ast.LtE):
            self.limits.append(Limit(node, added(left, right, -1), right.base))
        return opaque(f"({left.text} {type(operator).__name__} {right.text})", left, right)

    def _indexed(self, owner: Known, index: ast.expr) -> Known:
        if isinstance(owner, tuple):
            place = index.value if isinstance(index, ast.Constant) else None
            return owner[place] if isinstance(place, int) and place < len(owner) else UNKNOWN
        order, used = list[int | None](), 0
        for each in index.elts if isinstance(index, ast.Tuple) else (index,):
            if isinstance(each, ast.Constant) and each.value is None:
                order.append(None)
            elif isinstance(each, ast.Slice) and each.lower is each.upper is each.step is None:
                order, used = [*order, used], used + 1
            else:
                return opaque(f"{plain(owner).text}[{ast.unparse(index)}]", plain(owner))
        return with_axes(plain(owner), tuple(order))

    # Calls.

    def _called(self, call: ast.Call) -> Known:
        name, method = name_of(call), isinstance(call.func, ast.Attribute) and not _of_module(call.func.value)
        nodes = ([call.func.value] if method and isinstance(call.func, ast.Attribute) else []) + call.args
        options = {each.arg: each.value for each in call.keywords if each.arg is not None}
        if name in self.helpers and isinstance(call.func, ast.Name):
            return self._helped(self.helpers[name], [self.value(each) for each in nodes], options)
        known = CALLS.get(name)
        if known is not None:
            return known(self, call, nodes, options)
        if name in _SAME and nodes:
            return self.value(nodes[0])
        values = [plain(self.value(each)) for each in (*nodes, *options.values())]
        if name in _RESHAPES:
            return replace(combined(*values), axes=None)
        if name in _REDUCTIONS and not (isinstance(call.func, ast.Name) or all(each.is_number for each in values)):
            return self._reduced(nodes, options)
        return opaque(f"{name}({', '.join(each.text for each in values)})", *values)

    def _reduced(self, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> KernelValue:
        value, axis = self.plain(nodes[0]), options.get("axis", nodes[1] if len(nodes) > 1 else None)
        if not (isinstance(axis, ast.Constant) and isinstance(axis.value, int)) or value.axes is None:
            return replace(value, axes=() if axis is None else None, terms=None)
        left = [place for place in range(len(value.axes)) if place != axis.value % len(value.axes)]
        return replace(
            with_axes(value, tuple(left)) if value.terms is None else value,
            terms=None,
            axes=tuple(value.axes[place] for place in left),
        )

    def _helped(self, helper: ast.FunctionDef, values: Sequence[Known], options: Mapping[str, ast.expr]) -> Known:
        """Return what a function of the file returns."""
        names = [each.arg for each in helper.args.args]
        given = dict(zip(names, values, strict=False)) | {name: self.value(node) for name, node in options.items()}
        defaults = dict(zip(names[::-1], helper.args.defaults[::-1], strict=False))
        given |= {name: self.value(node) for name, node in defaults.items() if name not in given}
        if self.depth == _DEPTH:
            return UNKNOWN
        inner = replace(self, known=given, places={}, depth=self.depth + 1)
        returns = [each for each in ast.walk(helper) if isinstance(each, ast.Return)]
        if len(returns) != 1 or returns[0] is not helper.body[-1] or returns[0].value is None:
            parts = [plain(each) for each in given.values()]
            inner.run(helper.body)
            return combined(*parts) if parts else UNKNOWN
        inner.run(helper.body[:-1])
        return inner.value(returns[0].value)


def _part(value: Known, place: int) -> Known:
    if isinstance(value, tuple):
        return value[place] if place < len(value) else UNKNOWN
    return opaque(f"{value.text}[{place}]", value) if isinstance(value, KernelValue) else UNKNOWN


def _of_module(owner: ast.expr) -> bool:
    """Whether an attribute is of a module such as ``tl`` or ``tl.math``."""
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    return isinstance(owner, ast.Name) and owner.id in ("tl", "triton", "libdevice", "math", "language")


def _as_read(target: ast.expr) -> ast.expr:
    return ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name) else target
