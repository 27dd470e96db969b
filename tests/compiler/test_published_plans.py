"""The table of published plans in docs/schedules.md: every expression is a schedule of its workload without faults."""

import re

import pytest

from magus.compiler.ir import OpCase, Pattern
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.verify.check import check_plan
from tests.helpers.paths import DOCS
from tests.helpers.scenarios.drawn import scenario_of
from tests.helpers.scenarios.workloads import workload_of

DOCUMENT = DOCS / "schedules.md"
SWITCH = "gpus {ranks} x H100; fabric switch(nvswitch, link=nvlink)"
NODES = "gpus {ranks} x H100; fabric rails(nvswitch, link=nvlink, node=2, nic=nvlink)"
RANKS, SLICES = 4, 2


def rows() -> list[tuple[str, str]]:
    """(workload, expression) of every row."""
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text[text.index("## Published plans") : text.index("\nSources: ")]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines() if line.startswith("|")]
    found = []
    for _, _, workloads, expressions in cells[2:]:
        where = " in nodes" if "in nodes" in workloads else ""
        for workload in workloads.replace("\\|", "|").split(",")[: 1 if where else None]:
            found += [(workload.strip() + where, each) for each in re.findall(r"`([^`]+)`", expressions)]
    return found


def scenario_for(workload: str) -> OpCase:
    label, _, nodes = workload.partition(" in ")
    if label not in {pattern.value for pattern in Pattern}:
        return workload_of(label)
    return scenario_of(Pattern(label), NODES if nodes else SWITCH, RANKS, 512, 512, 512)


@pytest.mark.parametrize(("workload", "expression"), rows())
def test_an_expression_is_a_schedule_of_its_workload(workload: str, expression: str) -> None:
    scenario = scenario_for(workload)
    counted = re.sub(r"=[sw] n\b", f"={SLICES * RANKS}", expression).replace("=n", f"={RANKS}")
    schedule = resolve_schedule(scenario, counted.replace("chunks=c", f"chunks={2 * RANKS}"))

    assert schedule.expression.startswith(expression.partition("(")[0])
    assert check_plan(scenario, schedule) == ()


def test_the_table_is_read() -> None:
    assert len(rows()) > 20
