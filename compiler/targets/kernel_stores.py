"""Whether a Triton kernel stores each tile where the plan expects it: rows of the output along the first axis.

And which of its operands it reads by row, of which a plan moves one alone.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .kernel_calls import KernelAccess, Limit, NotRecognised, base_of, is_constexpr
from .kernel_form import KernelForm
from .kernel_values import SCALAR, BlockPointer, KernelValue, Known, Product, atom
from .kernel_walk import Walk

ROW, COL = "row of the tile", "column of the tile"


@dataclass(frozen=True, slots=True)
class ByRow:
    """A parameter that a kernel reads or writes by row, beside its matrices, at ``node``."""

    name: str
    node: ast.AST


def check_stores(form: KernelForm, helpers: Mapping[str, ast.FunctionDef]) -> tuple[ByRow, ...]:
    """Return what the kernel reads by row beside what the plan moves.

    Raises
    ------
    NotRecognised
        If a tile is stored transposed, or elsewhere than at its rows and columns, or if that is not seen.
    """
    places = {form.row: atom(ROW), form.col: atom(COL)}
    walk = Walk(helpers, [each.arg for each in form.function.args.args], places)
    walk.run(form.function.body)
    tiles = [each for each in walk.stores if (axes := _axes(each.pointer)) is None or len(axes) == 2]
    if not tiles:
        store = walk.stores[0].node if walk.stores else form.function
        raise NotRecognised(store, "no store of a tile is seen", _hint(form))
    found = [(_check_store(form, each), each.node) for each in tiles]
    steps = [(each, node) for each, node in found if each is not None]
    numbers_of_rows = _check_limits(form, [*walk.limits, *(limit for each in tiles for limit in _limits(each))])
    for (rows, _), node in steps:
        if [name for name, _ in rows] in [[name] for name in numbers_of_rows]:
            message = f"rows of the output lie {rows[0][0]} apart, which is the number of rows"
            raise NotRecognised(node, message, "store rows with the stride of rows, or the number of columns")
    return tuple(_by_row(form, walk))


def _check_store(form: KernelForm, store: KernelAccess) -> tuple[Product, Product] | None:
    """Return the steps along both axes, None if the host knows; refuse other axes than the accumulator's, or steps."""
    tile = form.block_m, form.block_n
    sides = _axes(store.pointer), None if store.stored is None else store.stored.axes
    if tile[::-1] in sides:
        message = f"the accumulator is {_sizes(tile)}, and the tile is stored transposed"
        raise NotRecognised(
            store.node, message, "begin with an accumulator of the rows of the output, and store it as it is"
        )
    if sides != (tile, tile):
        found = next((axes for axes in sides if axes is not None and axes != tile), None)
        what = "what is stored is not followed" if found is None else f"it stores {_sizes(found)}"
        raise NotRecognised(store.node, f"a tile is {_sizes(tile)}, and {what}", _hint(form))
    if isinstance(store.pointer, BlockPointer):
        steps = _steps_of_block(form, store.pointer, store.node)
        if steps is None:
            return None
    else:
        assert isinstance(store.pointer, KernelValue), "what has axes is a tensor"
        steps = _steps(form, store.pointer, store.node)
    _check_order(form, steps, store.node)
    return steps


def _steps(form: KernelForm, pointer: KernelValue, node: ast.AST) -> tuple[Product, Product]:
    """Return how far rows lie apart, and columns: the same from tile to tile as within one."""
    if pointer.terms is None:
        raise NotRecognised(node, "where the tile is stored is not followed", _hint(form))
    found = []
    for axis, (place, block) in enumerate(((ROW, form.block_m), (COL, form.block_n))):
        within = [_without(each, (f"arange({block})", axis)) for each in pointer.terms if _along(each, axis)]
        between = [_without(each, (place, SCALAR), (block, SCALAR)) for each in pointer.terms if _uses(each, place)]
        if (
            len(within) != 1
            or within != between
            or any(pointer.terms[each] != 1 for each in pointer.terms if _along(each, axis))
        ):
            side = "rows" if axis == 0 else "columns"
            message = f"the {side} of a stored tile do not begin at {_index(form, axis)} * {block}"
            raise NotRecognised(node, message, _hint(form))
        found.append(within[0] or ())
    return found[0], found[1]


def _steps_of_block(form: KernelForm, pointer: BlockPointer, node: ast.AST) -> tuple[Product, Product] | None:
    for axis, (place, block) in enumerate(((ROW, form.block_m), (COL, form.block_n))):
        wanted = {tuple(sorted(((place, SCALAR), (block, SCALAR)))): 1}
        if axis >= len(pointer.offsets) or pointer.offsets[axis].terms != wanted:
            side = "rows" if axis == 0 else "columns"
            message = f"the {side} of a stored block do not begin at {_index(form, axis)} * {block}"
            raise NotRecognised(node, message, _hint(form))
    if not pointer.strides:
        return None
    strides = [each.terms for each in pointer.strides]
    if len(strides) != 2 or any(each is None or len(each) != 1 for each in strides):
        raise NotRecognised(node, "how far rows of the output lie apart is not followed", _hint(form))
    rows, cols = (next(iter(each)) for each in strides if each is not None)
    return rows, cols


def _check_order(form: KernelForm, steps: tuple[Product, Product], node: ast.AST) -> None:
    """Refuse an output whose columns lie further apart than its rows, by the order of the strides among parameters."""
    rows, cols = ("*".join(name for name, _ in step) or "1" for step in steps)
    names = [each.arg for each in form.function.args.args]
    swapped = rows == "1" or rows == cols
    if cols != "1" and rows in names and cols in names:
        by_name = _last(rows) in "m0" and _last(cols) in "n1"
        swapped = rows == cols or (names.index(rows) > names.index(cols) and not by_name)
        swapped = swapped or (_last(rows), _last(cols)) in (("n", "m"), ("1", "0"))
    if swapped:
        message = f"rows of the output lie {rows} apart and columns {cols}: it is stored transposed"
        raise NotRecognised(node, message, "store rows with the stride of rows, which comes first of the two")


def _last(name: str) -> str:
    return name.lower()[-1:]


def _check_limits(form: KernelForm, limits: Sequence[Limit]) -> set[str]:
    """Return what rows alone are compared with; refuse what both are, where it is the size of one of them."""
    found: tuple[dict[str, ast.AST], dict[str, ast.AST]] = {}, {}
    constants = {each.arg for each in form.function.args.args if is_constexpr(each)}
    for limit in limits:
        sides = [_depends(limit.bounded, form, axis) for axis in (0, 1)]
        if sum(sides) == 1 and len(limit.by - constants) == 1:
            found[sides.index(True)].setdefault(min(limit.by - constants), limit.node)
    rows, cols = found
    both = rows.keys() & cols.keys()
    if both and (len(rows) > 1 or len(cols) > 1):
        name = min(both)
        node = max(rows[name], cols[name], key=lambda each: getattr(each, "lineno", 0))
        message = f"rows and columns are both compared with {name}, so that tiles are left out or masked wrongly"
        raise NotRecognised(node, message, "compare rows with the number of rows, and columns with that of columns")
    return rows.keys() - cols.keys()


def _limits(store: KernelAccess) -> Iterator[Limit]:
    """The sizes of the matrix in a pointer to a block, which masks what lies outside."""
    if isinstance(store.pointer, BlockPointer):
        for place, size in zip((ROW, COL), store.pointer.shape, strict=False):
            yield Limit(store.node, atom(place), size.base)


def _by_row(form: KernelForm, walk: Walk) -> Iterator[ByRow]:
    """Yield what is read by row, but the first matrix of the product."""
    order, matrix, seen = [each.arg for each in form.function.args.args], "", set[str]()
    reads = [(each, _name(each.pointer, order)) for each in walk.loads if _depends(base_of(each.pointer), form, 0)]
    for each, name in reads:
        if base_of(each.pointer).loads:
            found = ", ".join(sorted(base_of(each.pointer).loads))
            message = f"{name} is read where {found} says, and not at the rows of the tile that the plan has brought"
            raise NotRecognised(each.node, message, "read the rows of the tile")
    for each, name in sorted(reads, key=lambda read: order.index(read[1]) if read[1] in order else len(order)):
        axes = _axes(each.pointer) or ()
        inner = len(axes) == 2 and axes[1] not in ("1", form.block_n) and axes[0] == form.block_m
        if inner and not matrix and not _depends(base_of(each.pointer), form, 1):
            matrix = name
        if name != matrix and name not in seen:
            seen.add(name)
            yield ByRow(name, each.node)


def _depends(value: KernelValue, form: KernelForm, axis: int) -> bool:
    place, block = ((ROW, form.block_m), (COL, form.block_n))[axis]
    return bool(value.uses & {place, block, f"arange({block})"})


def _axes(pointer: Known) -> tuple[str, ...] | None:
    return pointer.axes if isinstance(pointer, BlockPointer | KernelValue) else None


def _name(pointer: Known, order: Sequence[str]) -> str:
    """The parameter that a pointer begins at: of those that are added up the first."""
    return min(base_of(pointer).base, key=order.index, default="memory")


def _along(product: Product, axis: int) -> bool:
    return any(place == axis for _, place in product)


def _uses(product: Product, name: str) -> bool:
    return any(each == name for each, _ in product)


def _without(product: Product, *atoms: tuple[str, int]) -> Product | None:
    """Return a product without each of ``atoms``, None if it lacks one."""
    left = list(product)
    for each in atoms:
        if each not in left:
            return None
        left.remove(each)
    return tuple(left)


def _index(form: KernelForm, axis: int) -> str:
    return form.row if axis == 0 else form.col


def _sizes(axes: Sequence[str]) -> str:
    return f"({', '.join(axes)})"


def _hint(form: KernelForm) -> str:
    rows, cols = (
        f"{_index(form, axis)} * {block} + tl.arange(0, {block})"
        for axis, block in enumerate((form.block_m, form.block_n))
    )
    return f"store the whole tile at rows {rows} and columns {cols}"
