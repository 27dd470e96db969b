"""Headless stages stay headless: what a command imports is what it needs."""

import subprocess
import sys

import pytest

from magus.examples import path as example

HEAVY = (
    *("textual", "ortools", "pandas", "scipy", "sklearn", "numpy", "lark", "typer"),
    *("magus.compiler.ir", "magus.compiler.planfile.from_json", "magus.compiler.planfile.mscclpp"),
)


def imported_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(' '.join(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import magus", set()),
        ("import magus.compiler", set()),
        ("from magus.compiler import compile_text", {"lark", "magus.compiler.ir"}),
        ("import magus.tui.commands.scenarios.files", {"lark", "magus.compiler.ir"}),
        ("import magus.simcore", {"numpy", "magus.compiler.ir"}),
        ("import magus.advisor", set()),
        ("import magus.tui.cli", {"typer"}),
        ("import magus.tui.app.app", {"textual"}),
        ("import magus.tui.app.session.session", {"lark", "numpy", "magus.compiler.ir"}),
        ("from magus.advisor import Advisor; Advisor.load()", {"lark", "numpy", "magus.compiler.ir"}),
        ("from magus.advisor import Oracle; Oracle(gpu='H100', ranks=8)", {"lark", "numpy", "magus.compiler.ir"}),
        ("from magus.advisor.solver.model import cp_model", {"ortools", "numpy", "magus.compiler.ir"}),
    ],
)
def test_an_import_brings_only_what_it_needs(statement: str, allowed: set[str]) -> None:
    assert imported_by(statement) <= allowed


@pytest.mark.slow
def test_advice_imports_no_learner_and_no_pandas() -> None:
    statement = (
        "from magus.advisor import Advisor, AdviceOptions\n"
        "from magus.compiler.ir import Scenario\nfrom tests.helpers.scenarios.scenarios import ag_gemm\n"
        "Advisor.load().recommend(Scenario.of_one(ag_gemm(256, 256, 256)), AdviceOptions(top=1, bespoke=8))"
    )

    assert imported_by(statement) & {"sklearn", "pandas", "textual", "ortools"} == {"ortools"}


@pytest.mark.slow
def test_or_tools_finds_pandas_when_it_is_requested_for_series() -> None:
    statement = (
        "from magus.advisor.solver.model import cp_model\n"
        "import pandas\n"
        "model, solver = cp_model.CpModel(), cp_model.CpSolver()\n"
        "series = model.new_int_var_series('x', pandas.Index(['a', 'b']), 0, 5)\n"
        "model.add(series['a'] + series['b'] == 7)\n"
        "assert solver.solve(model) == cp_model.OPTIMAL\n"
        "assert solver.values(series).sum() == 7"
    )

    assert "pandas" in imported_by(statement)


@pytest.mark.slow
def test_a_pandas_that_is_there_is_taken() -> None:
    statement = "import pandas; from magus.advisor.solver.model import cp_model; assert cp_model.pd is pandas"

    assert {"pandas", "ortools"} <= imported_by(statement)


def modules_of(*words: str) -> list[str]:
    """The modules of Magus that a process of the command line has imported at its end."""
    code = (
        f"import sys; sys.argv = ['magus', *{words!r}]\n"
        "from magus.tui.cli import main\n"
        "try: main()\n"
        "finally: print(*(name for name in sys.modules if name.startswith('magus.')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stderr.splitlines()[-1].split()


def test_help_imports_no_command() -> None:
    found = modules_of("--help")

    assert "magus.tui.cli" in found and not [name for name in found if name.startswith("magus.compiler.ir")]
    assert not {"magus.tui.verbs.scenarios", "magus.tui.verbs.answers", "magus.tui.verbs.models"} & set(found)
    assert len(found) <= 15, found


def test_a_pair_is_checked_without_what_graphs_and_other_commands_need() -> None:
    found = modules_of("check", str(example("llama70b_tp8_mi300x")))

    unused = (
        "planning.plan",
        "resolve.workloads.backward_pass",
        "text.fmt",
        "verbs.answers",
    )
    assert not [name for name in found if any(word in name for word in unused)]
    assert len(found) <= 185, len(found)
