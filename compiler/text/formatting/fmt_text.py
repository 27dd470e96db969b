"""Expressions, sentences and heads of declarations in canonical spelling, each on one line."""

from typing import assert_never

from .. import syntax as ast


def expression(node: ast.Expression) -> str:
    """Write an expression: one space around operators, none around ``=`` in calls, ``..`` and ``:``."""
    match node:
        case ast.Name(text=text) | ast.Number(text=text):
            return text
        case ast.Measure():
            return f"{node.number} {node.unit}"
        case ast.Text():
            return f'"{node.value}"'
        case ast.Negate():
            return f"-{expression(node.operand)}"
        case ast.Chain():
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


def _group(group: ast.Group) -> str:
    return values(group.parts) if group.note is None else f"{values(group.parts)} {_note(group.note)}"


def _note(note: ast.Note) -> str:
    given = f"({arguments(note.arguments)})" if note.arguments else ""
    return f"@{note.origin}{given}" + ("" if note.source is None else f' "{note.source}"')


def declaration(node: ast.Declaration) -> tuple[str, ast.Block | None]:
    """Write the head of a declaration, and return its block if it has one."""
    match node:
        case ast.Use():
            return f'use "{node.library}"' + (f" as {node.alias}" if node.alias else ""), None
        case ast.Include():
            return f'include "{node.path}"', None
        case ast.Let():
            return f"let {node.name} = {values(node.values)}", None
        case ast.Param():
            domain = "" if node.domain is None else f" in {phrase(node.domain)}"
            return f"param {node.name} = {values(node.values)}{domain}", None
        case ast.Device():
            parent = "" if node.parent is None else f" extends {node.parent}"
            return f"{node.kind} {node.name}{parent}", node.block
        case ast.System():
            return f"system {node.name}", node.block
        case ast.Workload():
            return f"workload {node.name} on {node.system}", node.block
        case ast.Template():
            return f"schedule {node.name} for {node.workload} = {values(node.values)}", None
        case ast.Plan():
            return f"schedule {node.name} for {node.workload}", node.block
        case ast.Explore():
            return f"explore {node.workload}", node.block
        case ast.Expect():
            return _expect(node), node.block
        case _:
            assert_never(node)


def _expect(node: ast.Expect) -> str:
    subject = "" if node.workload is None else f" {node.workload}"
    bound = ", ".join([f"{each.name} = {values(each.values)}" for each in node.bindings])
    return f"expect{subject}" + (f" with {bound}" if bound else "")
