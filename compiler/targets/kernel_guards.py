"""Programs of a Triton kernel that return before they compute: those beyond the end of the matrix, and no others."""

import ast
from collections.abc import Iterable, Mapping, Sequence

from .kernel_calls import plain
from .kernel_syntax import NotRecognised
from .kernel_values import KernelValue, atom, multiplied, opaque
from .kernel_walk import Walk


def check_returns(
    function: ast.FunctionDef, indices: Mapping[str, Iterable[str]], helpers: Mapping[str, ast.FunctionDef]
) -> None:
    """Refuse a ``return`` of a tile that may lie in the matrix; ``indices`` are those of a tile by their block.

    Raises
    ------
    NotRecognised
        If there is one.
    """
    walk = Walk(helpers, [each.arg for each in function.args.args])
    for statement in function.body:
        if isinstance(statement, ast.If) and is_guard(statement) and _beyond(walk, statement.test, indices):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom | ast.Await):
                raise _refused(walk, statement, node)
        walk.run([statement])


def is_guard(statement: ast.stmt) -> bool:
    """Whether a statement does nothing but return under a condition."""
    match statement:
        case ast.If(_, [ast.Return(None)], []):
            return True
    return False


def nested(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements of which those behind a guard stand under its opposite, since loops call what they make."""
    for place, each in enumerate(body):
        if isinstance(each, ast.If) and is_guard(each):
            rest = nested(body[place + 1 :]) or [ast.Pass()]
            return [*body[:place], ast.If(ast.UnaryOp(ast.Not(), each.test), rest, [])]
    return list(body)


def _refused(walk: Walk, statement: ast.stmt, node: ast.AST) -> NotRecognised:
    test = walk.plain(statement.test) if isinstance(statement, ast.If) else KernelValue()
    if test.loads:
        found = ", ".join(sorted(test.loads))
        message = f"which tiles are computed is read from {found}, and tables are made before"
        return NotRecognised(node, message, "a GEMM of which all tiles are computed")
    hint = "mask stores instead, or return only beyond the end: if pid_m * BLOCK_M >= M"
    return NotRecognised(node, "a tile may end early, and its flag would not be set", hint)


def _beyond(walk: Walk, test: ast.expr, indices: Mapping[str, Iterable[str]]) -> bool:
    """Whether a condition says that the tile begins behind the last row, or the last column."""
    match test:
        case ast.BoolOp(ast.Or(), parts):
            return all(_beyond(walk, each, indices) for each in parts)
        case ast.Compare(left, [ast.GtE()], [right]) | ast.Compare(right, [ast.LtE()], [left]):
            begins, end = walk.plain(left).text, walk.plain(right)
            return any(_begins(walk, index, block, begins, end) for block in indices for index in indices[block])
    return False


def _begins(walk: Walk, index: str, block: str, begins: str, end: KernelValue) -> bool:
    """Whether ``begins`` is the tile ``index``, or its first row or column, and ``end`` the one behind the last."""
    size, tile = atom(block), plain(walk.value(ast.parse(index, mode="eval").body))
    ends = [atom(name) for name in walk.parameters]
    tiles = [opaque(f"cdiv({each.text}, {size.text})").text for each in ends]
    by_tile = begins == tile.text and end.text in tiles
    return by_tile or (begins == multiplied(tile, size).text and end.text in [each.text for each in ends])
