"""Drop from a Triton kernel what finds the row and column of a tile a second time, where both are provably the same.

Persistent kernels do so before they store, often with a counter of their own that is one step behind the loop.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence

from .kernel_checks import carried
from .kernel_syntax import Loop, assigned, is_pure, name_of, names_read
from .kernel_values import KernelValue, added, constant, multiplied
from .kernel_walk import Walk


def drop_repeats(
    function: ast.FunctionDef, indices: Iterable[str], helpers: Mapping[str, ast.FunctionDef], pure: frozenset[str]
) -> None:
    """Drop from ``function`` the statements that give one of ``indices`` what it, or another of them, has already."""
    names = set(indices)
    loops = [each for each in function.body if isinstance(each, Loop) and assigned([each]) & names]
    walk = Walk(helpers, [each.arg for each in function.args.args])
    if not loops:
        _drop(walk, function.body, names, pure)
    for loop in loops[:1]:
        walk.run(function.body[: function.body.index(loop)])
        _enter(walk, loop)
        if _drop(walk, loop.body, names, pure):
            behind: list[ast.AST] = [*function.body[function.body.index(loop) + 1 :]]
            behind += [loop.test] if isinstance(loop, ast.While) else []
            while (dead := _dead(loop.body, behind, pure)) is not None:
                loop.body.remove(dead)


def _drop(walk: Walk, body: list[ast.stmt], names: set[str], pure: frozenset[str]) -> bool:
    """Walk through ``body``, drop what finds an index again, and say whether there was any."""
    found, renamed, dropped = dict[str, str](), dict[str, str](), False
    for each in list(body):
        before = {name: value.text for name in names if isinstance(value := walk.known.get(name), KernelValue)}
        walk.run([each])
        made = assigned([each]) & names
        if made and is_pure(each, pure) and not isinstance(each, ast.AugAssign):
            found = {name: _same(walk, name, before) for name in assigned([each])}
            once = all(name == other or _assignments(body, name) == 1 for name, other in found.items())
            if all(found.values()) and once:
                body.remove(each)
                dropped, renamed = True, renamed | found
    for each in body:
        for node in ast.walk(each):
            if isinstance(node, ast.Name):
                node.id = renamed.get(node.id, node.id)
    return dropped


def _same(walk: Walk, name: str, before: Mapping[str, str]) -> str:
    """The index that has had what ``name`` has now, itself if it can be; else none."""
    value = walk.known.get(name)
    alike = [other for other, text in before.items() if isinstance(value, KernelValue) and text == value.text]
    return name if name in alike else min(alike, default="")


def _assignments(body: Sequence[ast.stmt], name: str) -> int:
    nodes = (node for each in body for node in ast.walk(each) if isinstance(node, ast.Name))
    return sum(node.id == name and isinstance(node.ctx, ast.Store) for node in nodes)


def _enter(walk: Walk, loop: Loop) -> None:
    """Let each counter of a loop be what it is at the beginning of a round, in terms of what the loop counts."""
    before = dict(walk.known)
    values = {name: walk.plain(step) for name, step in map(_step, loop.body) if _counts(name, step, loop)}
    if isinstance(loop, ast.For):
        counter, (first, step) = ast.unparse(loop.target), _range(walk, loop.iter)
    else:
        counter = next((name for name in sorted(names_read([loop.test])) if name in values), "")
        begun = before.get(counter)
        first, step = begun if isinstance(begun, KernelValue) else None, values.get(counter)
    walk.forget(loop, assigned([loop.target]) if isinstance(loop, ast.For) else ())
    round_ = walk.known.get(counter)
    if not isinstance(round_, KernelValue) or first is None or step is None:
        return
    for name, by in values.items():
        begin = before.get(name)
        if name == counter or not isinstance(begin, KernelValue):
            continue
        if by.text == step.text:
            walk.known[name] = added(round_, added(begin, first, -1))
        elif step == constant(1):
            walk.known[name] = added(begin, multiplied(added(round_, first, -1), by))


def _counts(name: str, step: ast.expr, loop: Loop) -> bool:
    """Whether ``step`` is the same in each round, and nothing else changes what it is added to."""
    return bool(name) and _assignments(loop.body, name) == 1 and not names_read([step]) & assigned([loop])


def _step(statement: ast.stmt) -> tuple[str, ast.expr]:
    """What a statement adds to the name that it assigns; no name if it does something else."""
    match statement:
        case ast.AugAssign(ast.Name(name), ast.Add(), step):
            return name, step
        case ast.AugAssign(ast.Name(name), ast.Sub(), step):
            return name, ast.UnaryOp(ast.USub(), step)
        case ast.Assign([ast.Name(name)], ast.BinOp(ast.Name(other), ast.Add(), step)) if name == other:
            return name, step
    return "", ast.Constant(0)


def _range(walk: Walk, over: ast.expr) -> tuple[KernelValue | None, KernelValue | None]:
    """The first number of a range and its step."""
    if not isinstance(over, ast.Call) or name_of(over) not in ("range", "static_range"):
        return None, None
    values = [walk.plain(each) for each in over.args]
    if len(values) == 1:
        return constant(0), constant(1)
    return values[0], values[2] if len(values) > 2 else constant(1)


def _dead(body: Sequence[ast.stmt], behind: Sequence[ast.AST], pure: frozenset[str]) -> ast.stmt | None:
    """A statement of a loop whose numbers neither the rest of the round, nor the next one, nor what follows reads."""
    for place, each in enumerate(body):
        if is_pure(each, pure) and len(body) > 1:
            next_round = {name for name, node in carried(body, set()) if node is not each}
            if not assigned([each]) & (names_read([*body[place + 1 :], *behind]) | next_round):
                return each
    return None
