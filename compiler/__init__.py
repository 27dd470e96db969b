"""The compiler: ``.mgs`` text to resolved scenarios, with all mistakes of a file at once."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .ir import OpCase
    from .pipeline import Compiled, compile_file, compile_text
    from .text.diagnostics import CompileError
    from .text.fmt import format_text

__all__ = ["CompileError", "Compiled", "OpCase", "compile_file", "compile_text", "format_text"]

_HOMES = {
    "CompileError": "text.diagnostics",
    "Compiled": "pipeline",
    "OpCase": "ir",
    "compile_file": "pipeline",
    "compile_text": "pipeline",
    "format_text": "text.fmt",
}


def __getattr__(name: str) -> object:
    # Importing a dataclass of the compiler must not cost the import of the parser.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
