"""Which Triton kernels no order of tiles can be given to, and why."""

import ast
from collections.abc import Iterable, Iterator

from .kernel_syntax import Loop, NotRecognised, assigned, called, name_of, names_read

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
