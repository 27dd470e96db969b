"""Text for a terminal: nothing is wider than it is, nothing is lost."""

from dataclasses import replace
from functools import partial

import pytest

from magus.advisor.bounds.lower_bound import Bound
from magus.advisor.implementations.offers import Offer, Offers
from magus.advisor.implementations.predict import Promise
from magus.compiler.ir import TICKS_PER_US, Scenario
from magus.simcore import Cause, CriticalOp, RunOutcome
from magus.simcore.program.program import OpKind
from magus.tui.text.door import columns, table
from magus.tui.text.next_steps import NextStep
from magus.tui.text.render import advice_text, bound_sentence, brief_text, legend
from magus.tui.text.result import PATH_ENDS, critical_line, critical_lines, result_text
from tests.helpers.tui import fakes

HEAD = ("", "schedule", "pred us", "sim us", "gain")


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_a_table_with_room_has_a_line_for_each_row() -> None:
    rows = [HEAD, ("*", "ring(chunks=4)", "1.0", "2.0", "1.00x"), (" ", "serial()", "10.0", "-", "0.50x")]

    assert table(rows) == [
        "  schedule       pred us sim us  gain",
        "* ring(chunks=4)     1.0    2.0 1.00x",
        "  serial()          10.0      - 0.50x",
    ]


def test_a_long_name_stands_above_its_numbers() -> None:
    name = "serial(engine=sm(32), algorithm=hierarchical, transfer=get, protocol=ll128)"
    lines = table([HEAD, ("*", name, "1.0", "2.0", "1.00x"), (" ", "ring()", "3.0", "4.0", "0.50x")])

    assert all(len(line) <= columns() for line in lines)
    assert lines[1] == f"* {name}"
    assert lines[2].split() == ["1.0", "2.0", "1.00x"]
    assert lines[2].rindex("1.00x") == lines[0].rindex("gain") - 1 == lines[3].rindex("0.50x")


def test_what_a_step_waited_for_goes_on_below() -> None:
    where = "link nic-out 0[2], the second of four rails of the node"
    op = CriticalOp(0, "x1", 0, OpKind.TRANSFER, Cause.START, "", 0, 0, 10**8, where, 10**8)
    head, first, *rest = critical_lines([op])

    assert "Critical path" in head and all(len(line) <= columns() for line in (head, first, *rest))
    assert rest and {len(line) - len(line.lstrip()) for line in rest} == {30}
    assert where in " ".join(line.strip() for line in (first, *rest))


def op(step: int, cause: Cause, resource: str = "") -> CriticalOp:
    """The op of a step that takes a microsecond."""
    since = step * TICKS_PER_US
    return CriticalOp(step, f"x{step}", 0, OpKind.TRANSFER, cause, resource, since, since, since + TICKS_PER_US, "", 0)


def test_of_a_long_path_the_ends_are_shown() -> None:
    num_steps = 2 * PATH_ENDS + 5
    _, *lines = critical_lines([op(step, Cause.OP) for step in range(num_steps)])

    assert len(lines) == 2 * PATH_ENDS + 1 and lines[PATH_ENDS].split() == ["...", "5", "more", "steps"]
    shown = [line.split()[2] for line in (*lines[:PATH_ENDS], *lines[-PATH_ENDS:])]
    assert shown == [f"x{step}" for step in (*range(PATH_ENDS), *range(num_steps - PATH_ENDS, num_steps))]
    assert lines[-1].split()[-1] == f"x{num_steps - 2}", "it waited for the step before"


def test_waves_that_wait_for_a_slot_are_counted() -> None:
    line = critical_line([op(0, Cause.START), op(1, Cause.SLOT, "sms"), op(2, Cause.SLOT, "sms")], "")

    assert line.endswith("then sms 2x")


def test_a_bound_that_is_missing_is_said() -> None:
    advice = fakes.advice(fakes.two_workloads()[0])

    assert bound_sentence(advice).startswith("Lower bound 80.0 us, bound by links")
    assert bound_sentence(replace(advice, bound=None)) == "There is no lower bound: it was not computed."


def test_an_answer_in_brief_has_one_reason_and_no_line_that_says_the_gain_again() -> None:
    advice = replace(fakes.advice(fakes.two_workloads()[0]), reasons=("It is first.", "It is second."))
    tell = NextStep("tell it step by step", ("magus", "advise", "a.mgs", "--how"))
    check = NextStep("check it with real data", ("magus", "run", "a.mgs"))

    brief, full = (text(todo=(check, tell)) for text in (partial(brief_text, advice), partial(advice_text, advice, 3)))

    assert "Why: It is first." in brief and "It is second." not in brief
    assert "Over serial" not in brief and "  magus run a.mgs" in brief and "a.mgs --how" not in brief
    assert "--how: step by step; --full: " in brief
    assert all(words in full for words in ("- It is first.", "- It is second.", "Over serial: ", "a.mgs --how"))
    offers = Offers("nccl", 9.0, (Offer("flux", 8.0, Promise(1.1, 0.2)),))
    assert "Over serial: flux" in brief_text(replace(advice, offers=offers))


@pytest.mark.parametrize(
    ("others", "said"),
    [(0, "gain over serial."), (1, "1 more feasible schedule was not"), (2, "2 more feasible schedules were not")],
)
def test_the_legend_counts_what_is_not_shown(others: int, said: str) -> None:
    advice = fakes.advice(fakes.two_workloads()[0])
    few = advice.candidates[:1]

    legend_text = legend(replace(advice, candidates=few * (1 + others)), few)

    assert said in legend_text and ("feasible" in legend_text) is (others > 0)


def test_the_result_of_a_run_that_did_not_end_says_so() -> None:
    scenario = fakes.two_workloads()[0]
    question = Scenario.of_one(scenario)
    done = fakes.result(scenario, fakes.BEST, 100.0, line=False)

    stopped = result_text(fakes.with_outcome(done, RunOutcome.TIME), question, Bound(TICKS_PER_US, "links", ()))

    assert f"PARTIAL: {RunOutcome.TIME.value}" in " ".join(stopped.splitlines())
    assert "PARTIAL" not in result_text(done, question, Bound(TICKS_PER_US, "links", ()))
