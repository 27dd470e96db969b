"""Walk through a Triton kernel with values in place of numbers: what it loads and stores, and where.

Loops are walked once, as one of their rounds: what a round changes is not followed from one to the next.
"""

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .kernel_syntax import assigned, name_of
from .kernel_values import (
    BlockPointer,
    Known,
    Value,
    added,
    atom,
    broadcast,
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
_UNKNOWN = Value(None, None)
_DEPTH = 8
"""Calls of helpers inside each other that are followed."""


@dataclass(frozen=True, slots=True)
class Access:
    """A load or a store; ``stored`` is the tensor that is stored, None of a load."""

    node: ast.Call
    pointer: Known
    stored: Value | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """A number of ``bounded`` indices is compared with, or counted from, the parameters ``by``, at ``node``."""

    node: ast.AST
    bounded: Value
    by: frozenset[str]


@dataclass(slots=True)
class Walk:
    """One walk. ``known`` has the values of names; ``places`` gives expressions values of their own, by their text."""

    helpers: Mapping[str, ast.FunctionDef]
    parameters: Sequence[str]
    places: Mapping[str, Value] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    loads: list[Access] = field(default_factory=list)
    stores: list[Access] = field(default_factory=list)
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
        asked, before = _plain(self.value(test)), dict(self.known)
        self.run(body)
        after, self.known = self.known, before
        self.run(orelse)
        for name in after.keys() | self.known.keys():
            one, other = after.get(name, _UNKNOWN), self.known.get(name, _UNKNOWN)
            self.known[name] = one if one == other else _one_of(asked, one, other)

    # Expressions.

    def plain(self, node: ast.expr) -> Value:
        """Return a value that is one number or tensor."""
        return _plain(self.value(node))

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
                return _transposed(self.plain(owner), ())
            case ast.Attribute():
                return opaque(ast.unparse(node))
            case ast.IfExp(test, body, orelse):
                return _one_of(self.plain(test), self.value(body), self.value(orelse))
            case ast.Call():
                return self._called(node)
        values = [self.plain(each) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
        return opaque(f"{type(node).__name__}({ast.unparse(node)})", *values)

    def _operation(self, node: ast.BinOp, left: Value, operator: ast.operator, right: Value) -> Value:
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

    def _compared(self, node: ast.Compare, left: Value, operator: ast.cmpop, right: Value) -> Value:
        if isinstance(operator, ast.Lt | ast.LtE):
            self.limits.append(Limit(node, added(left, right, -1), right.base))
        return opaque(f"({left.text} {type(operator).__name__} {right.text})", left, right)

    def _indexed(self, owner: Known, index: ast.expr) -> Known:
        if isinstance(owner, tuple):
            place = index.value if isinstance(index, ast.Constant) else None
            return owner[place] if isinstance(place, int) and place < len(owner) else _UNKNOWN
        order, used = list[int | None](), 0
        for each in index.elts if isinstance(index, ast.Tuple) else (index,):
            if isinstance(each, ast.Constant) and each.value is None:
                order.append(None)
            elif isinstance(each, ast.Slice) and each.lower is each.upper is each.step is None:
                order, used = [*order, used], used + 1
            else:
                return opaque(f"{_plain(owner).text}[{ast.unparse(index)}]", _plain(owner))
        return with_axes(_plain(owner), tuple(order))

    # Calls.

    def _called(self, call: ast.Call) -> Known:
        name, method = name_of(call), isinstance(call.func, ast.Attribute) and not _of_module(call.func.value)
        nodes = ([call.func.value] if method and isinstance(call.func, ast.Attribute) else []) + call.args
        options = {each.arg: each.value for each in call.keywords if each.arg is not None}
        if name in self.helpers and isinstance(call.func, ast.Name):
            return self._helped(self.helpers[name], [self.value(each) for each in nodes], options)
        known = _CALLS.get(name)
        if known is not None:
            return known(self, call, nodes, options)
        if name in _SAME and nodes:
            return self.value(nodes[0])
        values = [_plain(self.value(each)) for each in (*nodes, *options.values())]
        if name in _RESHAPES:
            return replace(combined(*values), axes=None)
        if name in _REDUCTIONS and not (isinstance(call.func, ast.Name) or all(each.is_number for each in values)):
            return self._reduced(nodes, options)
        return opaque(f"{name}({', '.join(each.text for each in values)})", *values)

    def _reduced(self, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Value:
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
            return _UNKNOWN
        inner = replace(self, known=given, places={}, depth=self.depth + 1)
        returns = [each for each in ast.walk(helper) if isinstance(each, ast.Return)]
        if len(returns) != 1 or returns[0] is not helper.body[-1] or returns[0].value is None:
            parts = [_plain(each) for each in given.values()]
            inner.run(helper.body)
            return combined(*parts) if parts else _UNKNOWN
        inner.run(helper.body[:-1])
        return inner.value(returns[0].value)


_Call = Callable[[Walk, ast.Call, Sequence[ast.expr], Mapping[str, ast.expr]], Known]


def _arange(walk: Walk, call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    first, end = walk.plain(nodes[0]), ast.unparse(nodes[1])
    size = end if first == constant(0) else f"{end} - {ast.unparse(nodes[0])}"
    return added(atom(f"arange({size})", 0, (size,)), first)


def _filled(walk: Walk, call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    shape = options.get("shape", nodes[0] if nodes else None)
    sizes = shape.elts if isinstance(shape, ast.Tuple | ast.List) else ()
    return Value(None, tuple(map(ast.unparse, sizes)) if sizes else None)


def _dot(walk: Walk, call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    values = [walk.plain(each) for each in nodes]
    left, right = (values[0], values[3]) if name_of(call) == "dot_scaled" else (values[0], values[1])
    made = combined(*values, *(walk.plain(each) for each in options.values()))
    sides = left.axes, right.axes
    axes = (sides[0][0], sides[1][1]) if sides[0] and sides[1] and len(sides[0]) == len(sides[1]) == 2 else None
    return replace(made, axes=axes, terms=None)


def _load(walk: Walk, call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    pointer = walk.value(nodes[0])
    for each in (*nodes[1:], *options.values()):
        walk.value(each)
    walk.loads.append(Access(call, pointer))
    at = pointer.base if isinstance(pointer, BlockPointer) else _plain(pointer)
    axes = pointer.axes if isinstance(pointer, BlockPointer) else at.axes
    return Value(None, axes, at.uses, frozenset(), at.loads | at.base)


def _store(walk: Walk, call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    given = [*nodes, *(options[name] for name in ("pointer", "value") if name in options)]
    for each in (*given[2:], *options.values()):
        walk.value(each)
    walk.stores.append(Access(call, walk.value(given[0]), walk.plain(given[1])))
    return _UNKNOWN


def _trans(walk: Walk, call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    order = [each for node in nodes[1:] for each in (node.elts if isinstance(node, ast.Tuple | ast.List) else (node,))]
    return _transposed(walk.plain(nodes[0]), order)


def _block(walk: Walk, call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    names = ("base", "shape", "strides", "offsets", "block_shape")
    given = {**dict(zip(names, nodes, strict=False)), **options}
    if not set(names) <= set(given):
        return _UNKNOWN
    base, (shape, strides, offsets) = (
        walk.plain(given["base"]),
        (
            tuple(map(_plain, part)) if isinstance(part := walk.value(given[name]), tuple) else ()
            for name in ("shape", "strides", "offsets")
        ),
    )
    sizes = given["block_shape"].elts if isinstance(given["block_shape"], ast.Tuple | ast.List) else ()
    uses = combined(base, *offsets).uses
    return BlockPointer(replace(base, uses=uses), shape, strides, offsets, tuple(map(ast.unparse, sizes)))


def _advance(walk: Walk, call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    pointer, steps = walk.value(nodes[0]), walk.value(nodes[1]) if len(nodes) > 1 else ()
    if not isinstance(pointer, BlockPointer) or not isinstance(steps, tuple) or len(steps) != len(pointer.offsets):
        return _UNKNOWN
    offsets = tuple(added(one, _plain(other)) for one, other in zip(pointer.offsets, steps, strict=True))
    return replace(pointer, offsets=offsets)


def _where(walk: Walk, call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    asked, one, other = map(walk.plain, nodes)
    if one.terms is not None and other.is_number and other.terms is not None and not other.uses:
        return one  # another row or column in place of one that the matrix does not have
    return _one_of(asked, one, other)


def _cdiv(walk: Walk, call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    size, block = map(walk.plain, nodes)
    walk.limits.append(Limit(call, block, size.base))
    return opaque(f"cdiv({size.text}, {block.text})", size, block)


def _new_axis(walk: Walk, call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    value, axis = walk.plain(nodes[0]), options.get("axis", nodes[1] if len(nodes) > 1 else None)
    place = axis.value if isinstance(axis, ast.Constant) and isinstance(axis.value, int) else None
    if value.axes is None or place is None:
        return replace(value, axes=None, terms=None)
    order = [*range(len(value.axes))]
    return with_axes(value, (*order[: place % (len(order) + 1)], None, *order[place % (len(order) + 1) :]))


def _broadcast_to(walk: Walk, call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    value, first = walk.plain(nodes[0]), nodes[1] if len(nodes) > 1 else options.get("shape")
    axes: tuple[str, ...] | None = None
    if isinstance(first, ast.Attribute) and first.attr == "shape":
        axes = walk.plain(first.value).axes
    elif first is not None:
        axes = tuple(ast.unparse(each) for node in (first, *nodes[2:]) for each in getattr(node, "elts", [node]))
    grown = None if value.axes is None or axes is None else broadcast(value.axes, axes)
    return replace(value, axes=axes, terms=value.terms if axes is not None and grown == axes else None)


_CALLS: Mapping[str, _Call] = {
    "arange": _arange,
    **dict.fromkeys(("zeros", "full"), _filled),
    **dict.fromkeys(("dot", "dot_scaled"), _dot),
    "load": _load,
    "store": _store,
    **dict.fromkeys(("trans", "permute"), _trans),
    "make_block_ptr": _block,
    "advance": _advance,
    "where": _where,
    "cdiv": _cdiv,
    "expand_dims": _new_axis,
    "broadcast_to": _broadcast_to,
}


def _transposed(value: Value, order: Sequence[ast.expr]) -> Value:
    if value.axes is None:
        return value
    places = [each.value for each in order if isinstance(each, ast.Constant) and isinstance(each.value, int)]
    if len(places) < len(order):
        return replace(value, axes=None, terms=None)
    rank = len(value.axes)
    return with_axes(value, tuple(place % rank for place in places) or tuple(range(rank))[::-1])


def _one_of(asked: Value, one: Known, other: Known) -> Known:
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return tuple(_one_of(asked, *pair) for pair in zip(one, other, strict=True))
    if isinstance(one, Value) and isinstance(other, Value):
        same = one.axes if one.axes == other.axes else None
        made = opaque(f"if({asked.text}, {one.text}, {other.text})", asked, one, other)
        return replace(made, axes=same, base=one.base | other.base)
    return _UNKNOWN


def _plain(value: Known) -> Value:
    return value if isinstance(value, Value) else _UNKNOWN


def _part(value: Known, place: int) -> Known:
    if isinstance(value, tuple):
        return value[place] if place < len(value) else _UNKNOWN
    return opaque(f"{value.text}[{place}]", value) if isinstance(value, Value) else _UNKNOWN


def _of_module(owner: ast.expr) -> bool:
    """Whether an attribute is of a module such as ``tl`` or ``tl.math``."""
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    return isinstance(owner, ast.Name) and owner.id in ("tl", "triton", "libdevice", "math", "language")


def _as_read(target: ast.expr) -> ast.expr:
    return ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name) else target
