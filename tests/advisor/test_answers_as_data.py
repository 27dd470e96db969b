"""Answers in a notebook: the shipped one runs, and its answers are short at the prompt and whole as frames."""

import json
from typing import Any

import pytest

from magus.advisor import Advice, AdviceOptions, Advisor
from magus.advisor.policy.table import PolicyTable
from magus.compiler.ir import EngineChoice, EngineKind, Explore, Pattern, Scenario
from magus.compiler.text.records import MAX_SHOWN
from tests.helpers.paths import ROOT
from tests.helpers.scenarios.scenarios import ag_gemm, exploring
from tests.helpers.scenarios.simulated import runs

pytestmark = pytest.mark.usefixtures("compiled_core", "one_model")
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


def test_advice_is_a_line_and_a_table() -> None:
    few = Explore.of(chunks=(8,), engine=(EngineChoice(EngineKind.DMA, 3),))
    question = Scenario.of_one(exploring(ag_gemm(512, 2048, 2048, ranks=4), few))
    advice = Advisor(None).recommend(question, AdviceOptions(verify=False, bespoke=0))

    check_advice(advice, [row["schedule"] for row in advice.rows()])


@pytest.mark.slow
def test_so_it_is_in_the_notebook(names: dict[str, Any]) -> None:
    check_advice(names["advice"], list(names["candidates"]["schedule"]))


def check_advice(advice: Advice, schedules: list[str]) -> None:
    assert advice.recommended.expression in repr(advice) and len(repr(advice)) < 200
    assert type(advice.baseline) is type(advice.recommended)
    assert schedules == [each.expression for each in advice.candidates]
    assert advice._repr_html_().count("<tr>") == min(len(advice.candidates), MAX_SHOWN) + 1
    assert json.loads(json.dumps(advice.to_dict()))["verdict"] == advice.verdict.value


@pytest.mark.slow
def test_so_is_a_policy_table(names: dict[str, Any]) -> None:
    table: PolicyTable = names["table"]
    assert len(repr(table)) < 200 and len(table.to_pandas()) == len(table.rules) > 0
    pytest.importorskip("polars")
    assert list(table.to_polars()["schedule"]) == [rule.schedule for rule in table.rules]


def test_so_is_a_result_and_its_timeline() -> None:
    _, result = next(iter(runs(Pattern.GEMM_RS, 4)))
    timeline = result.timeline

    for each in (result, timeline):
        assert len(repr(each)) < 200 and f"{result.makespan_us:.1f} us" in repr(each)
        assert json.loads(json.dumps(each.to_dict()))["makespan_us"] == result.makespan_us
    assert result.schedule.expression in repr(result)
    assert {row["what"]: row["us"] for row in result.rows()}["makespan"] == result.makespan_us
    assert [row["name"] for row in timeline.rows()] == [each.name for each in timeline.intervals]
    assert timeline._repr_html_().count("<tr>") == min(len(timeline.intervals), MAX_SHOWN) + 1
