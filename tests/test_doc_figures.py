"""Figures in the documents are what simulations give; ``python -m tests.helpers.figures`` writes them anew."""

import re
from pathlib import Path

import pytest

from magus.examples import PAPERS
from tests.helpers.figures import (
    COMMANDS_HEAD,
    DOCS,
    FIGURE_FILES,
    PARTS,
    PARTS_HEAD,
    PRINTED,
    as_written,
    by_command,
    by_part,
    compared,
    compared_in_page,
    figures_in_prose,
    pattern_of,
    printed,
    rows_in_page,
    sentences,
    shown_in_page,
)

pytestmark = pytest.mark.usefixtures("compiled_core", "one_model")
QUICK = ("papers/mscclpp",)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PRINTED]
)
def test_a_page_shows_what_is_printed(name: str) -> None:
    assert shown_in_page(name) == printed(name)
    assert "0 failed" in shown_in_page(name)
    if name in PAPERS:
        assert compared(name) in compared_in_page()


def test_the_table_of_parts_counts_what_is_printed() -> None:
    assert rows_in_page(PARTS_HEAD) == by_part()
    assert {name for names in PARTS.values() for name in names} == set(PAPERS)


@pytest.mark.slow
def test_the_table_of_commands_has_what_they_print() -> None:
    assert rows_in_page(COMMANDS_HEAD) == by_command()


def test_the_figures_in_the_prose_of_papers_are_printed() -> None:
    shown = "".join(map(shown_in_page, PAPERS))
    figures = figures_in_prose()

    assert len(figures) > 30
    assert [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.]*\d)", shown)] == []


@pytest.mark.slow
@pytest.mark.parametrize("file", FIGURE_FILES, ids=lambda file: file.stem)
def test_the_figures_of_a_page_are_what_simulations_give(file: Path) -> None:
    text = (DOCS / f"{file.stem}.md").read_text()
    figures = list(sentences(file))

    assert figures
    for sentence, number in figures:
        (found,) = pattern_of(sentence).findall(text)
        assert sentence.format(found) == sentence.format(as_written(number, found))
