"""A test that asserts only in loops says that they are not empty: by ``some``, or by what they go over."""

import ast
from collections.abc import Iterator

import pytest

from tests.helpers.paths import ROOT
from tests.helpers.some import some

NEVER_EMPTY = ("some", "range", "enumerate", "zip", "product", "pairwise", "permutations", "combinations", "sorted")
"""Functions whose result has something in it if their arguments have; ``range`` is as long as the test says."""

FILES = sorted((ROOT / "tests").rglob("test_*.py"))


def is_never_empty(items: ast.expr) -> bool:
    """Whether a reader sees that ``items`` has at least one: constants and enums, named with capitals, have."""
    match items:
        case ast.Name(id=name):
            return name[0].isupper()
        case ast.Starred(value=value):
            return is_never_empty(value)
        case ast.Constant(value=value):
            return bool(value)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return any(not isinstance(part, ast.Starred) or is_never_empty(part) for part in parts)
        case ast.Dict(keys=keys):
            return bool(keys)
        case ast.Call(func=ast.Name(id="range")):
            return True
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return name in NEVER_EMPTY and (name == "some" or all(map(is_never_empty, arguments)))
        case ast.Call(func=ast.Attribute(value=value, attr="items" | "keys" | "values" | "split")):
            return is_never_empty(value)
    return False


def is_about_some(test: ast.expr) -> bool:
    """Whether ``test`` is other than ``all(...)`` or ``not any(...)`` of what may be nothing."""
    match test:
        case (
            ast.Call(func=ast.Name(id="all"), args=[ast.GeneratorExp(generators=[first, *_])])
            | ast.UnaryOp(
                op=ast.Not(), operand=ast.Call(func=ast.Name(id="any"), args=[ast.GeneratorExp(generators=[first, *_])])
            )
        ):
            return is_never_empty(first.iter)
    return True


def checks(body: list[ast.stmt], sure: bool = True) -> Iterator[bool]:
    """For each ``assert`` and ``pytest.raises`` in ``body`` whether it is reached, as far as loops go."""
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                continue
            case ast.Assert(test=test):
                yield sure and is_about_some(test)
            case ast.For(iter=items, body=inner):
                yield from checks(inner, sure and is_never_empty(items))
            case ast.With(items=managers, body=inner) | ast.AsyncWith(items=managers, body=inner):
                if any("raises" in ast.unparse(manager.context_expr) for manager in managers):
                    yield sure
                yield from checks(inner, sure)
            case ast.If() | ast.Try() | ast.While():
                for part in (statement.body, statement.orelse, getattr(statement, "finalbody", [])):
                    yield from checks(part, sure)


def in_empty_loops(text: str) -> list[str]:
    """Names of the tests in ``text`` whose every check stands in a loop that may be empty."""
    tests = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    found = [(test.name, list(checks(test.body))) for test in tests if test.name.startswith("test_")]
    return [name for name, reached in found if reached and not any(reached)]


def test_no_test_asserts_only_in_loops_that_may_be_empty() -> None:
    found = {path.relative_to(ROOT / "tests").as_posix(): in_empty_loops(path.read_text()) for path in FILES}

    assert len(found) > 300 and {name: tests for name, tests in found.items() if tests} == {}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("for x in things(): assert x", True),
        ("for x in things():\n  for y in (1, 2): assert y", True),
        ("for x in things():\n  with pytest.raises(ValueError): x()", True),
        ("for x in (1, 2):\n  for y in x: assert y", True),
        ("for x in product(Core, things()): assert x", True),
        ("for x in some(things()): assert x", False),
        ("for x, y in product(Core, [1]): assert x", False),
        ("for x in things(): assert x\nassert y", False),
        ("assert all(x for x in things())", True),
        ("assert not any(x for x in things())", True),
        ("assert all(x for x in some(things()))", False),
        ("check(things())", False),
    ],
)
def test_what_is_found(body: str, found: bool) -> None:
    text = "def test_a():\n" + "\n".join(f"  {line}" for line in body.split("\n"))
    assert in_empty_loops(text) == ["test_a"] * found


def test_some_refuses_nothing() -> None:
    assert some(iter([1, 2])) == [1, 2]
    with pytest.raises(AssertionError, match="nothing"):
        some(())
