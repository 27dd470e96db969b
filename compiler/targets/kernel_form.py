"""Recognise a Triton GEMM by its syntax tree: the kernel of a file, its tile sizes, and where its tiles come from.

A kernel is recognised if it computes one tile for each program, or goes through tiles in one loop, and has the row and
the column of a tile in two variables, each multiplied by a size of the tile. Nothing of the file is executed.
"""

import ast
from dataclasses import dataclass

from .kernel_calls import Loop, NotRecognised, assigned, called, is_jit, pure_helpers
from .kernel_checks import RESERVED, check_function, check_loop, check_returns, drop_repeats, uses_descriptors
from .kernel_tuning import Config, configs_of, is_tuned, take_branches, take_config

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
            sides = (node.left, node.right), (node.right, node.left)
            for one, other in sides:
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
