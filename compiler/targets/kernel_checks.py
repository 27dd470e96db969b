"""Which Triton kernels no order of tiles can be given to, and why."""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .kernel_calls import Loop, NotRecognised, assigned, called, is_pure, name_of, names_read, plain
from .kernel_values import KernelValue, added, atom, constant, multiplied, opaque
from .kernel_walk import Walk

RESERVED = "magus_"
"""How the names begin that rewritten kernels have more."""
STORES = ("store", "store_tensor_descriptor")
_DESCRIPTORS = ("make_tensor_descriptor", "load_tensor_descriptor", "store_tensor_descriptor")


def check_function(function: ast.FunctionDef) -> None:
    """Refuse a kernel that stores nothing, or takes its parameters in another way."""
    arguments = function.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs:
        raise NotRecognised(function, f"{function.name} has parameters with *", "name each parameter")
    for node in ast.walk(function):
        if isinstance(node, ast.Name | ast.arg):
            name = node.id if isinstance(node, ast.Name) else node.arg
            if name.startswith(RESERVED):
                raise NotRecognised(node, f"{name} is a name that Magus gives", f"names do not begin with {RESERVED}")
    check_memory(function)
    if not any(called(function, *STORES)):
        hint = "store the tile in the kernel itself"
        raise NotRecognised(function, f"{function.name} stores nothing by tl.store", hint)


def check_memory(function: ast.FunctionDef) -> None:
    """Refuse a function that reads rows which memory names, or adds to what other programs write."""
    described = {each.arg for each in function.args.args} | _assigned_descriptors(function)
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if name_of(call).startswith("atomic_"):
            message = "the kernel counts or adds atomically, as split K and stream K do"
            raise NotRecognised(call, message, "store each tile once")
        if isinstance(owner, ast.Name) and owner.id in described and name_of(call) in ("gather", "scatter"):
            message = f"{owner.id} reads or writes rows that a tensor names, and not those of the tile"
            raise NotRecognised(call, message, "load and store the rows of the tile")
        if "experimental" in name_of(call):
            hint = "use tl.make_tensor_descriptor, or a descriptor that the host makes"
            raise NotRecognised(call, f"{name_of(call)} is of another version of Triton", hint)


def uses_descriptors(functions: Iterable[ast.FunctionDef]) -> bool:
    """Whether any of ``functions`` loads or stores by tensor descriptors, its own or the host's."""
    for function in functions:
        described = {each.arg for each in function.args.args}
        for call in called(function, "load", "store", *_DESCRIPTORS):
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            if name_of(call) in _DESCRIPTORS or (isinstance(owner, ast.Name) and owner.id in described):
                return True
    return False


def _assigned_descriptors(function: ast.FunctionDef) -> set[str]:
    made = (each for each in ast.walk(function) if isinstance(each, ast.Assign))
    return assigned(each for each in made if any(called(each.value, "make_tensor_descriptor")))


def check_loop(function: ast.FunctionDef, loop: Loop, indices: set[str]) -> None:
    """Refuse a loop through tiles that leaves a tile early, or goes on from what the tile before has computed."""
    if loop.orelse:
        raise NotRecognised(loop, "the loop through the tiles has an else", "write it behind the loop")
    for node in _of_this_loop(loop.body):
        raise NotRecognised(node, "a tile may end early, and its flag would not be set", "mask stores instead")
    for name, node in carried(loop.body, set()):
        if name in assigned(loop.body) and name not in indices | _counters(loop):
            raise NotRecognised(node, f"{name} goes from one tile to the next", "compute it anew for each tile")
    for outside in function.body:
        for call in called(outside, *STORES, "dot") if outside is not loop else ():
            raise NotRecognised(
                call, "a part of a tile is outside the loop through the tiles", "keep a tile in the loop"
            )


def _counters(loop: Loop) -> set[str]:
    """The variables that say how far the loop is."""
    return assigned([loop.target]) if isinstance(loop, ast.For) else names_read([loop.test])


def carried(statements: Iterable[ast.stmt], known: set[str]) -> Iterator[tuple[str, ast.stmt]]:
    """Yield names that are read before they are assigned, and where; add what is assigned to ``known``."""
    for each in statements:
        match each:
            case ast.For():
                reads, makes = names_read([each.iter]), assigned([each.target])
            case ast.If() | ast.While():
                reads, makes = names_read([each.test]), set[str]()
            case ast.AugAssign():
                reads = makes = names_read([each]) | assigned([each])
            case _:
                reads, makes = names_read([each]), assigned([each])
        yield from ((name, each) for name in sorted(reads - known))
        known |= makes
        yield from carried([*getattr(each, "body", ()), *getattr(each, "orelse", ())], known)


def _of_this_loop(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield each ``break`` and ``continue`` that belongs to the loop of these statements."""
    for each in statements:
        if isinstance(each, ast.Break | ast.Continue):
            yield each
        elif isinstance(each, ast.If | ast.With):
            yield from _of_this_loop(each.body)
            yield from _of_this_loop(each.orelse if isinstance(each, ast.If) else ())


# Programs of a Triton kernel that return before they compute: those beyond the end of the matrix, and no others.


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


# Drop from a Triton kernel what finds the row and column of a tile a second time, where both are provably the same.
#
# Persistent kernels do so before they store, often with a counter of their own that is one step behind the loop.


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
