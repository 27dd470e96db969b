"""Recognise a Triton GEMM by its syntax tree: the kernel of a file, its tile sizes, and where its tiles come from.

A kernel is recognised if it computes one tile for each program, or goes through tiles in one loop, and has the row and
the column of a tile in two variables, each multiplied by a size of the tile. It stores each tile where the plan expects
it, rows of the output along the first axis; of its operands that it reads by row a plan moves one. Nothing of the file
is executed.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .kernel_calls import (
    KernelAccess,
    Limit,
    Loop,
    NotRecognised,
    assigned,
    base_of,
    called,
    is_constexpr,
    is_jit,
    pure_helpers,
)
from .kernel_checks import RESERVED, check_function, check_loop, check_returns, drop_repeats, uses_descriptors
from .kernel_tuning import Config, configs_of, is_tuned, take_branches, take_config
from .kernel_values import SCALAR, BlockPointer, KernelValue, Known, Product, atom
from .kernel_walk import Walk

_ACCUMULATORS = ("zeros", "full")


@dataclass(frozen=True, slots=True)
class KernelForm:
    """A kernel: the sizes of a tile by their names, the row and the column of a tile by theirs.

    ``body`` is what computes a tile, ``loop`` the loop through the tiles, None where a program computes one. ``config``
    is the configuration of its autotuning, None if it has none. ``ordered`` says that it uses tensor descriptors, whose
    loads and stores flags alone do not order.
    """

    function: ast.FunctionDef
    config: Config | None
    block_m: str
    block_n: str
    row: str
    col: str
    loop: Loop | None
    ordered: bool

    @property
    def sides(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """The index and the size of a tile along its rows, and along its columns."""
        return (self.row, self.block_m), (self.col, self.block_n)

    @property
    def row_name(self) -> str:
        """The variable of the row, made where there is none."""
        return self.row if self.row.isidentifier() else f"{RESERVED}row"

    @property
    def col_name(self) -> str:
        """The variable of the column, made where there is none."""
        return self.col if self.col.isidentifier() else f"{RESERVED}col"

    @property
    def body(self) -> list[ast.stmt]:
        """The statements that compute a tile, and those that find it."""
        return self.function.body if self.loop is None else self.loop.body


def kernel_form(
    module: ast.Module, wanted: Config | None = None, name: str = "", tile: tuple[int, ...] = ()
) -> KernelForm:
    """Find the GEMM of a file, of which autotuning goes, and what finds a tile a second time.

    ``wanted`` chooses one of several configurations, or the rows and columns of a ``tile`` do; ``name`` one of several
    kernels.

    Raises
    ------
    NotRecognised
        If there is none, or it is written in another way.
    """
    function = _kernel(module, name)
    if tile and wanted is None and is_tuned(function) and configs_of(module, function):
        wanted = Config(dict(zip(_tile_size(function), tile, strict=True)))
    config = take_config(module, function, wanted)
    if config is not None:
        take_branches(function, config)
    check_function(function)
    block_m, block_n = _tile_size(function)
    helpers = {each.name: each for each in module.body if isinstance(each, ast.FunctionDef)}
    indices = {block: _indices(function, block) for block in (block_m, block_n)}
    check_returns(function, indices, helpers)
    found = {index for names in indices.values() for index in names}
    drop_repeats(function, found, helpers, pure_helpers(module))
    row, col = (_index(function, block) for block in (block_m, block_n))
    for index in {row, col} - assigned(function.body):
        if index.isidentifier():
            raise NotRecognised(function, f"{index} is not found in the kernel", f"{index} = tl.program_id(...)")
    loops = [each for each in function.body if isinstance(each, Loop) and assigned([each]) & {row, col}]
    if len(loops) > 1:
        raise NotRecognised(loops[1], f"a second loop assigns {row} or {col}", "one loop goes through the tiles")
    for loop in loops:
        check_loop(function, loop, {row, col})
    ordered = uses_descriptors([function, *helpers.values()])
    return KernelForm(function, config, block_m, block_n, row, col, loops[0] if loops else None, ordered)


def configured_tiles(module: ast.Module, name: str = "") -> tuple[tuple[int, int], ...]:
    """Return the rows and columns of the tiles that the configurations of the kernel ``name`` have, each once.

    Raises
    ------
    NotRecognised
        If there is no such kernel, or its configurations are not read.
    """
    function = _kernel(module, name)
    sides = _tile_size(function)
    found = [tuple(each.settings.get(side) for side in sides) for each in configs_of(module, function)]
    return tuple(dict.fromkeys((m, n) for m, n in found if isinstance(m, int) and isinstance(n, int)))


def _kernel(module: ast.Module, wanted: str) -> ast.FunctionDef:
    jitted = [
        each for each in module.body if isinstance(each, ast.FunctionDef) and any(map(is_jit, each.decorator_list))
    ]
    found = [each for each in jitted if any(called(each, "dot", "dot_scaled"))]
    if not found:
        raise NotRecognised(module, "no function with @triton.jit calls tl.dot", "a file holds one GEMM kernel")
    names = ", ".join(each.name for each in found)
    chosen = [each for each in found if wanted in ("", each.name)]
    if not chosen:
        raise NotRecognised(found[0], f"no kernel {wanted} calls tl.dot", f"there are: {names}")
    if len(chosen) > 1:
        raise NotRecognised(chosen[1], f"several kernels call tl.dot: {names}", "say which: --kernel FILE.py::NAME")
    return chosen[0]


def _tile_size(function: ast.FunctionDef) -> tuple[str, str]:
    """The names in ``tl.zeros((ROWS, COLUMNS))``, the accumulator."""
    sizes: dict[tuple[str, ...], ast.Call] = {}
    for call in called(function, *_ACCUMULATORS):
        shapes = [*call.args[:1], *(each.value for each in call.keywords if each.arg == "shape")]
        for shape in shapes:
            if isinstance(shape, ast.Tuple | ast.List) and len(shape.elts) == 2:
                sizes[tuple(map(ast.unparse, shape.elts))] = call
    if not sizes:
        hint = "begin with: acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)"
        raise NotRecognised(function, "no accumulator tells the size of a tile", hint)
    (rows, cols), call = next(iter(sizes.items()))
    if len(sizes) > 1 or rows == cols or not (rows.isidentifier() and cols.isidentifier()):
        found = " and ".join(f"({', '.join(size)})" for size in sizes)
        hint = "one accumulator, with a name for its rows and another for its columns"
        raise NotRecognised(call, f"the size of a tile is not clear from {found}", hint)
    return rows, cols


def _indices(function: ast.FunctionDef, block: str) -> list[str]:
    """What is multiplied by ``block``: variables, and ``tl.program_id`` itself."""
    found: dict[str, ast.AST] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for one, other in (node.left, node.right), (node.right, node.left):
                if isinstance(other, ast.Name) and other.id == block and isinstance(one, ast.Name | ast.Call):
                    found[ast.unparse(one)] = one
    return [text for text, node in found.items() if isinstance(node, ast.Name) or any(called(node, "program_id"))]


def _index(function: ast.FunctionDef, block: str) -> str:
    """The one index of a tile that is multiplied by ``block``."""
    indices = _indices(function, block)
    if len(indices) != 1:
        what = " and ".join(indices) or "nothing"
        hint = f"begin with: offsets = pid * {block} + tl.arange(0, {block})"
        raise NotRecognised(
            function,
            f"{what} {'are' if len(indices) > 1 else 'is'} multiplied by {block}, and not one index of a tile",
            hint,
        )
    return indices[0]


# Whether a kernel stores each tile where the plan expects it, and which operands it reads by row.

PLACES = "row of the tile", "column of the tile"


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
    places = {index: atom(place) for place, (index, _) in zip(PLACES, form.sides, strict=True)}
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
    for axis, (place, (index, block)) in enumerate(zip(PLACES, form.sides, strict=True)):
        within = [_without(each, (f"arange({block})", axis)) for each in pointer.terms if _varies_on(each, axis)]
        between = [_without(each, (place, SCALAR), (block, SCALAR)) for each in pointer.terms if _uses(each, place)]
        if (
            len(within) != 1
            or within != between
            or any(pointer.terms[each] != 1 for each in pointer.terms if _varies_on(each, axis))
        ):
            side = "rows" if axis == 0 else "columns"
            raise NotRecognised(node, f"the {side} of a stored tile do not begin at {index} * {block}", _hint(form))
        found.append(within[0] or ())
    return found[0], found[1]


def _steps_of_block(form: KernelForm, pointer: BlockPointer, node: ast.AST) -> tuple[Product, Product] | None:
    for axis, (place, (index, block)) in enumerate(zip(PLACES, form.sides, strict=True)):
        wanted = {tuple(sorted(((place, SCALAR), (block, SCALAR)))): 1}
        if axis >= len(pointer.offsets) or pointer.offsets[axis].terms != wanted:
            side = "rows" if axis == 0 else "columns"
            raise NotRecognised(node, f"the {side} of a stored block do not begin at {index} * {block}", _hint(form))
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
        for place, size in zip(PLACES, store.pointer.shape, strict=False):
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
    _, block = form.sides[axis]
    return bool(value.uses & {PLACES[axis], block, f"arange({block})"})


def _axes(pointer: Known) -> tuple[str, ...] | None:
    return pointer.axes if isinstance(pointer, BlockPointer | KernelValue) else None


def _name(pointer: Known, order: Sequence[str]) -> str:
    """The parameter that a pointer begins at: of those that are added up the first."""
    return min(base_of(pointer).base, key=order.index, default="memory")


def _varies_on(product: Product, axis: int) -> bool:
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


def _sizes(axes: Sequence[str]) -> str:
    return f"({', '.join(axes)})"


def _hint(form: KernelForm) -> str:
    rows, cols = (f"{index} * {block} + tl.arange(0, {block})" for index, block in form.sides)
    return f"store the whole tile at rows {rows} and columns {cols}"
