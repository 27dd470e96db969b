"""What calls of Triton's language do to the values of a kernel, and what it loads, stores and compares on its way."""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .kernel_values import (
    BlockPointer,
    Descriptor,
    KernelValue,
    Known,
    added,
    atom,
    broadcast,
    combined,
    constant,
    opaque,
    with_axes,
)

# Parts of Python's syntax tree that tell how a Triton kernel is written.

Loop = ast.For | ast.While
_PURE = frozenset(
    (
        "program_id",
        "num_programs",
        "cdiv",
        "min",
        "max",
        "minimum",
        "maximum",
        "swizzle2d",
        "multiple_of",
        "where",
        "to",
    )
)
"""Calls that only compute numbers."""


class NotRecognised(Exception):
    """Why a kernel is not rewritten, at a node of its syntax tree, and a hint."""

    def __init__(self, node: ast.AST, message: str, hint: str) -> None:
        super().__init__(message)
        self.node, self.message, self.hint = node, message, hint


def is_jit(decorator: ast.expr) -> bool:
    """Whether a decorator is ``triton.jit``, with or without options."""
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator) in ("triton.jit", "jit")


def is_constexpr(parameter: ast.arg) -> bool:
    """Whether a parameter of a kernel is a constant of its compilation."""
    return parameter.annotation is not None and "constexpr" in ast.unparse(parameter.annotation)


def called(node: ast.AST, *names: str) -> Iterator[ast.Call]:
    """Yield the calls of functions or methods with these names."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and name_of(each) in names:
            yield each


def name_of(call: ast.Call) -> str:
    """The last name of what is called: ``load`` of ``tl.load(...)``."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)


def assigned(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that are assigned."""
    stores = (each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name))
    return {each.id for each in stores if isinstance(each.ctx, ast.Store)}


def names_read(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that are read."""
    reads = (each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name))
    return {each.id for each in reads if isinstance(each.ctx, ast.Load)}


def is_pure(statement: ast.stmt, helpers: frozenset[str]) -> bool:
    """Whether a statement only computes numbers: assignments, and choices between them."""
    if isinstance(statement, ast.If):
        return all(is_pure(each, helpers) for each in (*statement.body, *statement.orelse))
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return False
    calls = (each for each in ast.walk(statement) if isinstance(each, ast.Call))
    return all(name_of(call) in _PURE | helpers for call in calls)


def pure_helpers(module: ast.Module) -> frozenset[str]:
    """Names of the functions of a file that only compute numbers."""
    functions = [each for each in module.body if isinstance(each, ast.FunctionDef)]
    calls = {each.name: {name_of(call) for call in ast.walk(each) if isinstance(call, ast.Call)} for each in functions}
    decorations = {"jit", "triton.jit", *("constexpr_function", "autotune")}
    return frozenset(name for name, names in calls.items() if names - decorations <= _PURE)


if TYPE_CHECKING:
    from .kernel_walk import Walk

UNKNOWN = KernelValue(None, None)


@dataclass(frozen=True, slots=True)
class KernelAccess:
    """A load or a store; ``stored`` is the tensor that is stored, None of a load."""

    node: ast.Call
    pointer: Known
    stored: KernelValue | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """A number of ``bounded`` indices is compared with, or counted from, the parameters ``by``, at ``node``."""

    node: ast.AST
    bounded: KernelValue
    by: frozenset[str]


_Call = Callable[["Walk", ast.Call, Sequence[ast.expr], Mapping[str, ast.expr]], Known]


def _arange(walk: "Walk", call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    first, end = walk.plain(nodes[0]), ast.unparse(nodes[1])
    size = end if first == constant(0) else f"{end} - {ast.unparse(nodes[0])}"
    return added(atom(f"arange({size})", 0, (size,)), first)


def _filled(walk: "Walk", call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    shape = options.get("shape", nodes[0] if nodes else None)
    sizes = shape.elts if isinstance(shape, ast.Tuple | ast.List) else ()
    return KernelValue(None, tuple(map(ast.unparse, sizes)) if sizes else None)


def _dot(walk: "Walk", call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    values = [walk.plain(each) for each in nodes]
    left, right = (values[0], values[3]) if name_of(call) == "dot_scaled" else (values[0], values[1])
    made = combined(*values, *(walk.plain(each) for each in options.values()))
    sides = left.axes, right.axes
    axes = (sides[0][0], sides[1][1]) if sides[0] and sides[1] and len(sides[0]) == len(sides[1]) == 2 else None
    return replace(made, axes=axes, terms=None)


def _load(walk: "Walk", call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    pointer = _block_of(walk, call, nodes, options) or walk.value(nodes[0])
    for each in (*nodes[1:], *options.values()):
        walk.value(each)
    walk.loads.append(KernelAccess(call, pointer))
    at = base_of(pointer)
    axes = pointer.axes if isinstance(pointer, BlockPointer) else at.axes
    return KernelValue(None, axes, at.uses, frozenset(), at.loads | at.base)


def _store(walk: "Walk", call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    given = [*nodes, *(options[name] for name in ("pointer", "value") if name in options)]
    block = _block_of(walk, call, nodes, options)
    for each in (*given[2:], *options.values()):
        walk.value(each)
    walk.stores.append(KernelAccess(call, block or walk.value(given[0]), walk.plain(given[1 if block is None else 2])))
    return UNKNOWN


def _trans(walk: "Walk", call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    order = [each for node in nodes[1:] for each in (node.elts if isinstance(node, ast.Tuple | ast.List) else (node,))]
    return transposed(walk.plain(nodes[0]), order)


def _block(walk: "Walk", call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    names = ("base", "shape", "strides", "offsets", "block_shape")
    given = {**dict(zip(names, nodes, strict=False)), **options}
    if not set(names) <= set(given):
        return UNKNOWN
    return _block_at(_described(walk, given), _numbers(walk, given["offsets"]))


def _descriptor(walk: "Walk", call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    names = ("base", "shape", "strides", "block_shape")
    given = {**dict(zip(names, nodes, strict=False)), **options}
    return _described(walk, given) if set(names) <= set(given) else UNKNOWN


def _described(walk: "Walk", given: Mapping[str, ast.expr]) -> Descriptor:
    sizes = given["block_shape"].elts if isinstance(given["block_shape"], ast.Tuple | ast.List) else ()
    shape, strides = (_numbers(walk, given[name]) for name in ("shape", "strides"))
    return Descriptor(walk.plain(given["base"]), shape, strides, tuple(map(ast.unparse, sizes)))


def _numbers(walk: "Walk", node: ast.expr) -> tuple[KernelValue, ...]:
    return tuple(map(plain, part)) if isinstance(part := walk.value(node), tuple) else ()


def _block_at(made: Descriptor, offsets: tuple[KernelValue, ...]) -> BlockPointer:
    uses = combined(made.base, *offsets).uses
    return BlockPointer(replace(made.base, uses=uses), made.shape, made.strides, offsets, made.axes)


def _block_of(
    walk: "Walk", call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]
) -> BlockPointer | None:
    """Return what a descriptor loads or stores, None if a pointer does.

    Of a descriptor that the host has made the sizes of a block are those that its offsets are multiples of.
    """
    of_module = not isinstance(call.func, ast.Attribute) or call.func.value is not nodes[0]
    made, places = walk.value(nodes[0]), options.get("offsets", nodes[1] if len(nodes) > 1 else None)
    by_host = name_of(call).endswith("_tensor_descriptor") or not of_module
    if places is None or not (isinstance(made, Descriptor) or (by_host and isinstance(made, KernelValue))):
        return None
    offsets = _numbers(walk, places)
    if isinstance(made, Descriptor):
        return _block_at(made, offsets)
    axes = tuple(_size_of(walk, each) or f"{ast.unparse(nodes[0])}[{place}]" for place, each in enumerate(offsets))
    return _block_at(Descriptor(made, (), (), axes), offsets)


def _size_of(walk: "Walk", offset: KernelValue) -> str:
    """The parameter that an offset is a multiple of, if it is plainly one."""
    products = [{name for name, _ in product if name in walk.parameters} for product in offset.terms or ()]
    sizes = set.intersection(*products) if products else set[str]()
    return min(sizes) if len(sizes) == 1 else ""


def _advance(walk: "Walk", call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    pointer, steps = walk.value(nodes[0]), walk.value(nodes[1]) if len(nodes) > 1 else ()
    if not isinstance(pointer, BlockPointer) or not isinstance(steps, tuple) or len(steps) != len(pointer.offsets):
        return UNKNOWN
    offsets = tuple(added(one, plain(other)) for one, other in zip(pointer.offsets, steps, strict=True))
    return replace(pointer, offsets=offsets)


def _where(walk: "Walk", call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    requested, one, other = map(walk.plain, nodes)
    if one.terms is not None and other.is_number and other.terms is not None and not other.uses:
        return one  # another row or column in place of one that the matrix does not have
    return one_of(requested, one, other)


def _cdiv(walk: "Walk", call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    size, block = map(walk.plain, nodes)
    walk.limits.append(Limit(call, block, size.base))
    return opaque(f"cdiv({size.text}, {block.text})", size, block)


def _new_axis(walk: "Walk", call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    value, axis = walk.plain(nodes[0]), options.get("axis", nodes[1] if len(nodes) > 1 else None)
    place = axis.value if isinstance(axis, ast.Constant) and isinstance(axis.value, int) else None
    if value.axes is None or place is None:
        return replace(value, axes=None, terms=None)
    order = [*range(len(value.axes))]
    return with_axes(value, (*order[: place % (len(order) + 1)], None, *order[place % (len(order) + 1) :]))


def _broadcast_to(walk: "Walk", call: ast.Call, nodes: Sequence[ast.expr], options: Mapping[str, ast.expr]) -> Known:
    value, first = walk.plain(nodes[0]), nodes[1] if len(nodes) > 1 else options.get("shape")
    axes: tuple[str, ...] | None = None
    if isinstance(first, ast.Attribute) and first.attr == "shape":
        axes = walk.plain(first.value).axes
    elif first is not None:
        axes = tuple(ast.unparse(each) for node in (first, *nodes[2:]) for each in getattr(node, "elts", [node]))
    grown = None if value.axes is None or axes is None else broadcast(value.axes, axes)
    return replace(value, axes=axes, terms=value.terms if axes is not None and grown == axes else None)


CALLS: Mapping[str, _Call] = {
    "arange": _arange,
    **dict.fromkeys(("zeros", "full"), _filled),
    **dict.fromkeys(("dot", "dot_scaled"), _dot),
    **dict.fromkeys(("load", "load_tensor_descriptor"), _load),
    **dict.fromkeys(("store", "store_tensor_descriptor"), _store),
    **dict.fromkeys(("trans", "permute"), _trans),
    "make_block_ptr": _block,
    "make_tensor_descriptor": _descriptor,
    "advance": _advance,
    "where": _where,
    "cdiv": _cdiv,
    "expand_dims": _new_axis,
    "broadcast_to": _broadcast_to,
}
"""By the last name of what is called."""


def transposed(value: KernelValue, order: Sequence[ast.expr]) -> KernelValue:
    """Return a tensor with its axes in the order that a kernel says, or turned round."""
    if value.axes is None:
        return value
    places = [each.value for each in order if isinstance(each, ast.Constant) and isinstance(each.value, int)]
    if len(places) < len(order):
        return replace(value, axes=None, terms=None)
    rank = len(value.axes)
    return with_axes(value, tuple(place % rank for place in places) or tuple(range(rank))[::-1])


def one_of(requested: KernelValue, one: Known, other: Known) -> Known:
    """Return what is one of two values, as ``requested`` says."""
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return tuple(one_of(requested, *pair) for pair in zip(one, other, strict=True))
    if isinstance(one, KernelValue) and isinstance(other, KernelValue):
        same = one.axes if one.axes == other.axes else None
        made = opaque(f"if({requested.text}, {one.text}, {other.text})", requested, one, other)
        return replace(made, axes=same, base=one.base | other.base)
    return UNKNOWN


def base_of(pointer: Known) -> KernelValue:
    """Return where a pointer begins; of a block in a matrix that is where the matrix does."""
    return pointer.base if isinstance(pointer, BlockPointer) else plain(pointer)


def plain(value: Known) -> KernelValue:
    """Return a value that is one number or tensor; of others nothing is known."""
    return value if isinstance(value, KernelValue) else UNKNOWN
