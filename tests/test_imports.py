"""Headless stages stay headless: what a command imports is what it needs."""

import subprocess
import sys

import pytest

HEAVY = ("textual", "ortools", "sklearn", "numpy", "lark", "typer")


def imported_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(' '.join(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import magus", set()),
        ("import magus.compiler", set()),
        ("from magus.compiler import compile_text", {"lark"}),
        ("import magus.simcore", {"numpy"}),
        ("import magus.advisor", set()),
        ("import magus.tui.cli", {"typer"}),
        ("import magus.tui.app.session", {"lark", "numpy"}),
    ],
)
def test_an_import_brings_only_what_it_needs(statement: str, allowed: set[str]) -> None:
    assert imported_by(statement) <= allowed


def test_advising_never_imports_textual() -> None:
    statement = "from magus.advisor import Advisor; from magus.compiler import compile_text; Advisor.load()"

    assert "textual" not in imported_by(statement)
