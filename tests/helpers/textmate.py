"""The grammar for editors of the extension, made from the words of the language: JSON as TextMate has it."""

from collections.abc import Iterable

from magus.compiler.ir import JsonObject
from magus.compiler.services.document import FUNCTIONS
from magus.compiler.text.parsing.tokens import DECLARATIONS
from magus.compiler.text.units import UNITS
from magus.grammar import load_words

SCOPE = "source.mgs"
_HEAD_SECTIONS = ("head", "import")
_MIN_LETTERS = 3
"""Shorter words of the language, such as x and k, are more often names."""
_NUMBER = r"(?<!\w)(?<![^.]\.)[0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"


def textmate_grammar() -> JsonObject:
    """Return the grammar as the JSON object that VS Code, TextMate and others read."""
    words = load_words()
    special = {*FUNCTIONS, *_HEAD_SECTIONS, "file", "dtype", "origin", "choice"}
    functions = _all(section for section in words if section in FUNCTIONS)
    plain = _all(section for section in words if section not in special) - set(words["dtype"])
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "Magus",
        "scopeName": SCOPE,
        "patterns": [
            _pattern("comment.line.number-sign", "#.*$"),
            _pattern("string.quoted.double", r'"[^"\n]*"?'),
            _pattern("storage.type.annotation", rf"@(?:{_either(words['origin'])})\b"),
            _declaration(),
            _pattern("keyword.other", rf"\b(?:{_either(_all(_HEAD_SECTIONS))})\b(?!\s*=(?!=))"),
            _pattern("constant.language", rf"\b(?:{_either(words['choice'])})\b"),
            _pattern("storage.type", rf"\b(?:{_either(words['dtype'])})\b"),
            _pattern("support.function", rf"\b(?:{_either(functions)})\b(?=\()"),
            _quantity(),
            _pattern("constant.numeric", _NUMBER),
            _pattern("constant.numeric", r"\bx[0-9]+(?:\.[0-9]+)?\b"),
            _pattern("variable.parameter", rf"\b(?:{_either(plain | functions)})(?==(?!=))"),
            _pattern("support.type.property-name", rf"\b(?:{_either(plain)})\b(?!\s*=(?!=))"),
            _pattern("keyword.operator", r"<=|>=|==|!=|\+-|\.\.|[-+*/=<>]"),
        ],
    }


def _all(sections: Iterable[str]) -> set[str]:
    """The words of some sections, without those that are too short to tell from names."""
    found = {word for section in sections for word in load_words()[section]}
    return {word for word in found if len(word) >= _MIN_LETTERS or word in ("as", "on", "in", "by", "to", "sm", "l2")}


def _either(words: Iterable[str]) -> str:
    """A pattern for any of the words, longer ones first."""
    return "|".join(sorted(words, key=lambda word: (-len(word), word)))


def _pattern(name: str, match: str) -> JsonObject:
    return {"name": f"{name}.mgs", "match": match}


def _declaration() -> JsonObject:
    names = {"1": {"name": "keyword.declaration.mgs"}, "2": {"name": "entity.name.mgs"}}
    return {"match": rf"^\s*({_either(DECLARATIONS)})\b(?!\s*=)(?:\s+([A-Za-z_]\w*))?", "captures": names}


def _quantity() -> JsonObject:
    units = "|".join(sorted((unit.replace("/", r"\/") for unit in UNITS), key=lambda unit: (-len(unit), unit)))
    names = {"1": {"name": "constant.numeric.mgs"}, "2": {"name": "keyword.other.unit.mgs"}}
    return {"match": rf"({_NUMBER}) ?({units})(?![\w])", "captures": names}
