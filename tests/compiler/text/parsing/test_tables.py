"""Parse tables beside the grammar: those of the grammar, or none. MAGUS_UPDATE_GOLDEN=1 writes them anew."""

import json
import os
from pathlib import Path
from typing import Any

import lark
import pytest
from lark import Lark
from lark.grammar import Rule
from lark.lexer import TerminalDef

import magus.grammar
from magus.compiler.text.parsing import tokens
from magus.compiler.text.parsing.tokens import language, make_language, read_tables
from magus.grammar import TABLES_FILE, load_grammar, load_tables
from tests.helpers.paths import ROOT

UPDATE = "MAGUS_UPDATE_GOLDEN"
POSTLEX = tokens._KeepAll()
GRAMMAR = load_grammar()


def tables_text(made: Lark, grammar: str) -> str:
    """The file of the tables of ``made``, which was made from ``grammar``; what has numbers for keys as pairs."""
    data, memo = made.memo_serialize([TerminalDef, Rule])
    options = {name: value for name, value in data["options"].items() if name != "postlex"}
    table = data["parser"]["parser"]
    states = [(state, list(actions.items())) for state, actions in table["states"].items()]
    table = {**table, "states": states, "tokens": list(table["tokens"].items())}
    data = {**data, "options": options, "parser": {**data["parser"], "parser": table}}
    content = json.dumps({"data": data, "memo": list(memo.items())}, separators=(",", ":"))
    return f"{tokens._stamp(grammar, content)}\n{content}\n"


@pytest.fixture(scope="module")
def made() -> Lark:
    return make_language(GRAMMAR)


@pytest.fixture(scope="module")
def text(made: Lark) -> str:
    return tables_text(made, GRAMMAR)


def test_the_shipped_tables_are_of_this_grammar(text: str) -> None:
    if os.environ.get(UPDATE):
        Path(magus.grammar.__file__).with_name(TABLES_FILE).write_text(text, encoding="utf-8")
    shipped = load_tables()
    if not shipped.startswith(f"lark {lark.__version__} "):
        pytest.skip("the tables are of another version of lark, and are made anew in each process")

    assert read_tables(shipped, GRAMMAR, POSTLEX) is not None, f"the grammar changed: {UPDATE}=1 writes the tables"


def test_tables_that_are_read_parse_as_those_that_are_made(made: Lark, text: str) -> None:
    read = read_tables(text, GRAMMAR, POSTLEX)
    assert read is not None
    sources = [path.read_text() for path in (*ROOT.glob("examples/*.mgs"), *ROOT.glob("compiler/library/*/*.mgs"))]
    assert len(sources) > 10

    for source in sources:
        words = list(made.lex(source))
        assert list(read.lex(source)) == words and [word.type for word in read.lex(source)] == [w.type for w in words]
        parsers: list[Any] = [each.parse_interactive("", start="start") for each in (made, read)]
        for word in words[:200]:
            assert parsers[0].accepts() == parsers[1].accepts()
            if word.type not in parsers[0].accepts():
                break
            for parser in parsers:
                parser.feed_token(word)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[:-100],
        lambda text: text.replace("_SEP", "_SEQ", 1),
        lambda text: "lark 0.0 " + text.partition(" ")[2],
        lambda text: text.partition("\n")[0],
        lambda text: "\0" * 1000,
    ],
)
def test_tables_that_are_damaged_are_not_taken(text: str, damage) -> None:  # type: ignore[no-untyped-def]
    assert read_tables(damage(text), GRAMMAR, POSTLEX) is None


def test_tables_of_another_grammar_are_not_taken(text: str) -> None:
    assert read_tables(text, GRAMMAR + "\n", POSTLEX) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", "null", '{"data": {"parser": {"parser": 1}}, "memo": []}'])
def test_a_file_that_vouches_for_no_tables_is_not_taken(content: str) -> None:
    from magus.compiler.text.parsing.tokens import _stamp

    assert read_tables(f"{_stamp(GRAMMAR, content)}\n{content}\n", GRAMMAR, POSTLEX) is None


def test_without_tables_the_language_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "load_tables", lambda: "")

    assert [word.type for word in language.__wrapped__().lex("let a = 1")] == [
        word.type for word in language().lex("let a = 1")
    ]


def test_a_lexer_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "load_tables", lambda: "")
    read, made = language(), language.__wrapped__()
    monkeypatch.setattr(lark.lark, "BasicLexer", None)

    assert [str(word) for word in read.lex("let a = 1")] == ["let", "a", "=", "1"]
    assert [str(word) for word in made.lex("let a = 1")] == ["let", "a", "=", "1"]


def test_tables_that_cannot_be_read_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(magus.grammar, "files", lambda name: tmp_path)
    assert load_tables() == ""
    (tmp_path / TABLES_FILE).write_bytes(b"\xff")
    assert load_tables() == ""


def test_the_file_is_json_behind_its_first_line(text: str) -> None:
    assert set(json.loads(text.partition("\n")[2])) == {"data", "memo"}
