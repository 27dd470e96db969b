"""Every shipped example holds what it expects, and no answer is worse than serial."""

import pytest
from typer.testing import CliRunner

from magus.advisor import Advisor
from magus.compiler import compile_file
from magus.examples import NAMES, PAPERS, path
from magus.tui.cli import app

ADVISED = ("llama70b_tp8_mi300x", "gemm_rs_h100", "decode_small_batch")


SLOW = ("papers/astra_sim", "papers/ficco")
EXPECTING = [*(name for name in NAMES if name not in ADVISED), *PAPERS]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in EXPECTING]
)
def test_an_example_holds_what_it_expects(name: str) -> None:
    done = CliRunner().invoke(app, ["test", str(path(name)), "--workers", "1"])

    assert done.exit_code == 0, done.output
    assert "0 failed" in done.stdout


@pytest.mark.parametrize("name", ADVISED)
def test_the_answer_is_never_worse_than_serial(name: str) -> None:
    advice = Advisor.load().recommend(compile_file(path(name)).scenario(), workers=2)

    assert advice.recommended.best_us <= advice.serial.best_us
    assert advice.gap_to_bound >= 0
    assert advice.result is not None and advice.result.granularity == "line"


def test_every_example_is_listed() -> None:
    folder = path(NAMES[0]).parent
    found = {str(file.relative_to(folder).with_suffix("")) for file in folder.rglob("*.mgs")}

    assert found == {*NAMES, *PAPERS}
