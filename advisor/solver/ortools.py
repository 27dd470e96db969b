"""CP-SAT of OR-tools, imported without pandas.

OR-tools imports pandas for variables in series, which nothing here has, and that import takes longer than most
searches. It gets a stand-in, which becomes pandas once something of it is used.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["cp_model"]


class _PandasOnUse(ModuleType):
    """The names of pandas: placeholders while OR-tools writes them into its signatures, the real ones afterwards."""

    imported = False

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("pandas"), name) if self.imported else type(name, (), {})


def _import_cp_model() -> ModuleType:
    if "pandas" in sys.modules:
        return import_module("ortools.sat.python.cp_model")
    pandas = sys.modules["pandas"] = _PandasOnUse("pandas")
    try:
        return import_module("ortools.sat.python.cp_model")
    finally:
        del sys.modules["pandas"]
        pandas.imported = True


if TYPE_CHECKING:
    from ortools.sat.python import cp_model
else:
    cp_model = _import_cp_model()
