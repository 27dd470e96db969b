"""How large the code is, and whether it keeps to its own limits: lines, files, functions, parameters, names, folders.

A code line has a token of code: blank lines, comments and docstrings do not count, wherever they stand. A function has
the code lines from its ``def`` to its end; ``self`` and ``cls`` are no parameters. Commands of the command line are
counted apart: typer makes an option of each parameter and has no way to group them. Class names are compared without
those that begin with an underscore, and a class of the syntax tree may be called as what it resolves to.
"""

import ast
import io
import json
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .harness.report import Figure, document, parser_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("grammar", "compiler", "simcore", "runtime", "advisor", "tui", "examples")
"""The folders that are installed, with ``__init__.py`` of the root."""
BESIDE = ("benchmarks", "tests")
MOST_LINES, MOST_FILE_LINES, MOST_FUNCTION_LINES, MOST_PARAMETERS, MOST_MODULES = 25_000, 300, 50, 6, 22
# Machine code is cached by file and made from one.
ONE_FILE = "simcore/cores/compiled_loop.py"
# The decorator of a command, as typer wants it.
COMMAND = "app.command"
# Where a name of compiler/ir may stand once more.
SYNTAX_TREE = "compiler/text/syntax.py"
_NO_CODE = frozenset(
    {
        *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
        *(tokenize.ENCODING, tokenize.ENDMARKER),
    }
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class FunctionSize:
    """A function by its place, ``file:line name``, with its code lines and parameters."""

    place: str
    lines: int
    parameters: int
    is_command: bool


@dataclass(frozen=True, slots=True)
class Module:
    """One file: its path below the root, code lines, functions, and the public classes it defines."""

    path: str
    lines: int
    functions: tuple[FunctionSize, ...]
    classes: tuple[str, ...]


def read_module(path: Path, root: Path = ROOT) -> Module:
    """Count what is in one file."""
    source = path.read_text(encoding="utf-8")
    tree, name = ast.parse(source), path.relative_to(root).as_posix()
    code = code_lines(source, tree)
    nodes = list(ast.walk(tree))
    functions = (_function_size(node, name, code) for node in nodes if isinstance(node, Function))
    classes = (node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))
    return Module(name, len(code), tuple(functions), tuple(classes))


def code_lines(source: str, tree: ast.Module) -> frozenset[int]:
    """Numbers of the lines with code; a docstring is any string that is a statement of its own."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return frozenset(lines)


def _function_size(node: Function, path: str, code: frozenset[int]) -> FunctionSize:
    lines = sum(line in code for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))
    arguments = node.args
    plain = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    starred = sum(each is not None for each in (arguments.vararg, arguments.kwarg))
    parameters = len(plain) - (plain[:1] in (["self"], ["cls"])) + starred
    called = [each.func for each in node.decorator_list if isinstance(each, ast.Call)]
    is_command = any(ast.unparse(each) == COMMAND for each in called)
    return FunctionSize(f"{path}:{node.lineno} {node.name}", lines, parameters, is_command)


def read_folder(name: str, root: Path = ROOT) -> tuple[Module, ...]:
    """All modules below the folder ``name``, in order of their paths."""
    return tuple(read_module(file, root) for file in sorted((root / name).rglob("*.py")))


def long_files(modules: Sequence[Module]) -> tuple[str, ...]:
    """Files with more code lines than ``MOST_FILE_LINES``, but for the one that has to be."""
    long = (each for each in modules if each.lines > MOST_FILE_LINES and each.path != ONE_FILE)
    return tuple(f"{each.path} {each.lines}" for each in sorted(long, key=lambda each: -each.lines))


def long_functions(modules: Sequence[Module]) -> tuple[str, ...]:
    """Functions with more code lines than ``MOST_FUNCTION_LINES``, the longest first."""
    long = (each for module in modules for each in module.functions if each.lines > MOST_FUNCTION_LINES)
    return tuple(f"{each.place} {each.lines}" for each in sorted(long, key=lambda each: -each.lines))


def wide_functions(modules: Sequence[Module], *, commands: bool = False) -> tuple[str, ...]:
    """Functions with more than ``MOST_PARAMETERS``, those with most first: the commands, or all others."""
    functions = (each for module in modules for each in module.functions if each.is_command is commands)
    wide = (each for each in functions if each.parameters > MOST_PARAMETERS)
    return tuple(f"{each.place} {each.parameters}" for each in sorted(wide, key=lambda each: -each.parameters))


def homonyms(modules: Sequence[Module]) -> tuple[str, ...]:
    """Public class names that are defined more than once, with the files."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules:
        for name in module.classes:
            places[name].append(module.path)
    twice = {name: where for name, where in places.items() if len(where) > 1 and not _is_resolved_pair(where)}
    return tuple(f"{name} {' '.join(where)}" for name, where in sorted(twice.items()))


def _is_resolved_pair(where: Sequence[str]) -> bool:
    """Whether one is a class of the syntax tree and the only other what it resolves to."""
    return len(where) == 2 and SYNTAX_TREE in where


def full_folders(modules: Sequence[Module]) -> tuple[str, ...]:
    """Folders with more than ``MOST_MODULES``, those called ``__init__`` not counted."""
    count: defaultdict[str, int] = defaultdict(int)
    for module in modules:
        folder, _, name = module.path.rpartition("/")
        count[folder] += name != "__init__.py"
    return tuple(f"{folder} {size}" for folder, size in sorted(count.items()) if size > MOST_MODULES)


def beyond_limits(modules: Sequence[Module]) -> dict[str, tuple[str, ...]]:
    """What is beyond a limit, by the limit."""
    return {
        f"files above {MOST_FILE_LINES} code lines": long_files(modules),
        f"functions above {MOST_FUNCTION_LINES} code lines": long_functions(modules),
        f"functions with more than {MOST_PARAMETERS} parameters": wide_functions(modules),
        "class names defined twice": homonyms(modules),
        f"folders with more than {MOST_MODULES} modules": full_folders(modules),
    }


def figures(packages: dict[str, tuple[Module, ...]]) -> Iterator[Figure]:
    """Code lines and files by package, and of all that is installed how much is beyond each limit."""
    for name, modules in packages.items():
        yield Figure(f"{name}, code lines", sum(each.lines for each in modules), "lines", "lower")
        yield Figure(f"{name}, files", len(modules), "files", "lower")
    installed = installed_modules(packages)
    yield Figure("installed, code lines", sum(each.lines for each in installed), "lines", "lower", MOST_LINES)
    for limit, places in beyond_limits(installed).items():
        yield Figure(f"installed, {limit}", len(places), "", "lower", 0)


def installed_modules(packages: dict[str, tuple[Module, ...]]) -> tuple[Module, ...]:
    """The modules of all packages but those beside the product."""
    return tuple(module for name, modules in packages.items() if name not in BESIDE for module in modules)


def table(packages: dict[str, tuple[Module, ...]]) -> Iterator[str]:
    """A line for each package and one for all that is installed, and what is beyond each limit."""
    installed = installed_modules(packages)
    yield f"{'package':<12}{'code lines':>12}{'files':>8}  largest file"
    for name, modules in {**packages, "installed": installed}.items():
        largest = max(modules, key=lambda each: each.lines)
        lines = sum(each.lines for each in modules)
        yield f"{name:<12}{lines:>12,}{len(modules):>8}  {largest.path} {largest.lines}"
    commands = {f"commands with more than {MOST_PARAMETERS} options": wide_functions(installed, commands=True)}
    for limit, places in {**beyond_limits(installed), **commands}.items():
        yield f"\n{limit}: {len(places)}"
        yield from (f"  {place}" for place in places)


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line; a missed target is reported and is no error."""
    as_json = parser_of(__doc__).parse_args(argv).json
    packages = {name: read_folder(name) for name in (*PACKAGES, *BESIDE)}
    packages["magus"] = (read_module(ROOT / "__init__.py"),)
    if as_json:
        beyond = beyond_limits(installed_modules(packages))
        print(json.dumps({**document(figures(packages)), "beyond": beyond}, indent=2))
    else:
        print(*table(packages), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
