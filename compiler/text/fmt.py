"""The canonical form of a text: what ``magus fmt`` writes. It has no options.

Two spaces per level; a block stays on one line if it was and still fits; definitions that follow each other align
their ``=``; numbers keep their spelling; single blank lines stay, and a blank line stands around declarations that
take more than one line. Comments are no part of the tree: they are merged in by their place in the text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from . import syntax as ast
from .diagnostics import Source, Span, raising_errors
from .parsing.parse import parse_file


def expression(node: ast.Expression) -> str:
    """Write an expression: one space around operators, none around ``=`` in calls, ``..`` and ``:``."""
    match node:
        case ast.Name(text=text) | ast.NumberNode(text=text):
            return text
        case ast.Measure():
            return f"{node.number} {node.unit}"
        case ast.Text():
            return f'"{node.value}"'
        case ast.Negate():
            return f"-{expression(node.operand)}"
        case ast.ChainNode():
            rest = "".join([f" {operator} {expression(operand)}" for operator, operand in node.rest])
            return expression(node.first) + rest
        case ast.Parens():
            return f"({', '.join([expression(item) for item in node.items])})"
        case ast.Listed():
            return f"[{', '.join([expression(item) for item in node.items])}]"
        case ast.Call():
            return f"{expression(node.function)}({arguments(node.arguments)})"
        case ast.Index():
            return f"{expression(node.base)}[{', '.join([expression(each) for each in node.subscripts])}]"
        case ast.Member():
            return f"{expression(node.base)}.{node.name}"
        case ast.Slice():
            return f"{expression(node.start)}:{expression(node.stop)}"
        case ast.Range():
            return f"{expression(node.low)}..{expression(node.high)}"
        case ast.Spread():
            return f"{expression(node.value)} +- {expression(node.tolerance)}"
        case ast.Compare():
            return f"{expression(node.left)} {node.operator} {expression(node.right)}"
        case _:
            assert_never(node)


def values(nodes: tuple[ast.Expression, ...]) -> str:
    """Write values side by side."""
    return " ".join([expression(node) for node in nodes])


def arguments(nodes: tuple[ast.Argument, ...]) -> str:
    """Write the arguments of a call."""
    return ", ".join([f"{node.name}={values(node.values)}" if node.name else values(node.values) for node in nodes])


def phrase(groups: ast.Phrase) -> str:
    """Write a sentence with its notes."""
    return ", ".join([_group(group) for group in groups])


def left_side(statement: ast.Say) -> str | None:
    """What stands before the ``=`` of ``qkv[0] = serial()``; None where there is none."""
    first = statement.phrase[0].parts[0]
    sets = isinstance(first, ast.Compare) and first.operator == "="
    return expression(first.left) if isinstance(first, ast.Compare) and sets else None


def _group(group: ast.GroupNode) -> str:
    return values(group.parts) if group.note is None else f"{values(group.parts)} {_note(group.note)}"


def _note(note: ast.Note) -> str:
    given = f"({arguments(note.arguments)})" if note.arguments else ""
    return f"@{note.origin}{given}" + ("" if note.source is None else f' "{note.source}"')


def declaration(node: ast.Declaration) -> tuple[str, ast.BlockNode | None]:
    """Write the head of a declaration, and return its block if it has one."""
    match node:
        case ast.Use():
            return f'use "{node.library}"' + (f" as {node.alias}" if node.alias else ""), None
        case ast.Include():
            return f'include "{node.path}"', None
        case ast.Let():
            return f"let {node.name} = {values(node.values)}", None
        case ast.ParamNode():
            domain = "" if node.domain is None else f" in {phrase(node.domain)}"
            return f"param {node.name} = {values(node.values)}{domain}", None
        case ast.DeviceNode():
            parent = "" if node.parent is None else f" extends {node.parent}"
            return f"{node.kind} {node.name}{parent}", node.block
        case ast.SystemNode():
            return f"system {node.name}", node.block
        case ast.WorkloadNode():
            return f"workload {node.name} on {node.system}", node.block
        case ast.TemplateNode():
            return f"schedule {node.name} for {node.workload} = {values(node.values)}", None
        case ast.PlanNode():
            return f"schedule {node.name} for {node.workload}", node.block
        case ast.ExploreNode():
            return f"explore {node.workload}", node.block
        case ast.Expect():
            return _expect(node), node.block
        case _:
            assert_never(node)


def _expect(node: ast.Expect) -> str:
    subject = "" if node.workload is None else f" {node.workload}"
    bound = ", ".join([f"{each.name} = {values(each.values)}" for each in node.bindings])
    return f"expect{subject}" + (f" with {bound}" if bound else "")


WIDTH = 100
_INDENT = "  "


def format_text(text: str, path: str = "<text>") -> str:
    """Return the canonical form of a text.

    Raises
    ------
    CompileError
        If the text does not parse; a text with mistakes in its meaning is formatted all the same.
    """
    with raising_errors() as report:
        file = parse_file(Source(path, text), report)
    return print_file(file)


def print_file(file: ast.File) -> str:
    """Write a syntax tree in canonical form; parsing the result gives an equal tree."""
    return _Printer(file).run()


@dataclass(frozen=True, slots=True)
class _Item:
    """A statement or a comment on lines of its own; ``name`` is the left side of a definition."""

    lines: tuple[str, ...]
    blank_before: bool
    is_comment: bool = False
    name: str | None = None


class _Printer:
    def __init__(self, file: ast.File) -> None:
        self._file = file
        self._text = file.span.source.text
        self._comments = list(reversed(file.comments))

    def run(self) -> str:
        items: list[_Item] = []
        if self._file.version is not None:
            span = self._file.version.span
            items += self._comments_before(span, "")
            items.append(self._item(f"mgs {self._file.version.number}", None, span, ""))
        for node in self._file.declarations:
            head, block = declaration(node)
            items += self._comments_before(node.span, "", node.span.end if block is None else None)
            items.append(self._item(head, block, node.span, ""))
        items += self._comments_before(None, "")
        lines = [each for item in _spaced(items) for each in item]
        return "".join(f"{each}\n" for each in lines)

    def _item(self, head: str, block: ast.BlockNode | None, span: Span, indent: str, name: str | None = None) -> _Item:
        blank = self._blank_before(span)
        if block is None:
            lines = _wrapped(indent + head, indent)
            return _Item((*lines[:-1], lines[-1] + self._trailing(span)), blank, name=name)
        inline = f"{indent}{head} {_inline(block)}"
        if not block.statements and not self._has_comment(block.span):
            return _Item((f"{indent}{head} {{ }}{self._trailing(span)}",), blank)
        if self._was_inline(block) and len(inline) <= WIDTH:
            return _Item((inline + self._trailing(span),), blank)
        opening = f"{indent}{head} {{{self._trailing(Span(block.span.source, span.start, block.span.start + 1))}"
        body = self._body(block, indent + _INDENT)
        return _Item((opening, *body, f"{indent}}}{self._trailing(span)}"), blank)

    def _body(self, block: ast.BlockNode, indent: str) -> list[str]:
        items: list[_Item] = []
        for statement in block.statements:
            inner = statement.block if isinstance(statement, ast.Say) else None
            items += self._comments_before(statement.span, indent, statement.span.end if inner is None else None)
            if isinstance(statement, ast.Define):
                text = phrase(statement.phrase)
                items.append(self._item(f"{statement.name} = {text}", None, statement.span, indent, statement.name))
            else:
                head = phrase(statement.phrase)
                items.append(self._item(head, inner, statement.span, indent, left_side(statement)))
        items += self._comments_before(Span(block.span.source, block.span.end - 1, block.span.end), indent)
        lines: list[str] = []
        for item in _aligned(items, len(indent)):
            if item.blank_before and lines:
                lines.append("")
            lines += item.lines
        return lines

    def _comments_before(self, span: Span | None, indent: str, inside: int | None = None) -> list[_Item]:
        """Take the comments before a place, or with ``inside`` before that end of a statement on several lines."""
        items: list[_Item] = []
        until = inside if inside is not None else span.start if span is not None else None
        while self._comments and (until is None or self._comments[-1].span.start < until):
            comment = self._comments.pop()
            blank = comment.own_line and self._blank_before(comment.span)
            items.append(_Item((indent + comment.text,), blank, is_comment=True))
        return items

    def _trailing(self, span: Span) -> str:
        """Take the comment on the line on which a statement ends."""
        if not self._comments or self._comments[-1].own_line:
            return ""
        start = self._comments[-1].span.start
        if start < span.end or "\n" in self._text[span.end : start] or self._text[span.end : start].strip(" \t;\r"):
            return ""
        return f"  {self._comments.pop().text}"

    def _has_comment(self, span: Span) -> bool:
        return bool(self._comments) and self._comments[-1].span.start < span.end

    def _blank_before(self, span: Span) -> bool:
        before = self._text[: span.start]
        return before[len(before.rstrip(" \t\r\n;")) :].count("\n") > 1

    def _was_inline(self, block: ast.BlockNode) -> bool:
        return bool(self._text) and "\n" not in block.span.text


def _inline(block: ast.BlockNode) -> str:
    parts: list[str] = []
    for statement in block.statements:
        text = phrase(statement.phrase)
        if isinstance(statement, ast.Define):
            parts.append(f"{statement.name} = {text}")
        else:
            parts.append(text if statement.block is None else f"{text} {_inline(statement.block)}")
    return f"{{ {'; '.join(parts)} }}" if parts else "{ }"


def _aligned(items: Sequence[_Item], indent: int) -> list[_Item]:
    """Align the ``=`` of definitions that follow each other without a blank line or a comment between."""
    runs: list[list[_Item]] = []
    for item in items:
        joins = item.name is not None and len(item.lines) == 1 and not item.blank_before
        if joins and runs and runs[-1][-1].name is not None and len(runs[-1][-1].lines) == 1:
            runs[-1].append(item)
        else:
            runs.append([item])
    return [_padded(item, run, indent) for run in runs for item in run]


def _padded(item: _Item, run: list[_Item], indent: int) -> _Item:
    if item.name is None or len(item.lines) > 1:
        return item
    width = max(len(each.name or "") for each in run)
    end = indent + len(item.name)
    text = item.lines[0][:end].ljust(indent + width) + item.lines[0][end:]
    return _Item((text,), item.blank_before, name=item.name)


def _spaced(items: Sequence[_Item]) -> list[list[str]]:
    """Join declarations with the comments right above them, and separate those that take more than one line."""
    groups: list[list[_Item]] = []
    for item in items:
        if groups and groups[-1][-1].is_comment and not item.blank_before:
            groups[-1].append(item)
        else:
            groups.append([item])
    blocks: list[list[str]] = []
    tall_before = False
    for group in groups:
        tall = len(group[-1].lines) > 1
        if blocks and (group[0].blank_before or tall or tall_before):
            blocks.append([""])
        blocks.append([each for item in group for each in item.lines])
        tall_before = tall
    return blocks


def _wrapped(text: str, indent: str) -> list[str]:
    """Break a line that is too long after the commas of its outermost level."""
    if len(text) <= WIDTH:
        return [text]
    depths = _comma_depths(text)
    if not depths:
        return [text]
    outermost = min(depths.values())
    cuts = [at + 1 for at, depth in depths.items() if depth == outermost]
    pieces = [text[start:end].strip() for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    lines, hanging = [indent + pieces[0]], indent + 2 * _INDENT
    for piece in pieces[1:]:
        if len(lines[-1]) + 1 + len(piece) <= WIDTH:
            lines[-1] += f" {piece}"
        else:
            lines += _wrapped(hanging + piece, hanging)  # a long list at its own commas
    return lines


def _comma_depths(text: str) -> dict[int, int]:
    """Return the bracket depth of every comma outside quotes, but for one that ends the text."""
    depths: dict[int, int] = {}
    depth, quoted = 0, False
    for at, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif not quoted:
            depth += (character in "([") - (character in ")]")
            if character == "," and at + 1 < len(text):
                depths[at] = depth
    return depths
