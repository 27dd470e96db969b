"""Headless stages stay headless: what a command imports is what it needs."""

import subprocess
import sys

import pytest

HEAVY = (
    *("textual", "ortools", "pandas", "scipy", "sklearn", "numpy", "lark", "typer"),
    *("magus.compiler.ir", "magus.compiler.planfile.from_json", "magus.compiler.planfile.mscclpp"),
)


def imported_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(' '.join(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import magus", set()),
        ("import magus.compiler", set()),
        ("from magus.compiler import compile_text", {"lark", "magus.compiler.ir"}),
        ("import magus.tui.commands.check", {"lark", "magus.compiler.ir"}),
        ("import magus.simcore", {"numpy", "magus.compiler.ir"}),
        ("import magus.advisor", set()),
        ("import magus.tui.cli", {"typer"}),
        ("import magus.tui.app.app", {"textual"}),
        ("import magus.tui.app.session", {"lark", "numpy", "magus.compiler.ir"}),
        ("from magus.advisor import Advisor; Advisor.load()", {"lark", "numpy", "magus.compiler.ir"}),
        ("from magus.advisor import Oracle; Oracle(gpu='H100', ranks=8)", {"lark", "numpy", "magus.compiler.ir"}),
        ("from magus.advisor.solver.ortools import cp_model", {"ortools", "numpy", "magus.compiler.ir"}),
    ],
)
def test_an_import_brings_only_what_it_needs(statement: str, allowed: set[str]) -> None:
    assert imported_by(statement) <= allowed


def test_advice_imports_no_learner_and_no_pandas() -> None:
    statement = (
        "from magus.advisor import Advisor, AdviceOptions\n"
        "from tests.helpers.scenarios.scenarios import ag_gemm\n"
        "Advisor.load().recommend(ag_gemm(512, 1024, 1024), AdviceOptions(top=1, bespoke=20))"
    )

    assert imported_by(statement) & {"sklearn", "pandas", "textual", "ortools"} == {"ortools"}


def test_or_tools_finds_pandas_when_it_is_asked_for_series() -> None:
    statement = (
        "from magus.advisor.solver.ortools import cp_model\n"
        "import pandas\n"
        "model, solver = cp_model.CpModel(), cp_model.CpSolver()\n"
        "series = model.new_int_var_series('x', pandas.Index(['a', 'b']), 0, 5)\n"
        "model.add(series['a'] + series['b'] == 7)\n"
        "assert solver.solve(model) == cp_model.OPTIMAL\n"
        "assert solver.values(series).sum() == 7"
    )

    assert "pandas" in imported_by(statement)


def test_a_pandas_that_is_there_is_taken() -> None:
    statement = "import pandas; from magus.advisor.solver.ortools import cp_model; assert cp_model.pd is pandas"

    assert {"pandas", "ortools"} <= imported_by(statement)
