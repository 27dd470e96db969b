"""Parts of Python's syntax tree that tell how a Triton kernel is written."""

import ast
from collections.abc import Iterable, Iterator

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
