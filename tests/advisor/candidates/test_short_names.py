"""Short names of long expressions: never two alike in one answer, and the expression is said where it is copied."""

from dataclasses import replace
from itertools import permutations

import pytest

from magus.advisor import Advice, AdviceOptions, Advisor
from magus.advisor.answer.export import advice_document
from magus.advisor.candidates.advice import LONGEST, short_names
from magus.advisor.candidates.candidate import Candidate, ScheduleOrigin
from magus.compiler import compile_file
from magus.compiler.ir import OpCase, Scenario
from magus.compiler.planning.build import build_op_plan, expression_of
from magus.compiler.resolve.schedules.from_text import read_choice
from magus.examples import path
from magus.tui.app.session.view import SortKey, rows_of, verdict_of
from magus.tui.text.next_steps import MOST_SPELLED, next_steps
from magus.tui.text.render import advice_text
from tests.helpers.some import some

PARTS = [str([list(part) for part in order]) for order in permutations(((1024, 0), (0, 384), (0, 640)))]
TEXTS = [f"bespoke(parts={parts}, engine=dma(7), streams=2)" for parts in PARTS[:3]]


@pytest.fixture(scope="module")
def scenario() -> OpCase:
    return compile_file(path("llama70b_tp8_mi300x")).scenario().case


@pytest.fixture(scope="module")
def advice(scenario: OpCase) -> Advice:
    """Advice that recommends a bespoke schedule, beside two others of the same parts."""
    plain = Advisor().recommend(Scenario.of_one(scenario), AdviceOptions(verify=False, bespoke=0))
    found = []
    for number, text in enumerate(TEXTS):
        choice = read_choice(scenario, text)
        found.append(
            Candidate(
                text, choice, build_op_plan(scenario, choice), ScheduleOrigin.TEMPLATE, predicted_us=100.0 + number
            )
        )
    return replace(plain, recommended=found[0], candidates=(*found, *plain.candidates), ties=(TEXTS[1],))


def names_of(scenario: OpCase, texts: list[str]) -> list[str]:
    choices = [read_choice(scenario, text) for text in texts]
    return list(short_names((expression_of(choice), choice) for choice in choices).values())


@pytest.mark.parametrize(
    "text, name",
    [
        (TEXTS[0], "bespoke (3 parts, dma(7), 2 streams)"),
        (
            "bespoke(parts=[[0, 384], [1024, 640]], slices=[[], [2048, 6144]], engine=sm(16), lanes=3, protocol=ll)",
            "bespoke (2 parts, 1 cut along k, sm(16), 2 streams, 3 lanes, protocol ll)",
        ),
        (
            "bespoke(parts=[[0, 384], [1024, 640]], columns=[[], [1024, 2560]], engine=dma(7), streams=1)",
            "bespoke (2 parts, 1 cut by columns, dma(7), 1 stream)",
        ),
    ],
)
def test_lists_of_sizes_are_counted(scenario: OpCase, text: str, name: str) -> None:
    (found,) = names_of(scenario, [text])

    assert found == name


def test_what_is_short_or_no_list_keeps_its_name(scenario: OpCase) -> None:
    long = "pipelined(chunks=64, engine=sm(16), algorithm=double_ring, protocol=ll, streams=2, waves=3)"

    assert len(long) > LONGEST
    assert names_of(scenario, ["bespoke(engine=dma(7))", "serial(engine=dma(7))", long]) == []


def test_no_two_schedules_have_the_same_name(scenario: OpCase) -> None:
    names = names_of(scenario, TEXTS)

    assert names == [f"bespoke {number} (3 parts, dma(7), 2 streams)" for number in (1, 2, 3)]


@pytest.mark.slow
def test_text_names_them_and_says_each_expression_once(advice: Advice) -> None:
    text = " ".join(advice_text(advice, 8).split())
    copied = " ".join(advice_text(advice, 8, todo=next_steps(advice, ["a.mgs"], how=False)).split())

    assert "bespoke 1 (3 parts, dma(7), 2 streams)." in text
    assert "= bespoke 2 (3 parts, dma(7), 2 streams)" in text
    for number, expression in enumerate(some(TEXTS), 1):
        assert text.count(expression) == copied.count(expression) == 1
        assert f"bespoke {number} is {expression}" in text
    assert f"--schedule '{TEXTS[0]}'" in copied.replace(" \\ ", " ")


def test_screens_and_json_have_names_and_expressions(advice: Advice) -> None:
    rows = rows_of(advice, {}, SortKey.RANK)
    candidates = advice_document(advice)["candidates"]

    assert verdict_of(advice, 200).endswith("bespoke 1 (3 parts, dma(7), 2 streams)")
    assert len({row.name for row in rows}) == len(rows)
    assert [row.expression for row in rows[:3]] == TEXTS == [each["schedule"] for each in candidates[:3]]
    assert [row.name for row in rows] == [each["name"] for each in candidates]


def test_what_would_fill_pages_is_left_to_json_and_to_the_screen(advice: Advice) -> None:
    """As trees of 128 GPUs, whose expression has 75 KB; that of 181 is longer than an argument may be."""
    first, second = (replace(one, expression=one.expression.ljust(MOST_SPELLED + 1)) for one in advice.candidates[:2])
    long = replace(advice, recommended=first, candidates=(first, second, *advice.candidates[2:]))
    todo = next_steps(long, ("a.mgs",), how=False)

    assert len(advice_text(long, 8, todo=todo)) < MOST_SPELLED
    assert all(len(step.command) < 100 for step in some(todo)) and "key o of magus tui" in todo[0].what
    assert advice_document(long)["recommended"] == first.expression
