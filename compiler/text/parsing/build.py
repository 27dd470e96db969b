"""Build the syntax tree from lark's tree."""

from collections.abc import Iterable
from dataclasses import dataclass

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
    return _Builder(source, report).values(tree.children[0])


class _Builder:
    def __init__(self, source: Source, report: Report, shift: int = 0) -> None:
        self._source, self._report, self._shift = source, report, shift

    def version(self, tree: LarkTree) -> ast.Version | None:
        versions = (each for each in tree.children if isinstance(each, Tree) and each.data == "version")
        found = next(versions, None)
        return None if found is None else ast.Version(str(found.children[0]), span=self._span(found))

    def declarations(self, tree: LarkTree) -> list[ast.Declaration]:
        trees = (each for each in tree.children if isinstance(each, Tree) and each.data != "version")
        built = [self._declaration(each) for each in trees]
        return [
            each for each in built if not (isinstance(each, ast.ExploreNode) and each.workload.names == (NAMELESS,))
        ]

    def _declaration(self, tree: LarkTree) -> ast.Declaration:
        span, children = self._span(tree), tree.children
        match tree.data:
            case "use":
                return ast.Use(_text(children[0]), _optional(children[1]), span=span)
            case "include":
                return ast.Include(_text(children[0]), span=span)
            case "let":
                return ast.Let(str(children[0]), self.values(children[1]), span=span)
            case "param":
                domain = None if children[2] is None else self._phrase(children[2])
                return ast.ParamNode(str(children[0]), self.values(children[1]), domain, span=span)
            case "device":
                parent = None if children[2] is None else self._path(children[2])
                return ast.DeviceNode(str(children[0]), str(children[1]), parent, self._block(children[3]), span=span)
            case "system":
                return ast.SystemNode(str(children[0]), self._block(children[1]), span=span)
            case "workload":
                return ast.WorkloadNode(str(children[0]), self._path(children[1]), self._block(children[2]), span=span)
            case "template":
                return ast.TemplateNode(str(children[0]), self._path(children[1]), self.values(children[2]), span=span)
            case "plan":
                block = self._block(children[2], sets=True)
                return ast.PlanNode(str(children[0]), self._path(children[1]), block, span=span)
            case "explore":
                return ast.ExploreNode(self._path(children[0]), self._block(children[1]), span=span)
            case _:
                workload = None if children[0] is None else self._path(children[0])
                bindings = () if children[1] is None else self._bindings(children[1])
                return ast.Expect(workload, bindings, self._block(children[2]), span=span)

    def _path(self, tree: _Child) -> ast.Path:
        tree = _tree(tree)
        return ast.Path(tuple(map(str, tree.children)), span=self._span(tree))

    def _bindings(self, tree: _Child) -> tuple[ast.Binding, ...]:
        bindings = [_tree(child) for child in _tree(tree).children]
        return tuple(
            ast.Binding(str(each.children[0]), self.values(each.children[1]), span=self._span(each))
            for each in bindings
        )

    def _block(self, tree: _Child, *, sets: bool = False) -> ast.BlockNode:
        """A block; in that of a schedule ``qkv[0] = serial()`` may stand."""
        tree = _tree(tree)
        trees = [_tree(child) for child in tree.children if isinstance(child, Tree)]
        sound = [each for each in trees if each.data != "set" or self._may_set(each, sets)]
        statements = [self._statement(each) for each in sound]
        kept = [each for each in statements if not (isinstance(each, ast.Say) and _is_nameless(each))]
        return ast.BlockNode(tuple(kept), span=self._span(tree))

    def _statement(self, tree: LarkTree) -> ast.Define | ast.Say:
        span, children = self._span(tree), tree.children
        if tree.data == "define":
            return ast.Define(str(children[0]), self._phrase(children[1]), span=span)
        if tree.data == "set":
            return self._set(tree)
        block = None if children[1] is None else self._block(children[1])
        return ast.Say(self._phrase(children[0]), block, span=span)

    def _set(self, tree: LarkTree) -> ast.Say:
        """``qkv[0] = serial()``: how an op of one batch is carried out."""
        left, (group, *others) = self._expression(tree.children[0]), self._phrase(tree.children[1])
        first, *rest = group.parts
        head = ast.Compare(left, "=", first, span=left.span.to(first.span))
        return ast.Say((ast.GroupNode((head, *rest), group.note, span=group.span), *others), span=self._span(tree))

    def _may_set(self, tree: LarkTree, sets: bool) -> bool:
        """Whether what stands before the ``=`` may: an op of one batch, in a schedule."""
        left = self._expression(tree.children[0])
        if sets and isinstance(left, ast.Index) and isinstance(left.base, ast.Name):
            return True
        equals = self._source.text.index("=", left.span.end)
        at, hint = Span(self._source, equals, equals + 1), "one new name stands before '='; to compare, write =="
        self._report.error(Code.MGS107, "'=' cannot stand here", at, hint)
        return False

    def _phrase(self, tree: _Child) -> ast.Phrase:
        return tuple(self._group(_tree(child)) for child in _tree(tree).children)

    def _group(self, tree: LarkTree) -> ast.GroupNode:
        *parts, note = tree.children
        built = tuple(self._expression(part) for part in parts)
        return ast.GroupNode(built, None if note is None else self._note(_tree(note)), span=self._span(tree))

    def _note(self, tree: LarkTree) -> ast.Note:
        origin, arguments, source = tree.children
        taken = () if arguments is None else self._arguments(arguments)
        return ast.Note(str(origin), taken, None if source is None else _text(source), span=self._span(tree))

    def values(self, tree: _Child) -> tuple[ast.Expression, ...]:
        return tuple(self._expression(child) for child in _tree(tree).children)

    def _arguments(self, tree: _Child) -> tuple[ast.Argument, ...]:
        arguments = [_tree(child) for child in _tree(tree).children if isinstance(child, Tree)]
        return tuple(
            ast.Argument(_optional(each.children[0]), self.values(each.children[1]), span=self._span(each))
            for each in arguments
        )

    def _expression(self, child: _Child) -> ast.Expression:
        tree = _tree(child)
        span, children = self._span(tree), tree.children
        match tree.data:
            case "name":
                return ast.Name(str(children[0]), span=span)
            case "number":
                return ast.NumberNode(str(children[0]), span=span)
            case "quantity":
                return ast.Measure(*split_quantity(str(children[0])), span=span)
            case "text":
                return ast.Text(_text(children[0]), span=span)
            case "negate":
                return ast.Negate(self._expression(children[1]), span=span)
            case "sum" | "product":
                operators = [str(operator) for operator in children[1::2]]
                operands = [self._expression(operand) for operand in children[2::2]]
                rest = tuple(zip(operators, operands, strict=True))
                return ast.ChainNode(self._expression(children[0]), rest, span=span)
            case "parens":
                return ast.Parens(self._all(children), span=span)
            case "list":
                return ast.Listed(self._all(children), span=span)
            case "postfix":
                return self._postfix(tree)
            case _:
                return self._relation(tree)

    def _all(self, children: list[LarkTree | Token]) -> tuple[ast.Expression, ...]:
        return tuple([self._expression(child) for child in children if isinstance(child, Tree)])

    def _relation(self, tree: LarkTree) -> ast.Expression:
        span, children = self._span(tree), tree.children
        left, right = self._expression(children[0]), self._expression(children[-1])
        match tree.data:
            case "range":
                return ast.Range(left, right, span=span)
            case "slice":
                return ast.Slice(left, right, span=span)
            case "spread":
                return ast.Spread(left, right, span=span)
            case _:
                return ast.Compare(left, str(children[1]), right, span=span)

    def _postfix(self, tree: LarkTree) -> ast.Expression:
        """Nest the calls, subscripts and members that follow an atom."""
        atom, *trailers = (_tree(child) for child in tree.children)
        if len(trailers) > MAX_NESTING:
            raise self._report.fail(
                Code.MGS132, f"more than {MAX_NESTING} calls, indices and members in a row", self._span(tree)
            )
        base = self._expression(atom)
        for trailer in trailers:
            span = base.span.to(self._span(trailer))
            match trailer.data:
                case "call":
                    base = ast.Call(base, self._arguments(trailer.children[0]), span=span)
                case "index":
                    base = ast.Index(base, self._all(trailer.children), span=span)
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


def _text(child: _Child) -> str:
    return str(child)[1:-1]


def _optional(child: _Child) -> str | None:
    return None if child is None else str(child)


def _is_nameless(statement: ast.Say) -> bool:
    first = statement.phrase[0].parts[0]
    return isinstance(first, ast.Name) and first.text == NAMELESS
