"""A text that is in no file: its mistakes, with those of what it includes."""

from pathlib import Path

import pytest

from magus.compiler.services.document import read_document
from magus.compiler.text.names import Kind
from tests.helpers.editing import BEGINNING
from tests.helpers.hostile_text import EVERYTHING


def test_a_text_without_mistakes_has_scenarios() -> None:
    document = read_document(BEGINNING, "a.mgs")

    assert document.diagnostics == ()
    assert [scenario.name for scenario in document.scenarios] == ["up"]


def test_names_stay_known_while_the_text_has_mistakes() -> None:
    document = read_document(BEGINNING + "let Q = \nlet Z = K * 2\n", "a.mgs")
    entry = document.entry(("Z",))

    assert [each.code.name for each in document.diagnostics] == ["MGS107"]
    assert document.scenarios == ()
    assert entry is not None and entry.kind is Kind.LET
    value = document.value_of(entry)
    assert value is not None and value.amount == 8192


def test_mistakes_of_an_included_file_are_reported_at_the_include(tmp_path: Path) -> None:
    (tmp_path / "own.mgs").write_text("let a = 1\nlet b = 1 s + 1 B\n", encoding="utf-8")
    text = 'let c = 1\ninclude "own.mgs"\n'
    (mistake,) = read_document(text, str(tmp_path / "main.mgs")).diagnostics

    assert mistake.message.startswith("own.mgs:2:9: cannot add")
    assert mistake.span.text == 'include "own.mgs"'


def test_an_included_file_that_is_gone_is_reported(tmp_path: Path) -> None:
    found = read_document('include "gone.mgs"\n', str(tmp_path / "main.mgs")).diagnostics

    assert [each.code.name for each in found] == ["MGS120"]


@pytest.mark.parametrize(
    "text", ["", "\0", EVERYTHING, "x" * 3_000_000, "a\n" * 300, "{" * 100, '"', "let a = " + "(" * 99]
)
def test_anything_has_mistakes_at_places_of_its_own(text: str) -> None:
    document = read_document(text, "a.mgs")

    assert document.diagnostics
    assert all(each.span.source.path == "a.mgs" for each in document.diagnostics)
