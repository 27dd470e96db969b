"""The outline of a text: what it declares, and the tensors and steps in it."""

from dataclasses import dataclass

from ..text import syntax as ast
from ..text.names import Kind, kind_of
from ..text.source import Span
from .document import Document


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name that a text declares. ``kind`` is None for a tensor or a step, and for a question about a workload."""

    name: str
    kind: Kind | None
    detail: str
    span: Span
    children: tuple["Symbol", ...] = ()


def symbols(document: Document) -> tuple[Symbol, ...]:
    """Return what a text declares and asks, in the order of the text."""
    tree = document.tree
    return (
        tuple(_symbol(each) for each in tree.declarations if not isinstance(each, ast.Use | ast.Include))
        if tree
        else ()
    )


def _symbol(declaration: ast.Declaration) -> Symbol:
    match declaration:
        case ast.Explore():
            return Symbol(f"explore {declaration.workload}", None, "explore", declaration.span)
        case ast.Expect():
            return Symbol(f"expect {declaration.workload or ''}".rstrip(), None, "expect", declaration.span)
        case ast.Use() | ast.Include():
            raise AssertionError("files have no symbol")
    kind = kind_of(declaration)
    block = declaration.block if isinstance(declaration, ast.Workload | ast.Plan) else None
    inner = (each for each in block.statements if isinstance(each, ast.Define)) if block is not None else ()
    word = "tensor" if isinstance(declaration, ast.Workload) else "step"
    children = tuple(Symbol(each.name, None, word, each.span) for each in inner)
    return Symbol(declaration.name, kind, kind.value, declaration.span, children)
