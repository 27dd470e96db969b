"""What each part of a text is, and the grammar for editors made from the same words."""

import json
import os
import re

import pytest

from magus.compiler.services.document import Colour, colours
from magus.examples import path
from tests.helpers.editing import BEGINNING
from tests.helpers.paths import DOCS
from tests.helpers.textmate import textmate_grammar

EXTENSION = DOCS / "editors" / "vscode"


def coloured(text: str) -> dict[str, Colour]:
    return {text[each.start : each.end]: each.colour for each in colours(text)}


def test_words_names_and_numbers_are_reported_apart() -> None:
    found = coloured(BEGINNING + "# done\nlet tensor = 64 GB/s")

    expected = {
        "workload": Colour.KEYWORD,
        "extends": Colour.KEYWORD,
        "gpus": Colour.WORD,
        "gemm": Colour.FUNCTION,
        "bf16": Colour.TYPE,
        "measured": Colour.ORIGIN,
        "up": Colour.NAME,
        "8192": Colour.NUMBER,
        "GB/s": Colour.UNIT,
        '"amd/mi300x"': Colour.TEXT,
        "# done": Colour.COMMENT,
        "*": Colour.OPERATOR,
    }
    assert {each: found.get(each) for each in expected} == expected
    assert found["tensor"] is Colour.NAME, "a name that is a word elsewhere is a name here"


def test_a_broken_line_leaves_the_colours_of_the_others() -> None:
    text = "let = = (\ngpu a { hbm {\n\nworkload up on node { y = gemm(x, w) }"

    assert coloured(text)["gemm"] is Colour.FUNCTION


@pytest.mark.parametrize("text", ["", "\0\1\2", '"' * 99, "{" * 300, "x" * 10_000, "a " * 50_000])
def test_anything_is_coloured(text: str) -> None:
    found = colours(text)

    assert all(0 <= each.start < each.end <= len(text) for each in found) or not found


def test_colours_are_in_order_and_apart() -> None:
    for name in ("llama70b_tp8_mi300x", "explicit_plan", "declarative_plan"):
        text = path(name).read_text(encoding="utf-8")
        found = colours(text)
        ends = [each.end for each in found]
        assert len(found) > 50
        assert all(end <= after.start for end, after in zip(ends, found[1:], strict=False)), name
        assert all("\n" not in text[each.start : each.end] for each in found)


def test_the_extension_has_the_grammar_of_the_words() -> None:
    file, text = EXTENSION / "syntaxes" / "mgs.tmLanguage.json", json.dumps(textmate_grammar(), indent=2) + "\n"
    if os.environ.get("MAGUS_UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")

    assert file.read_text(encoding="utf-8") == text, "MAGUS_UPDATE_GOLDEN=1 writes it anew"


def test_patterns_of_the_grammar_match_what_they_should() -> None:
    patterns = {each.get("name", "other"): each["match"] for each in textmate_grammar()["patterns"]}

    assert re.search(patterns["storage.type.annotation.mgs"], "1 GHz @measured")
    assert re.search(patterns["support.function.mgs"], "y = gemm(x)")
    assert not re.search(patterns["support.function.mgs"], "gemm = 4")
    assert re.search(patterns["support.type.property-name.mgs"], "gpus 8 x A")
    assert not re.search(patterns["support.type.property-name.mgs"], "gpus = 8")


def test_the_extension_names_files_that_are_there() -> None:
    manifest = json.loads((EXTENSION / "package.json").read_text(encoding="utf-8"))
    named = [
        manifest["main"],
        manifest["contributes"]["grammars"][0]["path"],
        manifest["contributes"]["languages"][0]["configuration"],
    ]

    assert all((EXTENSION / name).is_file() for name in named)
    assert manifest["contributes"]["grammars"][0]["scopeName"] == textmate_grammar()["scopeName"]
