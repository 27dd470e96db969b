"""Answers in a notebook: the shipped one runs, and its answers are short at the prompt and whole as frames."""

import json
from typing import Any

import pytest

from magus.advisor import Advice
from magus.advisor.policy.table import PolicyTable
from tests.helpers.paths import ROOT

NOTEBOOK = ROOT / "examples" / "notebooks" / "advice.ipynb"


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the cells of the notebook define, run in their order."""
    pytest.importorskip("pandas")
    found: dict[str, Any] = {}
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), found)
    return found


def test_advice_is_a_line_and_a_table(names: dict[str, Any]) -> None:
    advice: Advice = names["advice"]
    assert advice.recommended.expression in repr(advice) and len(repr(advice)) < 200
    assert type(advice.baseline) is type(advice.recommended)
    assert list(names["candidates"]["schedule"]) == [each.expression for each in advice.candidates]
    assert advice._repr_html_().count("<tr>") == min(len(advice.candidates), 60) + 1
    assert json.loads(json.dumps(advice.to_dict()))["verdict"] == advice.verdict.value


def test_so_is_a_policy_table(names: dict[str, Any]) -> None:
    table: PolicyTable = names["table"]
    assert len(repr(table)) < 200 and len(table.to_pandas()) == len(table.rules) > 0
    pytest.importorskip("polars")
    assert list(table.to_polars()["schedule"]) == [rule.schedule for rule in table.rules]
