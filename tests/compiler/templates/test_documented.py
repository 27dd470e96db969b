"""The tables of docs/schedules.md list every template and every algorithm, in the order of the tuples."""

import re

import pytest

from magus.compiler.collectives import ALGORITHMS
from magus.compiler.templates import ALL_TEMPLATES, Cut, Template
from magus.compiler.templates.collective import LONE_TEMPLATES
from tests.helpers.paths import DOCS

TEMPLATES = tuple(template for template in ALL_TEMPLATES if template not in LONE_TEMPLATES)
TEXT = (DOCS / "schedules.md").read_text(encoding="utf-8")


def rows_below(header: str) -> list[list[str]]:
    """The cells of the table whose header begins so."""
    lines = TEXT[TEXT.index(header) :].splitlines()[2:]
    table = lines[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def names(rows: list[list[str]]) -> list[str]:
    return [found.group(1) for row in rows if (found := re.match(r"`(\w+)`", row[0]))]


@pytest.mark.parametrize("header", ["| algorithm | does |", "| algorithm | transfers of one chunk |"])
def test_every_algorithm_is_listed(header: str) -> None:
    assert names(rows_below(header)) == [algorithm.name for algorithm in ALGORITHMS]


def test_every_template_is_listed() -> None:
    assert names(rows_below("| template | cut |")) == [template.name for template in TEMPLATES]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_what_a_template_says_of_itself_is_in_its_row(template: Template) -> None:
    (row,) = [row for row in rows_below("| template | cut |") if row[0] == f"`{template.name}`"]
    _, cut, pieces, _, knobs = row

    assert cut == ("columns" if template.cut is Cut.COLUMNS else template.cut.value)
    assert pieces == (f"p >= {template.min_pieces}" if template.cuts_shards else "1")
    assert ("`algorithm`" in knobs) is template.has("algorithm")
    assert not template.has("algorithm") or f"`algorithm`, default `{template.default_algorithm}`" in knobs
    assert ("`streams`" in knobs) is template.has("streams")
    assert template.default_streams == 1 or f"`streams`, default {template.default_streams}" in knobs
