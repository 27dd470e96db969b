"""Build the syntax tree from lark's tree."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from lark import Token, Tree

from ...codes import Code
from .. import syntax as ast
from ..diagnostics import Report, Source, Span
from .tokens import MAX_NESTING, Tokens, split_quantity

NAMELESS = ""
LarkTree = Tree[Token]
_Child = LarkTree | Token | None


@dataclass(frozen=True, slots=True)
class Parsed:
    """The tree of one declaration, which stands ``shift`` characters behind the place where it was parsed."""

    tree: LarkTree
    shift: int = 0


def build_file(source: Source, parsed: Iterable[Parsed], tokens: Tokens, report: Report) -> ast.File:
    """Build the tree of a whole text; drop nameless nodes, which stand for text that did not parse."""
    version: ast.Version | None = None
    declarations: list[ast.Declaration] = []
    for each in parsed:
        builder = _Builder(source, report, each.shift)
        version = builder.version(each.tree) or version
        declarations += builder.declarations(each.tree)
    span = Span(source, 0, len(source.text))
    return ast.File(version, tuple(declarations), tokens.comments, len(tokens.tokens), span=span)


def build_values(source: Source, tree: LarkTree, report: Report) -> tuple[ast.Expression, ...]:
    """Build the values of a text that was parsed by the rule ``value``."""
    return _Builder(source, report).each(tree.children[0])


class _Builder:
    def __init__(self, source: Source, report: Report, shift: int = 0) -> None:
        self._source, self._report, self._shift = source, report, shift

    def version(self, tree: LarkTree) -> ast.Version | None:
        versions = (each for each in tree.children if isinstance(each, Tree) and each.data == "version")
        found = next(versions, None)
        return None if found is None else ast.Version(str(found.children[0]), span=self._span(found))

    def declarations(self, tree: LarkTree) -> list[ast.Declaration]:
        trees = (each for each in tree.children if isinstance(each, Tree) and each.data != "version")
        built: list[ast.Declaration] = [self.node(each) for each in trees]
        return [
            each for each in built if not (isinstance(each, ast.ExploreNode) and each.workload.names == (NAMELESS,))
        ]

    def node(self, child: _Child) -> Any:
        """The node of a tree: its fields are the children, or what a method makes of all of them."""
        tree = _tree(child)
        if tree.data in _OF_ALL:
            return _OF_ALL[tree.data](self, tree)
        make, *readers = _NODES[tree.data]
        fields: list[Any] = []  # texts nest deeply: a comprehension would be one more call each time
        for read, part in zip(readers, tree.children, strict=True):
            fields.append(read(self, part))
        return make(*fields, span=self._span(tree))

    def each(self, child: _Child) -> tuple[Any, ...]:
        """The nodes of all trees in a tree."""
        return tuple(map(self.node, [part for part in _tree(child).children if isinstance(part, Tree)]))

    def path(self, child: _Child) -> ast.Path:
        tree = _tree(child)
        return ast.Path(tuple(map(str, tree.children)), span=self._span(tree))

    def block(self, child: _Child, *, sets: bool = False) -> ast.BlockNode:
        """A block; in that of a schedule ``qkv[0] = serial()`` may stand."""
        tree = _tree(child)
        trees = [_tree(child) for child in tree.children if isinstance(child, Tree)]
        sound = [each for each in trees if each.data != "set" or self._may_set(each, sets)]
        kept = [each for each in map(self.node, sound) if not (isinstance(each, ast.Say) and _is_nameless(each))]
        return ast.BlockNode(tuple(kept), span=self._span(tree))

    def setting(self, tree: LarkTree) -> ast.Say:
        """``qkv[0] = serial()``: how an op of one batch is carried out."""
        left, (group, *others) = self.node(tree.children[0]), self.each(tree.children[1])
        first, *rest = group.parts
        head = ast.Compare(left, "=", first, span=left.span.to(first.span))
        return ast.Say((ast.GroupNode((head, *rest), group.note, span=group.span), *others), span=self._span(tree))

    def _may_set(self, tree: LarkTree, sets: bool) -> bool:
        """Whether what stands before the ``=`` may: an op of one batch, in a schedule."""
        left = self.node(tree.children[0])
        if sets and isinstance(left, ast.Index) and isinstance(left.base, ast.Name):
            return True
        equals = self._source.text.index("=", left.span.end)
        at, hint = Span(self._source, equals, equals + 1), "one new name stands before '='; to compare, write =="
        self._report.error(Code.MGS107, "'=' cannot stand here", at, hint)
        return False

    def group(self, tree: LarkTree) -> ast.GroupNode:
        *parts, note = tree.children
        return ast.GroupNode(
            tuple(map(self.node, parts)), None if note is None else self.node(note), span=self._span(tree)
        )

    def quantity(self, tree: LarkTree) -> ast.Measure:
        return ast.Measure(*split_quantity(str(tree.children[0])), span=self._span(tree))

    def negation(self, tree: LarkTree) -> ast.Negate:
        return ast.Negate(self.node(tree.children[1]), span=self._span(tree))

    def chain(self, tree: LarkTree) -> ast.ChainNode:
        first, *others = map(self.node, tree.children[::2])
        rest = tuple(zip(map(str, tree.children[1::2]), others, strict=True))
        return ast.ChainNode(first, rest, span=self._span(tree))

    def parens(self, tree: LarkTree) -> ast.Parens:
        return ast.Parens(self.each(tree), span=self._span(tree))

    def listed(self, tree: LarkTree) -> ast.Listed:
        return ast.Listed(self.each(tree), span=self._span(tree))

    def postfix(self, tree: LarkTree) -> ast.Expression:
        """Nest the calls, subscripts and members that follow an atom."""
        atom, *trailers = (_tree(child) for child in tree.children)
        if len(trailers) > MAX_NESTING:
            raise self._report.fail(
                Code.MGS132, f"more than {MAX_NESTING} calls, indices and members in a row", self._span(tree)
            )
        base: ast.Expression = self.node(atom)
        for trailer in trailers:
            span = base.span.to(self._span(trailer))
            match trailer.data:
                case "call":
                    base = ast.Call(base, self.each(trailer.children[0]), span=span)
                case "index":
                    base = ast.Index(base, self.each(trailer), span=span)
                case _:
                    base = ast.Member(base, str(trailer.children[0]), span=span)
        return base

    def _span(self, tree: LarkTree) -> Span:
        meta = tree.meta
        if meta.empty:
            return Span(self._source, 0, 0)
        return Span(self._source, meta.start_pos + self._shift, meta.end_pos + self._shift)


def _tree(child: _Child) -> LarkTree:
    assert isinstance(child, Tree)
    return child


def _word(_: _Builder, child: _Child) -> str:
    return str(child)


def _quoted(_: _Builder, child: _Child) -> str:
    return str(child)[1:-1]


_Read = Callable[[_Builder, _Child], Any]


def _maybe(read: _Read, otherwise: Any = None) -> _Read:
    return lambda builder, child: otherwise if child is None else read(builder, child)


_block, _each, _path, _node = _Builder.block, _Builder.each, _Builder.path, _Builder.node
_NODES: Mapping[str, tuple[Any, ...]] = {
    "use": (ast.Use, _quoted, _maybe(_word)),
    "include": (ast.Include, _quoted),
    "let": (ast.Let, _word, _each),
    "param": (ast.ParamNode, _word, _each, _maybe(_each)),
    "device": (ast.DeviceNode, _word, _word, _maybe(_path), _block),
    "system": (ast.SystemNode, _word, _block),
    "workload": (ast.WorkloadNode, _word, _path, _block),
    "template": (ast.TemplateNode, _word, _path, _each),
    "plan": (ast.PlanNode, _word, _path, partial(_block, sets=True)),
    "explore": (ast.ExploreNode, _path, _block),
    "expect": (ast.Expect, _maybe(_path), _maybe(_each, ()), _block),
    "binding": (ast.Binding, _word, _each),
    "define": (ast.Define, _word, _each),
    "say": (ast.Say, _each, _maybe(_block)),
    "note": (ast.Note, _word, _maybe(_each, ()), _maybe(_quoted)),
    "argument": (ast.Argument, _maybe(_word), _each),
    "name": (ast.Name, _word),
    "number": (ast.NumberNode, _word),
    "text": (ast.Text, _quoted),
    "range": (ast.Range, _node, _node),
    "slice": (ast.Slice, _node, _node),
    "spread": (ast.Spread, _node, _node),
    "compare": (ast.Compare, _node, _word, _node),
    "arrow": (ast.Compare, _node, _word, _node),
}
"""By the rules of the grammar, the node of each, and what reads its fields from the children."""
_OF_ALL: Mapping[str, Callable[[_Builder, LarkTree], ast.Node]] = {
    "set": _Builder.setting,
    "group": _Builder.group,
    "quantity": _Builder.quantity,
    "negate": _Builder.negation,
    "sum": _Builder.chain,
    "product": _Builder.chain,
    "parens": _Builder.parens,
    "list": _Builder.listed,
    "postfix": _Builder.postfix,
}
"""Rules whose children are not one field each."""


def _is_nameless(statement: ast.Say) -> bool:
    first = statement.phrase[0].parts[0]
    return isinstance(first, ast.Name) and first.text == NAMELESS
