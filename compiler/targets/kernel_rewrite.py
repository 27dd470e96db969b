"""Rewrite a user's Triton GEMM so that its tiles follow the tables of a plan, wait for chunks and tell when done.

The statements by which the kernel finds its tile go: those whose numbers nothing else reads. A kernel with one tile for
each program becomes a function that the new kernel calls for each tile.
"""

import ast
import symtable
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass

from ..codes import Code
from ..text.diagnostics import CompileError, Diagnostic, Severity, Source, Span
from .kernel_calls import NotRecognised, assigned, called, is_jit, is_pure, names_read, pure_helpers
from .kernel_checks import check_memory, nested
from .kernel_form import ByRow, KernelForm, check_stores, configured_tiles, kernel_form
from .kernel_tuning import Config

PARAMETERS = ("magus_tiles", "magus_starts", "magus_waits", "magus_flags", "magus_epoch")
LOOP = """
for magus_index in range(tl.load(magus_starts + tl.program_id(0)), tl.load(magus_starts + tl.program_id(0) + 1)):
    pass
"""
FIND_AND_WAIT = """
magus_tile = magus_tiles + 10 * magus_index
for magus_wait in range(tl.load(magus_tile + 6), tl.load(magus_tile + 7)):
    magus_flag = magus_flags + tl.load(magus_waits + magus_wait)
    while tl.atomic_add(magus_flag, 0, sem="acquire", scope="sys") - magus_epoch < 0:
        pass
{fence}
{row} = tl.load(magus_tile) // {block_m}
{col} = tl.load(magus_tile + 2) // {block_n}
"""
TELL = """
magus_count = tl.load(magus_tile + 8)
if magus_count >= 0:
    {fence}
    tl.debug_barrier()
    tl.atomic_add(magus_flags + magus_count, 1, sem="release", scope="sys")
"""
ORDER_DESCRIPTORS = '''
@triton.jit
def magus_order_descriptors():
    """Loads by descriptor come after the flags, and stores before: from sm_90 on these go another way than others."""
    if tl.target_info.cuda_capability_geq(9, 0):
        tl.inline_asm_elementwise("cp.async.bulk.wait_group 0; fence.proxy.async.global; mov.u32 $0, 0;", "=r", [],
                                  dtype=tl.int32, is_pure=False, pack=1)
'''


@dataclass(frozen=True, slots=True)
class RewrittenKernel:
    """A kernel that takes its tiles from tables: its text, with the helpers and constants of its file that it uses.

    ``blocks`` are the names of the two tile sizes. ``config`` is the configuration of its autotuning, None without one.
    ``by_row`` are warnings: the kernel reads other tensors by row, and the plan moves only one matrix.
    """

    name: str
    blocks: tuple[str, str]
    text: str
    config: Config | None = None
    by_row: tuple[Diagnostic, ...] = ()


def tiles_of_kernel(source: Source, name: str = "") -> tuple[tuple[int, int], ...]:
    """Return the tiles of the configurations of a kernel in a file, which is read and not executed.

    Raises
    ------
    CompileError
        As ``rewrite_kernel``.
    """
    with _refusing(source):
        return configured_tiles(ast.parse(source.text), name)


def rewrite_kernel(
    source: Source, wanted: Config | None = None, name: str = "", tile: tuple[int, ...] = ()
) -> RewrittenKernel:
    """Rewrite the GEMM in a file, which is read and not executed.

    ``wanted`` chooses of its configurations, or the rows and columns of a ``tile`` do; ``name`` of the kernels in the
    file, if there are several.

    Raises
    ------
    CompileError
        If it is no Python, or holds no kernel that is recognised; the diagnostic says why and where.
    """
    with _refusing(source):
        module = ast.parse(source.text)
        form = kernel_form(module, wanted, name, tile)
        functions = _rewritten(form, pure_helpers(module))
        needed = _needed(module, form.function, functions)
        for helper in needed:
            if isinstance(helper, ast.FunctionDef):
                check_memory(helper)
        _check_programs(needed)
        by_row = check_stores(form, {each.name: each for each in module.body if isinstance(each, ast.FunctionDef)})
        ordering = ast.parse(ORDER_DESCRIPTORS).body if form.ordered else []
        text = "\n\n".join(map(ast.unparse, (*needed, *ordering, *functions)))
    warnings = tuple(_by_row(source, each) for each in by_row)
    return RewrittenKernel(form.function.name, (form.block_m, form.block_n), text, form.config, warnings)


@contextmanager
def _refusing(source: Source) -> Iterator[None]:
    """Tell at their place why a file is not read."""
    try:
        yield
    except NotRecognised as error:
        raise _refused(source, error.message, getattr(error.node, "lineno", 1), error.hint) from None
    except SyntaxError as error:
        raise _refused(source, f"the file is no Python: {error.msg}", error.lineno or 1) from None
    except (RecursionError, MemoryError, ValueError):
        raise _refused(source, "the file is no Python that can be read", 1) from None


def _refused(source: Source, message: str, line: int, hint: str = "") -> CompileError:
    return CompileError([Diagnostic(Code.MGS542, message, _line(source, line), hint)])


def _by_row(source: Source, read: ByRow) -> Diagnostic:
    message = f"{read.name} is read by row, and the plan moves the rows of one matrix alone"
    hint = f"have {read.name} of all rows at every rank before the call"
    return Diagnostic(Code.MGS560, message, _line(source, getattr(read.node, "lineno", 1)), hint, Severity.WARNING)


def _line(source: Source, line: int) -> Span:
    number = min(line, source.text.count("\n") + 1)
    start, text = source.start_of(number), source.line(number)
    indent = len(text) - len(text.lstrip())
    return Span(source, start + indent, start + len(text))


def _rewritten(form: KernelForm, helpers: frozenset[str]) -> list[ast.FunctionDef]:
    """Return the kernel, behind the function of a tile if each program has one tile."""
    kernel, tile = deepcopy(form.function), _tile(form, helpers)
    if form.loop is None:
        function, arguments = deepcopy(form.function), [form.row_name, form.col_name]
        arguments += [each.arg for each in function.args.args]
        function.name, function.body = f"{kernel.name}_tile", tile
        function.args.args[:0] = [ast.arg(name) for name in arguments[:2]]
        function.decorator_list = [ast.parse("triton.jit", mode="eval").body]
        _drop_unread(function, helpers)
        _check_search(form, helpers, function.body)
        _check_programs(function.body)
        function.body = nested(function.body)
        kernel.body = [_loop(form, ast.parse(f"{function.name}({', '.join(arguments)})").body)]
    else:
        at = form.function.body.index(form.loop)
        loop = _loop(form, tile)
        kernel.body[at] = loop
        _drop_unread(kernel, helpers)
        _check_search(form, helpers, [each for each in loop.body if each in tile])
        _check_programs([*(each for each in kernel.body if each is not loop), *loop.body])
    kernel.args.args[:0] = [ast.arg(name) for name in PARAMETERS]
    kernel.decorator_list = [_unspecialised(each) for each in kernel.decorator_list]
    made = [kernel] if form.loop is not None else [function, kernel]
    return [ast.fix_missing_locations(each) for each in made]


def _loop(form: KernelForm, tile: Sequence[ast.stmt]) -> ast.For:
    (loop,) = ast.parse(LOOP).body
    assert isinstance(loop, ast.For), "a loop is written above"
    names = {"row": form.row_name, "col": form.col_name, "block_m": form.block_m, "block_n": form.block_n}
    names["fence"] = "magus_order_descriptors()" if form.ordered else ""
    loop.body = [
        *ast.parse(FIND_AND_WAIT.format(**names)).body,
        *tile,
        *ast.parse(TELL.format(**names)).body,
    ]
    return loop


def _tile(form: KernelForm, helpers: frozenset[str]) -> list[ast.stmt]:
    """Return the statements that compute a tile, without those that find its row and column."""
    indices, finding = {form.row, form.col}, _finding(form, helpers)
    kept = [deepcopy(each) for each in form.body if each not in finding]
    for each in kept:
        if assigned([each]) & indices:
            raise NotRecognised(
                each, f"{form.row} or {form.col} is assigned in a way that is not followed", "assign it once"
            )
    others = (assigned(finding) - indices) & names_read(kept)
    if others:
        raise NotRecognised(finding[-1], f"what finds a tile also finds {', '.join(sorted(others))}", "find it apart")
    renamed = _Renamed({form.row: form.row_name, form.col: form.col_name})
    return [renamed.visit(each) for each in kept]


def _finding(form: KernelForm, helpers: frozenset[str]) -> list[ast.stmt]:
    """The statements that assign the row or the column of a tile."""
    return [each for each in form.body if is_pure(each, helpers) and assigned([each]) & {form.row, form.col}]


def _check_search(form: KernelForm, helpers: frozenset[str], tile: Iterable[ast.stmt]) -> None:
    """Refuse a tile that is found again after something has used what was found first."""
    last = max(_finding(form, helpers), key=lambda each: each.lineno, default=None)
    for each in tile:
        if last is not None and each.lineno < last.lineno and names_read([each]) & {form.row, form.col}:
            message = f"{form.row} or {form.col} is read before it is computed again"
            raise NotRecognised(last, message, "find the row and the column of a tile once, at its beginning")


class _Renamed(ast.NodeTransformer):
    """Puts a name in place of each call of ``tl.program_id`` that is the row or the column of a tile."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = self._names.get(ast.unparse(node))
        if name is not None:
            return ast.Name(name, ast.Load())
        self.generic_visit(node)
        return node


def _drop_unread(function: ast.FunctionDef, helpers: frozenset[str]) -> None:
    """Drop statements whose numbers nothing reads, and then assumptions about them."""
    dropped: set[str] = set()
    while (found := _first_unread(function, helpers)) is not None:
        body, statement = found
        body.remove(statement)
        dropped |= assigned([statement])
    for body in _bodies(function):
        body[:] = [each for each in body if not (_is_assumption(each) and names_read([each]) & dropped)]


def _first_unread(function: ast.FunctionDef, helpers: frozenset[str]) -> tuple[list[ast.stmt], ast.stmt] | None:
    reads = Counter(_reads(function))
    for body in _bodies(function):
        for each in body if len(body) > 1 else ():
            names, own = assigned([each]), Counter(_reads(each))
            if names and is_pure(each, helpers) and all(reads[name] == own[name] for name in names):
                return body, each
    return None


def _bodies(function: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    """Yield the statements of a function, and those of each loop in it that goes through tiles."""
    yield function.body
    yield from (each.body for each in function.body if isinstance(each, ast.For))


def _reads(node: ast.AST) -> Iterator[str]:
    """Yield each name that is read, as often as it is, but not by assumptions."""
    if not _is_assumption(node):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        for child in ast.iter_child_nodes(node):
            yield from _reads(child)


def _is_assumption(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and any(called(node, "assume"))


def _check_programs(statements: Iterable[ast.stmt]) -> None:
    for each in statements:
        for call in called(each, "program_id", "num_programs"):
            message = "the number of the program says more than the row and the column of a tile"
            raise NotRecognised(call, message, "a GEMM without batches and without split K")


def _unspecialised(decorator: ast.expr) -> ast.expr:
    """``triton.jit`` that compiles once for all epochs."""
    call = decorator if isinstance(decorator, ast.Call) else ast.Call(decorator, [], [])
    for keyword in call.keywords:
        if keyword.arg == "do_not_specialize":
            message = f"{ast.unparse(keyword.value)} counts parameters, and there will be more"
            raise NotRecognised(decorator, message, "leave do_not_specialize out")
    options = ast.parse(f"f(do_not_specialize=[{PARAMETERS[-1]!r}])", mode="eval").body
    assert isinstance(options, ast.Call) and is_jit(decorator), "the only decorator is triton.jit"
    return ast.Call(call.func, call.args, [*call.keywords, *options.keywords])


def _needed(module: ast.Module, kernel: ast.FunctionDef, functions: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the imports, constants and functions of a file that the kernel needs, in the order of the file."""
    needed: set[ast.stmt] = set()
    while True:
        reads = {name for each in (*functions, *needed) for name in _reads_of_file(each)}
        more = {each for each in module.body if each is not kernel and _defined(each) & reads} - needed
        if not more:
            return [each for each in module.body if each in needed]
        needed |= more


def _reads_of_file(statement: ast.stmt) -> set[str]:
    """Return the names that a statement reads of its file; those that a function has itself are none."""
    if not isinstance(statement, ast.FunctionDef):
        return names_read([statement])
    return set(_globals(symtable.symtable(ast.unparse(statement), "<kernel>", "exec")))


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the names that are global in a scope or one inside it, such as a comprehension."""
    yield from (each.get_name() for each in table.get_symbols() if each.is_global() and each.is_referenced())
    for inside in table.get_children():
        yield from _globals(inside)


def _defined(statement: ast.stmt) -> set[str]:
    """Return the names that a statement of a file defines; every file has triton and tl."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names} - {"triton", "tl"}
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    return assigned([statement])
